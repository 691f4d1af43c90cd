// Colours of members: the same client id and host have the same colour, in every group, every time.
{
  const HUES = [210, 28, 145, 285, 52, 320, 178, 95, 255, 235, 38, 165, 300, 70, 195, 120];
  const GAP = "#d3213d";

  const hash = (text) => {
    let value = 2166136261;
    for (let index = 0; index < text.length; index += 1) {
      value = Math.imul(value ^ text.charCodeAt(index), 16777619);
    }
    return value >>> 0;
  };

  const isDark = () => Coterie.styled("--dark") === "1";

  /** Hue, saturation and lightness of a member; those with one identity differ by a shade. */
  const shade = ([name, client, host, instance, ordinal], dark) => {
    const identity = instance ? `i:${instance}` : client ? `c:${client}@${host}` : `m:${name}`;
    const value = hash(identity);
    const hue = (HUES[value % HUES.length] + 19 * (ordinal % 9)) % 360;
    const kept = hue >= 345 || hue < 12 ? 28 : hue; // red is for partitions without an owner
    const step = ((value >>> 8) % 3) * 6 - 6;
    return [kept, dark ? 48 : 58, (dark ? 46 : 52) + step];
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
    const shades = names.map((name) => shade(name, dark));
    const absent = hexRgb(Coterie.styled("--absent"));
    const gap = hexRgb(GAP);
    const rgb = new Uint8Array((names.length + 2) * 3);
    rgb.set(gap, 0);
    rgb.set(absent, 3);
    shades.forEach((one, index) => rgb.set(toRgb(one), (index + 2) * 3));
    return { dark, rgb, gap, css: shades.map(Coterie.css), gapCss: GAP };
  };
}
