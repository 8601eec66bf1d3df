/**
 * A node written from the protocol, so that a test sees every byte that arrives.
 *
 * Start at {@link RawNode.join} and {@link RawNode.speech}.
 */

import { once } from "node:events";
import { WebSocket } from "ws";

/** Longer than anything takes, even on a slow machine. */
const TEST_MS = 20_000;

/** Bytes before the audio of a streamed frame: the number of the job and of the attempt. */
const TAG_BYTES = 20;

type Json = Record<string, unknown>;

/** A message about a job. */
export interface Assignment extends Json {
  job_id: string;
  attempt_id: number;
  text?: string;
  audio?: { stream?: boolean };
}

export class RawNode {
  readonly #socket: WebSocket;
  readonly #messages: (Json | Uint8Array)[] = [];
  /** What came, for failures. */
  readonly #seen: string[] = [];
  #wake: () => void = () => {};

  private constructor(socket: WebSocket) {
    this.#socket = socket;
    socket.on("message", (data: Buffer, isBinary) => {
      this.#messages.push(isBinary ? new Uint8Array(data) : JSON.parse(String(data)));
      this.#seen.push(isBinary ? `${data.length} bytes` : String(data));
      this.#wake();
    });
  }

  /** Registers a node that takes audio as it is spoken. */
  static async join(url: string, token?: string, languages = ["zh", "en"]): Promise<RawNode> {
    const headers = token ? { Authorization: `Bearer ${token}` } : {};
    const socket = new WebSocket(`${url.replace("http", "ws")}/v1/node/ws`, { headers });
    const node = new RawNode(socket);
    await once(socket, "open");
    node.send({
      type: "register",
      node_id: "raw",
      max_concurrent_jobs: 8,
      streaming: true,
      asr_langs: languages,
      semantic_langs: languages,
      tts_langs: languages,
    });
    await node.expect("registered");
    return node;
  }

  send(message: Json): void {
    this.#socket.send(JSON.stringify(message));
  }

  /** The next frame. */
  async next(): Promise<Json | Uint8Array> {
    const late = AbortSignal.timeout(TEST_MS);
    for (;;) {
      const message = this.#messages.shift();
      if (message) {
        return message;
      }
      if (late.aborted) {
        throw new Error(`nothing follows ${this.#seen.slice(-5).join("\n")}`);
      }
      await new Promise<void>((resolve) => {
        this.#wake = resolve;
        late.onabort = () => resolve();
      });
    }
  }

  /** The next message of this type; others are skipped, audio is not. */
  async expect(type: string): Promise<Json> {
    for (;;) {
      const message = await this.next();
      if (message instanceof Uint8Array) {
        throw new Error(`${message.length} bytes came instead of ${type}`);
      }
      if (message.type === type) {
        return message;
      }
    }
  }

  /** The next job, acknowledged. */
  async assigned(): Promise<Assignment> {
    const assign = (await this.expect("job_assign")) as Assignment;
    this.report("job_ack", assign);
    return assign;
  }

  /** Sends a message about a job. */
  report(type: string, { job_id, attempt_id }: Assignment, fields: Json = {}): void {
    this.send({ type, job_id, attempt_id, ...fields });
  }

  /**
   * Reads the speech of a job: this many bytes of it, or all. It comes in tagged frames while it is
   * spoken, or as one frame if it was whole before the job was sent.
   */
  async speech({ audio }: Assignment, bytesMax = Number.POSITIVE_INFINITY): Promise<Buffer> {
    const frames: Uint8Array[] = [];
    for (let bytes = 0; bytes < bytesMax; ) {
      const frame = await this.next();
      if (!(frame instanceof Uint8Array)) {
        break;
      }
      frames.push(audio?.stream ? frame.subarray(TAG_BYTES) : frame);
      bytes += frames.at(-1)?.length ?? 0;
      if (!audio?.stream) {
        break;
      }
    }
    return Buffer.concat(frames);
  }

  /** Ends a job with this translation. */
  done(assign: Assignment, text: string, fields: Json = {}): void {
    this.report("job_done", assign, { result: { text_translated: text, ...fields } });
  }

  /** Does the next job, which is a text. */
  async work(text = "hello"): Promise<Assignment> {
    const assign = await this.assigned();
    this.done(assign, text);
    await this.expect("job_confirmed");
    return assign;
  }

  close(): void {
    this.#socket.terminate();
  }
}
