/** What the audio thread does with the sound of a microphone. */

import assert from "node:assert/strict";
import { test } from "node:test";
import { Capture, type CaptureMessage, Resampler } from "../src/capture-worklet.js";

function tone(rate: number, hertz: number, seconds: number, volume = 0.5): Float32Array {
  const sample = (_: unknown, n: number) => volume * Math.sin((2 * Math.PI * hertz * n) / rate);
  return Float32Array.from({ length: Math.round(rate * seconds) }, sample);
}

/** Blocks of uneven lengths, as no device cuts them. */
function* blocks(samples: Float32Array, length: number): Generator<Float32Array> {
  for (let at = 0; at < samples.length; at += length) {
    yield samples.subarray(at, at + length);
  }
}

function resample(samples: Float32Array, from: number, to: number, length = 128): Float32Array {
  const resampler = new Resampler(from, to);
  const parts = [...blocks(samples, length)].map((block) => resampler.process(block));
  return Float32Array.from([...parts, resampler.finish()].flatMap((part) => [...part]));
}

function power(samples: Float32Array): number {
  return samples.reduce((sum, sample) => sum + sample * sample, 0) / samples.length;
}

const RATES = [8_000, 11_025, 16_000, 22_050, 44_100, 48_000, 96_000];

test("a tone keeps its length, its volume and its phase at any rate", () => {
  for (const from of RATES) {
    for (const to of [8_000, 16_000, 24_000, 48_000]) {
      const found = resample(tone(from, 1_000, 0.5), from, to);
      const wanted = tone(to, 1_000, 0.5);
      const extra = found.length - wanted.length;
      assert.ok(Math.abs(extra) <= Math.ceil(to / from), `${from} → ${to}: ${found.length}`);
      // The first and last milliseconds are the edge of the tone.
      const [first, last] = [to * 0.01, to * 0.49];
      const error = found.slice(first, last).map((sample, n) => sample - (wanted[first + n] ?? 0));
      const decibels = 10 * Math.log10(power(error) / power(wanted));
      assert.ok(decibels < -50, `${from} → ${to}: ${decibels.toFixed(1)} dB of error`);
    }
  }
});

test("what the lower rate cannot carry is not heard as another tone", () => {
  for (const from of [44_100, 48_000, 96_000]) {
    const found = resample(tone(from, 9_500, 0.5), from, 16_000).slice(200, -200);
    const decibels = 10 * Math.log10(power(found) / 0.125);
    assert.ok(decibels < -60, `from ${from}: ${decibels.toFixed(1)} dB`);
  }
});

test("frames are the same however the input is cut", () => {
  const samples = tone(44_100, 440, 0.3);
  const whole = resample(samples, 44_100, 16_000, samples.length);
  for (const length of [1, 7, 128, 1_000]) {
    assert.deepEqual(resample(samples, 44_100, 16_000, length), whole);
  }
  assert.equal(whole.length, 4_800);
});

/** The messages for this sound, with frames in place of their samples. */
function capture(samples: Float32Array, detectsVoice: boolean): CaptureMessage[] {
  const messages: CaptureMessage[] = [];
  const options = { sampleRate: 16_000, detectsVoice };
  const capture = new Capture(48_000, options, (message) => messages.push(message));
  for (const block of blocks(samples, 128)) {
    capture.process([block]);
  }
  capture.finish();
  return messages;
}

test("frames have 20 ms, and the last one has the rest", () => {
  const messages = capture(tone(48_000, 440, 0.0305), false);
  const lengths = messages.map((message) => message.type === "frame" && message.frame.length);
  assert.deepEqual(lengths, [320, 168, false]);
  assert.equal(messages.at(-1)?.type, "stopped");
});

test("two channels become their mean, and what is too loud is cut off", () => {
  const samples: number[] = [];
  const send = (message: CaptureMessage) =>
    message.type === "frame" && samples.push(...message.frame);
  const capture = new Capture(16_000, { sampleRate: 16_000, detectsVoice: false }, send);
  capture.process([new Float32Array(640).fill(1.5), new Float32Array(640).fill(0.5)]);
  capture.process([new Float32Array(640).fill(0.5), new Float32Array(640).fill(-0.5)]);
  capture.finish();
  assert.deepEqual([samples[300], samples[1_000]], [32_767, 0]);
});

test("a detected voice is a turn, with its beginning, and without the silence around", () => {
  const noise = (seconds: number) =>
    Float32Array.from({ length: 48_000 * seconds }, (_, n) => 0.002 * Math.sin(n * n * 0.37));
  const sound = [noise(2), tone(48_000, 300, 1), noise(2), tone(48_000, 300, 1, 0.2), noise(0.1)];
  const messages = capture(Float32Array.from(sound.flatMap((part) => [...part])), true);
  const told = messages.flatMap((message) => (message.type === "frame" ? [] : [message]));
  assert.deepEqual(told, [
    { type: "voice", isSpeaking: true },
    { type: "voice", isSpeaking: false },
    { type: "voice", isSpeaking: true },
    { type: "voice", isSpeaking: false },
    { type: "stopped" },
  ]);
  const ends = messages.flatMap((message, at) => (message.type === "voice" ? [at] : []));
  const frames = (ends[1] ?? 0) - (ends[0] ?? 0) - 1;
  // 300 ms before it, a second, and the silence after which it has ended.
  assert.ok(frames >= 50 + 12 && frames <= 50 + 15 + 36, `${frames} frames`);
  assert.equal(ends[0], 0, "nothing is sent before it");
});
