/** What users install: its files, its types, its examples. */

import assert from "node:assert/strict";
import { execFileSync, spawn } from "node:child_process";
import { once } from "node:events";
import { mkdirSync, mkdtempSync, readdirSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { test } from "node:test";
import { scheduler, simulatedNodes } from "./harness.js";
import { wavHeader } from "./wav.js";

test("the package holds the build, the licences and nothing else, and needs nothing", () => {
  const packed = execFileSync("npm", ["pack", "--dry-run", "--json", "--ignore-scripts"], {
    encoding: "utf8",
    stdio: ["ignore", "pipe", "ignore"],
  });
  const listed = JSON.parse(packed);
  // npm 12 lists packages by name, earlier ones in order.
  const [{ files }] = Array.isArray(listed) ? listed : (Object.values(listed) as typeof listed);
  const found = files.map(({ path }: { path: string }) => path).sort();
  const modules = readdirSync("src").map((name) => name.replace(/\.ts$/, ""));
  const built = modules.flatMap((name) => [`dist/${name}.d.ts`, `dist/${name}.js`]);
  const others = ["LICENSE-APACHE", "LICENSE-MIT", "README.md", "package.json"];
  assert.deepEqual(found, [...built, ...others].sort());
  const manifest = JSON.parse(readFileSync("package.json", "utf8"));
  assert.deepEqual([manifest.dependencies, manifest.peerDependencies], [undefined, undefined]);
  assert.doesNotMatch(readFileSync("package-lock.json", "utf8"), /"resolved"/);
  // Bundlers copy this file as it is.
  assert.doesNotMatch(readFileSync("dist/capture-worklet.js", "utf8"), /^import /m);
});

test("the examples of the README compile, those for Node without the types of browsers", () => {
  const snippets = readFileSync("README.md", "utf8").matchAll(/^```ts\n(.*?)^```/gms);
  const folder = "build/readme";
  mkdirSync(folder, { recursive: true });
  const sources = [...snippets].map(([, source]) => source ?? "");
  assert.equal(sources.length, 3);
  for (const [n, source] of sources.entries()) {
    writeFileSync(join(folder, `${n}.ts`), source);
    const isPage = source.includes("lingua-sdk/browser");
    const options = {
      compilerOptions: {
        strict: true,
        exactOptionalPropertyTypes: true,
        noEmit: true,
        module: "nodenext",
        target: "es2022",
        lib: isPage ? ["es2022", "dom"] : ["es2022"],
        types: isPage ? [] : ["node"],
      },
      files: [`${n}.ts`],
    };
    const config = join(folder, `${n}.json`);
    writeFileSync(config, JSON.stringify(options));
    try {
      execFileSync("node_modules/.bin/tsc", ["-p", config], { encoding: "utf8" });
    } catch (error) {
      assert.fail(`${(error as { stdout: string }).stdout}\nin\n${source}`);
    }
  }
});

test("the example for Node translates a WAV file", async (t) => {
  const { url } = await scheduler(t);
  await simulatedNodes(t, url, "--asr", "en", "--semantic", "en", "--tts", "es");
  const folder = mkdtempSync(join(tmpdir(), "lingua-sdk-wav-"));
  t.after(() => rmSync(folder, { recursive: true }));
  const file = join(folder, "hello.wav");
  const samples = Buffer.from(new Int16Array(24_000).fill(5_000).buffer);
  writeFileSync(file, Buffer.concat([wavHeader(samples.length, 24_000), samples]));
  // With the package ws, and with the WebSocket of Node itself.
  const flags = globalThis.WebSocket ? [[]] : [[], ["--experimental-websocket"]];
  for (const flag of flags) {
    const args = [...flag, "--no-warnings", "examples/translate.mjs", file, "en", "es", url];
    const example = spawn(process.execPath, args);
    let printed = "";
    for (const output of [example.stdout, example.stderr]) {
      output.on("data", (bytes) => {
        printed += bytes;
      });
    }
    const [code] = await once(example, "close");
    assert.deepEqual([printed, code], ["48000 bytes of speech\n  [es] 48000 bytes of speech\n", 0]);
  }
});
