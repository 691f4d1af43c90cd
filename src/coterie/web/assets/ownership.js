// The band of owners: a row for each partition, drawn by levels of detail.
//
// Rows are reduced to at most one for each pixel, column by column, when they are needed. Tiles of 256 pixels are drawn
// from the reduced columns at zoom levels that are powers of two, and kept. Panning only moves tiles.
{
  const TILE = 256;
  const MOST_TILES = 160;
  const BUDGET_MS = 9;
  const MOST_SAMPLES = 12; // columns that are looked at for one pixel
  const LEAST_GAP = 70; // of 255: so much red is visible
  const LABEL_ROW = 13;

  Coterie.Ownership = class {
    constructor(history, view) {
      this.history = history;
      this.view = view;
      this.tiles = new Map();
      this.key = "";
    }

    /** Forget what was drawn if columns, rows, height or colours are others. */
    prepare(height, palette) {
      const { history, view } = this;
      const rows = view.lastRow - view.firstRow;
      const bins = Math.max(Math.min(rows, Math.floor(height)), 1);
      const key = [history.stamp, view.firstRow, view.lastRow, bins, palette.dark, history.names.length].join();
      this.palette = palette;
      if (key === this.key) return;
      this.key = key;
      this.rows = rows;
      this.bins = bins;
      const cells = history.times.length * bins;
      this.owners = new Uint16Array(cells);
      this.gaps = new Uint8Array(cells);
      this.isReduced = new Uint8Array(history.times.length);
      this.tiles.clear();
    }

    /** Reduce the visible rows of one column to bins: an owner, and the share that has none. */
    reduce(index) {
      if (this.isReduced[index]) return;
      this.isReduced[index] = 1;
      const column = this.history.column(index);
      const { order } = this.history;
      const { bins, rows, owners, gaps } = this;
      const first = this.view.firstRow;
      let row = 0;
      for (let bin = 0; bin < bins; bin += 1) {
        const end = Math.floor(((bin + 1) * rows) / bins);
        const count = end - row;
        let owner = Coterie.ABSENT;
        let gap = 0;
        for (; row < end; row += 1) {
          const partition = order[first + row];
          const value = partition < column.length ? column[partition] : Coterie.ABSENT;
          if (value === Coterie.UNASSIGNED) gap += 1;
          else if (value > owner && owner === Coterie.ABSENT) owner = value;
        }
        const at = index * bins + bin;
        owners[at] = owner === Coterie.ABSENT && gap ? Coterie.UNASSIGNED : owner;
        gaps[at] = gap ? Math.max(LEAST_GAP, Math.round((255 * gap) / count)) : 0;
      }
    }

    tile(level, number) {
      const key = `${level}:${number}`;
      const found = this.tiles.get(key);
      if (found) {
        this.tiles.delete(key); // it is now the last to be dropped
        this.tiles.set(key, found);
      }
      return found;
    }

    render(level, number) {
      const canvas = document.createElement("canvas");
      canvas.width = TILE;
      canvas.height = this.bins;
      const context = canvas.getContext("2d");
      const image = context.createImageData(TILE, this.bins);
      const pixels = new Uint32Array(image.data.buffer);
      const step = 2 ** level;
      const from = number * TILE * step;
      for (let x = 0; x < TILE; x += 1) this.renderPixels(pixels, x, from + x * step, from + (x + 1) * step);
      context.putImageData(image, 0, 0);
      this.tiles.set(`${level}:${number}`, canvas);
      if (this.tiles.size > MOST_TILES) this.tiles.delete(this.tiles.keys().next().value);
      return canvas;
    }

    /** Draw one pixel of time: the owners of the column that lasts longest in it, red where any has a gap. */
    renderPixels(pixels, x, from, to) {
      const { times } = this.history;
      const { bins, owners, gaps } = this;
      const rgb = this.palette.rgb;
      const first = Math.max(Coterie.lastBefore(times, from), 0);
      if (!times.length || times[0] >= to || from > this.history.to) return;
      let last = first;
      while (last + 1 < times.length && times[last + 1] < to) last += 1;
      const stride = Math.ceil((last - first + 1) / MOST_SAMPLES);
      let longest = first;
      let most = -1;
      const shares = [];
      for (let index = first; index <= last; index += stride) {
        this.reduce(index);
        const end = Math.min(index + 1 < times.length ? times[index + 1] : to, to);
        const time = end - Math.max(times[index], from);
        if (time > most) {
          most = time;
          longest = index;
        }
        const released = this.releasedShares(index, from, end, to - from);
        if (released) shares.push([index, released]);
      }
      const [red, green, blue] = this.palette.gap;
      for (let bin = 0; bin < bins; bin += 1) {
        const owner = owners[longest * bins + bin];
        let gap = gaps[longest * bins + bin];
        for (let index = first; index <= last && first !== last; index += stride) {
          if (gaps[index * bins + bin] && gap < LEAST_GAP) gap = LEAST_GAP;
        }
        for (const [index, released] of shares) gap = Math.max(gap, released[owners[index * bins + bin]]);
        const at = owner * 3;
        const share = owner === Coterie.UNASSIGNED ? 1 : gap / 255;
        const r = rgb[at] + (red - rgb[at]) * share;
        const g = rgb[at + 1] + (green - rgb[at + 1]) * share;
        const b = rgb[at + 2] + (blue - rgb[at + 2]) * share;
        pixels[bin * TILE + x] = (255 << 24) | (b << 16) | (g << 8) | r;
      }
    }

    /** For each owner, which share of a pixel is after it gave up everything, of 255; null if no owner did. */
    releasedShares(index, from, end, pixel) {
      const releases = this.history.releases.get(index);
      if (!releases) return null;
      let found = null;
      for (const [value, time] of releases) {
        if (time >= end) continue;
        if (!found) found = new Uint8Array(this.history.names.length + Coterie.FIRST_OWNER);
        found[value] = Math.max(LEAST_GAP, Math.min(255, Math.round((255 * (end - Math.max(time, from))) / pixel)));
      }
      return found;
    }

    /** Draw what is there within the budget of a frame. Returns whether something is still missing. */
    draw(context, area, palette) {
      if (!this.history.times.length || this.view.lastRow <= this.view.firstRow) return false;
      this.prepare(area.height, palette);
      const { view } = this;
      const level = Math.floor(Math.log2(Math.max(view.span / area.width, 1)));
      const size = TILE * 2 ** level;
      const began = performance.now();
      let isMissing = false;
      context.imageSmoothingEnabled = false;
      for (let number = Math.floor(view.from / size); number * size < view.to; number += 1) {
        let tile = this.tile(level, number);
        if (!tile && performance.now() - began < BUDGET_MS) tile = this.render(level, number);
        if (tile) this.place(context, area, tile, number * size, size, 0, TILE);
        else {
          isMissing = true;
          this.placeCoarse(context, area, level, number);
        }
      }
      context.imageSmoothingEnabled = true;
      this.drawDead(context, area);
      this.drawNames(context, area);
      return isMissing;
    }

    place(context, area, tile, from, size, cutFrom, cutSize) {
      const x = area.left + this.view.xOf(from, area.width);
      const width = (size / this.view.span) * area.width;
      context.drawImage(tile, cutFrom, 0, cutSize, this.bins, x, area.top, width, area.height);
    }

    /** Show a tile of a coarser level until the right one is drawn. */
    placeCoarse(context, area, level, number) {
      for (let up = 1; up <= 4; up += 1) {
        const coarse = this.tiles.get(`${level + up}:${Math.floor(number / 2 ** up)}`);
        if (coarse) {
          const part = TILE / 2 ** up;
          const size = TILE * 2 ** level;
          this.place(context, area, coarse, number * size, size, (number % 2 ** up) * part, part);
          return;
        }
      }
    }

    /** Hatch the time from the last sign of life of a member to the end of its session. */
    drawDead(context, area) {
      const { history, view, bins, owners } = this;
      const spans = history.dead.filter(([, from, to]) => to > view.from && from < view.to).slice(-400);
      if (!spans.length) return;
      context.fillStyle = context.createPattern(hatch(this.palette.dark), "repeat");
      for (const [member, from, to] of spans) {
        const index = Coterie.lastBefore(history.times, to - 1);
        if (index < 0) continue;
        this.reduce(index);
        const x = Math.max(area.left + view.xOf(from, area.width), area.left);
        const end = Math.min(area.left + view.xOf(to, area.width), area.left + area.width);
        let begin = -1;
        for (let bin = 0; bin <= bins; bin += 1) {
          const isOwned = bin < bins && owners[index * bins + bin] === member + Coterie.FIRST_OWNER;
          if (isOwned && begin < 0) begin = bin;
          if (!isOwned && begin >= 0) {
            const y = area.top + (begin * area.height) / bins;
            context.fillRect(x, y, Math.max(end - x, 2), ((bin - begin) * area.height) / bins);
            begin = -1;
          }
        }
      }
    }

    /** Write the names of members into their bars, where there is room. */
    drawNames(context, area) {
      const { history, view } = this;
      const rows = view.lastRow - view.firstRow;
      const high = area.height / rows;
      const first = Math.max(Coterie.lastBefore(history.times, view.from), 0);
      const last = Coterie.lastBefore(history.times, view.to);
      context.strokeStyle = this.palette.dark ? "#12161c" : "#ffffff";
      context.lineWidth = 1;
      if (high >= 4) {
        context.beginPath();
        for (let row = 0; row <= rows; row += 1) {
          context.moveTo(area.left, area.top + row * high);
          context.lineTo(area.left + area.width, area.top + row * high);
        }
        context.stroke();
      }
      if (high < LABEL_ROW || last - first > 400) return;
      context.font = "11px system-ui, sans-serif";
      context.textBaseline = "middle";
      context.fillStyle = "#ffffff";
      for (let row = 0; row < rows; row += 1) {
        const y = area.top + (row + 0.5) * high;
        let begin = first;
        for (let index = first; index <= last; index += 1) {
          const value = history.valueAt(view.firstRow + row, history.times[index]);
          const isLast = index === last;
          if (!isLast && history.valueAt(view.firstRow + row, history.times[index + 1]) === value) continue;
          const x = Math.max(area.left + view.xOf(history.times[begin], area.width), area.left);
          const until = isLast ? view.to : history.times[index + 1];
          const end = Math.min(area.left + view.xOf(Math.min(until, history.to), area.width), area.left + area.width);
          const name = value >= Coterie.FIRST_OWNER ? nameOf(history, value) : "";
          if (name && context.measureText(name).width + 10 < end - x) context.fillText(name, x + 5, y);
          begin = index + 1;
        }
      }
    }
  };

  const nameOf = (history, value) => {
    const [name, , , , ordinal] = history.names[value - Coterie.FIRST_OWNER] || ["unknown"];
    return ordinal ? `${name} #${ordinal + 1}` : name;
  };
  Coterie.memberName = nameOf;

  const hatches = {};
  const hatch = (dark) => {
    if (!hatches[dark]) {
      const canvas = document.createElement("canvas");
      canvas.width = canvas.height = 7;
      const context = canvas.getContext("2d");
      context.strokeStyle = dark ? "rgb(0 0 0 / .75)" : "rgb(255 255 255 / .85)";
      context.lineWidth = 2.2;
      for (const by of [-7, 0, 7]) {
        context.beginPath();
        context.moveTo(by - 1, 8);
        context.lineTo(by + 8, -1);
        context.stroke();
      }
      hatches[dark] = canvas;
    }
    return hatches[dark];
  };
}
