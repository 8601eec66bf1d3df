/** A TCP proxy in front of a scheduler that can break connections, or lose what clients send. */

import { once } from "node:events";
import { type AddressInfo, connect, createServer, type Server, type Socket } from "node:net";

export class CutProxy {
  readonly url: string;
  readonly #server: Server;
  readonly #pairs = new Set<[Socket, Socket]>();
  #isRefusing = false;
  #isDeaf = false;

  private constructor(server: Server) {
    this.#server = server;
    this.url = `http://127.0.0.1:${(server.address() as AddressInfo).port}`;
  }

  static async to(address: string): Promise<CutProxy> {
    const port = Number(address.split(":")[1]);
    const server = createServer();
    server.listen(0, "127.0.0.1");
    await once(server, "listening");
    const proxy = new CutProxy(server);
    server.on("connection", (client) => proxy.#accept(client, connect(port, "127.0.0.1")));
    return proxy;
  }

  #accept(client: Socket, server: Socket): void {
    const pair: [Socket, Socket] = [client, server];
    this.#pairs.add(pair);
    client.on("data", (bytes) => this.#isDeaf || server.write(bytes));
    server.on("data", (bytes) => client.write(bytes));
    const end = () => {
      client.destroy();
      server.destroy();
      this.#pairs.delete(pair);
    };
    for (const socket of pair) {
      socket.on("error", end);
      socket.on("close", end);
    }
    if (this.#isRefusing) {
      end();
    }
  }

  /** Keeps connections open and loses what clients send from now on. */
  loseInput(): void {
    this.#isDeaf = true;
  }

  /** Breaks all connections; new ones work. */
  breakConnections(): void {
    this.#isDeaf = false;
    for (const [client] of this.#pairs) {
      client.destroy();
    }
  }

  /** Breaks all connections, and new ones at once, until {@link accept}. */
  refuse(): void {
    this.#isRefusing = true;
    this.breakConnections();
  }

  accept(): void {
    this.#isRefusing = false;
  }

  close(): void {
    this.refuse();
    this.#server.close();
  }
}
