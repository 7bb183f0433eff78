// A list of any length in the page: only the rows that can be seen are there.

import { h } from "./dom.js";

// Rows beyond what is seen, on both sides.
const MORE = 12;

export class List {
  items = [];
  #nodes = new Map();
  #pool = [];
  #due = false;
  #height = 0;

  // make() makes a row, update(row, item) has it show an item; a row has one link, or what has the
  // focus.
  constructor(label, make, update) {
    this.make = make;
    this.update = update;
    this.root = h("div", { class: "list", role: "list", "aria-label": label });
    this.root.addEventListener("keydown", (event) => this.#key(event));
    this.seen = () => this.draw();
  }

  start() {
    addEventListener("scroll", this.seen, { passive: true });
    addEventListener("resize", this.seen, { passive: true });
  }

  stop() {
    removeEventListener("scroll", this.seen);
    removeEventListener("resize", this.seen);
  }

  set(items) {
    this.items = items;
    this.draw(true);
  }

  // Draws at the next frame.
  draw(all = false) {
    this.all ||= all;
    if (this.#due) return;
    this.#due = true;
    requestAnimationFrame(() => {
      this.#due = false;
      this.#draw();
    });
  }

  #draw() {
    // Heights are the style's to say: rows are higher on narrow screens.
    const height = parseFloat(getComputedStyle(this.root).getPropertyValue("--row"));
    if (!(height > 0)) return;
    const all = this.all || height !== this.#height;
    this.all = false;
    this.#height = height;
    this.root.style.height = `${this.items.length * height}px`;
    const top = -this.root.getBoundingClientRect().top;
    const first = Math.max(0, Math.floor(top / height) - MORE);
    const end = Math.min(this.items.length, Math.ceil((top + innerHeight) / height) + MORE);
    for (const [i, node] of this.#nodes) {
      if (i >= first && i < end) continue;
      this.#nodes.delete(i);
      this.#pool.push(node);
      node.remove();
    }
    // The tab key and screen readers go by the order in the document.
    let at = this.root.firstElementChild;
    for (let i = first; i < end; i++) {
      let node = this.#nodes.get(i);
      const fresh = !node;
      if (fresh) {
        node = this.#pool.pop() ?? this.make();
        this.#nodes.set(i, node);
        node.setAttribute("role", "listitem");
        node.setAttribute("aria-posinset", i + 1);
      }
      if (fresh || all) {
        node.style.transform = `translateY(${i * height}px)`;
        node.setAttribute("aria-setsize", this.items.length);
        this.update(node, this.items[i]);
      }
      if (node === at) at = at.nextElementSibling;
      else this.root.insertBefore(node, at);
    }
  }

  // Has the first row take the focus.
  focus() {
    this.#focus(0);
  }

  // Arrows go from row to row, and the page goes with them.
  #key(event) {
    const steps = { ArrowDown: 1, ArrowUp: -1, PageDown: 10, PageUp: -10 };
    const step = steps[event.key];
    if (!step) return;
    const at = [...this.#nodes].find(([, node]) => node.contains(event.target))?.[0];
    if (at === undefined) return;
    event.preventDefault();
    this.#focus(Math.min(Math.max(at + step, 0), this.items.length - 1));
  }

  #focus(i) {
    const box = this.root.getBoundingClientRect();
    const [from, upto] = [box.top + i * this.#height, box.top + (i + 1) * this.#height];
    if (from < HEADER) scrollBy(0, from - HEADER);
    if (upto > innerHeight) scrollBy(0, upto - innerHeight);
    this.#draw();
    this.#nodes.get(i)?.querySelector("a")?.focus({ preventScroll: true });
  }
}

// What the header of the page covers, px.
const HEADER = 80;
