// One group: figures, findings, four bands on one time axis, the table of rebalances, and the story of the chosen one.
{
  const { make } = Coterie;
  const BANDS = [
    ["axis", "", 20],
    ["owners", "Owners", 0],
    ["rebalances", "Rebalances", 68],
    ["cost", "Cost, cumulated", 76],
    ["lag", "Lag", 76],
  ];
  const SHOWN_FINDINGS = 4;
  const HELP =
    "Arrow left and right: move in time. Plus and minus: zoom. Arrow up and down: move in the partitions. " +
    "Page up and down: zoom in the partitions. N and P: next and previous rebalance. Home: everything. " +
    "End: now. Escape: close the story.";

  Coterie.GroupPage = class {
    constructor(main, name, source, parameters) {
      this.main = main;
      this.name = name;
      this.source = source;
      this.parameters = parameters;
      this.history = new Coterie.History();
      this.chosen = null;
      this.isOpen = true;
      this.frames = 0;
      this.ready = this.load();
    }

    async load() {
      const sent = await this.source.group(this.name, "");
      if (!this.isOpen) return;
      if (!sent) {
        this.main.replaceChildren(make("p", {}, `There is no group ${this.name}.`), make("p", {}, back()));
        return;
      }
      await this.history.take(sent);
      this.view = new Coterie.View(this.history, () => this.redraw());
      this.ownership = new Coterie.Ownership(this.history, this.view);
      this.build();
      this.view.open(this.parameters);
      const asked = (this.parameters.get("rebalance") || "").split(".").map(Number);
      const row = this.history.rows.find((one) => one.number === asked[0] && one.at === asked[1]);
      if (row) await this.choose(row);
      this.redraw();
    }

    /** Something has changed: get what is new. Changes that come meanwhile are one more turn. */
    async refresh() {
      if (!this.view || this.isBusy) {
        this.isStale = true;
        return;
      }
      this.isBusy = true;
      do {
        this.isStale = false;
        const sent = await this.source.group(this.name, this.history.known);
        if (!this.isOpen || !sent) break;
        await this.history.take(sent);
        this.fill();
        this.view.grow();
      } while (this.isStale);
      this.isBusy = false;
    }

    close() {
      this.isOpen = false;
      if (this.sizes) this.sizes.disconnect();
    }

    // --- elements ----------------------------------------------------------------------------------------------------

    build() {
      this.figures = make("ul", { class: "figures" });
      this.findings = make("section", { "aria-label": "Findings" });
      this.canvases = {};
      const bands = BANDS.map(([id, title]) => {
        const canvas = make("canvas", { id: `band-${id}`, role: "img", "aria-label": title || "Time axis" });
        this.canvases[id] = canvas;
        const key = (Coterie.BAND_KEYS[id] || []).map(([look, text]) =>
          make("span", {}, make("i", { class: `key ${look}`, "aria-hidden": "true" }), text),
        );
        const head = title ? make("div", { class: "head" }, make("h3", {}, title), ...key) : null;
        return make("div", { class: `band ${id}` }, head, canvas);
      });
      this.tip = make("div", { class: "tip", "aria-hidden": "true", hidden: true });
      this.help = make("p", { id: "help", class: "faint help" }, HELP);
      this.bands = make(
        "div",
        { class: "bands", tabindex: "0", role: "group", "aria-label": "Timeline", "aria-describedby": "help" },
        ...bands,
        this.tip,
      );
      this.legend = make("div", {});
      this.table = make("section", { "aria-label": "Rebalances in this time" });
      this.aside = make("div", { class: "aside", "aria-live": "polite" });
      this.note = make("p", { class: "faint" });
      this.main.replaceChildren(
        make("p", {}, back()),
        make("h2", {}, this.name),
        this.figures,
        this.findings,
        this.tools(),
        make("div", { class: "split" }, make("div", { class: "left" }, this.bands, this.legend), this.aside),
        this.note,
        this.table,
        this.help,
      );
      this.fill();
      this.listen();
      this.sizes = new ResizeObserver(() => this.redraw());
      this.sizes.observe(this.bands);
    }

    tools() {
      const button = (text, label, act) =>
        make(
          "button",
          { type: "button", "aria-label": /[a-z]/i.test(text) ? null : label, title: label, onclick: act },
          text,
        );
      const { view } = this;
      return make(
        "div",
        { class: "tools", role: "toolbar", "aria-label": "Time" },
        button("◀", "Earlier", () => view.panBy(-0.5)),
        button("▶", "Later", () => view.panBy(0.5)),
        button("+", "Zoom in", () => view.zoomBy(0.5)),
        button("−", "Zoom out", () => view.zoomBy(2)),
        button("All", "Everything", () => this.all()),
        button("Now", "The last minute, live", () => this.now()),
        button("Rows +", "Fewer partitions, larger", () => view.zoomRows(0.5)),
        button("Rows −", "More partitions, smaller", () => view.zoomRows(2)),
        button("Copy link", "Copy a link to this moment", () => this.copyLink()),
      );
    }

    fill() {
      const { about } = this.history;
      const figures = [
        ["state", about.state === null ? "unknown" : about.state],
        ["protocol", about.type],
        ["members", Coterie.count(about.members)],
        ["lag", about.lag === null ? "unknown" : Coterie.plural(about.lag, "record")],
        ["behind", about.behind === null ? "unknown" : Coterie.duration(about.behind * 1000)],
        ["rebalances", Coterie.count(about.rebalances)],
        ["unassigned", Coterie.partitionSeconds(about.unassigned)],
      ];
      this.figures.replaceChildren(
        ...figures.map(([name, value]) => make("li", {}, make("b", {}, value), make("span", {}, name))),
      );
      const { findings } = this.history;
      const wasOpen = this.findings.querySelector("details.rest[open]") !== null;
      const rest = findings.slice(SHOWN_FINDINGS).map((one) => this.finding(one));
      const more = make("summary", {}, `and ${Coterie.plural(rest.length, "finding")} more`);
      this.findings.replaceChildren(
        ...findings.slice(0, SHOWN_FINDINGS).map((one) => this.finding(one)),
        ...(rest.length ? [make("details", { class: "rest", open: wasOpen }, more, ...rest)] : []),
      );
      const grades = about.grades.length ? `Evidence: ${about.grades.join(", ")}.` : "";
      const grain = about.grain ? ` Owners are drawn in steps of ${about.grain} ms.` : "";
      const cost = this.history.unknownCost
        ? ` The cost of ${Coterie.plural(this.history.unknownCost, "rebalance")} is unknown and not in the sum.`
        : "";
      const avoidable = this.history.unknownAvoidable
        ? ` The avoidable part of ${Coterie.plural(this.history.unknownAvoidable, "rebalance")} is unknown.`
        : "";
      this.note.textContent = `${grades}${grain}${cost}${avoidable}`;
    }

    finding(one) {
      const show = () => {
        const room = Math.max((one.to_ms - one.from_ms) * 0.2, 1000);
        this.view.show(one.from_ms - room, one.to_ms + room);
      };
      return make(
        "details",
        { class: `finding ${one.severity}` },
        make("summary", {}, make("b", {}, one.name), ` ${one.summary} `, make("span", { class: "grade" }, one.grade)),
        make("p", {}, one.advice),
        make("button", { type: "button", onclick: show }, "Show its time"),
      );
    }

    // --- what the reader does ----------------------------------------------------------------------------------------

    all() {
      this.view.fit();
      this.redraw();
    }

    now() {
      const { to } = this.view.limits();
      this.view.show(to - 60e3, to);
      this.view.follows = true;
      this.redraw();
    }

    async copyLink() {
      const follows = this.view.follows;
      this.view.follows = false;
      this.setLink();
      this.view.follows = follows;
      try {
        await navigator.clipboard.writeText(location.href);
        Coterie.say("The link is copied.");
      } catch {
        Coterie.say("The link is in the address bar.");
      }
    }

    setLink() {
      const chosen = this.chosen ? `rebalance=${this.chosen.number}.${this.chosen.at}` : "";
      const found = [this.view.link, chosen].filter(Boolean).join("&");
      const hash = `#/group/${encodeURIComponent(this.name)}${found ? `?${found}` : ""}`;
      if (location.hash !== hash) history.replaceState(null, "", hash);
    }

    async choose(row) {
      this.chosen = row;
      const story = row ? await this.source.story(this.name, row) : null;
      if (this.chosen !== row || !this.isOpen) return;
      if (!story) {
        this.aside.replaceChildren();
        this.chosen = null;
      } else {
        const panel = Coterie.storyPanel(story, this.history.findings, () => this.choose(null));
        this.aside.replaceChildren(panel);
        if (row.at < this.view.from || row.at > this.view.to) {
          this.view.show(row.at - this.view.span / 2, row.at + this.view.span / 2);
        }
      }
      this.redraw();
    }

    step(by) {
      const { rows } = this.history;
      if (!rows.length) return;
      const at = this.chosen
        ? rows.findIndex((row) => row.at === this.chosen.at && row.number === this.chosen.number) + by
        : by > 0
          ? rows.findIndex((row) => row.at >= this.view.from)
          : rows.length - 1;
      const row = rows[Math.min(Math.max(at, 0), rows.length - 1)];
      if (row) this.choose(row);
    }

    listen() {
      const { bands, view } = this;
      const keys = {
        ArrowLeft: () => view.panBy(-0.15),
        ArrowRight: () => view.panBy(0.15),
        ArrowUp: () => view.panRows(-Math.ceil((view.lastRow - view.firstRow) / 4)),
        ArrowDown: () => view.panRows(Math.ceil((view.lastRow - view.firstRow) / 4)),
        PageUp: () => view.zoomRows(0.5),
        PageDown: () => view.zoomRows(2),
        "+": () => view.zoomBy(0.6),
        "=": () => view.zoomBy(0.6),
        "-": () => view.zoomBy(1 / 0.6),
        Home: () => this.all(),
        End: () => this.now(),
        n: () => this.step(1),
        p: () => this.step(-1),
        Escape: () => this.choose(null),
      };
      bands.addEventListener("keydown", (event) => {
        if (event.ctrlKey || event.metaKey || event.altKey || !(event.key in keys)) return;
        event.preventDefault();
        keys[event.key]();
      });
      bands.addEventListener("wheel", (event) => this.wheel(event), { passive: false });
      this.pointers = new Map();
      bands.addEventListener("pointerdown", (event) => this.press(event));
      bands.addEventListener("pointermove", (event) => this.move(event));
      for (const end of ["pointerup", "pointercancel"]) bands.addEventListener(end, (event) => this.release(event));
      bands.addEventListener("pointerleave", () => {
        this.tip.hidden = true;
      });
    }

    wheel(event) {
      const sideways = event.shiftKey ? event.deltaY : event.deltaX;
      if (event.ctrlKey || event.metaKey) {
        event.preventDefault();
        this.view.zoomBy(Math.exp(event.deltaY * 0.0025), this.timeAt(event));
      } else if (Math.abs(sideways) > Math.abs(event.shiftKey ? 0 : event.deltaY)) {
        event.preventDefault();
        this.view.panBy(sideways / this.area("owners").width);
      }
    }

    press(event) {
      this.pointers.set(event.pointerId, { x: event.clientX, y: event.clientY });
      this.dragged = 0;
    }

    move(event) {
      const before = this.pointers.get(event.pointerId);
      if (!before) {
        this.hover(event);
        return;
      }
      const { width, height } = this.area("owners");
      const [byX, byY] = [event.clientX - before.x, event.clientY - before.y];
      this.dragged += Math.abs(byX) + Math.abs(byY);
      if (this.dragged > 4 && !this.bands.hasPointerCapture(event.pointerId)) {
        this.bands.setPointerCapture(event.pointerId);
      }
      if (this.pointers.size === 2) {
        const other = [...this.pointers.entries()].find(([id]) => id !== event.pointerId)[1];
        const old = Math.max(Math.abs(before.x - other.x), 10);
        const now = Math.max(Math.abs(event.clientX - other.x), 10);
        this.view.zoomBy(old / now);
      } else if (this.dragged > 4) {
        this.view.panBy(-byX / width);
        const rows = ((this.view.lastRow - this.view.firstRow) * byY) / height;
        const isOwners = event.target === this.canvases.owners;
        if (isOwners && Math.abs(rows) >= 0.5 && this.view.lastRow - this.view.firstRow < this.history.order.length) {
          this.view.panRows(-Math.round(rows));
        }
      }
      this.pointers.set(event.pointerId, { x: event.clientX, y: event.clientY });
    }

    release(event) {
      this.pointers.delete(event.pointerId);
      if (event.type === "pointerup" && this.dragged <= 4) this.click(event);
    }

    click(event) {
      if (event.target !== this.canvases.rebalances) return;
      const row = this.rebalanceAt(event);
      if (row) this.choose(row);
    }

    timeAt(event) {
      const area = this.area("owners");
      const x = event.clientX - this.bands.getBoundingClientRect().left - area.left;
      return this.view.timeOf(x, area.width);
    }

    /** The rebalance in the lane under the pointer, or the nearest one. */
    rebalanceAt(event) {
      const box = this.canvases.rebalances.getBoundingClientRect();
      const lane = Math.floor(((event.clientY - box.top) / box.height) * Coterie.LANES.length);
      const time = this.timeAt(event);
      const slack = (this.view.span / this.area("owners").width) * 8;
      let best = null;
      let nearest = slack;
      for (const row of this.history.rows) {
        const begin = row.began === null ? row.at : row.began;
        const end = row.ended === null ? this.history.to : row.ended;
        const off = Math.max(begin - time, time - end, 0) + (Coterie.laneOf(row) === lane ? 0 : slack / 2);
        if (off < nearest) {
          nearest = off;
          best = row;
        }
      }
      return best;
    }

    hover(event) {
      const text = this.hoverText(event);
      this.tip.hidden = !text;
      if (!text) return;
      this.tip.textContent = text;
      const box = this.bands.getBoundingClientRect();
      const x = Math.min(event.clientX - box.left + 12, box.width - this.tip.offsetWidth - 4);
      this.tip.style.left = `${Math.max(x, 0)}px`;
      this.tip.style.top = `${event.clientY - box.top + 14}px`;
    }

    hoverText(event) {
      const time = this.timeAt(event);
      if (event.target === this.canvases.owners) {
        const box = this.canvases.owners.getBoundingClientRect();
        const rows = this.view.lastRow - this.view.firstRow;
        const row = this.view.firstRow + Math.floor(((event.clientY - box.top) / box.height) * rows);
        if (row >= this.view.lastRow || row < 0) return "";
        const { value, from, until } = this.history.spanAt(row, time);
        const told = ["unassigned", "no owner known"];
        const who = value < Coterie.FIRST_OWNER ? told[value] : Coterie.memberName(this.history, value);
        const since = from === null ? "" : ` since ${Coterie.time(from)}`;
        return `${this.history.labels[row]}: ${who}${since}${until === null ? "" : ` until ${Coterie.time(until)}`}`;
      }
      const row = event.target === this.canvases.rebalances ? this.rebalanceAt(event) : null;
      if (row) return `${row.number}: ${row.cause || "unknown cause"}${row.member ? `, ${row.member}` : ""}`;
      return time >= this.view.from ? Coterie.time(time) : "";
    }

    // --- drawing -----------------------------------------------------------------------------------------------------

    redraw() {
      if (this.isDrawing || !this.canvases) return;
      this.isDrawing = true;
      requestAnimationFrame(() => {
        this.isDrawing = false;
        if (this.isOpen) this.draw();
      });
    }

    area(id) {
      const width = this.bands.clientWidth;
      const left = width > 640 ? 124 : 66;
      return { left, top: 0, width: Math.max(width - left - 8, 50), height: this.heightOf(id) };
    }

    heightOf(id) {
      const fixed = BANDS.find(([name]) => name === id)[2];
      if (fixed) return fixed;
      const rows = this.view.lastRow - this.view.firstRow;
      return Math.min(Math.max(rows * 22, 44), 420);
    }

    context(id) {
      const canvas = this.canvases[id];
      const width = this.bands.clientWidth;
      const height = this.heightOf(id);
      const ratio = window.devicePixelRatio || 1;
      if (canvas.width !== Math.round(width * ratio) || canvas.height !== Math.round(height * ratio)) {
        canvas.width = Math.round(width * ratio);
        canvas.height = Math.round(height * ratio);
        canvas.style.width = `${width}px`;
        canvas.style.height = `${height}px`;
      }
      const context = canvas.getContext("2d");
      context.setTransform(ratio, 0, 0, ratio, 0, 0);
      context.clearRect(0, 0, width, height);
      return context;
    }

    draw() {
      const { history, view } = this;
      const ink = Coterie.bandColours();
      const dark = Coterie.styled("--dark") === "1";
      if (!this.palette || this.palette.dark !== dark || this.palette.css.length !== history.names.length) {
        this.palette = Coterie.paletteOf(history.names);
      }
      Coterie.drawAxis(this.context("axis"), this.area("axis"), view, ink);
      const owners = this.context("owners");
      const area = this.area("owners");
      const isMissing = this.clipped(owners, area, () => this.ownership.draw(owners, area, this.palette));
      Coterie.drawRowNames(owners, area, history, view, ink);
      for (const [id, drawBand] of [
        ["rebalances", Coterie.drawRebalances],
        ["cost", Coterie.drawCost],
        ["lag", Coterie.drawLag],
      ]) {
        const context = this.context(id);
        Coterie.drawGrid(context, this.area(id), view, ink);
        drawBand(context, this.area(id), history, view, ink, this.chosen);
      }
      this.frames += 1;
      this.isWhole = !isMissing;
      if (isMissing) this.redraw();
      this.later();
    }

    clipped(context, area, drawIt) {
      context.save();
      context.beginPath();
      context.rect(area.left, area.top, area.width, area.height);
      context.clip();
      const found = drawIt();
      context.restore();
      return found;
    }

    /** Tables and texts follow when the reader has stopped moving. */
    later() {
      clearTimeout(this.timer);
      this.timer = setTimeout(() => {
        if (!this.isOpen) return;
        this.setLink();
        this.legend.replaceChildren(Coterie.legend(this.history, this.view, this.palette));
        this.describe();
        if (!this.table.contains(document.activeElement)) {
          this.table.replaceChildren(
            Coterie.rebalanceTable(this.history, this.view, this.chosen, (row) => this.choose(row)),
          );
        }
      }, 120);
    }

    describe() {
      const { about, rows } = this.history;
      const when = `from ${Coterie.time(this.view.from)} to ${Coterie.time(this.view.to)} UTC`;
      const texts = {
        owners: `Owners of ${Coterie.plural(this.view.lastRow - this.view.firstRow, "partition")} ${when}`,
        rebalances: `${Coterie.plural(rows.length, "rebalance")}; the table below lists those ${when}`,
        cost: `Cost: ${Coterie.partitionSeconds(about.unassigned)} unassigned in all`,
        lag: `Lag now: ${Coterie.count(about.lag)} records`,
      };
      for (const [id, text] of Object.entries(texts)) this.canvases[id].setAttribute("aria-label", text);
    }
  };

  const back = () => make("a", { href: "#/" }, "← All groups");
}
