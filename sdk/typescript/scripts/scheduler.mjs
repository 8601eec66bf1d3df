/**
 * Runs the program `lingua` for the tests and for `npm run types`.
 *
 * Start at `Scheduler.start`. Every process that is started here ends with this one.
 */

import { spawn } from "node:child_process";
import { once } from "node:events";
import { existsSync, mkdtempSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { createInterface } from "node:readline";

/** @type {Set<import("node:child_process").ChildProcess>} */
const running = new Set();
process.on("exit", () => {
  for (const child of running) {
    child.kill("SIGKILL");
  }
});

/** The path of the program. */
function program() {
  const built = join(process.cwd(), "../../target/debug/lingua");
  const path = process.env.TESTED_LINGUA ?? built;
  if (!existsSync(path)) {
    throw new Error(`there is no ${path}: run \`cargo build -p lingua\`, or set TESTED_LINGUA`);
  }
  return path;
}

/**
 * @param {string[]} args
 * @param {Record<string, string>} env
 */
function start(args, env) {
  const settings = Object.entries(env).map(([key, value]) => [`LINGUA_${key}`, value]);
  const child = spawn(program(), args, {
    env: { ...process.env, LINGUA_LOG__FORMAT: "json", ...Object.fromEntries(settings) },
    stdio: ["ignore", "pipe", "pipe"],
  });
  running.add(child);
  child.once("exit", () => running.delete(child));
  return child;
}

/** Runs the program to its end; what it printed. */
export async function run(/** @type {string[]} */ args, env = {}) {
  const child = start(args, env);
  const printed = { stdout: "", stderr: "" };
  child.stdout.on("data", (bytes) => {
    printed.stdout += bytes;
  });
  child.stderr.on("data", (bytes) => {
    printed.stderr += bytes;
  });
  const [code] = await once(child, "close");
  if (code !== 0) {
    throw new Error(`lingua ${args.join(" ")} ended with ${code}: ${printed.stderr}`);
  }
  return printed;
}

/** Ends a process and waits until it is gone. */
async function end(/** @type {import("node:child_process").ChildProcess} */ child) {
  if (child.exitCode === null && child.signalCode === null) {
    const gone = once(child, "exit");
    child.kill("SIGKILL");
    await gone;
  }
}

/** A scheduler process. */
export class Scheduler {
  /**
   * @param {import("node:child_process").ChildProcess} child
   * @param {string} address
   * @param {string} folder
   */
  constructor(child, address, folder) {
    this.child = child;
    /** Host and port. */
    this.address = address;
    this.folder = folder;
    this.url = `http://${address}`;
  }

  /**
   * Starts one on a free port, with a configuration in TOML and settings such as
   * `{SESSION__PAUSE_MS: "60000"}`.
   *
   * @param {{config?: string, settings?: Record<string, string>, listen?: string}} options
   */
  static async start({ config = "", settings = {}, listen = "127.0.0.1:0" } = {}) {
    const folder = mkdtempSync(join(tmpdir(), "lingua-sdk-"));
    const file = join(folder, "lingua.toml");
    writeFileSync(file, config);
    const child = start(["serve", "--listen", listen, "--config", file], settings);
    const log = [];
    for await (const line of createInterface({ input: child.stderr })) {
      log.push(line);
      const { fields } = line.startsWith("{") ? JSON.parse(line) : { fields: {} };
      if (fields.message === "listening") {
        // The process would stop at a full pipe if nobody read its log.
        child.stderr.resume();
        return new Scheduler(child, fields.address, folder);
      }
    }
    throw new Error(`the scheduler does not start:\n${log.join("\n")}`);
  }

  async stop() {
    await end(this.child);
    rmSync(this.folder, { recursive: true, force: true });
  }
}

/** A process with simulated nodes. */
export class SimulatedNodes {
  /** @param {import("node:child_process").ChildProcess} child */
  constructor(child) {
    this.child = child;
  }

  /**
   * Starts them and waits until they are connected.
   *
   * @param {string} url
   * @param {string[]} args
   */
  static async start(url, args = []) {
    const child = start(["node", "--url", url, "--work-ms", "5", ...args], {});
    child.stderr.resume();
    for await (const line of createInterface({ input: child.stdout })) {
      if (line.includes("connected to")) {
        child.stdout.resume();
        return new SimulatedNodes(child);
      }
    }
    throw new Error("the nodes do not start");
  }

  stop() {
    return end(this.child);
  }
}

/** The `/openapi.json` of the program. */
export async function openapi() {
  const scheduler = await Scheduler.start();
  try {
    return await (await fetch(`${scheduler.url}/openapi.json`)).json();
  } finally {
    await scheduler.stop();
  }
}
