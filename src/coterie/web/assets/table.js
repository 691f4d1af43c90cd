// Tables of the page: rebalances that are on the screen, newest first, each opening its story.
{
  const FIRST_ROWS = 15;
  const { make } = Coterie;

  const cells = (row, choose) => {
    const known = (value, show) => (value === null ? "unknown" : show(value));
    const cost = known(row.unassigned, (ms) => `${row.least ? "at least " : row.most ? "at most " : ""}${Coterie.partitionSeconds(ms)}`);
    const took = row.began === null || row.ended === null ? null : row.ended - row.began;
    const lasts = row.ended === null ? "still running" : Coterie.duration(took);
    return [
      ["number", make("button", { type: "button", class: "link", onclick: () => choose(row) }, String(row.number))],
      [row.began === null ? "ended" : "began", Coterie.time(row.at)],
      ["cause", known(row.cause, String)],
      ["member", row.member === null ? "-" : row.member],
      ["lasted", lasts],
      ["moved", known(row.moved, Coterie.count)],
      ["unassigned", cost],
    ];
  };

  Coterie.rebalanceTable = (history, view, chosen, choose, most = FIRST_ROWS) => {
    const shown = history.rows.filter((row) => (row.ended || history.to) >= view.from && row.at <= view.to);
    const head = ["number", "time (UTC)", "cause", "member", "lasted", "moved", "unassigned"];
    const body = shown
      .slice(-most)
      .reverse()
      .map((row) => {
        const isChosen = chosen && chosen.at === row.at && chosen.number === row.number;
        const found = cells(row, choose).map(([name, value]) => make("td", { "data-name": name }, value));
        return make("tr", { class: isChosen ? "chosen" : null }, ...found);
      });
    const left = shown.length > most ? `, the last ${most} listed` : "";
    const more = (event) => {
      const longer = Coterie.rebalanceTable(history, view, chosen, choose, most + 100);
      event.target.closest(".listed").replaceWith(longer);
      longer.querySelector("table").focus();
    };
    return make(
      "div",
      { class: "listed" },
      make("p", { class: "faint" }, `${Coterie.plural(shown.length, "rebalance")} in this time${left}.`),
      make(
        "table",
        { class: "cards", tabindex: "-1" },
        make("thead", {}, make("tr", {}, ...head.map((name) => make("th", { scope: "col" }, name)))),
        make("tbody", {}, ...body),
      ),
      shown.length > most ? make("button", { type: "button", onclick: more }, "List more") : null,
    );
  };

  /** Members of the visible columns with their colours. */
  Coterie.legend = (history, view, palette) => {
    const seen = new Set();
    const first = Math.max(Coterie.lastBefore(history.times, view.from), 0);
    const last = Coterie.lastBefore(history.times, view.to);
    const step = Math.max(Math.floor((last - first) / 20), 1);
    for (let index = first; index <= last; index += step) {
      for (const value of history.column(index)) if (value >= Coterie.FIRST_OWNER) seen.add(value);
      if (seen.size > 200) break;
    }
    const named = new Map(); // a member that came back with another id is one
    for (const value of [...seen].sort((a, b) => a - b)) named.set(Coterie.memberName(history, value), value);
    const items = [...named].slice(0, 24).map(([name, value]) => {
      const [, client, host] = history.names[value - Coterie.FIRST_OWNER] || ["", "", ""];
      const swatch = make("i", { colour: palette.css[value - Coterie.FIRST_OWNER], "aria-hidden": "true" });
      const where = [client, host].filter(Boolean).join(" ");
      return make("li", { title: where || null }, swatch, name);
    });
    const more = named.size > 24 ? make("li", {}, `and ${named.size - 24} more`) : null;
    const gap = make("i", { colour: palette.gapCss, "aria-hidden": "true" });
    return make("ul", { class: "legend" }, make("li", {}, gap, "unassigned"), ...items, more);
  };
}
