/**
 * A microphone as frames of 20 ms of `pcm16`.
 *
 * Start at {@link Microphone.open}. The work is done in the audio thread, by `capture-worklet.ts`.
 *
 * Invariant: the browser's sign that the microphone is on goes out when {@link Microphone.stop}
 * has ended, or when opening fails.
 */

import type { CaptureMessage, CaptureOptions } from "./capture-worklet.js";
import { LinguaError, reasonOf } from "./error.js";

const SAMPLE_RATE = 16_000;

/** How long the audio thread may take to send what is left. */
const STOP_MS = 1_000;

/** What takes the speech; a `Session` does. */
export interface SpeechSink {
  audio(frame: Int16Array<ArrayBuffer>): unknown;
  turnStart(): void;
  turnEnd(): void;
}

/** Which microphone to open, and what to do with it. */
export interface MicrophoneOptions {
  /** Gets the frames. */
  to: SpeechSink;
  /** Samples per second, as in `session_start.audio`; 16,000 by default. */
  sampleRate?: 8_000 | 16_000 | 24_000 | 48_000 | undefined;
  /**
   * Send only what a voice says, each as a turn of its own. This goes by loudness; `vad` of
   * `session_start` tells voices from noise, but then all sound is sent.
   */
  detectsVoice?: boolean | undefined;
  /** Which microphone; the defaults switch echo and noise suppression on. */
  constraints?: MediaTrackConstraints | undefined;
  /** Is told when a voice begins and ends, if voices are detected. */
  onVoice?: ((isSpeaking: boolean) => void) | undefined;
  /** Is told when it ends by itself: it was unplugged, or the session takes nothing more. */
  onLost?: ((error: LinguaError) => void) | undefined;
  /** Where `capture-worklet.js` is, if it does not lie beside this module. */
  workletUrl?: string | URL | undefined;
}

/** An open microphone. */
export class Microphone {
  readonly #stream: MediaStream;
  readonly #context: AudioContext;
  #node: AudioWorkletNode | undefined;
  /** Held, because browsers discard a source that nobody holds. */
  #source: MediaStreamAudioSourceNode | undefined;
  #whenStopped: () => void = () => {};
  #stopping: Promise<void> | undefined;

  private constructor(stream: MediaStream, context: AudioContext) {
    this.#stream = stream;
    this.#context = context;
  }

  /** Asks for the microphone and sends what it hears. Call it when the user clicks something. */
  static async open(options: MicrophoneOptions): Promise<Microphone> {
    const stream = await openStream(options.constraints);
    const microphone = new Microphone(stream, new AudioContext());
    try {
      await microphone.#start(options);
    } catch (cause) {
      await microphone.#release();
      const detail = `the microphone cannot be read: ${reasonOf(cause)}`;
      throw new LinguaError("UNSUPPORTED", detail, { cause });
    }
    return microphone;
  }

  async #start(options: MicrophoneOptions): Promise<void> {
    const context = this.#context;
    const module = options.workletUrl ?? new URL("./capture-worklet.js", import.meta.url);
    await context.audioWorklet.addModule(module);
    await context.resume();
    const processorOptions: CaptureOptions = {
      sampleRate: options.sampleRate ?? SAMPLE_RATE,
      detectsVoice: options.detectsVoice ?? false,
    };
    const node = new AudioWorkletNode(context, "lingua-capture", {
      numberOfOutputs: 0,
      processorOptions,
    });
    node.port.onmessage = ({ data }: MessageEvent<CaptureMessage>) =>
      void this.#take(data, options);
    node.onprocessorerror = () => this.#onLost(options, "the audio thread has failed");
    this.#source = context.createMediaStreamSource(this.#stream);
    this.#source.connect(node);
    this.#node = node;
    for (const track of this.#stream.getTracks()) {
      track.onended = () =>
        this.#onLost(options, "the microphone was unplugged or is no longer allowed");
    }
  }

  #onLost(options: MicrophoneOptions, detail: string): void {
    this.#giveUp(options, new LinguaError("MICROPHONE_MISSING", detail));
  }

  #giveUp({ onLost }: MicrophoneOptions, error: unknown): void {
    if (!this.#stopping) {
      void this.stop();
      onLost?.(error as LinguaError);
    }
  }

  /** Passes a message on; a sink that takes nothing more, such as an ended session, ends it. */
  async #take(message: CaptureMessage, options: MicrophoneOptions): Promise<void> {
    const { to, onVoice } = options;
    try {
      switch (message.type) {
        case "frame":
          await to.audio(message.frame);
          break;
        case "voice":
          if (message.isSpeaking) {
            to.turnStart();
          } else {
            to.turnEnd();
          }
          onVoice?.(message.isSpeaking);
          break;
        case "stopped":
          this.#whenStopped();
      }
    } catch (error) {
      this.#giveUp(options, error);
    }
  }

  /** Sends what is left and lets the microphone go. */
  stop(): Promise<void> {
    this.#stopping ??= this.#stop();
    return this.#stopping;
  }

  async #stop(): Promise<void> {
    const stopped = new Promise<void>((resolve) => {
      this.#whenStopped = resolve;
      // A context that the system has suspended does not answer.
      setTimeout(resolve, STOP_MS);
    });
    this.#node?.port.postMessage("stop");
    await stopped;
    await this.#release();
  }

  async #release(): Promise<void> {
    for (const track of this.#stream.getTracks()) {
      track.onended = null;
      track.stop();
    }
    await this.#context.close();
  }
}

async function openStream(constraints: MediaTrackConstraints | undefined): Promise<MediaStream> {
  if (!globalThis.navigator?.mediaDevices) {
    const detail = "there is no access to microphones; serve the page over https or from localhost";
    throw new LinguaError("UNSUPPORTED", detail);
  }
  const defaults = { channelCount: 1, echoCancellation: true, noiseSuppression: true };
  try {
    return await navigator.mediaDevices.getUserMedia({ audio: { ...defaults, ...constraints } });
  } catch (cause) {
    throw refusal(cause);
  }
}

function refusal(cause: unknown): LinguaError {
  const name = cause instanceof Error ? cause.name : "";
  switch (name) {
    case "NotAllowedError":
    case "SecurityError": {
      const detail = "the microphone is not allowed; allow it in the settings of the page";
      return new LinguaError("MICROPHONE_REFUSED", detail, { cause });
    }
    case "NotFoundError":
    case "OverconstrainedError":
      return new LinguaError("MICROPHONE_MISSING", "there is no such microphone", { cause });
    default: {
      const detail = `the microphone cannot be opened: ${reasonOf(cause)}; is it used elsewhere?`;
      return new LinguaError("MICROPHONE_MISSING", detail, { cause });
    }
  }
}
