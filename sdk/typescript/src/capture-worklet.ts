/**
 * Runs in the browser's audio thread: makes frames of 20 ms of `pcm16` from a microphone.
 *
 * Start at {@link Capture.process}. `microphone.ts` loads this file by its address, and bundlers
 * copy it as it is, so it imports nothing.
 *
 * Invariant: the frames are the same, however the input is cut into blocks.
 */

/** What the worklet sends to the page. */
export type CaptureMessage =
  | { type: "frame"; frame: Int16Array<ArrayBuffer> }
  /** A voice begins, or has ended. */
  | { type: "voice"; isSpeaking: boolean }
  /** The answer to `"stop"`: nothing follows. */
  | { type: "stopped" };

/** How to capture. */
export interface CaptureOptions {
  /** Samples per second of the frames. */
  sampleRate: number;
  /** Send only what a voice says, and when it begins and ends. */
  detectsVoice: boolean;
}

const FRAME_MS = 20;

/** Input samples on each side that make an output sample, when the rate stays the same. */
const KERNEL_RADIUS = 24;

/** The pass band, as a share of what the lower of the two rates can carry. */
const PASS_BAND = 0.92;

/** Changes the sample rate of a stream, with a windowed sinc filter. */
export class Resampler {
  /** Input samples for each output sample, as a fraction. */
  readonly #step: number;
  readonly #divisor: number;
  readonly #radius: number;
  /** The filter for each position between two input samples. */
  readonly #kernels: Float32Array[];
  /** Input samples from the first that is still needed. */
  #input = new Float32Array(0);
  /** Position of the next output sample in `#input`, in units of 1 / divisor. */
  #position: number;

  constructor(fromRate: number, toRate: number) {
    const common = greatestCommonDivisor(fromRate, toRate);
    this.#step = fromRate / common;
    this.#divisor = toRate / common;
    const stretch = Math.max(1, fromRate / toRate);
    this.#radius = Math.ceil(KERNEL_RADIUS * stretch);
    this.#kernels = Array.from({ length: this.#divisor }, (_, phase) =>
      kernel(phase / this.#divisor, this.#radius, PASS_BAND / stretch),
    );
    // Silence before the start, so that the first output sample is at the first input sample.
    this.#input = new Float32Array(this.#radius);
    this.#position = this.#radius * this.#divisor;
  }

  /** Takes a block; gives the samples that are complete. */
  process(block: Float32Array): Float32Array {
    const input = new Float32Array(this.#input.length + block.length);
    input.set(this.#input);
    input.set(block, this.#input.length);
    const output: number[] = [];
    for (;;) {
      const at = Math.floor(this.#position / this.#divisor);
      if (at + this.#radius >= input.length) {
        const first = at - this.#radius;
        this.#input = input.slice(Math.max(0, first));
        this.#position -= Math.max(0, first) * this.#divisor;
        return Float32Array.from(output);
      }
      const taps = this.#kernels[this.#position % this.#divisor] as Float32Array;
      const first = at - this.#radius + 1;
      output.push(taps.reduce((sum, tap, n) => sum + tap * (input[first + n] ?? 0), 0));
      this.#position += this.#step;
    }
  }

  /** The samples that are still missing, with silence after the end. */
  finish(): Float32Array {
    return this.process(new Float32Array(this.#radius));
  }
}

/** A filter whose middle is `shift` after tap `radius - 1`; the taps add up to one. */
function kernel(shift: number, radius: number, cutoff: number): Float32Array {
  const taps = Float32Array.from({ length: 2 * radius }, (_, n) => {
    const x = n - (radius - 1) - shift;
    const sinc = x === 0 ? 1 : Math.sin(Math.PI * cutoff * x) / (Math.PI * cutoff * x);
    // The Blackman window.
    const angle = (Math.PI * x) / radius;
    return sinc * (0.42 + 0.5 * Math.cos(angle) + 0.08 * Math.cos(2 * angle));
  });
  const total = taps.reduce((sum, tap) => sum + tap, 0);
  return taps.map((tap) => tap / total);
}

function greatestCommonDivisor(a: number, b: number): number {
  return b === 0 ? a : greatestCommonDivisor(b, a % b);
}

/** A voice is louder than the background by this much, and louder than silence, in decibels. */
const ABOVE_BACKGROUND_DB = 10;
const SILENCE_DB = -55;

/** How fast the estimate of the background follows a louder one, in decibels per frame. */
const BACKGROUND_RISE_DB = 0.04;

/** A voice begins after this many loud frames and ends after this many that are not. */
const BEGINS_AFTER = 3;
const ENDS_AFTER = 35;

/** Finds voices by their loudness over the background. */
export class VoiceDetector {
  #backgroundDb = SILENCE_DB;
  #loudFrames = 0;
  #quietFrames = 0;
  isSpeaking = false;

  /** Takes a frame; whether somebody speaks now. */
  accept(frame: Int16Array): boolean {
    const energy = frame.reduce((sum, sample) => sum + sample * sample, 0) / frame.length;
    const levelDb = 10 * Math.log10(energy / 32_768 ** 2 + 1e-10);
    const isLoud = levelDb > Math.max(SILENCE_DB, this.#backgroundDb + ABOVE_BACKGROUND_DB);
    const risen = this.#backgroundDb + BACKGROUND_RISE_DB;
    this.#backgroundDb = Math.max(SILENCE_DB, Math.min(levelDb, risen));
    this.#loudFrames = isLoud ? this.#loudFrames + 1 : 0;
    this.#quietFrames = isLoud ? 0 : this.#quietFrames + 1;
    if (this.#loudFrames >= BEGINS_AFTER) {
      this.isSpeaking = true;
    } else if (this.#quietFrames >= ENDS_AFTER) {
      this.isSpeaking = false;
    }
    return this.isSpeaking;
  }
}

/** Frames before the beginning of a voice that belong to it. */
const LEAD_IN_FRAMES = 15;

/** Turns blocks of a microphone into messages for the page. */
export class Capture {
  readonly #resampler: Resampler;
  readonly #detector: VoiceDetector | undefined;
  readonly #send: (message: CaptureMessage) => void;
  #frame: Int16Array<ArrayBuffer>;
  #filled = 0;
  #leadIn: Int16Array<ArrayBuffer>[] = [];

  constructor(inputRate: number, options: CaptureOptions, send: (message: CaptureMessage) => void) {
    this.#resampler = new Resampler(inputRate, options.sampleRate);
    this.#detector = options.detectsVoice ? new VoiceDetector() : undefined;
    this.#frame = new Int16Array((options.sampleRate * FRAME_MS) / 1000);
    this.#send = send;
  }

  /** Takes a block of each channel. */
  process(channels: Float32Array[]): void {
    const [first, ...others] = channels;
    if (first) {
      const mean = (sample: number, n: number) =>
        others.reduce((sum, channel) => sum + (channel[n] ?? 0), sample) / channels.length;
      this.#take(this.#resampler.process(others.length > 0 ? first.map(mean) : first));
    }
  }

  /** Sends what is left. */
  finish(): void {
    this.#take(this.#resampler.finish());
    if (this.#filled > 0) {
      this.#emit(this.#frame.slice(0, this.#filled));
      this.#filled = 0;
    }
    if (this.#detector?.isSpeaking) {
      this.#send({ type: "voice", isSpeaking: false });
    }
    this.#send({ type: "stopped" });
  }

  #take(samples: Float32Array): void {
    for (const sample of samples) {
      const level = Math.max(-1, Math.min(1, sample));
      this.#frame[this.#filled] = Math.round(level * 32_767);
      this.#filled += 1;
      if (this.#filled === this.#frame.length) {
        const frame = this.#frame;
        // Sending a frame takes its memory away.
        this.#frame = new Int16Array(frame.length);
        this.#filled = 0;
        this.#emit(frame);
      }
    }
  }

  #emit(frame: Int16Array<ArrayBuffer>): void {
    if (!this.#detector) {
      this.#send({ type: "frame", frame });
      return;
    }
    const wasSpeaking = this.#detector.isSpeaking;
    const isSpeaking = this.#detector.accept(frame);
    if (isSpeaking && !wasSpeaking) {
      this.#send({ type: "voice", isSpeaking });
    }
    this.#leadIn.push(frame);
    if (isSpeaking) {
      for (const each of this.#leadIn.splice(0)) {
        this.#send({ type: "frame", frame: each });
      }
    } else {
      this.#leadIn.splice(0, this.#leadIn.length - LEAD_IN_FRAMES);
    }
    if (wasSpeaking && !isSpeaking) {
      this.#send({ type: "voice", isSpeaking });
    }
  }
}

/** The scope of worklets, which the type library lacks. */
interface WorkletScope {
  registerProcessor?(name: string, processor: unknown): void;
  AudioWorkletProcessor: new () => { readonly port: MessagePort };
  sampleRate: number;
}

const scope = globalThis as unknown as WorkletScope;

if (scope.registerProcessor) {
  class CaptureProcessor extends scope.AudioWorkletProcessor {
    readonly #capture: Capture;
    #isStopped = false;

    constructor({ processorOptions }: { processorOptions: CaptureOptions }) {
      super();
      const send = (message: CaptureMessage) =>
        this.port.postMessage(message, message.type === "frame" ? [message.frame.buffer] : []);
      this.#capture = new Capture(scope.sampleRate, processorOptions, send);
      this.port.onmessage = () => {
        if (!this.#isStopped) {
          this.#isStopped = true;
          this.#capture.finish();
        }
      };
    }

    process([channels]: Float32Array[][]): boolean {
      if (!this.#isStopped && channels) {
        this.#capture.process(channels);
      }
      return !this.#isStopped;
    }
  }
  scope.registerProcessor("lingua-capture", CaptureProcessor);
}
