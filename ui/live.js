// What changes, as it changes: the stream of events, or polls where a proxy lets no stream through.
//
// The stream is read by hand, not by an EventSource: that one tells neither of the comments by
// which a stream shows that it lives, nor why it was refused.

import { Problem } from "./api.js";

export class Live {
  #seq = null;
  #ended = null;
  // When the stream may be tried again.
  #stream = 0;
  state = "lost";

  // on.event(event), on.state(state), and on.gap() after events may have been missed.
  constructor(api, on) {
    this.api = api;
    this.on = on;
  }

  start() {
    if (this.#ended) return;
    this.#ended = new AbortController();
    this.#run(this.#ended.signal);
  }

  stop() {
    this.#ended?.abort();
    this.#ended = null;
    this.#seq = null;
  }

  #say(state) {
    if (this.state === state) return;
    this.state = state;
    this.on.state(state);
  }

  async #run(ended) {
    let pause = FIRST;
    while (!ended.aborted) {
      try {
        await this.#poll(ended, 0);
        pause = FIRST;
        if (Date.now() >= this.#stream) await this.#follow(ended);
        else await this.#poll(ended, 20);
      } catch (problem) {
        if (ended.aborted) return;
        if (problem.code === "events-gone") {
          this.#seq = problem.body.seq;
          this.on.gap();
          continue;
        }
        this.#say("lost");
        await new Promise((resolve) => setTimeout(resolve, pause));
        pause = Math.min(pause * 2, LAST);
      }
    }
  }

  async #poll(ended, seconds) {
    const query = this.#seq === null ? {} : { since: this.#seq, wait: `${seconds}s` };
    const answer = await this.api.get(["events"], query, (seconds + 10) * 1000);
    if (ended.aborted) return;
    const first = this.#seq === null;
    this.#seq = answer.seq;
    if (first) this.on.gap();
    for (const event of answer.events) this.on.event(event);
    // That there is an answer is all that is known while the stream has not begun.
    if (this.state === "lost" || Date.now() < this.#stream) this.#say("polling");
  }

  // Reads the stream until it ends. One that does not begin, or falls silent, is not tried again
  // for a while.
  async #follow(ended) {
    const silent = new AbortController();
    let timer;
    const alive = () => {
      clearTimeout(timer);
      timer = setTimeout(() => silent.abort(), SILENCE);
    };
    alive();
    let began = false;
    try {
      const answer = await fetch(this.api.url(["events"], { since: this.#seq }), {
        headers: { Accept: "text/event-stream" },
        cache: "no-store",
        credentials: "same-origin",
        redirect: "error",
        signal: AbortSignal.any([ended, silent.signal]),
      });
      const type = answer.headers.get("Content-Type") ?? "";
      if (!answer.ok || !type.startsWith("text/event-stream")) throw new Problem(answer.status);
      const reader = answer.body.pipeThrough(new TextDecoderStream()).getReader();
      let held = "";
      for (;;) {
        const { value, done } = await reader.read();
        if (done) return;
        alive();
        if (!began) this.#say("live");
        began = true;
        held += value;
        const blocks = held.split("\n\n");
        held = blocks.pop();
        for (const block of blocks) this.#block(block);
      }
    } catch {
      if (!began || silent.signal.aborted) this.#stream = Date.now() + AGAIN;
    } finally {
      clearTimeout(timer);
    }
  }

  #block(block) {
    const data = block.split("\n").filter((line) => line.startsWith("data:"));
    if (data.length === 0) return;
    const event = JSON.parse(data.map((line) => line.slice(5)).join("\n"));
    this.#seq = event.seq;
    this.on.event(event);
  }
}

// Pauses between tries, ms.
const FIRST = 500;
const LAST = 8000;
// A stream says something every 15 seconds.
const SILENCE = 40000;
const AGAIN = 60000;
