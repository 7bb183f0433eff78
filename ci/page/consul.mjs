// A Consul of a story's own, as far as a watched service needs one: an index that goes up with each
// change, and queries that wait for the next.

import http from "node:http";
import { once } from "node:events";

export class Consul {
  index = 10;
  services = new Map();
  #waiting = new Set();

  static async start() {
    const consul = new Consul();
    consul.server = http.createServer((request, response) => consul.#answer(request, response));
    consul.server.listen(0, "127.0.0.1");
    await once(consul.server, "listening");
    consul.url = `http://127.0.0.1:${consul.server.address().port}`;
    return consul;
  }

  // Has a service be these addresses, each healthy.
  set(name, addresses) {
    this.services.set(name, addresses);
    this.index++;
    for (const answer of this.#waiting) answer();
  }

  #answer(request, response) {
    const url = new URL(request.url, "http://consul");
    const name = url.pathname.replace("/v1/health/service/", "");
    const known = Number(url.searchParams.get("index") ?? 0);
    const answer = () => {
      this.#waiting.delete(answer);
      response.setHeader("X-Consul-Index", this.index);
      response.setHeader("X-Consul-KnownLeader", "true");
      response.end(JSON.stringify((this.services.get(name) ?? []).map(entry)));
    };
    if (known !== this.index) return answer();
    this.#waiting.add(answer);
    response.once("close", () => this.#waiting.delete(answer));
  }

  stop() {
    this.server.closeAllConnections();
    this.server.close();
  }
}

function entry(address, i) {
  const [ip, port] = address.split(":");
  return {
    Node: { Node: "n1", Address: ip, Datacenter: "dc1" },
    Service: {
      ID: `web-${i}`,
      Service: "web",
      Tags: [],
      Address: ip,
      Port: Number(port),
      Meta: null,
      Weights: { Passing: 1, Warning: 1 },
    },
    Checks: [{ CheckID: `service:web-${i}`, Status: "passing" }],
  };
}
