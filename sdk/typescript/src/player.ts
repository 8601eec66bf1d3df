/**
 * Plays the speech of results, one after the other without gaps.
 *
 * Start at {@link Player.play}. Streamed speech will come in parts of the same form, once the
 * scheduler sends it: each part is a clip that follows the one before.
 *
 * Invariant: clips are played in the order of the calls, also when a later one is decoded first.
 */

import { LinguaError, reasonOf } from "./error.js";
import type { Audio } from "./wire.js";

/** Longest queue, in seconds. */
const QUEUED_SECONDS_MAX = 600;

/** Time to fill the buffers of the device before the first clip, in seconds. */
const START_SECONDS = 0.02;

/** A clip that is being played or waits. */
interface Clip {
  source: AudioBufferSourceNode;
  end: () => void;
}

/** Speech as it is in a result, or its bytes. */
export type Speech = Pick<Audio, "format" | "sample_rate"> & {
  data?: string | Uint8Array | null | undefined;
};

/** Plays speech. */
export class Player {
  readonly #context: BaseAudioContext;
  readonly #clips = new Set<Clip>();
  /** Whoever comes next waits for this. */
  #last: Promise<unknown> = Promise.resolve();
  /** When the last clip ends, in the time of the context. */
  #endsAt = 0;
  /** Rises with each `stop`, so that clips that are still decoded are not played. */
  #stops = 0;

  /** With a context of its own, or with that of the app. */
  constructor(context: BaseAudioContext = new AudioContext()) {
    this.#context = context;
  }

  /** Lets the browser play. Call it when the user clicks something, before the first clip. */
  async unlock(): Promise<void> {
    if (this.#context instanceof AudioContext) {
      await this.#context.resume();
    }
  }

  /** How much is left to play, in milliseconds. */
  get queuedMs(): number {
    return Math.max(0, this.#endsAt - this.#context.currentTime) * 1000;
  }

  /** Plays a clip after those before it; ends when it was played or stopped. */
  async play(speech: Speech): Promise<void> {
    if (!speech.data) {
      return;
    }
    const stops = this.#stops;
    const decoding = this.#decode(speech, speech.data);
    const turn = this.#last.then(() => decoding);
    // A clip that cannot be decoded is left out, in its turn.
    decoding.catch(() => {});
    this.#last = turn.catch(() => {});
    const buffer = await turn;
    if (stops === this.#stops) {
      await this.#schedule(buffer);
    }
  }

  /** Is silent at once and forgets what waits. */
  stop(): void {
    this.#stops += 1;
    this.#endsAt = 0;
    for (const clip of this.#clips) {
      clip.source.stop();
      clip.end();
    }
  }

  #schedule(buffer: AudioBuffer): Promise<void> {
    if (this.queuedMs > QUEUED_SECONDS_MAX * 1000) {
      const detail = `more than ${QUEUED_SECONDS_MAX} s of speech wait to be played`;
      throw new LinguaError("NOT_PLAYABLE", detail);
    }
    const source = this.#context.createBufferSource();
    source.buffer = buffer;
    source.connect(this.#context.destination);
    const now = this.#context.currentTime;
    const startsAt = this.#endsAt > now ? this.#endsAt : now + (now > 0 ? START_SECONDS : 0);
    this.#endsAt = startsAt + buffer.duration;
    source.start(startsAt);
    return new Promise((resolve) => {
      const clip = {
        source,
        end: () => {
          this.#clips.delete(clip);
          resolve();
        },
      };
      this.#clips.add(clip);
      source.onended = clip.end;
    });
  }

  async #decode(speech: Speech, data: string | Uint8Array): Promise<AudioBuffer> {
    try {
      const bytes = typeof data === "string" ? fromBase64(data) : data.slice();
      if (speech.format !== "pcm16") {
        return await this.#context.decodeAudioData(bytes.buffer);
      }
      const samples = new Int16Array(bytes.buffer, 0, bytes.length >> 1);
      const rate = speech.sample_rate ?? 16_000;
      const buffer = this.#context.createBuffer(1, Math.max(1, samples.length), rate);
      buffer.copyToChannel(
        Float32Array.from(samples, (sample) => sample / 32_768),
        0,
      );
      return buffer;
    } catch (cause) {
      const detail = `speech as ${speech.format} cannot be played here: ${reasonOf(cause)}`;
      throw new LinguaError("NOT_PLAYABLE", detail, { cause });
    }
  }
}

function fromBase64(text: string): Uint8Array<ArrayBuffer> {
  return Uint8Array.from(atob(text), (character) => character.charCodeAt(0));
}
