/** What most tests need: a scheduler, its end, and conditions that are awaited. */

import { createHmac } from "node:crypto";
import { mkdtempSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { dirname, join } from "node:path";
import type { TestContext } from "node:test";
import { Session, type SessionEvent, type SessionOptions, type WebSocketClass } from "lingua-sdk";
import { WebSocket } from "ws";
import { run, Scheduler, SimulatedNodes } from "../scripts/scheduler.mjs";
import { CutProxy } from "./cut-proxy.js";
import { RawNode } from "./raw-node.js";

/** Longer than anything takes, even on a slow machine. */
const TEST_MS = 20_000;

/** How often a test looks whether a condition holds. */
const POLL_MS = 20;

/** The key of the app of the tests. */
const SECRET = "a secret of an app, as long as it has to be";
export const KEY = { id: "app-key", file: join(mkdtempSync(join(tmpdir(), "lingua-sdk-")), "key") };
writeFileSync(KEY.file, SECRET, { mode: 0o600 });
process.on("exit", () => rmSync(dirname(KEY.file), { recursive: true, force: true }));

/** The class of the package `ws`, as programs give it on Node 20. */
export const WebSocketOfWs: WebSocketClass = WebSocket;

/** A scheduler that ends with the test. */
export async function scheduler(
  test: TestContext,
  options: Parameters<typeof Scheduler.start>[0] = {},
): Promise<Scheduler> {
  const started = await Scheduler.start(options);
  test.after(() => started.stop());
  return started;
}

/** Simulated nodes that end with the test. */
export async function simulatedNodes(test: TestContext, url: string, ...args: string[]) {
  const nodes = await SimulatedNodes.start(url, args);
  test.after(() => nodes.stop());
}

/** A node of this test that ends with it. */
export async function rawNode(
  test: TestContext,
  url: string,
  token?: string,
  languages?: string[],
): Promise<RawNode> {
  const node = await RawNode.join(url, token, languages);
  test.after(() => node.close());
  return node;
}

/** A proxy that ends with the test. */
export async function proxyTo(test: TestContext, address: string): Promise<CutProxy> {
  const proxy = await CutProxy.to(address);
  test.after(() => proxy.close());
  return proxy;
}

/** A session from zh to en that ends with the test. */
export async function session(
  test: TestContext,
  options: Partial<SessionOptions> & { url: string },
  fields: Parameters<typeof Session.start>[1] = {},
): Promise<Session> {
  const start = { src_lang: "zh", tgt_lang: "en", ...fields };
  const started = await Session.start({ WebSocket: WebSocketOfWs, ...options }, start);
  test.after(() => started.close());
  return started;
}

/** The next event of this type; others are skipped. */
export async function expectEvent<Type extends SessionEvent["type"]>(
  events: Session,
  type: Type,
): Promise<Extract<SessionEvent, { type: Type }>> {
  for (;;) {
    const { done, value } = await within(events.next());
    if (done) {
      throw new Error(`the session ended before "${type}"`);
    }
    if (value.type === type) {
      return value as Extract<SessionEvent, { type: Type }>;
    }
  }
}

/** Fails if something takes too long. */
export async function within<T>(promise: Promise<T>, ms = TEST_MS): Promise<T> {
  let timer: ReturnType<typeof setTimeout> | undefined;
  const late = new Promise<never>((_, reject) => {
    timer = setTimeout(() => reject(new Error(`nothing came within ${ms} ms`)), ms);
  });
  return Promise.race([promise, late]).finally(() => clearTimeout(timer));
}

/** Waits until something is so. */
export async function until(isSo: () => boolean | Promise<boolean>): Promise<void> {
  const late = AbortSignal.timeout(TEST_MS);
  while (!(await isSo())) {
    late.throwIfAborted();
    await new Promise((resolve) => setTimeout(resolve, POLL_MS));
  }
}

/** A configuration with a key of grants, and tokens of a node, a client and an administrator. */
export async function access() {
  let config = `[[auth.keys]]\nid = "${KEY.id}"\nsecret_file = "${KEY.file}"\n`;
  const token = async (role: string) => {
    const printed = await run(["token", "new", "--role", role, "--name", role]);
    config += printed.stdout;
    const secret = /lingua_\w+/.exec(printed.stderr)?.[0];
    if (!secret) {
      throw new Error(`no token in ${printed.stderr}`);
    }
    return secret;
  };
  const tokens = {
    node: await token("node"),
    client: await token("client"),
    admin: await token("admin"),
  };
  return { config, ...tokens };
}

/** Signs a grant as the server of an app does. */
export function grant({ seconds = 600, langs = ["zh:en"], sub = "ann" } = {}): string {
  const exp = Math.floor(Date.now() / 1000) + seconds;
  const claims = { iss: KEY.id, sub, exp, lingua: { sessions: 4, langs } };
  const part = (value: unknown) => Buffer.from(JSON.stringify(value)).toString("base64url");
  const signed = `${part({ alg: "HS256", typ: "JWT" })}.${part(claims)}`;
  return `${signed}.${createHmac("sha256", SECRET).update(signed).digest("base64url")}`;
}

/** Loud speech of this many milliseconds at 16 kHz, each sample another one. */
export function speech(ms: number, seed = 0): Uint8Array {
  const samples = Int16Array.from({ length: ms * 16 }, (_, n) => 1_000 + ((n * 7 + seed) % 20_000));
  return new Uint8Array(samples.buffer);
}
