// The page: finds out what the API has, shows the view that the address names, and says when
// something is wrong with what is shown.

import { Api } from "./api.js";
import { callOff } from "./dialog.js";
import { attribute, h, keyed, plural, text, timeText, to } from "./dom.js";
import { EventsView } from "./events.js";
import { HostView } from "./host.js";
import { Live } from "./live.js";
import { Overview } from "./overview.js";
import { RoutesView } from "./routes.js";
import { SourcesView } from "./sources.js";
import { Store } from "./store.js";
import { UpstreamView } from "./upstream.js";
import { ZoneView } from "./zone.js";

// How often what gives no event is read again, ms: max_fails and max_conns.
const READ = 5000;
// All upstreams, should an event have been missed.
const LIST = 60000;
// Events of so long are one, ms.
const TOUCH = 80;
// A reload ends the stream for a moment: that is no trouble yet.
const GRACE = 3000;
// Revisions that are not on the disk, longer than a flush takes.
const LAG = 10000;

class App {
  mode = "off";
  routes = false;
  // Where a route led before it was moved here, by its key.
  moved = new Map();
  root = null;
  view = null;
  #heard = null;
  #lost = null;
  #behind = null;
  #drawing = false;
  #touched = new Set();

  constructor() {
    const path = document.querySelector("meta[name=peerage-api]").content;
    this.api = new Api(path);
    this.store = new Store(this.api);
    this.live = new Live(this.api, {
      event: (event) => this.#event(event),
      state: () => this.#draw(),
      gap: () => this.touchedAll(),
    });
    this.main = document.getElementById("main");
    this.api.heard = (answered) => {
      if (answered) [this.#heard, this.#lost] = [new Date(), null];
      else this.#lost ??= Date.now();
      this.#draw();
    };
    this.store.addEventListener("change", () => this.#draw());
    addEventListener("hashchange", () => this.show());
    document.addEventListener("visibilitychange", () => this.#visible());
  }

  async start() {
    for (let pause = 500; ; pause = Math.min(pause * 2, 8000)) {
      try {
        this.root = await this.api.get([""]);
        break;
      } catch (problem) {
        this.failure = problem;
        this.#banners();
        await new Promise((resolve) => setTimeout(resolve, pause));
      }
    }
    this.failure = null;
    const zones = this.root.zones.map((zone) => zone.name);
    const kept = new URLSearchParams(location.search).get("zone");
    this.store.zoneName = zones.includes(kept) ? kept : (zones[0] ?? null);
    if (zones.length > 1) {
      this.api.zone = this.store.zoneName;
      this.#choice(zones);
    }
    this.store.list();
    this.store.read();
    this.live.start();
    const [mode, routes] = await Promise.all([this.#mode(), this.#routes()]);
    this.mode = mode;
    this.routes = routes;
    this.#nav();
    this.show();
    setInterval(() => document.hidden || this.store.read(), READ);
    setInterval(() => document.hidden || this.store.list(), LIST);
    setInterval(() => this.#draw(), 1000);
  }

  // Finds out what may be written by asking what a write would do: nothing is written.
  async #mode() {
    const changes = [{ op: "put", upstream: "peerage-page", body: {} }];
    try {
      await this.api.send("POST", ["batch"], { query: { dry_run: 1 }, body: { changes } });
    } catch (problem) {
      if (problem.code === "not-permitted") return "operate";
      // Who may not write here: the API, or nginx before it.
      if ([401, 403, 404, 405].includes(problem.status)) return "off";
    }
    return "on";
  }

  async #routes() {
    try {
      await this.api.get(["routes"], { limit: 1 });
      return true;
    } catch {
      return false;
    }
  }

  #choice(zones) {
    const select = h(
      "select",
      {
        "aria-label": "Zone",
        onchange: () => {
          const url = new URL(location.href);
          url.searchParams.set("zone", select.value);
          location.assign(url);
        },
      },
      zones.map((value) => h("option", { value }, value)),
    );
    select.value = this.store.zoneName;
    document.getElementById("zones").replaceChildren(select);
  }

  #nav() {
    const views = [
      ["Overview", "#/"],
      ["Sources", to("sources")],
      ["Zone", to("zone")],
      ["Events", to("events")],
    ];
    if (this.routes) views.splice(1, 0, ["Routes", to("routes")]);
    const links = views.map(([said, href]) => h("a", { href }, said));
    document.getElementById("nav").replaceChildren(...links);
    const said = { off: "read only", operate: "operate", on: "" }[this.mode];
    const mode = document.getElementById("mode");
    mode.className = said ? "chip" : "";
    text(mode, said);
  }

  show() {
    const [kind = "", name] = location.hash
      .slice(2)
      .split("/")
      .map((part) => {
        try {
          return decodeURIComponent(part);
        } catch {
          return part;
        }
      });
    callOff();
    this.view?.stop();
    const make = {
      u: () => new UpstreamView(this, name ?? ""),
      host: () => new HostView(this, name ?? ""),
      sources: () => new SourcesView(this),
      zone: () => new ZoneView(this),
      events: () => new EventsView(this),
      routes: () => new RoutesView(this, name),
    };
    this.view = (Object.hasOwn(make, kind) ? make[kind] : () => new Overview(this))();
    const first = this.shown === undefined;
    this.shown = kind;
    document.title = `${this.view.title} · Peerage`;
    for (const link of document.querySelectorAll("#nav a")) {
      const here = link.getAttribute("href") === (kind ? `#/${kind}` : "#/");
      attribute(link, "aria-current", here ? "page" : null);
    }
    this.main.replaceChildren(this.view.root);
    if (!first) {
      scrollTo(0, 0);
      this.main.focus({ preventScroll: true });
    }
    this.view.start();
    this.#draw();
  }

  // What a server has where nothing is said.
  defaults(upstream) {
    return this.store.upstreams.get(upstream)?.defaults ?? {};
  }

  touched(upstream) {
    this.store.touch(upstream);
    this.#touchView(upstream);
  }

  // However many events there are of it, a view reads what it shows anew once in a while.
  #touchView(name) {
    if (this.#touched.size === 0) {
      setTimeout(() => {
        const names = [...this.#touched];
        this.#touched.clear();
        this.view?.touched?.(names);
      }, TOUCH);
    }
    this.#touched.add(name);
  }

  touchedAll() {
    this.store.list();
    this.store.read();
    this.#touchView(this.view?.name);
  }

  #event(event) {
    if (event.upstream) this.touched(event.upstream);
    // What is said of a machine has no event of each server.
    if (event.kind === "host") this.touchedAll();
    this.view?.event?.(event);
  }

  // A page that nobody sees holds no connection.
  #visible() {
    if (document.hidden) this.live.stop();
    else if (this.root) this.live.start();
  }

  // However much changed, once a frame.
  #draw() {
    if (this.#drawing) return;
    this.#drawing = true;
    requestAnimationFrame(() => {
      this.#drawing = false;
      this.#banners();
      this.view?.draw?.();
    });
  }

  #banners() {
    const banners = [];
    const add = (kind, said, ...links) => banners.push({ kind, said, links });
    const lost = this.#lost !== null && Date.now() - this.#lost > GRACE;
    const since = this.#heard ? ` What is shown is of ${timeText(this.#heard.toISOString())}.` : "";
    if (lost) add("harm", `The API does not answer.${since} Trying again.`);
    const failure = this.failure ?? this.store.problem;
    if (failure?.status) {
      const said = { 401: "wants a login", 403: "refuses this", 404: "is not there" }[
        failure.status
      ];
      add("harm", `The API ${said ?? "fails"}: ${failure.message}`);
    }
    document.body.classList.toggle("stale", lost);
    const live = document.getElementById("live");
    const state = lost ? "lost" : this.live.state;
    attribute(live, "data-live", state);
    text(live, { live: "live", polling: "polling", lost: "connecting" }[state]);
    this.#zoneBanners(add);
    keyed(
      document.getElementById("banners"),
      banners,
      ({ said }) => said,
      ({ said, kind, links }) => h("p", { class: `banner ${kind}` }, said, " ", links),
      () => {},
    );
  }

  #zoneBanners(add) {
    const { zone } = this.store;
    if (!zone) return;
    const details = () => h("a", { href: to("zone") }, "Details");
    const { state, bytes, sources } = zone;
    this.#behind = state?.lag ? (this.#behind ?? Date.now()) : null;
    if (!zone.loaded) add("warn", "The zone is not loaded yet.");
    if (state?.error) {
      add(
        "harm",
        `The state file cannot be written: ${state.error}. Changes are in force all the same.`,
        details(),
      );
    } else if (state?.written && this.#behind && Date.now() - this.#behind > LAG) {
      add("warn", "Changes are in force that are not on the disk.", details());
    }
    if (state?.role === "follows")
      add("warn", "The processes of another nginx write: this one refuses changes.", details());
    if (bytes.used > 0.9 * bytes.total) {
      add("warn", `The zone is ${Math.floor((100 * bytes.used) / bytes.total)} % full.`, details());
    }
    for (const source of sources) {
      const link = h("a", { href: to("sources") }, "Sources");
      // What somebody has decided is no trouble any more.
      if (source.held && source.held.why.code !== "discarded")
        add("warn", `${source.name}: ${heldText(source.held)}.`, link);
      else if (source.state === "stale")
        add("warn", `${source.name} does not answer: what it said last stands.`, link);
    }
    const { build, build_on_disk: disk } = this.root;
    if (disk && disk !== build)
      add("warn", "The module's file was replaced: the new one is used from the next restart on.");
  }
}

function heldText({ servers, why }) {
  return `${plural(servers, "server")} ${servers === 1 ? "is" : "are"} held, ${why.text}`;
}

const app = new App();
app.start();
