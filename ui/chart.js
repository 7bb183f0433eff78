// A small chart of the last samples; the number beside it is for those who do not see it.

const SVG = "http://www.w3.org/2000/svg";
const SAMPLES = 60;
const [WIDTH, HEIGHT] = [60, 20];

export class Chart {
  samples = [];

  constructor() {
    this.line = document.createElementNS(SVG, "polyline");
    this.root = document.createElementNS(SVG, "svg");
    this.root.setAttribute("viewBox", `0 -1 ${WIDTH} ${HEIGHT + 2}`);
    this.root.setAttribute("preserveAspectRatio", "none");
    this.root.setAttribute("aria-hidden", "true");
    this.root.setAttribute("class", "chart");
    this.root.append(this.line);
  }

  // A null is a gap in what is known: the line begins anew behind it.
  push(value) {
    this.samples.push(value);
    if (this.samples.length > SAMPLES) this.samples.shift();
    const from = this.samples.lastIndexOf(null) + 1;
    const known = this.samples.slice(from);
    const top = Math.max(...known, 1e-9);
    const first = SAMPLES - known.length;
    const points = known.map((v, i) => `${first + i},${(HEIGHT * (1 - v / top)).toFixed(1)}`);
    this.line.setAttribute("points", points.join(" "));
  }
}

// What is counted of a server becomes rates, from one reading to the next.
export class Rates {
  #last = null;

  // Rates a second, or nulls at first and where counting began anew.
  read(server, now) {
    const counters = server.counters ?? {};
    const read = {
      now,
      requests: counters.requests ?? 0,
      errors: (counters.fails ?? 0) + (counters.responses?.["5xx"] ?? 0),
    };
    const last = this.#last;
    this.#last = read;
    const none = { requests: null, errors: null };
    if (!last || read.requests < last.requests || read.errors < last.errors) return none;
    const seconds = (now - last.now) / 1000;
    if (seconds <= 0) return none;
    return {
      requests: (read.requests - last.requests) / seconds,
      errors: (read.errors - last.errors) / seconds,
    };
  }
}
