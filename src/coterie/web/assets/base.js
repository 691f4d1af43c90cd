// Small helpers that every part of the page uses: elements, texts, numbers and times.
{
  const UNITS = [["d", 86400e3], ["h", 3600e3], ["min", 60e3], ["s", 1e3]];

  /** Make an element; texts are put in as text, so that no name becomes markup. */
  Coterie.make = (tag, attributes = {}, ...children) => {
    const element = document.createElement(tag);
    for (const [name, value] of Object.entries(attributes)) {
      if (value === null || value === undefined || value === false) continue;
      if (name.startsWith("on")) element.addEventListener(name.slice(2), value);
      else if (name === "colour") element.style.backgroundColor = value;
      else element.setAttribute(name, value === true ? "" : value);
    }
    element.append(...children.filter((child) => child !== null && child !== undefined));
    return element;
  };

  Coterie.count = (value) => (value === null || value === undefined ? "unknown" : value.toLocaleString("en"));

  Coterie.plural = (value, what) => `${Coterie.count(value)} ${what}${value === 1 ? "" : "s"}`;

  /** A duration in the largest unit that fits; null is unknown. */
  Coterie.duration = (ms) => {
    if (ms === null || ms === undefined) return "unknown";
    if (ms < 1000) return `${Math.round(ms)} ms`;
    const [unit, size] = UNITS.find(([, one]) => ms >= one);
    const value = ms / size;
    return `${value < 10 ? value.toFixed(1).replace(/\.0$/, "") : Math.round(value)} ${unit}`;
  };

  Coterie.partitionSeconds = (ms) => (ms === null || ms === undefined ? "unknown" : `${short(ms / 1000)} partition-s`);

  const short = (value) => {
    if (value >= 1e6) return `${(value / 1e6).toFixed(1)} M`;
    if (value >= 1e4) return `${(value / 1e3).toFixed(1)} k`;
    return value < 10 ? String(Math.round(value * 100) / 100) : Coterie.count(Math.round(value));
  };
  Coterie.short = short;

  const two = (value) => String(value).padStart(2, "0");

  /** A time in UTC; as much of it as `step` needs to tell neighbours apart. */
  Coterie.time = (ms, step = 1) => {
    const date = new Date(ms);
    const day = `${date.getUTCFullYear()}-${two(date.getUTCMonth() + 1)}-${two(date.getUTCDate())}`;
    if (step >= 86400e3) return day.slice(5);
    const clock = `${two(date.getUTCHours())}:${two(date.getUTCMinutes())}`;
    if (step >= 60e3) return clock;
    const seconds = `${clock}:${two(date.getUTCSeconds())}`;
    return step >= 1000 ? seconds : `${seconds}.${String(date.getUTCMilliseconds()).padStart(3, "0")}`;
  };

  Coterie.day = (ms) => new Date(ms).toISOString().slice(0, 10);

  /** The index of the last time that is not after `at`; -1 if all are. */
  Coterie.lastBefore = (times, at, length = times.length) => {
    let low = 0;
    let high = length;
    while (low < high) {
      const middle = (low + high) >> 1;
      if (times[middle] <= at) low = middle + 1;
      else high = middle;
    }
    return low - 1;
  };

  /** A value of the style sheet, which knows whether the page is dark. */
  Coterie.styled = (name) => getComputedStyle(document.documentElement).getPropertyValue(name).trim();

  Coterie.say = (text) => {
    const status = document.getElementById("status");
    if (status.textContent !== text) status.textContent = text;
  };
}
