/**
 * The server of an app: serves `page.html` and signs grants for its users.
 *
 *     node examples/server.mjs KEY_ID SECRET_FILE [PORT]
 *
 * The scheduler needs the same key in `auth.keys`, and this page in `server.allowed_origins`.
 */

import { createHmac } from "node:crypto";
import { readFileSync } from "node:fs";
import { createServer } from "node:http";
import { fileURLToPath } from "node:url";

const [keyId, secretFile, port = "8080"] = process.argv.slice(2);
if (!keyId || !secretFile) {
  console.error("usage: node examples/server.mjs KEY_ID SECRET_FILE [PORT]");
  process.exit(2);
}
const secret = readFileSync(secretFile, "utf8").trim();

/** Good for sessions of this user, for ten minutes. */
function grant(user) {
  const exp = Math.floor(Date.now() / 1000) + 600;
  const part = (value) => Buffer.from(JSON.stringify(value)).toString("base64url");
  const claims = { iss: keyId, sub: user, exp, lingua: { sessions: 2, langs: ["en:es"] } };
  const signed = `${part({ alg: "HS256", typ: "JWT" })}.${part(claims)}`;
  return `${signed}.${createHmac("sha256", secret).update(signed).digest("base64url")}`;
}

const file = (path) => readFileSync(fileURLToPath(new URL(path, import.meta.url)));

const server = createServer((request, response) => {
  const { pathname } = new URL(request.url ?? "/", "http://localhost");
  const module = /^\/lingua-sdk\/([\w-]+\.js)$/.exec(pathname)?.[1];
  if (pathname === "/") {
    response.setHeader("Content-Type", "text/html").end(file("page.html"));
  } else if (pathname === "/grant") {
    // A real app looks here who its user is.
    response.setHeader("Cache-Control", "no-store").end(grant("ann"));
  } else if (module) {
    response.setHeader("Content-Type", "text/javascript").end(file(`../dist/${module}`));
  } else {
    response.writeHead(404).end();
  }
});
server.listen(Number(port), "127.0.0.1", () => {
  console.log(`http://127.0.0.1:${server.address().port}/`);
});
