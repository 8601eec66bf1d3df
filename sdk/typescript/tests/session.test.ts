/** Sessions over real sockets, with nodes and cuts of the test. */

import assert from "node:assert/strict";
import { once } from "node:events";
import type { AddressInfo } from "node:net";
import { type TestContext, test } from "node:test";
import { LinguaError, Session, type SessionEvent } from "lingua-sdk";
import { WebSocketServer } from "ws";
import { Scheduler } from "../scripts/scheduler.mjs";
import {
  access,
  expectEvent,
  grant,
  proxyTo,
  rawNode,
  scheduler,
  session,
  simulatedNodes,
  speech,
  WebSocketOfWs,
  within,
} from "./harness.js";
import { RawNode } from "./raw-node.js";

/** A pause that no test waits for: turns end when the client says so. */
const NO_PAUSE = { settings: { SESSION__PAUSE_MS: "600000" } };

test("text and speech come back in the order spoken", async (t) => {
  const { url } = await scheduler(t);
  await simulatedNodes(t, url, "--streaming");
  const s = await session(t, { url }, { require_tts: true });
  assert.equal(s.warning, undefined);
  s.text("你好");
  s.turnStart();
  await s.audio(speech(1_000));
  s.turnEnd();
  s.text("再见");
  s.end();
  const events: SessionEvent[] = [];
  for await (const event of s) {
    events.push(event);
  }
  const results = events.filter((event) => event.type === "result");
  assert.deepEqual(
    results.map(({ seq, turn, text_translated }) => [seq, turn, text_translated]),
    [
      [1, 1, "[en] 你好"],
      [2, 2, "[en] 32000 bytes of speech"],
      [3, 3, "[en] 再见"],
    ],
  );
  assert.equal(results[0]?.tts_audio?.format, "pcm16");
  assert.equal(events.filter((event) => event.type === "job_accepted").length, 3);
  assert.throws(() => s.text("late"), { code: "SESSION_ENDED" });
});

test("a node gets each byte of the speech, and once", async (t) => {
  const { url } = await scheduler(t);
  const node = await rawNode(t, url);
  const s = await session(t, { url }, { partials: true });
  s.turnStart();
  const said = speech(730);
  // Frames of any length, a view of a larger buffer among them.
  await s.audio(said.subarray(0, 642));
  await s.audio(said.subarray(642, 20_000));
  await s.audio(said.slice(20_000).buffer);
  s.turnEnd();
  const assign = await node.assigned();
  assert.deepEqual(await node.speech(assign), Buffer.from(said));
  node.report("job_partial", assign, { text: "hel" });
  assert.equal((await expectEvent(s, "partial")).text, "hel");
  node.done(assign, "hello");
  assert.equal((await expectEvent(s, "result")).text_translated, "hello");
});

test("a file of a minute is sent no faster than the scheduler takes it", async (t) => {
  const { url } = await scheduler(t, { settings: { SESSION__RATE_WINDOW_MS: "1000" } });
  await simulatedNodes(t, url);
  const s = await session(t, { url });
  s.turnStart();
  // Four seconds are all that may come at once; then four times real time.
  await s.audio(speech(12_000));
  s.turnEnd();
  s.end();
  const events: SessionEvent[] = [];
  for await (const event of s) {
    events.push(event);
  }
  assert.deepEqual(
    events.filter((event) => event.type === "refused" || event.type === "disconnected"),
    [],
  );
  const texts = events.flatMap((event) => (event.type === "result" ? [event.text_asr] : []));
  assert.deepEqual(texts, ["320000 bytes of speech", "64000 bytes of speech"]);
});

test("a connection that breaks within a turn loses and repeats nothing", async (t) => {
  const { url, address } = await scheduler(t, NO_PAUSE);
  const node = await rawNode(t, url);
  const proxy = await proxyTo(t, address);
  const s = await session(t, { url: proxy.url });
  const said = speech(1_500);
  s.turnStart();
  await s.audio(said.subarray(0, 12_800));
  const assign = await node.assigned();
  assert.deepEqual(await node.speech(assign, 12_800), Buffer.from(said.subarray(0, 12_800)));

  // This part is sent, and does not arrive.
  proxy.loseInput();
  await s.audio(said.subarray(12_800, 22_400));
  await new Promise((resolve) => setTimeout(resolve, 100));
  proxy.refuse();
  await expectEvent(s, "disconnected");
  // This part is spoken while there is no connection.
  await s.audio(said.subarray(22_400, 40_000));
  proxy.accept();
  await expectEvent(s, "resumed");
  await s.audio(said.subarray(40_000));
  s.turnEnd();
  assert.deepEqual(await node.speech(assign), Buffer.from(said.subarray(12_800)));
  node.done(assign, "hello");
  const result = await expectEvent(s, "result");
  assert.deepEqual([result.seq, result.turn, result.segment], [1, 1, 1]);
});

test("whatever is lost with a connection is said once", async (t) => {
  const { url, address } = await scheduler(t, NO_PAUSE);
  const node = await rawNode(t, url);
  const proxy = await proxyTo(t, address);
  const s = await session(t, { url: proxy.url });
  const [first, second] = [speech(300, 1), speech(300, 2)];
  s.text("一");
  await node.work();
  await expectEvent(s, "result");

  // The end of this turn, a text and a whole turn are lost.
  s.turnStart();
  await s.audio(first);
  const assign = await node.assigned();
  await node.speech(assign, first.length);
  proxy.loseInput();
  s.turnEnd();
  s.text("二");
  s.turnStart();
  await s.audio(second);
  s.turnEnd();
  await new Promise((resolve) => setTimeout(resolve, 100));
  proxy.breakConnections();
  await expectEvent(s, "resumed");
  assert.equal((await node.speech(assign)).length, 0, "all of it had arrived");
  node.done(assign, "first");
  const text = await node.assigned();
  assert.equal(text.text, "二");
  node.done(text, "second");
  const again = await node.assigned();
  assert.deepEqual(await node.speech(again), Buffer.from(second));
  node.done(again, "third");
  const translated = async () => (await expectEvent(s, "result")).text_translated;
  assert.deepEqual(
    [await translated(), await translated(), await translated()],
    ["first", "second", "third"],
  );

  // Nothing is lost here, and nothing is sent again.
  proxy.breakConnections();
  await expectEvent(s, "resumed");
  s.text("三");
  assert.equal((await node.work()).text, "三");
  assert.equal((await expectEvent(s, "result")).turn, 5);
});

/** A session whose connection broke, and cannot be resumed yet, while a node does its job. */
async function interrupted(t: TestContext) {
  const { url, address } = await scheduler(t);
  const node = await rawNode(t, url);
  const proxy = await proxyTo(t, address);
  const s = await session(t, { url: proxy.url });
  s.text("你好");
  const assign = await node.assigned();
  proxy.refuse();
  await expectEvent(s, "disconnected");
  return { s, node, proxy, assign };
}

test("a result that comes while nobody is connected is delivered once", async (t) => {
  const { s, node, proxy, assign } = await interrupted(t);
  node.done(assign, "hello");
  await node.expect("job_confirmed");
  proxy.accept();
  assert.equal((await expectEvent(s, "result")).seq, 1);
  s.end();
  assert.deepEqual(await within(s.next()), { value: undefined, done: true });
});

test("a session that is ended while the connection is away ends well", async (t) => {
  const { s, node, proxy, assign } = await interrupted(t);
  s.end();
  proxy.accept();
  node.done(assign, "hello");
  assert.equal((await expectEvent(s, "result")).text_translated, "hello");
  assert.equal((await within(s.next())).done, true);
});

test("a ticket continues a session elsewhere, and ends it here", async (t) => {
  const { url } = await scheduler(t);
  const node = await rawNode(t, url);
  const s = await session(t, { url });
  s.text("一");
  await node.work();
  await expectEvent(s, "result");
  const elsewhere = await Session.resume({ url, WebSocket: WebSocketOfWs }, s.ticket);
  t.after(() => elsewhere.close());
  assert.equal(elsewhere.id, s.id);
  await assert.rejects(within(s.next()), { code: "STALE_EPOCH" });
  elsewhere.text("二");
  await node.work();
  assert.equal((await expectEvent(elsewhere, "result")).seq, 2);
});

test("a grant that expires is replaced, and the session goes on", async (t) => {
  const { config, node: nodeToken } = await access();
  const { url } = await scheduler(t, { config });
  const node = await rawNode(t, url, nodeToken);
  let asked = 0;
  const token = () => {
    asked += 1;
    // Clocks may differ by 30 s, which the scheduler allows.
    return grant({ seconds: asked === 1 ? -27 : 600 });
  };
  const s = await session(t, { url, token });
  assert.equal(asked, 1);
  const { error } = await expectEvent(s, "disconnected");
  assert.equal(error.code, "UNAUTHORIZED");
  await expectEvent(s, "resumed");
  assert.equal(asked, 2);
  s.text("你好");
  await node.work();
  await expectEvent(s, "result");

  const fixed = await session(t, { url, token: grant({ seconds: -27 }) });
  await assert.rejects(within(fixed.next()), { code: "UNAUTHORIZED" });
});

test("a callback that fails is asked again while the session waits", async (t) => {
  const { config } = await access();
  const { url, address } = await scheduler(t, { config });
  const proxy = await proxyTo(t, address);
  let asked = 0;
  const token = () => {
    asked += 1;
    if (asked === 2) {
      throw new Error("the app is away");
    }
    return grant();
  };
  const s = await session(t, { url: proxy.url, token });
  proxy.breakConnections();
  await expectEvent(s, "resumed");
  assert.equal(asked, 3);
  const failing = () => Promise.reject(new Error("signed out"));
  await assert.rejects(session(t, { url, token: failing }), {
    code: "TOKEN_UNAVAILABLE",
    message: /signed out/,
  });
});

test("what cannot start says why", async (t) => {
  const { config, client } = await access();
  const { url } = await scheduler(t, { config });
  const start = { src_lang: "zh", tgt_lang: "en" };
  const refused = (options: object, fields: object, code: string, message: RegExp) =>
    assert.rejects(
      session(t, { url, token: client, ...options }, { ...start, ...fields }),
      (error) => error instanceof LinguaError && error.code === code && message.test(error.message),
    );
  await refused({}, { tgt_lang: "not a language" }, "INVALID_LANGUAGE", /tgt_lang/);
  await refused({ token: grant({ langs: ["fr:de"] }) }, {}, "FORBIDDEN", /zh:en/);
  await refused({ token: "guess" }, {}, "UNREACHABLE", /401/);
  await refused({ token: "two words" }, {}, "BAD_OPTION", /token/);
  await refused({ url: "http://127.0.0.1:9" }, {}, "UNREACHABLE", /127.0.0.1:9/);
  await refused({ url: "lingua.example" }, {}, "BAD_OPTION", /https:/);
  if (!globalThis.WebSocket) {
    await refused({ WebSocket: undefined }, {}, "UNSUPPORTED", /package ws/);
  }
});

test("a scheduler that comes back without the session ends it with an error", async (t) => {
  const first = await Scheduler.start();
  const s = await session(t, { url: first.url });
  await first.stop();
  await expectEvent(s, "disconnected");
  const second = await Scheduler.start({ listen: first.address });
  t.after(() => second.stop());
  await assert.rejects(within(s.next()), { code: "SESSION_NOT_FOUND" });
  assert.throws(() => s.turnStart(), { code: "SESSION_ENDED" });
});

test("connections that break at once are not opened again in a hurry", async (t) => {
  const server = new WebSocketServer({ port: 0, host: "127.0.0.1" });
  t.after(() => server.close());
  await once(server, "listening");
  let connections = 0;
  server.on("connection", (socket) => {
    connections += 1;
    socket.on("message", (first) => {
      const resumed = String(first).includes("session_resume");
      const ids = { session_id: "sess-1", resume_token: "secret", resume_ms: 60_000 };
      socket.send(JSON.stringify({ type: "session_started", ...ids, resumed }));
      socket.close(1001);
    });
  });
  const { port } = server.address() as AddressInfo;
  const s = await session(t, { url: `http://127.0.0.1:${port}` });
  await new Promise((resolve) => setTimeout(resolve, 1_500));
  assert.ok(connections >= 2 && connections <= 8, `${connections} connections in 1.5 s`);
  s.close();
  assert.equal((await within(s.next())).done, false, "what came before");
});

test("a session that cannot be resumed in time gives up", async (t) => {
  const { address } = await scheduler(t, { settings: { SESSION__RESUME_MS: "300" } });
  const proxy = await proxyTo(t, address);
  const s = await session(t, { url: proxy.url });
  proxy.refuse();
  await expectEvent(s, "disconnected");
  await assert.rejects(within(s.next()), { code: "UNREACHABLE" });
});

test("a frame that the scheduler refuses does not end the session", async (t) => {
  const { url } = await scheduler(t);
  const node = await rawNode(t, url);
  const s = await session(t, { url });
  await s.audio(new Uint8Array(3));
  const { error } = await expectEvent(s, "refused");
  assert.equal(error.code, "INVALID_REQUEST");
  s.text("你好");
  await node.work();
  await expectEvent(s, "result");
});

test("audio that would not fit into memory is dropped, and the app is told", async (t) => {
  const { address } = await scheduler(t);
  const proxy = await proxyTo(t, address);
  const s = await session(t, { url: proxy.url });
  proxy.refuse();
  await expectEvent(s, "disconnected");
  for (let n = 0; n < 5; n += 1) {
    void s.audio(new Uint8Array(2 << 20));
  }
  assert.equal((await expectEvent(s, "refused")).error.code, "AUDIO_DROPPED");
});

test("a session of two speakers names who speaks, and a pair without nodes is told", async (t) => {
  const { url } = await scheduler(t);
  const lonely = await session(t, { url });
  assert.match(lonely.warning ?? "", /zh:en/);
  const node = await RawNode.join(url);
  t.after(() => node.close());
  const options = { url, WebSocket: WebSocketOfWs };
  const s = await Session.start(options, { mode: "two_way", lang_a: "zh", lang_b: "en" });
  t.after(() => s.close());
  s.turnStart("b");
  await s.audio(speech(200));
  s.turnEnd();
  const assign = await node.assigned();
  assert.equal(assign.src_lang, "en");
  node.done(assign, "你好");
  const result = await expectEvent(s, "result");
  assert.deepEqual([result.src_lang, result.tgt_lang], ["en", "zh"]);
  s.reconnect();
  await expectEvent(s, "resumed");
});
