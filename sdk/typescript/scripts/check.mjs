/**
 * All checks of this package, as `cargo xtask ci` runs them. Installs what is missing.
 *
 * Needs the program `lingua` and Chromium.
 */

import { spawnSync } from "node:child_process";
import { existsSync, statSync } from "node:fs";
import { fileURLToPath } from "node:url";

const NODE_MIN = 20;

if (Number.parseInt(process.versions.node, 10) < NODE_MIN) {
  console.error(`Node ${process.versions.node} is too old; install version ${NODE_MIN} or later`);
  process.exit(1);
}
process.chdir(fileURLToPath(new URL("..", import.meta.url)));

const run = (/** @type {string} */ args) => {
  const { status } = spawnSync("npm", args.split(" "), { stdio: "inherit" });
  if (status !== 0) {
    process.exit(1);
  }
};

/** Written by `npm ci` at its end. */
const installed = "node_modules/.package-lock.json";
const changed = (/** @type {string} */ path) => statSync(path).mtimeMs;
if (!existsSync(installed) || changed(installed) < changed("package-lock.json")) {
  run("ci --no-audit --no-fund");
}
run("run --silent check");
