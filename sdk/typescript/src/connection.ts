/**
 * One WebSocket of a session.
 *
 * Start at {@link Connection.open}. Works with the WebSocket of browsers and of Node 22, and with
 * that of the package `ws`, because it uses only what they have in common.
 *
 * Invariant: after {@link Connection.drop}, or after `lost` was called, nothing is reported.
 */

import { parseAddress } from "./address.js";
import { LinguaError, reasonOf } from "./error.js";
import { currentToken, type TokenSource } from "./token.js";
import type { SessionStarted, SessionUpdates } from "./wire.js";

/** The route of sessions. */
const ROUTE = "/v1/session/ws";

/** How long the scheduler may take to accept a connection, and to answer the first message. */
const OPEN_MS = 10_000;

/** What the server selects; the token is offered beside it. */
const PROTOCOL = "lingua.v1";

const NORMAL = 1000;

/** The part of a WebSocket that is used here. */
export interface WebSocketLike {
  binaryType: string;
  readonly bufferedAmount: number;
  onopen: ((event: never) => void) | null;
  onmessage: ((event: never) => void) | null;
  onerror: ((event: never) => void) | null;
  onclose: ((event: never) => void) | null;
  send(data: string | Uint8Array<ArrayBuffer>): void;
  close(code?: number): void;
}

/** A class of WebSockets, such as `globalThis.WebSocket` or that of the package `ws`. */
export type WebSocketClass = new (url: string, protocols: string[]) => WebSocketLike;

/** How to reach the scheduler. */
export interface SessionOptions {
  /** Such as `https://lingua.example`, or `wss://lingua.example/v1/session/ws`. */
  url: string | URL;
  /** A token or grant, or a callback that is asked for one at every connection. */
  token?: TokenSource | undefined;
  /** In place of the global `WebSocket`, which Node has from version 22 on. */
  WebSocket?: WebSocketClass | undefined;
}

/** A message from the scheduler, with its type. */
export type SessionUpdate = {
  [Type in keyof SessionUpdates]: { type: Type } & SessionUpdates[Type];
}[keyof SessionUpdates];

/** Who is told what comes. */
export interface ConnectionEvents {
  /** The answer to the first message has come. */
  started(connection: Connection, started: SessionStarted): void;
  update(update: SessionUpdate): void;
  /** The connection is gone; called at most once, and only after `started`. */
  lost(error: LinguaError, isNormal: boolean): void;
}

/** An open connection. */
export class Connection {
  readonly #socket: WebSocketLike;

  private constructor(socket: WebSocketLike) {
    this.#socket = socket;
  }

  /** Connects, sends the first message and waits for the answer. */
  static async open(
    options: SessionOptions,
    first: string,
    events: ConnectionEvents,
  ): Promise<void> {
    const url = sessionUrl(options.url);
    const token = await currentToken(options.token);
    const protocols = token === undefined ? [PROTOCOL] : [PROTOCOL, `lingua.token.${token}`];
    const socket = newSocket(options.WebSocket, url, protocols);
    const connection = new Connection(socket);
    socket.binaryType = "arraybuffer";
    await new Promise<void>((resolve, reject) => {
      let isStarted = false;
      let trouble = "it closed the connection";
      const failed = (error: LinguaError, isNormal = false) => {
        clearTimeout(timer);
        connection.drop();
        if (isStarted) {
          events.lost(error, isNormal);
        } else {
          reject(error);
        }
      };
      const timer = setTimeout(
        () => failed(unreachable(url, "it did not answer in time")),
        OPEN_MS,
      );
      socket.onopen = () => socket.send(first);
      socket.onerror = (event: { message?: string }) => {
        trouble = event.message || "the connection failed";
      };
      socket.onclose = ({ code, reason }: { code: number; reason: string }) => {
        failed(unreachable(url, reason || `${trouble} (${code})`), code === NORMAL);
      };
      socket.onmessage = ({ data }: { data: unknown }) => {
        const update = parseUpdate(data);
        if (update?.type === "error" && (update.fatal || !isStarted)) {
          failed(new LinguaError(update.error, update.detail));
        } else if (update?.type === "session_started") {
          isStarted = true;
          clearTimeout(timer);
          events.started(connection, update);
          resolve();
        } else if (update) {
          events.update(update);
        }
      };
    });
  }

  /** Bytes that were sent and have not left. */
  get bufferedBytes(): number {
    return this.#socket.bufferedAmount;
  }

  send(frame: string | Uint8Array): void {
    this.#socket.send(frame as string | Uint8Array<ArrayBuffer>);
  }

  /** Closes the connection. */
  drop(): void {
    const socket = this.#socket;
    // A socket that is still connecting reports the failure when it is closed.
    socket.onerror = () => {};
    socket.onopen = null;
    socket.onmessage = null;
    socket.onclose = null;
    socket.close();
  }
}

function newSocket(
  given: WebSocketClass | undefined,
  url: string,
  protocols: string[],
): WebSocketLike {
  const WebSocket = given ?? (globalThis.WebSocket as WebSocketClass | undefined);
  if (!WebSocket) {
    const detail =
      "this version of Node has no WebSocket; install the package ws and give its class: " +
      '{ WebSocket } from "ws", or start Node 20 with --experimental-websocket';
    throw new LinguaError("UNSUPPORTED", detail);
  }
  try {
    return new WebSocket(url, protocols);
  } catch (cause) {
    throw new LinguaError("BAD_OPTION", `cannot connect to ${url}: ${reasonOf(cause)}`, { cause });
  }
}

/** The address of the socket; one without a path gets that of the route. */
function sessionUrl(given: string | URL): string {
  const url = parseAddress(given, ["http:", "https:", "ws:", "wss:"]);
  url.protocol = url.protocol.replace(/^http/, "ws");
  if (url.pathname === "/") {
    url.pathname = ROUTE;
  }
  return url.href;
}

/**
 * A message; undefined for what this version does not know. Binary frames belong to streamed
 * speech, which the scheduler does not send yet.
 */
function parseUpdate(data: unknown): SessionUpdate | undefined {
  if (typeof data !== "string") {
    return undefined;
  }
  try {
    return JSON.parse(data) as SessionUpdate;
  } catch {
    return undefined;
  }
}

function unreachable(url: string, detail: string): LinguaError {
  return new LinguaError("UNREACHABLE", `${url}: ${detail}`);
}
