// The part of the history that is on the screen: times and rows. All bands share it; the address has a link to it.
{
  const LEAST_MS = 20;

  Coterie.View = class {
    constructor(history, changed) {
      this.history = history;
      this.changed = changed;
      this.follows = true; // the end of the view is the end of the history
      this.fit();
    }

    get span() {
      return this.to - this.from;
    }

    /** Show everything. */
    fit() {
      const { from, to } = this.limits();
      this.from = from;
      this.to = to;
      this.firstLimit = from;
      this.follows = true;
      this.showRows(0, this.history.order.length);
    }

    limits() {
      const { from, to } = this.history;
      if (!Number.isFinite(from)) return { from: Date.now() - 60e3, to: Date.now() };
      const least = Math.max(to - from, 1000);
      return { from: from - least * 0.01, to: from + least * 1.02 };
    }

    /** Go on with what is live: move the end, unless a moment was chosen. */
    grow() {
      const { from, to } = this.limits();
      const rows = this.history.order.length;
      if (this.lastRow === this.rowsKnown) this.showRows(this.firstRow, rows);
      if (this.follows) {
        const whole = this.from <= this.firstLimit;
        const span = this.span;
        this.to = to;
        this.from = whole ? from : to - span;
      }
      this.firstLimit = from;
      this.changed();
    }

    show(from, to) {
      const span = Math.max(to - from, LEAST_MS);
      const { from: first, to: last } = this.limits();
      const room = Math.max(last - first, span);
      this.from = Math.min(Math.max(from, first - room * 0.5), last - span * 0.1);
      this.to = this.from + span;
      this.follows = this.to >= last;
      this.firstLimit = first;
      this.changed();
    }

    panBy(share) {
      this.show(this.from + this.span * share, this.to + this.span * share);
    }

    zoomBy(factor, at = (this.from + this.to) / 2) {
      const { from, to } = this.limits();
      const span = Math.min(this.span * factor, (to - from) * 2);
      const share = (at - this.from) / this.span;
      this.show(at - span * share, at + span * (1 - share));
    }

    showRows(first, last) {
      const rows = this.history.order.length;
      const count = Math.max(Math.min(last - first, rows), Math.min(rows, 1));
      this.firstRow = Math.min(Math.max(Math.round(first), 0), rows - count);
      this.lastRow = this.firstRow + Math.round(count);
      this.rowsKnown = rows;
      this.changed();
    }

    zoomRows(factor, at = (this.firstRow + this.lastRow) / 2) {
      const count = Math.max((this.lastRow - this.firstRow) * factor, 4);
      const share = (at - this.firstRow) / Math.max(this.lastRow - this.firstRow, 1);
      this.showRows(at - count * share, at - count * share + count);
    }

    panRows(by) {
      this.showRows(this.firstRow + by, this.lastRow + by);
    }

    xOf(time, width) {
      return ((time - this.from) / this.span) * width;
    }

    timeOf(x, width) {
      return this.from + (x / width) * this.span;
    }

    /** Steps of the time axis: about one every 90 pixels, at round times. */
    ticks(width) {
      const wanted = this.span / Math.max(width / 90, 2);
      const steps = [
        1, 2, 5, 10, 20, 50, 100, 200, 500, 1e3, 2e3, 5e3, 10e3, 15e3, 30e3, 60e3, 120e3, 300e3, 600e3, 900e3, 1800e3,
        3600e3, 7200e3, 10800e3, 21600e3, 43200e3, 86400e3, 172800e3, 604800e3,
      ];
      const step = steps.find((one) => one >= wanted) || steps[steps.length - 1];
      const found = [];
      for (let time = Math.ceil(this.from / step) * step; time <= this.to; time += step) found.push(time);
      return { step, times: found };
    }

    /** The part of the address that leads here again. */
    get link() {
      const times = this.follows ? "" : `from=${Math.round(this.from)}&to=${Math.round(this.to)}`;
      const all = this.firstRow === 0 && this.lastRow === this.history.order.length;
      return [times, all ? "" : `rows=${this.firstRow}-${this.lastRow}`].filter(Boolean).join("&");
    }

    open(parameters) {
      const from = Number(parameters.get("from"));
      const to = Number(parameters.get("to"));
      if (to > from) this.show(from, to);
      const rows = (parameters.get("rows") || "").split("-").map(Number);
      if (rows.length === 2 && rows[1] > rows[0]) this.showRows(rows[0], rows[1]);
    }
  };
}
