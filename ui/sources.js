// Sources of servers: how they stand, and what is held of what they say.

import { ask, toast } from "./dialog.js";
import { button, cell, h, number, plural, row, table, time } from "./dom.js";

const EVERY = 5000;

export class SourcesView {
  title = "Sources";
  #timer = null;
  #stopped = false;

  constructor(app) {
    this.app = app;
    this.content = h("div", {}, h("p", { class: "quiet" }, "Reading …"));
    this.root = h("div", {}, h("h2", {}, "Sources"), this.content);
  }

  start() {
    this.read();
  }

  stop() {
    this.#stopped = true;
    clearTimeout(this.#timer);
  }

  touched() {
    this.read();
  }

  async read() {
    clearTimeout(this.#timer);
    const turn = (this.turn = {});
    let shown;
    let key;
    try {
      const sources = Object.values(await this.app.api.get(["sources"]));
      key = JSON.stringify(sources);
      shown = () => this.#table(sources);
    } catch (problem) {
      key = problem.message;
      shown = () => h("p", { class: "wrong" }, problem.message);
    }
    if (turn !== this.turn || this.#stopped) return;
    // Nothing new leaves the focus where it is.
    if (key !== this.key) this.content.replaceChildren(shown());
    this.key = key;
    this.#timer = setTimeout(() => this.read(), EVERY);
  }

  #table(sources) {
    if (sources.length === 0) return h("p", {}, "No source is watched.");
    const { root, body } = table("Sources", [
      ["State"],
      ["Source"],
      ["Last answer"],
      ["Last error"],
      ["Answers", "number"],
      ["Held"],
      ["", "actions"],
    ]);
    for (const source of sources) {
      const { held, last_error: error } = source;
      const decide = (label, decision) => button(label, () => this.#decide(source, decision));
      const may = held && this.app.mode === "on";
      const decided = held?.why.code === "discarded";
      const node = row(
        cell(
          "State",
          "",
          h("span", { class: "badge", "data-state": STATE[source.state] }, source.state),
        ),
        cell("Source", "", h("b", {}, source.name)),
        cell("Last answer", "", time(source.last_success)),
        cell("Last error", "long", h("span", {}, error && [error.text, " ", time(error.time)])),
        cell("Answers", "number", number(source.answers)),
        cell(
          "Held",
          "",
          held
            ? h("span", {}, h("b", {}, plural(held.servers, "server")), `: ${held.why.text}`)
            : "nothing",
        ),
        cell(
          "",
          "actions",
          h(
            "div",
            { class: "buttons" },
            may
              ? [decide("Apply", "apply"), ...(decided ? [] : [decide("Discard", "discard")])]
              : [],
          ),
        ),
      );
      if (held && !decided) node.classList.add("changed");
      body.append(node);
    }
    return root;
  }

  async #decide(source, decision) {
    // "consul/dc1:web" names its kind and itself.
    const slash = source.name.indexOf("/");
    const path = ["sources", source.name.slice(0, slash), source.name.slice(slash + 1), decision];
    const said =
      decision === "apply"
        ? `What it names no longer drains, and goes: ${plural(source.held.servers, "server")}.`
        : `What it names no longer stays: ${plural(source.held.servers, "server")}.`;
    const answer = await ask({
      title: `${decision === "apply" ? "Apply" : "Discard"} what ${source.name} says`,
      content: h("p", {}, said),
      say: decision === "apply" ? "Apply" : "Discard",
      danger: decision === "apply",
      submit: () => this.app.api.send("POST", path),
    });
    if (!answer) return;
    toast(`${source.name}: ${decision === "apply" ? "applied" : "discarded"}`);
    this.app.touchedAll();
    this.read();
  }
}

const STATE = { up: "up", stale: "unhealthy", waiting: "checking" };
