// Colours of members: a client id and host begin with the same colour in every group, every time. If another member of
// the group has it already, the next one is taken, so that members of a small group can be told apart.
{
  const HUES = [212, 30, 150, 275, 55, 318, 185];
  const SHADES = [0, -12, 10, -20];
  const SLOTS = HUES.length * SHADES.length;
  const GAP = "#d3213d";

  const hash = (text) => {
    let value = 2166136261;
    for (let index = 0; index < text.length; index += 1) {
      value = Math.imul(value ^ text.charCodeAt(index), 16777619);
    }
    value = Math.imul(value ^ (value >>> 15), 2246822507);
    return (value ^ (value >>> 13)) >>> 0;
  };

  const isDark = () => Coterie.styled("--dark") === "1";

  const identityOf = ([name, client, host, instance, ordinal]) => {
    const who = instance ? `i:${instance}` : client ? `c:${client}@${host}` : `m:${name}`;
    return ordinal ? `${who}#${ordinal}` : who;
  };

  /** A place in the palette for each member: first all hues, then lighter and darker ones, then again. */
  const slotsOf = (names) => {
    const slots = new Map();
    const taken = new Set();
    return names.map((one) => {
      const identity = identityOf(one);
      if (slots.has(identity)) return slots.get(identity);
      const first = hash(identity) % HUES.length;
      let slot = first;
      for (let tries = 0; tries < SLOTS; tries += 1) {
        const hue = (first + tries) % HUES.length;
        slot = Math.floor(tries / HUES.length) * HUES.length + hue;
        if (!taken.has(slot)) break;
      }
      taken.add(slot);
      if (taken.size === SLOTS) taken.clear();
      slots.set(identity, slot);
      return slot;
    });
  };

  const shade = (slot, dark) => {
    const lighter = SHADES[Math.floor(slot / HUES.length)];
    return [HUES[slot % HUES.length], dark ? 50 : 62, (dark ? 43 : 42) + lighter];
  };

  Coterie.css = ([hue, saturation, lightness]) => `hsl(${hue} ${saturation}% ${lightness}%)`;

  const toRgb = ([hue, saturation, lightness]) => {
    const s = saturation / 100;
    const l = lightness / 100;
    const a = s * Math.min(l, 1 - l);
    return [0, 8, 4].map((n) => {
      const k = (n + hue / 30) % 12;
      return Math.round(255 * (l - a * Math.max(-1, Math.min(k - 3, 9 - k, 1))));
    });
  };

  const hexRgb = (hex) => [1, 3, 5].map((at) => parseInt(hex.slice(at, at + 2), 16));

  /** The colours of a group: for style sheets, and as numbers for pixels. */
  Coterie.paletteOf = (names) => {
    const dark = isDark();
    const shades = slotsOf(names).map((slot) => shade(slot, dark));
    const absent = hexRgb(Coterie.styled("--absent"));
    const gap = hexRgb(GAP);
    const rgb = new Uint8Array((names.length + 2) * 3);
    rgb.set(gap, 0);
    rgb.set(absent, 3);
    shades.forEach((one, index) => rgb.set(toRgb(one), (index + 2) * 3));
    return { dark, rgb, gap, css: shades.map(Coterie.css), gapCss: GAP };
  };
}
