// The other bands: the time axis, rebalances with their phases, the cumulated cost, and the lag.
{
  const LANES = ["joined", "left", "failed", "other"];
  const LANE_OF = {
    "new member": 0,
    "static member replaced": 0,
    "member left": 1,
    "pending member left": 1,
    "member disappeared": 1,
    "session expired": 2,
    "sync timeout": 2,
    "partitions not revoked in time": 2,
    "assignment could not be stored": 2,
    "coordinator moved": 2,
    "over group.max.size at load": 2,
  };
  const laneOf = (row) => (row.cause in LANE_OF ? LANE_OF[row.cause] : 3);
  Object.assign(Coterie, { LANES, laneOf });

  const colours = () => {
    const names = ["ink", "faint", "line", "accent", "warn", "bad", "cost", "lag", "behind", "paper"];
    return Object.fromEntries(names.map((name) => [name, Coterie.styled(`--${name}`)]));
  };
  Coterie.bandColours = colours;

  /** What the looks in a band mean. */
  Coterie.BAND_KEYS = {
    owners: [["hatched", "silent until its session ended"]],
    rebalances: [
      ["light", "first phase"],
      ["dark", "second phase"],
    ],
    cost: [
      ["cost", "unassigned"],
      ["bad", "its avoidable part"],
      ["behind", "crashed, until the session ended"],
    ],
    lag: [
      ["lag", "records"],
      ["behind", "seconds, dashed"],
    ],
  };

  const fitted = (context, text, width) => {
    if (context.measureText(text).width <= width) return text;
    let cut = text;
    while (cut.length > 1 && context.measureText(`${cut}…`).width > width) cut = cut.slice(0, -1);
    return `${cut}…`;
  };

  const label = (context, area, text, y, colour) => {
    context.fillStyle = colour;
    context.textAlign = "right";
    context.textBaseline = "middle";
    context.fillText(fitted(context, text, area.left - 8), area.left - 6, y);
    context.textAlign = "left";
  };

  /** The axis: times at round steps, and the day of the first one. */
  Coterie.drawAxis = (context, area, view, ink) => {
    const { step, times } = view.ticks(area.width);
    context.font = "11px system-ui, sans-serif";
    context.fillStyle = ink.faint;
    context.textBaseline = "middle";
    context.textAlign = "center";
    for (const time of times) {
      const x = area.left + view.xOf(time, area.width);
      if (x < area.left + 20 || x > area.left + area.width - 20) continue;
      context.fillText(Coterie.time(time, step), x, area.top + 9);
    }
    context.textAlign = "left";
    label(context, area, area.left > 100 ? `${Coterie.day(view.from)} UTC` : "UTC", area.top + 9, ink.faint);
  };

  Coterie.drawGrid = (context, area, view, ink) => {
    context.strokeStyle = ink.line;
    context.lineWidth = 1;
    context.beginPath();
    for (const time of view.ticks(area.width).times) {
      const x = Math.round(area.left + view.xOf(time, area.width)) + 0.5;
      context.moveTo(x, area.top);
      context.lineTo(x, area.top + area.height);
    }
    context.stroke();
  };

  /** Names of partitions beside their rows, as many as there is room for. */
  Coterie.drawRowNames = (context, area, history, view, ink) => {
    const rows = view.lastRow - view.firstRow;
    const high = area.height / Math.max(rows, 1);
    const every = Math.max(Math.ceil(13 / high), 1);
    context.font = "11px system-ui, sans-serif";
    for (let row = 0; row < rows; row += every) {
      const y = area.top + row * high + Math.max(high / 2, 7);
      if (y > area.top + area.height - 5) break;
      label(context, area, history.labels[view.firstRow + row], y, ink.ink);
    }
  };

  /** Rebalances in lanes by what caused them; the first phase light, the second dark. */
  Coterie.drawRebalances = (context, area, history, view, ink, chosen) => {
    const high = area.height / LANES.length;
    context.font = "11px system-ui, sans-serif";
    LANES.forEach((name, lane) => label(context, area, name, area.top + (lane + 0.5) * high, ink.faint));
    const tone = [ink.accent, ink.faint, ink.bad, ink.warn];
    const drawnTo = [-9, -9, -9, -9];
    for (const row of history.rows) {
      const begin = row.began === null ? row.at : row.began;
      const end = row.ended === null ? history.to : row.ended;
      if (end < view.from || begin > view.to) continue;
      const lane = laneOf(row);
      const x = area.left + view.xOf(begin, area.width);
      const right = Math.max(area.left + view.xOf(end, area.width), x + 2);
      const isChosen = chosen && chosen.at === row.at && chosen.number === row.number;
      if (right < drawnTo[lane] + 0.5 && !isChosen) continue; // nothing of it would be seen
      drawnTo[lane] = Math.max(drawnTo[lane], right);
      const y = area.top + lane * high + 2;
      const between = row.joined === null ? x : Math.min(Math.max(area.left + view.xOf(row.joined, area.width), x), right);
      context.fillStyle = tone[lane];
      context.globalAlpha = 0.45;
      context.fillRect(x, y, Math.max(between - x, 0), high - 4);
      context.globalAlpha = 1;
      context.fillRect(between, y, Math.max(right - between, 2), high - 4);
      if (row.began === null) {
        context.strokeStyle = tone[lane];
        context.setLineDash([2, 2]);
        context.beginPath();
        context.moveTo(x - 8, y + (high - 4) / 2);
        context.lineTo(x, y + (high - 4) / 2);
        context.stroke();
        context.setLineDash([]);
      }
      if (isChosen) {
        context.strokeStyle = ink.ink;
        context.lineWidth = 2;
        context.strokeRect(x - 2, y - 1, right - x + 4, high - 2);
        context.lineWidth = 1;
      }
    }
  };

  const scaleOf = (most) => (most > 0 ? most * 1.1 : 1);

  /** A line of steps, at most two points for a pixel. */
  const steps = (context, area, view, times, valueOf, most) => {
    const first = Math.max(Coterie.lastBefore(times, view.from), 0);
    const y = (value) => area.top + area.height * (1 - value / most);
    const before = Coterie.lastBefore(times, view.from);
    let last = before < 0 ? 0 : valueOf(before);
    let lastX = -1;
    context.moveTo(area.left, y(last));
    for (let index = before < 0 ? 0 : first + 1; index < times.length && times[index] <= view.to; index += 1) {
      const x = Math.round(area.left + view.xOf(times[index], area.width));
      const value = valueOf(index);
      if (x === lastX && index + 1 < times.length && times[index + 1] <= view.to) {
        last = value;
        continue;
      }
      context.lineTo(x, y(last));
      context.lineTo(x, y(value));
      last = value;
      lastX = x;
    }
    const end = Math.min(area.left + view.xOf(Math.max(view.history.to, view.from), area.width), area.left + area.width);
    context.lineTo(end, y(last));
    return { end, y: y(last) };
  };

  /** The cost so far: unassigned partition-seconds, with the part that could be avoided, and of crashed members. */
  Coterie.drawCost = (context, area, history, view, ink) => {
    context.font = "11px system-ui, sans-serif";
    const count = history.cost.length;
    const until = Coterie.lastBefore(history.costTimes, view.to);
    const whole = (index) => history.cost[index] + history.dying[index];
    const most = scaleOf(until < 0 ? 0 : whole(until));
    const shapes = [
      [whole, ink.behind, 0.35],
      [(index) => history.cost[index], ink.cost, 0.55],
      [(index) => history.avoidable[index], ink.bad, 0.6],
    ];
    for (const [valueOf, colour, alpha] of count ? shapes : []) {
      context.beginPath();
      const { end } = steps(context, area, view, history.costTimes, valueOf, most);
      context.lineTo(end, area.top + area.height);
      context.lineTo(area.left, area.top + area.height);
      context.closePath();
      context.globalAlpha = alpha;
      context.fillStyle = colour;
      context.fill();
      context.globalAlpha = 1;
    }
    label(context, area, count ? Coterie.short(most / 1100) : "", area.top + 6, ink.faint);
    label(context, area, "partition-s", area.top + area.height - 6, ink.faint);
  };

  /** The lag in records, and in seconds. A gap in a line is a time of which it is not known. */
  Coterie.drawLag = (context, area, history, view, ink) => {
    context.font = "11px system-ui, sans-serif";
    const seen = history.points.filter(([time]) => time >= view.from && time <= view.to);
    for (const [at, colour, unit, place] of [
      [1, ink.lag, "records", 6],
      [2, ink.behind, "s", 20],
    ]) {
      const most = seen.reduce((found, point) => Math.max(found, point[at] || 0), 0);
      const top = scaleOf(most);
      context.strokeStyle = colour;
      context.lineWidth = 1.5;
      context.setLineDash(at === 2 ? [4, 3] : []);
      context.beginPath();
      let isDown = false;
      for (const point of seen) {
        if (point[at] === null) {
          isDown = false;
          continue;
        }
        const x = area.left + view.xOf(point[0], area.width);
        const y = area.top + area.height * (1 - point[at] / top) - 1;
        if (isDown) context.lineTo(x, y);
        else context.moveTo(x, y);
        isDown = true;
      }
      context.stroke();
      context.setLineDash([]);
      const isKnown = seen.some((point) => point[at] !== null);
      label(context, area, isKnown ? `${Coterie.short(most)} ${unit}` : `${unit}: unknown`, area.top + place, colour);
    }
    context.lineWidth = 1;
  };
}
