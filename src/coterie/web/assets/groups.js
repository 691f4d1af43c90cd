// All groups, worst first.
{
  const { make } = Coterie;

  const findings = (row) => {
    if (!row.findings.length) return "none";
    const items = row.findings.slice(0, 5).map((one) => make("li", { class: one.severity, title: one.summary }, one.name));
    if (row.findings.length > 5) items.push(make("li", {}, `and ${row.findings.length - 5} more`));
    return make("ul", { class: "names" }, ...items);
  };

  const cells = (row) => [
    ["group", make("a", { href: `#/group/${encodeURIComponent(row.group)}` }, row.group)],
    ["state", row.state === null ? "unknown" : row.state],
    ["members", Coterie.count(row.members)],
    ["lag", Coterie.count(row.lag)],
    ["behind", row.behind === null ? "unknown" : Coterie.duration(row.behind * 1000)],
    ["rebalances", Coterie.count(row.rebalances)],
    ["last", row.last === null ? "never" : Coterie.time(row.last, 1000)],
    ["unassigned", Coterie.partitionSeconds(row.unassigned)],
    ["findings", findings(row)],
  ];

  Coterie.GroupsPage = class {
    constructor(main, source) {
      this.main = main;
      this.source = source;
      this.isOpen = true;
      this.ready = this.refresh();
    }

    async refresh() {
      if (this.isBusy) {
        this.isStale = true;
        return;
      }
      this.isBusy = true;
      do {
        this.isStale = false;
        const listed = await this.source.list();
        if (this.isOpen && listed) this.show(listed);
      } while (this.isStale && this.isOpen);
      this.isBusy = false;
    }

    show(listed) {
      const head = ["group", "state", "members", "lag", "behind", "rebalances", "last (UTC)", "unassigned", "findings"];
      const rows = listed.groups.map((row) =>
        make("tr", {}, ...cells(row).map(([name, value]) => make("td", { "data-name": name }, value))),
      );
      const lost = listed.lost ? `${Coterie.plural(listed.lost, "event")} could not be kept: this is not all.` : "";
      const table = make(
        "table",
        { class: "cards" },
        make("thead", {}, make("tr", {}, ...head.map((name) => make("th", { scope: "col" }, name)))),
        make("tbody", {}, ...rows),
      );
      const focused = document.activeElement && document.activeElement.getAttribute("href");
      this.main.replaceChildren(
        make("h2", {}, `${Coterie.plural(rows.length, "group")}${rows.length ? ", worst first" : ""}`),
        ...(listed.note ? [make("p", { class: "faint" }, listed.note)] : []),
        ...(lost ? [make("p", { class: "bad" }, lost)] : []),
        rows.length ? make("div", { class: "wide" }, table) : make("p", {}, "No group has been seen yet."),
      );
      if (focused && focused.startsWith("#/group/")) {
        const again = [...this.main.querySelectorAll("a")].find((link) => link.getAttribute("href") === focused);
        if (again) again.focus();
      }
    }

    close() {
      this.isOpen = false;
    }
  };
}
