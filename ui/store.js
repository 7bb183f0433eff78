// What is known of a zone: its upstreams, the servers that are not up, how the zone itself is.

import { entries } from "./api.js";

// A page of the list: the first one is short, to have something to show.
const FIRST = 200;
const PAGE = 500;
// Servers that are not up, at most; the API pages them as well.
export const SHOWN = 1000;

export class Store extends EventTarget {
  upstreams = new Map();
  // In the order of the API.
  names = [];
  // Whether all upstreams are there.
  complete = false;
  troubles = [];
  more = false;
  zone = null;
  // Why the last reading failed, or null.
  problem = null;
  #dirty = new Set();
  #flushing = null;
  #listing = null;
  #again = false;
  #reading = null;
  #readAgain = false;

  constructor(api) {
    super();
    this.api = api;
  }

  #changed() {
    this.dispatchEvent(new Event("change"));
  }

  // Reads all upstreams anew. One that is being read meanwhile is read once more.
  list() {
    if (this.#listing) {
      this.#again = true;
      return this.#listing;
    }
    this.#listing = this.#list().finally(() => {
      this.#listing = null;
      if (this.#again) {
        this.#again = false;
        setTimeout(() => this.list(), LIST_PAUSE);
      }
    });
    return this.#listing;
  }

  async #list() {
    const found = new Map();
    const api = this.api;
    let after = null;
    for (;;) {
      const limit = after === null ? FIRST : PAGE;
      let page;
      try {
        page = await api.get(["upstreams"], { limit, after });
      } catch (problem) {
        this.problem = problem;
        this.#changed();
        return;
      }
      const named = entries(page);
      for (const [name, entry] of named) found.set(name, entry);
      const whole = named.length < limit;
      // At first what is there is shown; later all of it at once.
      if (whole || !this.complete) {
        this.upstreams = whole ? found : new Map(found);
        this.names = [...found.keys()];
        this.complete ||= whole;
        this.problem = null;
        this.#changed();
      }
      if (whole) return;
      after = named.at(-1)[0];
      // Between two pages the browser has time for its user.
      await new Promise((resolve) => setTimeout(resolve));
    }
  }

  // Servers that are not up, and the report of the zone.
  read() {
    if (this.#reading) {
      this.#readAgain = true;
      return this.#reading;
    }
    this.#reading = this.#read().finally(() => {
      this.#reading = null;
      if (this.#readAgain) {
        this.#readAgain = false;
        setTimeout(() => this.read(), READ_PAUSE);
      }
    });
    return this.#reading;
  }

  async #read() {
    const state = "down,draining,unavail,checking,unhealthy";
    const name = this.zoneName;
    try {
      const [servers, zone] = await Promise.all([
        this.api.get(["servers"], { state, limit: SHOWN }),
        name ? this.api.get(["zones", name]) : null,
      ]);
      this.troubles = servers.servers;
      this.more = servers.next !== null;
      this.zone = zone;
      this.problem = null;
    } catch (problem) {
      this.problem = problem;
    }
    this.#changed();
  }

  // Something changed of an upstream.
  touch(name) {
    this.#dirty.add(name);
    this.#flushing ??= setTimeout(() => this.#flush(), 150);
  }

  async #flush() {
    this.#flushing = null;
    const names = [...this.#dirty];
    this.#dirty.clear();
    this.read();
    if (names.length > FEW || this.#listing) {
      this.list();
      return;
    }
    for (const name of names) {
      try {
        this.put(await this.api.get(["upstreams", name]));
      } catch (problem) {
        if (problem.status === 404) this.drop(name);
      }
    }
  }

  // What was read of an upstream elsewhere.
  put(upstream) {
    const { servers, ...entry } = upstream;
    if (!this.upstreams.has(entry.name)) {
      const at = this.names.findIndex((name) => name > entry.name);
      this.names.splice(at < 0 ? this.names.length : at, 0, entry.name);
    }
    this.upstreams.set(entry.name, entry);
    this.#changed();
  }

  drop(name) {
    if (!this.upstreams.delete(name)) return;
    this.names.splice(this.names.indexOf(name), 1);
    this.#changed();
  }
}

// Between two readings, however much changes, ms.
const LIST_PAUSE = 2000;
const READ_PAUSE = 400;
// Upstreams that are read one by one; beyond, the whole list is.
const FEW = 10;
