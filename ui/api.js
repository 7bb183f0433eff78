// The API of the same nginx, with the credentials that the browser has for it.

// An answer that is no 2xx; status 0 where there was none.
export class Problem extends Error {
  constructor(status, body) {
    super(body?.detail || body?.title || (status ? `status ${status}` : "no answer"));
    this.status = status;
    this.body = body ?? {};
    this.code = (this.body.type ?? "").replace("urn:peerage:", "");
  }
}

export class Api {
  // Only said where the API has several zones: it asks for one then.
  zone = null;
  // Called after each answer, with whether there was one.
  heard = () => {};

  constructor(path) {
    this.base = new URL(`${path.replace(/\/+$/, "")}/v1/`, document.baseURI);
  }

  url(segments, query = {}) {
    const url = new URL(segments.map(encodeURIComponent).join("/"), this.base);
    for (const [name, value] of Object.entries(query)) {
      if (value !== null && value !== undefined) url.searchParams.set(name, value);
    }
    if (this.zone && !["zones", ""].includes(segments[0])) url.searchParams.set("zone", this.zone);
    return url;
  }

  async send(method, segments, { query, body, headers = {}, wait = PATIENCE } = {}) {
    let answer, said;
    const text = typeof body === "string" ? body : body && JSON.stringify(body);
    try {
      answer = await fetch(this.url(segments, query), {
        method,
        headers,
        body: text,
        cache: "no-store",
        credentials: "same-origin",
        redirect: "error",
        signal: AbortSignal.timeout(wait),
      });
      said = await answer.text();
    } catch {
      this.heard(false);
      throw new Problem(0, { detail: "the API does not answer" });
    }
    this.heard(true);
    let json;
    try {
      json = JSON.parse(said);
    } catch {
      // nginx answers by itself, with a page: for errors of a proxy or of its access rules.
      json = null;
    }
    if (!answer.ok || json === null) throw new Problem(answer.status, json);
    return json;
  }

  get(segments, query, wait) {
    return this.send("GET", segments, { query, wait });
  }
}

// How a server is named: ids stand for one server for ever, an address may be given again.
export function serverPath(upstream, server) {
  return ["upstreams", upstream, "servers", `id:${server.id}`];
}

// What a page of a list names, in the order of the API, which is that of bytes: an object would have
// names that are whole numbers first.
export function entries(page) {
  return Object.entries(page).sort(([a], [b]) => order(a, b));
}

function order(a, b) {
  let i = 0;
  while (i < a.length && a[i] === b[i]) i++;
  // Not in the middle of a character of two units.
  if (i > 0 && i < a.length && (a.charCodeAt(i) & 0xfc00) === 0xdc00) i--;
  return (a.codePointAt(i) ?? -1) - (b.codePointAt(i) ?? -1);
}

const PATIENCE = 15000;
