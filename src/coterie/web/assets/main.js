// The start: where data comes from, which page is open, light or dark, and what is live.
{
  /** A server, which sends what is asked for and says what has changed. */
  class Server {
    async get(path) {
      const answer = await fetch(path);
      if (answer.status === 404) return null;
      if (!answer.ok) throw new Error(`${answer.status}: ${await answer.text()}`);
      return answer.json();
    }

    list() {
      return this.get("api/groups");
    }

    group(name, known) {
      return this.get(`api/groups/${encodeURIComponent(name)}?${known}`);
    }

    story(name, row) {
      return this.get(`api/story/${encodeURIComponent(name)}?at=${row.at}&number=${row.number}`);
    }

    listen(changed) {
      const events = new EventSource("api/events");
      let wasOpen = false;
      events.addEventListener("open", () => {
        Coterie.say("live");
        if (wasOpen) changed(null); // something may have been missed
        wasOpen = true;
      });
      events.addEventListener("change", (event) => changed(JSON.parse(event.data).groups));
      events.addEventListener("error", () => Coterie.say("no connection: shown is the last that is known"));
      addEventListener("pagehide", () => events.close());
    }
  }

  /** The data in this file. */
  class File {
    constructor(data) {
      this.data = data;
    }

    async list() {
      return this.data.list;
    }

    async group(name) {
      return this.data.groups.find((one) => one.group === name) || null;
    }

    async story(name, row) {
      const group = await this.group(name);
      return group.stories.find((story) => story.at === row.at && story.number === row.number) || null;
    }

    listen() {
      Coterie.say("a recorded file");
    }
  }

  const THEMES = ["system", "light", "dark"];

  const setTheme = (name) => {
    document.documentElement.dataset.theme = name;
    document.getElementById("theme").textContent = `Theme: ${name}`;
    try {
      localStorage.setItem("coterie-theme", name);
    } catch {
      // a file may not be allowed to keep anything
    }
    if (Coterie.open && Coterie.open.redraw) Coterie.open.redraw();
  };

  const keptTheme = () => {
    try {
      return localStorage.getItem("coterie-theme");
    } catch {
      return null;
    }
  };

  const start = () => {
    const data = document.getElementById("data");
    const source = data ? new File(JSON.parse(data.textContent)) : new Server();
    const main = document.getElementById("main");
    const tables = document.getElementById("tables");
    if (tables) tables.open = false;

    const route = () => {
      const [path, query] = location.hash.replace(/^#\/?/, "").split("?");
      const name = path.startsWith("group/") ? decodeURIComponent(path.slice("group/".length)) : null;
      if (Coterie.open) Coterie.open.close();
      const parameters = new URLSearchParams(query || "");
      if (name !== null) Coterie.open = new Coterie.GroupPage(main, name, source, parameters);
      else Coterie.open = new Coterie.GroupsPage(main, source);
      const { ready } = Coterie.open;
      ready.catch((problem) => Coterie.say(`could not be loaded: ${problem.message}`));
    };

    const theme = keptTheme();
    setTheme(THEMES.includes(theme) ? theme : "system");
    document.getElementById("theme").addEventListener("click", () => {
      const now = THEMES.indexOf(document.documentElement.dataset.theme);
      setTheme(THEMES[(now + 1) % THEMES.length]);
    });
    matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => {
      if (Coterie.open && Coterie.open.redraw) Coterie.open.redraw();
    });
    addEventListener("hashchange", route);
    route();
    source.listen((names) => {
      const { open } = Coterie;
      const isMine = names === null || !open.name || names.includes(open.name);
      if (isMine) open.refresh().catch((problem) => Coterie.say(`could not be loaded: ${problem.message}`));
    });
  };

  globalThis.Coterie = Coterie;
  start();
}
