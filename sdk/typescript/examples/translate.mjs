/**
 * Translates a WAV file (16 bits, one channel) and prints what is said in it.
 *
 *     node examples/translate.mjs hello.wav en es [http://127.0.0.1:7410]
 */

import { readFileSync } from "node:fs";
import { Session } from "lingua-sdk";

const [path, src_lang, tgt_lang, url = "http://127.0.0.1:7410"] = process.argv.slice(2);
if (!path || !src_lang || !tgt_lang) {
  console.error("usage: node examples/translate.mjs FILE.wav FROM TO [URL]");
  process.exit(2);
}
const wav = readFileSync(path);
const [sample_rate, data] = [wav.readUInt32LE(24), wav.indexOf("data")];
const speech = wav.subarray(data + 8, data + 8 + wav.readUInt32LE(data + 4));

// Node 20 has no WebSocket of its own: there the package ws lends one.
const WebSocket = globalThis.WebSocket ?? (await import("ws")).WebSocket;
const token = process.env.LINGUA_TOKEN;
const start = { src_lang, tgt_lang, audio: { format: "pcm16", sample_rate } };
const session = await Session.start({ url, token, WebSocket }, start);
if (session.warning) console.error(session.warning);

session.turnStart();
const sent = (async () => {
  // A second at a time; each call waits until the scheduler takes more.
  for (let at = 0; at < speech.length; at += 2 * sample_rate) {
    await session.audio(speech.subarray(at, at + 2 * sample_rate));
  }
  session.turnEnd();
  session.end();
})();
for await (const event of session) {
  if (event.type === "result") console.log(`${event.text_asr}\n  ${event.text_translated}`);
  if (event.type === "missing") console.error(`${event.error}: ${event.detail}`);
}
await sent;
