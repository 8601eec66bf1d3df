/** The calls of the client against the real program. */

import assert from "node:assert/strict";
import { once } from "node:events";
import { createServer } from "node:http";
import type { AddressInfo } from "node:net";
import { test } from "node:test";
import { Client, LinguaError } from "lingua-sdk";
import { access, grant, rawNode, scheduler, simulatedNodes, until, within } from "./harness.js";

const JOB = { src_lang: "zh", tgt_lang: "en", text: "你好" };

test("a job is translated, listed, explained and shown", async (t) => {
  const { url } = await scheduler(t);
  await simulatedNodes(t, url, "--id", "sim");
  const client = new Client({ url: `${url}/` });
  const done = await client.translate(JOB);
  assert.deepEqual([done.state, done.result?.text_translated], ["DONE", "[en] 你好"]);
  assert.deepEqual((await client.job(done.job_id)).job_id, done.job_id);

  const options = { idempotencyKey: "utterance-1" };
  const sent = await client.dispatch(JOB, options);
  assert.equal(sent.node_id, "sim");
  assert.equal((await client.job(sent.job_id, { waitMs: 10_000 })).state, "DONE");
  assert.equal((await client.dispatch(JOB, options)).job_id, sent.job_id, "the same job");
  await assert.rejects(client.dispatch({ ...JOB, text: "再见" }, options), {
    code: "IDEMPOTENCY_KEY_REUSED",
    status: 422,
  });

  const page = await client.jobs({ state: "DONE", limit: 1 });
  assert.deepEqual([page.jobs.length, page.jobs[0]?.job_id], [1, sent.job_id]);
  const rest = await client.jobs({ cursor: page.next ?? null, state: null });
  assert.equal(rest.jobs.at(-1)?.job_id, done.job_id);
  assert.equal((await client.explain(JOB)).chosen, "sim");
  assert.equal((await client.pool("zh:en")).nodes, 1);
  assert.ok(Array.isArray((await client.pools()).pools));
  assert.equal((await client.me()).tenant, "default");
  assert.equal((await client.cluster()).instances.length, 1);

  assert.equal((await client.drain("sim")).state, "draining");
  assert.equal((await client.nodes()).nodes[0]?.drain_ordered, true);
  assert.equal((await client.resume("sim")).drain_ordered, false);
  assert.equal((await client.node("sim")).node_id, "sim");
});

test("what is kept of jobs is erased, and what was used is counted", async (t) => {
  const { url } = await scheduler(t);
  await simulatedNodes(t, url);
  const client = new Client({ url });
  const first = await client.translate({ ...JOB, session_id: "room-1" });
  await client.translate({ ...JOB, session_id: "room-2" });
  assert.deepEqual(await client.eraseJobs({ session: "room-1" }), {
    ok: true,
    erased: 1,
    more: false,
  });
  await assert.rejects(client.job(first.job_id), { code: "JOB_NOT_FOUND" });
  const [left] = (await client.jobs()).jobs;
  assert.equal((await client.erase(left?.job_id ?? "")).erased, 1);
  assert.deepEqual((await client.jobs()).jobs, []);
  // Counts are written behind.
  await until(async () => (await client.usage()).tenants[0]?.total.jobs.done === 2);
});

test("events tell of jobs as they change", async (t) => {
  const { url } = await scheduler(t);
  const node = await rawNode(t, url);
  const client = new Client({ url });
  const stop = new AbortController();
  const events = client.events({ signal: stop.signal });
  const first = events.next();
  // The stream is open before the job is sent: it begins with the answer.
  await new Promise((resolve) => setTimeout(resolve, 200));
  const sending = client.translate(JOB);
  const assign = await node.assigned();
  node.report("job_partial", assign, { text: "hel" });
  node.done(assign, "hello");
  await sending;
  const seen = [(await within(first)).value];
  while (!seen.some((event) => event?.event === "job" && event.data.state === "DONE")) {
    seen.push((await within(events.next())).value);
  }
  const partial = seen.find((event) => event?.event === "job" && event.data.kind === "partial");
  assert.equal(partial?.event === "job" && partial.data.text, "hel");
  stop.abort();
  await assert.rejects(within(events.next()), { name: "AbortError" });
});

test("a call that is aborted cancels its job", async (t) => {
  const { url } = await scheduler(t);
  const node = await rawNode(t, url);
  const client = new Client({ url });
  const stop = new AbortController();
  const sending = client.translate(JOB, { signal: stop.signal });
  const assign = await node.assigned();
  stop.abort();
  await assert.rejects(sending, { name: "AbortError" });
  await node.expect("job_cancel");
  const job = await client.job(assign.job_id, { waitMs: 10_000 });
  assert.equal(job.state, "CANCELLED");

  const sent = client.dispatch(JOB);
  const other = await node.assigned();
  await sent;
  assert.equal((await client.cancel(other.job_id)).state, "CANCELLED");
});

test("errors have the code, the status and what to do", async (t) => {
  const { config, client: token } = await access();
  const { url } = await scheduler(t, { config });
  const client = new Client({ url, token: async () => token });
  const refused = async (call: Promise<unknown>) => {
    const error = await call.then(
      () => assert.fail("it is refused"),
      (thrown) => thrown,
    );
    assert.ok(error instanceof LinguaError, String(error));
    return error;
  };
  const nobody = await refused(client.translate(JOB));
  assert.deepEqual([nobody.code, nobody.status], ["NO_CAPABLE_NODE", 503]);
  assert.ok(nobody.isSafeToRetry && nobody.message.includes("zh:en"), nobody.message);
  const late = await refused(client.job("job-00000000000000000000000000000000"));
  assert.deepEqual([late.code, late.isSafeToRetry], ["JOB_NOT_FOUND", false]);
  const bad = await refused(client.translate({ ...JOB, tgt_lang: "?" }));
  assert.equal(bad.code, "INVALID_LANGUAGE");
  assert.equal((await refused(client.nodes())).code, "FORBIDDEN");
  assert.equal((await refused(new Client({ url }).me())).code, "UNAUTHORIZED");
  const granted = new Client({ url, token: grant() });
  assert.equal((await refused(granted.translate(JOB))).code, "FORBIDDEN");
  const failing = new Client({ url, token: () => Promise.reject(new Error("signed out")) });
  assert.equal((await refused(failing.me())).code, "TOKEN_UNAVAILABLE");
});

test("an address without a scheduler says so", async (t) => {
  const nowhere = new Client({ url: "http://127.0.0.1:9" });
  await assert.rejects(nowhere.me(), { code: "UNREACHABLE", message: /127.0.0.1:9/ });
  for (const url of ["lingua.example", "ws://127.0.0.1:7410", "http://127.0.0.1/?a=b"]) {
    assert.throws(() => new Client({ url }), { code: "BAD_OPTION" });
  }
  const server = createServer((_, answer) => answer.end("<h1>Welcome</h1>")).listen(0);
  t.after(() => server.close());
  await once(server, "listening");
  const { port } = server.address() as AddressInfo;
  const other = new Client({ url: `http://127.0.0.1:${port}` });
  await assert.rejects(other.me(), { code: "BAD_ANSWER", message: /Welcome.*is it a Lingua/ });
});
