/** The types and the client know what the scheduler has. */

import assert from "node:assert/strict";
import { readFileSync } from "node:fs";
import { test } from "node:test";
import { Client } from "lingua-sdk";
import { openapi } from "../scripts/scheduler.mjs";
import { formatted, routesOfClients, wireTypes } from "../scripts/wire-types.mjs";

/** Routes that are no calls of a client: pages for people and probes, and the session itself. */
const NO_CALLS = ["/", "/healthz", "/readyz", "/metrics", "/openapi.json", "/v1/session/ws"];

/** The method of the client for each route. */
const CALLS: Record<string, keyof Client> = {
  "post /v1/dispatch/f2f": "dispatch",
  "post /v1/translate": "translate",
  "post /v1/jobs/{id}/cancel": "cancel",
  "delete /v1/jobs/{id}": "erase",
  "delete /v1/jobs": "eraseJobs",
  "get /v1/usage": "usage",
  "get /v1/me": "me",
  "get /v1/jobs/{id}": "job",
  "get /v1/jobs": "jobs",
  "get /v1/pools": "pools",
  "get /v1/pools/{pair}": "pool",
  "post /v1/explain": "explain",
  "get /v1/events": "events",
  "get /v1/nodes": "nodes",
  "get /v1/nodes/{id}": "node",
  "get /v1/cluster": "cluster",
  "post /v1/nodes/{id}/drain": "drain",
  "post /v1/nodes/{id}/resume": "resume",
};

test("the types are those of the scheduler", async () => {
  const declarations = (source: string) => source.split(/^(?=export )/m);
  const written = declarations(readFileSync("src/wire.ts", "utf8"));
  const made = declarations(formatted(wireTypes(await openapi())));
  const differs = made.findIndex((declaration, n) => declaration !== written[n]);
  assert.equal(written[differs], made[differs], "run `npm run types`");
  assert.equal(written.length, made.length, "run `npm run types`");
});

test("a keyword that the generator does not know is an error", () => {
  const schema = { type: "object", properties: { a: { type: "string", if: {} } } };
  const document = {
    paths: {
      "/v1/session/ws": { get: { tags: [], "x-messages": { client: [], scheduler: [] } } },
      "/v1/events": { get: { tags: [], "x-events": { a: { $ref: "#/components/schemas/A" } } } },
    },
    components: { schemas: { A: schema } },
  };
  assert.throws(() => wireTypes(document), /the keyword if is not known/);
});

test("each route of clients and operators has a method", async () => {
  const routes = routesOfClients(await openapi()).filter(({ path }) => !NO_CALLS.includes(path));
  const names = routes.map(({ method, path }) => `${method} ${path}`);
  assert.deepEqual(names.sort(), Object.keys(CALLS).sort());
  for (const method of Object.values(CALLS)) {
    assert.equal(typeof Client.prototype[method], "function", method);
  }
});
