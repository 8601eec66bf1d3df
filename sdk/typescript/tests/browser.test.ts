/** Pages in a real Chromium, whose microphone plays a file. */

import assert from "node:assert/strict";
import { spawn } from "node:child_process";
import { once } from "node:events";
import { existsSync, mkdtempSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { delimiter, join } from "node:path";
import { createInterface } from "node:readline";
import { after, before, type TestContext, test } from "node:test";
import type { Session } from "lingua-sdk";
import type { Microphone, Player } from "lingua-sdk/browser";
import { type Browser, chromium, type Page } from "playwright-core";
import { access, KEY, proxyTo, rawNode, scheduler, simulatedNodes } from "./harness.js";
import { wavHeader } from "./wav.js";

const HERTZ = 1_000;
const WAV_RATE = 48_000;

/** Where in the file the tone is, in seconds. */
const TONE_FROM = 1;
const TONE_SECONDS = 1;
const WAV_SECONDS = 4;

let folder: string;
let browser: Browser;

/** What the page of the tests keeps between two calls. */
interface PageState {
  session: Session;
  microphone: Microphone;
  frames: Uint8Array[];
  results: unknown[];
  states: string[];
}

declare const state: PageState;

/** The names of the modules under the import map of the page. */
declare function load(): Promise<{
  Session: typeof Session;
  Microphone: typeof Microphone;
  Player: typeof Player;
}>;

before(async () => {
  folder = mkdtempSync(join(tmpdir(), "lingua-sdk-browser-"));
  const file = join(folder, "microphone.wav");
  writeFileSync(file, wav());
  const folders = (process.env.PATH ?? "").split(delimiter);
  const executablePath = folders.map((path) => join(path, "chromium")).find(existsSync);
  assert.ok(executablePath, "chromium is on the PATH");
  browser = await chromium.launch({
    executablePath,
    args: [
      ...["--no-sandbox", "--disable-gpu", "--disable-quic", "--disable-dev-shm-usage"],
      ...["--disable-background-networking", "--disable-component-update", "--disable-sync"],
      "--autoplay-policy=no-user-gesture-required",
      "--use-fake-device-for-media-stream",
      `--use-file-for-fake-audio-capture=${file}`,
      "--host-resolver-rules=MAP app.test 127.0.0.1",
    ],
  });
});

after(async () => {
  await browser.close();
  rmSync(folder, { recursive: true, force: true });
});

/** A tone between silences. */
function wav(): Buffer {
  const samples = Int16Array.from({ length: WAV_SECONDS * WAV_RATE }, (_, n) => {
    const isTone = n >= TONE_FROM * WAV_RATE && n < (TONE_FROM + TONE_SECONDS) * WAV_RATE;
    return isTone ? 12_000 * Math.sin((2 * Math.PI * HERTZ * n) / WAV_RATE) : 0;
  });
  return Buffer.concat([wavHeader(samples.byteLength, WAV_RATE), Buffer.from(samples.buffer)]);
}

/** The server of the example, with the key that the scheduler knows. */
async function app(t: TestContext): Promise<string> {
  const args = ["examples/server.mjs", KEY.id, KEY.file, "0"];
  const server = spawn(process.execPath, args, { stdio: ["ignore", "pipe", "inherit"] });
  t.after(() => server.kill());
  const [line] = await once(createInterface({ input: server.stdout }), "line");
  return String(line).replace(/\/$/, "");
}

/** A page of this origin that may use the microphone, unless the test says otherwise. */
async function open(t: TestContext, origin: string, permissions = ["microphone"]): Promise<Page> {
  const context = await browser.newContext();
  t.after(() => context.close());
  await context.grantPermissions(permissions, { origin });
  const page = await context.newPage();
  page.on("pageerror", (error) => console.error("page:", error.message));
  await page.goto(origin);
  await page.evaluate(() => {
    const load = async () => ({
      // @ts-expect-error The page has an import map for these.
      ...(await import("/lingua-sdk/index.js")),
      // @ts-expect-error The page has an import map for these.
      ...(await import("/lingua-sdk/browser.js")),
    });
    Object.assign(globalThis, { load, state: { frames: [], results: [], states: [] } });
  });
  return page;
}

/** An app, a scheduler that lets its pages in, and a page. */
async function setUp(t: TestContext, pauseMs = 600_000) {
  const origin = await app(t);
  const { config, node: nodeToken } = await access();
  const allowed = `[server]\nallowed_origins = ["${origin}"]\n`;
  const settings = { SESSION__PAUSE_MS: String(pauseMs) };
  const { url, address } = await scheduler(t, { config: config + allowed, settings });
  return { origin, url, address, nodeToken, page: await open(t, origin) };
}

/** Starts a session in the page, with grants of the app; its microphone speaks into it. */
async function speakInto(page: Page, url: string, detectsVoice: boolean): Promise<void> {
  const options = { url, detectsVoice };
  await page.evaluate(async ({ url, detectsVoice }) => {
    const { Session, Microphone } = await load();
    const token = async () => (await fetch("/grant")).text();
    const start = { src_lang: "en", tgt_lang: "es", require_tts: true };
    const session = await Session.start({ url, token }, start);
    state.session = session;
    void (async () => {
      for await (const event of session) {
        state.states.push(event.type);
        if (event.type === "result") {
          state.results.push(event);
        }
      }
    })();
    if (!detectsVoice) {
      session.turnStart();
    }
    const to = {
      audio: (frame: Int16Array<ArrayBuffer>) => {
        state.frames.push(new Uint8Array(frame.buffer.slice(0)));
        return session.audio(frame);
      },
      turnStart: () => session.turnStart(),
      turnEnd: () => session.turnEnd(),
    };
    const raw = { echoCancellation: false, noiseSuppression: false, autoGainControl: false };
    state.microphone = await Microphone.open({ to, detectsVoice, constraints: raw });
  }, options);
}

/** The share of a tone in the power of samples. */
function toneShare(samples: Int16Array, rate: number): number {
  let [real, imaginary, power] = [0, 0, 0];
  samples.forEach((sample, n) => {
    real += sample * Math.cos((2 * Math.PI * HERTZ * n) / rate);
    imaginary += sample * Math.sin((2 * Math.PI * HERTZ * n) / rate);
    power += sample * sample;
  });
  return (2 * (real ** 2 + imaginary ** 2)) / (samples.length * power);
}

/** Whole samples, wherever the buffer begins. */
function samplesOf(bytes: Buffer): Int16Array {
  return new Int16Array(Uint8Array.from(bytes).buffer);
}

test("a voice arrives to the byte, over a connection that breaks", async (t) => {
  const { url, address, nodeToken, page } = await setUp(t);
  const node = await rawNode(t, url, nodeToken, ["en", "es"]);
  const proxy = await proxyTo(t, address);
  await speakInto(page, proxy.url, false);
  const assign = await node.assigned();
  proxy.loseInput();
  const lost = await page.evaluate(() => state.frames.length);
  await page.waitForFunction((lost) => state.frames.length > lost + 20, lost);
  proxy.breakConnections();
  await page.waitForFunction(() => state.states.includes("resumed"));
  // Until a whole round of the file was heard.
  await page.waitForFunction(() => state.frames.length > 220);
  const sent = await page.evaluate(async () => {
    await state.microphone.stop();
    state.session.turnEnd();
    state.session.end();
    return state.frames.map((frame) => [...frame]);
  });
  const heard = await node.speech(assign);
  const said = Buffer.from(sent.flat());
  // Silence before the first speech belongs to no segment; the scheduler keeps a part of it.
  assert.ok(heard.length > 4 * 32_000 - 32_000 * TONE_FROM, `${heard.length} bytes`);
  assert.deepEqual(heard, said.subarray(said.length - heard.length));
  const tone = samplesOf(heard).filter((sample) => Math.abs(sample) > 0);
  assert.ok(tone.length > 12_000, `${tone.length} samples of sound`);
  node.done(assign, "hola");
  await page.waitForFunction(() => state.results.length > 0);
});

test("a detected voice becomes a turn with the tone of the file", async (t) => {
  const { url, nodeToken, page } = await setUp(t);
  const node = await rawNode(t, url, nodeToken, ["en", "es"]);
  await speakInto(page, url, true);
  const assign = await node.assigned();
  const heard = samplesOf(await node.speech(assign));
  const seconds = heard.length / 16_000;
  assert.ok(seconds > TONE_SECONDS && seconds < TONE_SECONDS + 1.2, `${seconds} s`);
  const loud = heard.findIndex((sample) => Math.abs(sample) > 3_000);
  assert.ok(loud < 16_000 * 0.4, "it begins soon");
  const share = toneShare(heard.subarray(loud + 800, loud + 12_800), 16_000);
  assert.ok(share > 0.98, `${share} of the power is the tone`);
  node.done(assign, "hola");
  await page.waitForFunction(() => state.results.length > 0);
  await page.evaluate(() => state.microphone.stop());
});

test("a microphone goes off when its session ends", async (t) => {
  const { url, page } = await setUp(t);
  const lost = await page.evaluate(async (url) => {
    const { Session, Microphone } = await load();
    const token = async () => (await fetch("/grant")).text();
    const session = await Session.start({ url, token }, { src_lang: "en", tgt_lang: "es" });
    const tracks: MediaStreamTrack[] = [];
    const devices = navigator.mediaDevices;
    const open = devices.getUserMedia.bind(devices);
    devices.getUserMedia = async (constraints) => {
      const stream = await open(constraints);
      tracks.push(...stream.getTracks());
      return stream;
    };
    let failures = 0;
    addEventListener("unhandledrejection", () => {
      failures += 1;
    });
    const lost = new Promise<string>((resolve) => {
      const onLost = (error: Error) => resolve(error.message);
      void Microphone.open({ to: session, onLost }).then(() => session.end());
    });
    const message = await lost;
    while (tracks.some((track) => track.readyState === "live")) {
      await new Promise((resolve) => setTimeout(resolve, 10));
    }
    return { message, failures, tracks: tracks.length };
  }, url);
  assert.match(lost.message, /^SESSION_ENDED/);
  assert.deepEqual([lost.failures, lost.tracks], [0, 1]);
});

test("the page of the example translates and plays a voice", async (t) => {
  const { origin, url, nodeToken, page } = await setUp(t);
  await simulatedNodes(
    t,
    url,
    ...["--token", nodeToken, "--asr", "en", "--semantic", "en"],
    ...["--tts", "es"],
  );
  await page.goto(`${origin}/?scheduler=${url}`);
  await page.click("#talk");
  await page.waitForFunction(() =>
    document.getElementById("translated")?.textContent?.startsWith("[es]"),
  );
  assert.match((await page.textContent("#said")) ?? "", /bytes of speech/);
});

test("a microphone that cannot be had says why", async (t) => {
  const origin = await app(t);
  const failure = (page: Page, constraints: MediaTrackConstraints = {}, workletUrl?: string) =>
    page.evaluate(
      async ({ constraints, workletUrl }) => {
        const { Microphone } = await load();
        const to = { audio() {}, turnStart() {}, turnEnd() {} };
        const opening = Microphone.open({ to, constraints, workletUrl });
        return opening.then(
          () => "opened",
          (error) => error.message,
        );
      },
      { constraints, workletUrl },
    );
  const allowed = await open(t, origin);
  const deviceId = { exact: "none" };
  assert.match(await failure(allowed, { deviceId }), /^MICROPHONE_MISSING: there is no such/);
  assert.match(
    await failure(allowed, {}, "/gone.js"),
    /^UNSUPPORTED: the microphone cannot be read/,
  );
  const refused = await open(t, origin, []);
  assert.match(await failure(refused), /^MICROPHONE_REFUSED: .*allow it/);
  const insecure = await open(t, origin.replace("127.0.0.1", "app.test"), []);
  assert.match(await failure(insecure), /^UNSUPPORTED: .*https/);
});

test("clips are played one after the other, to the sample", async (t) => {
  const page = await open(t, await app(t));
  const clip = (value: number, count: number) =>
    Buffer.from(new Int16Array(count).fill(value).buffer);
  const wavClip = Buffer.concat([wavHeader(1_600, 16_000), clip(8_192, 800)]);
  const clips = [
    { format: "wav", data: wavClip.toString("base64") },
    { format: "pcm16", sample_rate: 16_000, data: clip(-8_192, 400).toString("base64") },
    { format: "pcm16", sample_rate: 16_000, data: null },
    { format: "opus", data: clip(1, 50).toString("base64") },
    { format: "pcm16", sample_rate: 16_000, data: clip(16_384, 600).toString("base64") },
  ];
  const { samples, error } = await page.evaluate(async (clips) => {
    const { Player } = await load();
    const context = new OfflineAudioContext(1, 2_000, 16_000);
    const player = new Player(context);
    let error = "";
    for (const clip of clips) {
      player.play(clip).catch((thrown) => {
        error = thrown.message;
      });
    }
    while (player.queuedMs < 112) {
      await new Promise((resolve) => setTimeout(resolve, 10));
    }
    const rendered = await context.startRendering();
    return { samples: [...rendered.getChannelData(0)], error };
  }, clips);
  const wanted = [800, 400, 600, 200].flatMap((count, n) =>
    new Array<number>(count).fill([0.25, -0.25, 0.5, 0][n] ?? 0),
  );
  // A decoder may round otherwise than we do.
  assert.deepEqual(
    samples.map((sample) => Math.round(sample * 1_000) / 1_000),
    wanted,
  );
  assert.match(error, /^NOT_PLAYABLE: speech as opus/);
});

test("a player that is stopped is silent at once and forgets what waits", async (t) => {
  const page = await open(t, await app(t));
  const left = await page.evaluate(async () => {
    const { Player } = await load();
    const player = new Player();
    await player.unlock();
    const clip = { format: "pcm16", sample_rate: 16_000, data: new Uint8Array(20 * 32_000) };
    const played = [player.play(clip), player.play(clip)];
    while (player.queuedMs < 30_000) {
      await new Promise((resolve) => setTimeout(resolve, 10));
    }
    played.push(player.play(clip));
    player.stop();
    await Promise.all(played);
    return player.queuedMs;
  });
  assert.equal(left, 0);
});
