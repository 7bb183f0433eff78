// An nginx of a story's own, with backends, in a directory that goes with it.

import { execFile, spawn } from "node:child_process";
import { once } from "node:events";
import { readFile, mkdtemp, rm, writeFile } from "node:fs/promises";
import http from "node:http";
import net from "node:net";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { promisify } from "node:util";

// A port that was free a moment ago.
export async function freePort() {
  const server = net.createServer().listen(0, "127.0.0.1");
  await new Promise((resolve) => server.once("listening", resolve));
  const { port } = server.address();
  await new Promise((resolve) => server.close(resolve));
  return port;
}

// Awaits what a function gives, once that is something.
export async function eventually(what, found, ms = 10000) {
  const end = Date.now() + ms;
  for (;;) {
    const value = await found();
    if (value) return value;
    if (Date.now() > end) throw new Error(`not within ${ms} ms: ${what}`);
    await new Promise((resolve) => setTimeout(resolve, 50));
  }
}

// Makes a certificate for itself, as NAME.crt and NAME.key.
export async function certificate(name) {
  const words = ["req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "2"];
  words.push("-subj", "/CN=lb.example.com", "-keyout", `${name}.key`, "-out", `${name}.crt`);
  await promisify(execFile)("openssl", words);
}

// A server behind nginx. Requests of /hold are answered when they are released; `status` and
// `says` are those of all others.
export class Backend {
  status = 200;
  says = "ok";
  held = [];

  static async start(host = "127.0.0.1", port = 0) {
    const backend = new Backend();
    backend.server = http.createServer((request, response) => {
      if (request.url.startsWith("/hold")) return void backend.held.push(response);
      response.statusCode = backend.status;
      response.end(backend.says);
    });
    backend.server.listen(port, host);
    await once(backend.server, "listening");
    backend.address = `${host}:${backend.server.address().port}`;
    return backend;
  }

  release() {
    for (const response of this.held.splice(0)) response.end("ok");
  }

  stop() {
    this.release();
    this.server.closeAllConnections();
    this.server.close();
  }
}

export class Nginx {
  // What stands in http{}: {port} is that of the page and the API, {web} that of the traffic,
  // {prefix} the directory, into which `files` may put some.
  static async start(conf, files = async () => {}) {
    const nginx = new Nginx();
    nginx.prefix = await mkdtemp(join(tmpdir(), "peerage-page."));
    nginx.port = await freePort();
    nginx.web = await freePort();
    nginx.url = `http://127.0.0.1:${nginx.port}`;
    await files(nginx.prefix);
    await nginx.write(conf);
    await nginx.run();
    return nginx;
  }

  async write(conf) {
    const http = conf
      .replaceAll("{port}", this.port)
      .replaceAll("{web}", this.web)
      .replaceAll("{prefix}", this.prefix);
    const temporary = ["client_body", "proxy", "fastcgi", "uwsgi", "scgi"];
    await writeFile(
      join(this.prefix, "nginx.conf"),
      `load_module ${process.env.PEERAGE_MODULE};
       ${process.getuid() === 0 ? "user root;" : ""}
       daemon off; worker_processes 2; pid nginx.pid; error_log error.log notice;
       events { worker_connections 512; }
       http {
           access_log off;
           ${temporary.map((name) => `${name}_temp_path ${name};`).join(" ")}
           ${http}
       }`,
    );
  }

  async run() {
    const words = ["-p", `${this.prefix}/`, "-c", "nginx.conf", "-e", "error.log"];
    this.process = spawn(process.env.PEERAGE_NGINX ?? "/usr/sbin/nginx", words, {
      stdio: ["ignore", "inherit", "inherit"],
    });
    this.ended = new Promise((resolve) => this.process.once("exit", resolve));
    await eventually("nginx accepts", () => this.accepts());
  }

  accepts() {
    return new Promise((resolve) => {
      const socket = net.connect(this.port, "127.0.0.1");
      socket.once("connect", () => resolve(socket.destroy()));
      socket.once("error", () => resolve(false));
    }).then(async (open) => {
      if (!open) return false;
      const said = await readFile(join(this.prefix, "error.log"), "utf8");
      return said.includes("start worker process");
    });
  }

  async stop(signal = "SIGTERM") {
    this.process.kill(signal);
    await this.ended;
  }

  reload() {
    this.process.kill("SIGHUP");
  }

  async api(method, path, body) {
    const answer = await fetch(`${this.url}/api/v1/${path}`, {
      method,
      body: body && (typeof body === "string" ? body : JSON.stringify(body)),
    });
    const text = await answer.text();
    if (!answer.ok) throw new Error(`${method} ${path}: ${answer.status} ${text}`);
    return JSON.parse(text);
  }

  async server(upstream, server) {
    return this.api("GET", `upstreams/${upstream}/servers/${encodeURIComponent(server)}`);
  }

  // A request for the traffic's side.
  request(path = "/") {
    return fetch(`http://127.0.0.1:${this.web}${path}`).then((answer) => answer.text());
  }

  // Ends it, and fails where it complained.
  async end() {
    if (this.process.exitCode === null) await this.stop();
    const said = await readFile(join(this.prefix, "error.log"), "utf8");
    await rm(this.prefix, { recursive: true, force: true });
    const bad = said.split("\n").filter((line) => /\[(alert|emerg)\]/.test(line));
    if (bad.length) throw new Error(bad.join("\n"));
  }
}
