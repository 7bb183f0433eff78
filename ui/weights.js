// Weights that are edited in place and come in force together: what is written is kept beside what
// holds until it is applied as one batch, which is refused if somebody else has changed the
// upstream.

import { ask, failed, overtaken, toast } from "./dialog.js";
import { button, cell, h, number, plural, row, table } from "./dom.js";

export class Weights {
  // By a server's id: its address, the weight at the beginning, and the one that is written.
  edits = new Map();
  #revision = null;

  constructor(app, upstream) {
    this.app = app;
    this.upstream = upstream;
    this.count = h("span", {});
    this.root = h(
      "div",
      { class: "edits", role: "region", "aria-label": "Edited weights", hidden: true },
      this.count,
      button("Preview and apply", () => this.apply(), { class: "primary" }),
      button("Discard", () => this.discard()),
    );
    this.shown = () => {};
  }

  // What is written into a field; `revision` is the one at which the upstream was read.
  edit(server, value, revision) {
    const weight = Number(value);
    if (value === "" || !Number.isInteger(weight) || weight < 0 || weight > 65535) return false;
    const base = this.edits.get(server.id)?.base ?? server.weight;
    if (weight === base) this.edits.delete(server.id);
    else this.edits.set(server.id, { id: server.id, server: server.server, base, weight });
    if (this.edits.size === 0) this.#revision = null;
    else this.#revision ??= revision;
    this.#show();
    return true;
  }

  discard() {
    this.edits.clear();
    this.#revision = null;
    this.#show();
  }

  #show() {
    this.count.textContent = `${plural(this.edits.size, "weight")} edited`;
    this.root.hidden = this.edits.size === 0;
    this.shown();
  }

  #body(edits, revision) {
    const changes = edits.map(({ id, weight }) => ({
      op: "patch",
      upstream: this.upstream,
      server: `id:${id}`,
      body: { weight },
    }));
    return { if_revision: revision, changes };
  }

  async apply() {
    const edits = [...this.edits.values()];
    if (edits.length === 0) return;
    const send = (query) =>
      this.app.api.send("POST", ["batch"], { query, body: this.#body(edits, this.#revision) });
    let preview;
    try {
      preview = await send({ dry_run: 1 });
    } catch (problem) {
      if (problem.code === "stale") return this.#conflict(edits);
      return failed(problem);
    }
    let stale = false;
    const answer = await ask({
      title: `Weights of ${this.upstream}`,
      content: [h("p", {}, "One change, all or none:"), differences(preview.diff)],
      say: `Apply ${plural(edits.length, "weight")}`,
      submit: async () => {
        try {
          return await send();
        } catch (problem) {
          if (problem.code !== "stale") throw problem;
          stale = true;
          return null;
        }
      },
    });
    if (stale) return this.#conflict(edits);
    if (!answer) return;
    this.discard();
    this.app.touched(this.upstream);
    const undo = async () => {
      const back = edits.map(({ id, base }) => ({ id, weight: base }));
      const body = this.#body(back, answer.revision);
      await this.app.api.send("POST", ["batch"], { body });
      this.app.touched(this.upstream);
    };
    toast(`${plural(edits.length, "weight")} of ${this.upstream} set`, { undo });
  }

  // Somebody else was faster: shows what is there now beside what was wanted.
  async #conflict(edits) {
    let now;
    try {
      now = await this.app.api.get(["upstreams", this.upstream]);
    } catch (problem) {
      return failed(problem);
    }
    const { root, body } = table("Conflicts", [
      ["Server"],
      ["When you began", "number"],
      ["Now", "number"],
      ["Yours", "number"],
    ]);
    const there = new Map(now.servers.map((server) => [server.id, server]));
    for (const { id, server, base, weight } of edits) {
      const held = there.get(id);
      const node = row(
        cell("Server", "", server),
        cell("When you began", "number", number(base)),
        cell("Now", "number", held ? number(held.weight) : "removed"),
        cell("Yours", "number", number(weight)),
      );
      if (!held || held.weight !== base) node.classList.add("changed");
      body.append(node);
    }
    if (!(await overtaken("upstream", this.upstream, root))) return;
    // Judged anew: by the weights that are there, and after another preview.
    this.edits.clear();
    for (const { id, server, weight } of edits) {
      const held = there.get(id);
      if (held && held.weight !== weight) {
        this.edits.set(id, { id, server, base: held.weight, weight });
      }
    }
    this.#revision = this.edits.size ? now.revision : null;
    this.app.touched(this.upstream);
    this.#show();
  }
}

// What a dry run says would change.
export function differences(diff) {
  const { root, body } = table("What would change", [
    ["What"],
    ["Now", "number"],
    ["Then", "number"],
  ]);
  const said = (value) =>
    value === null ? "–" : typeof value === "object" ? JSON.stringify(value) : String(value);
  for (const { path, from, to } of diff) {
    const what = path.replace(/^upstreams\//, "");
    body.append(
      row(
        cell("What", "", what),
        cell("Now", "number", said(from)),
        cell("Then", "number", said(to)),
      ),
    );
  }
  return diff.length ? root : h("p", {}, "Nothing would change.");
}
