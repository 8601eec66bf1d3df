/** What is sent again after a broken connection: random cuts, against a model of the scheduler. */

import assert from "node:assert/strict";
import { test } from "node:test";
import { Outbox } from "../src/outbox.js";
import type { SessionStarted } from "../src/wire.js";

/** Random numbers from a seed. */
function random(seed: number): () => number {
  let state = seed;
  return () => {
    state = (Math.imul(state, 1_664_525) + 1_013_904_223) >>> 0;
    return state / 2 ** 32;
  };
}

/** What the scheduler makes of frames, as `docs/sessions.md` says. */
class Received {
  readonly turns: { text: string | undefined; audio: number[]; isOpen: boolean }[] = [];

  take(frame: string | Uint8Array): void {
    const last = this.turns.at(-1);
    if (typeof frame !== "string") {
      assert.ok(last?.isOpen, "audio within turns");
      last.audio.push(...frame);
      return;
    }
    const { type, text } = JSON.parse(frame);
    if (last) {
      last.isOpen = false;
    }
    if (type !== "turn_end") {
      this.turns.push({ text, audio: [], isOpen: type === "turn_start" });
    }
  }

  /** What it says of it after a resume. */
  get started(): SessionStarted {
    const last = this.turns.at(-1);
    const isOpen = last?.isOpen ?? false;
    return {
      session_id: "sess-1",
      resume_token: "secret",
      resume_ms: 60_000,
      resumed: true,
      turns: this.turns.length,
      turn_open: isOpen,
      received_ms: isOpen ? Math.floor((last?.audio.length ?? 0) / 32) : 0,
    };
  }
}

test("whatever a cut loses arrives, once and in order", () => {
  for (let seed = 1; seed <= 500; seed += 1) {
    const draw = random(seed);
    const [outbox, received] = [new Outbox({ format: "pcm16" }), new Received()];
    const said: Received["turns"] = [];
    let isLosing = false;
    for (let step = 0; step < 60; step += 1) {
      const kind = Math.floor(draw() * 8);
      const last = said.at(-1);
      if (kind === 0 || !last?.isOpen) {
        if (last) {
          last.isOpen = false;
        }
        said.push({ text: undefined, audio: [], isOpen: true });
        outbox.turnStart();
      } else if (kind === 1) {
        last.isOpen = false;
        said.push({ text: `text ${step}`, audio: [], isOpen: false });
        outbox.text(`text ${step}`);
      } else if (kind === 2) {
        last.isOpen = false;
        outbox.turnEnd();
      } else if (kind === 3) {
        isLosing = true;
      } else if (kind === 4) {
        isLosing = false;
        outbox.resume(received.started);
      } else {
        const bytes = Uint8Array.from({ length: 64 * Math.ceil(draw() * 90) }, () => draw() * 256);
        last.audio.push(...bytes);
        assert.ok(outbox.audio(bytes));
      }
      // What is lost is lost up to the next connection, as TCP does it.
      for (let item = outbox.peek(); item && draw() < 0.9; item = outbox.peek()) {
        outbox.take();
        isLosing ||= draw() < 0.01;
        if (!isLosing) {
          received.take(item.frame);
        }
      }
      if (!isLosing && draw() < 0.5) {
        outbox.arrived(received.turns.length);
      }
    }
    outbox.resume(received.started);
    for (let item = outbox.peek(); item; item = outbox.peek()) {
      outbox.take();
      received.take(item.frame);
    }
    assert.deepEqual(received.turns, said, `seed ${seed}`);
  }
});

test("a turn that was open when another instance took over goes on as another", () => {
  const outbox = new Outbox(undefined);
  const sent = () => {
    const frames: unknown[] = [];
    for (let item = outbox.peek(); item; item = outbox.peek()) {
      outbox.take();
      frames.push(typeof item.frame === "string" ? JSON.parse(item.frame) : item.frame.length);
    }
    return frames;
  };
  outbox.turnStart("b");
  outbox.audio(new Uint8Array(640));
  assert.deepEqual(sent(), [{ type: "turn_start", speaker: "b" }, 640]);
  outbox.audio(new Uint8Array(320));
  const { started } = new Received();
  outbox.resume({ ...started, turns: 9, turn_open: false });
  assert.deepEqual(sent(), [{ type: "turn_start", speaker: "b" }, 320], "the rest");
  outbox.turnEnd();
  assert.deepEqual(sent(), [{ type: "turn_end" }]);
  outbox.resume({ ...started, turns: 10, turn_open: false });
  assert.deepEqual(sent(), [], "it has arrived");
});

test("old audio is forgotten before new audio is refused", () => {
  const outbox = new Outbox(undefined);
  outbox.turnStart();
  for (let n = 0; n < 20; n += 1) {
    assert.ok(outbox.audio(new Uint8Array(1 << 20).fill(n)), `${n} MiB`);
    while (outbox.peek()) {
      outbox.take();
    }
  }
  // The scheduler has 15 MiB of it.
  const receivedMs = (15 << 20) / 32;
  const { started } = new Received();
  outbox.resume({ ...started, turns: 1, turn_open: true, received_ms: receivedMs });
  const again = outbox.peek()?.frame;
  assert.ok(again instanceof Uint8Array && again[again.length - 1] === 15, "the 16th MiB");
  assert.equal(outbox.unsentMs, (5 << 20) / 32, "the other five");
});
