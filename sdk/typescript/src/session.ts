/**
 * A session: say or write something, and read the translations in the order spoken.
 *
 * Start at {@link Session.start}, then {@link Session.audio} and `for await`. When the connection
 * breaks, the session resumes by itself. `outbox.ts` knows what has to be sent again,
 * `connection.ts` is one WebSocket.
 *
 * Invariant: a `result` or `missing` comes once for each segment, in the order spoken.
 */

import {
  Connection,
  type ConnectionEvents,
  type SessionOptions,
  type SessionUpdate,
} from "./connection.js";
import { LinguaError } from "./error.js";
import { EventQueue } from "./event-queue.js";
import { Outbox } from "./outbox.js";
import type { SessionStart, SessionStarted } from "./wire.js";

/** Pauses between two attempts to connect: the first, and the longest. */
const RETRY_MS = 200;
const RETRY_MAX_MS = 3_000;

/** A connection that lives for so long is a good one: if it breaks, there is no pause. */
const GOOD_MS = 5_000;

/** How many times faster than real time audio is sent; the scheduler allows four by default. */
const RATE = 3;

/** Audio that may be sent at once, in microseconds. */
const BURST_US = 2_000_000;

/** `audio` waits while more than this waits to be sent, in milliseconds. */
const UNSENT_MAX_MS = 2_000;

/** How often to look whether more may be sent. */
const PACE_MS = 50;

/** Errors after which the session goes on over another connection. */
const RESUMABLE = ["UNREACHABLE", "TOKEN_UNAVAILABLE", "RATE_LIMITED", "SCHEDULER_DEPENDENCY_DOWN"];

/** Something that a session tells. */
export type SessionEvent =
  | Exclude<SessionUpdate, { type: "session_started" | "error" }>
  /** The scheduler refused something that was sent, or audio was dropped; the session goes on. */
  | { type: "refused"; error: LinguaError }
  /** The connection broke; the session resumes by itself. */
  | { type: "disconnected"; error: LinguaError }
  /** The session goes on over another connection. */
  | { type: "resumed" };

/** What is needed to go on with a session elsewhere, such as after a page was loaded again. */
export interface SessionTicket {
  session_id: string;
  resume_token: string;
  last_seq: number;
}

/** A session with a scheduler. */
export class Session implements AsyncIterable<SessionEvent> {
  /** What will not work as things are, for people: nobody serves the languages. */
  warning: string | undefined;
  readonly #options: SessionOptions;
  readonly #outbox: Outbox;
  readonly #events = new EventQueue<SessionEvent>();
  #connection: Connection | undefined;
  #connectedAt = 0;
  /** The pause before the next attempt to connect. */
  #retryMs = 0;
  #ticket: SessionTicket = { session_id: "", resume_token: "", last_seq: 0 };
  #resumeMs = 0;
  /** Segments without an outcome. */
  readonly #openSegments = new Set<string>();
  #isEnding = false;
  /** Audio that may be sent now, and when that was reckoned. */
  #allowedUs = BURST_US;
  #allowedAt = performance.now();
  #paceTimer: ReturnType<typeof setTimeout> | undefined;
  #sent: (() => void)[] = [];
  /** Ends the pause before the next attempt to resume. */
  #retryNow: () => void = () => {};

  private constructor(options: SessionOptions, start: SessionStart) {
    this.#options = options;
    this.#outbox = new Outbox(start.audio);
  }

  /** Starts a session. */
  static async start(options: SessionOptions, start: SessionStart): Promise<Session> {
    const session = new Session(options, start);
    await session.#connect(JSON.stringify({ type: "session_start", ...start }));
    return session;
  }

  /** Goes on with a session of which the {@link ticket} was kept. `audio` is that of its start. */
  static async resume(
    options: SessionOptions,
    ticket: SessionTicket,
    audio?: SessionStart["audio"],
  ): Promise<Session> {
    const session = new Session(options, audio === undefined ? {} : { audio });
    session.#ticket = { ...ticket };
    await session.#connect(session.#resumeMessage());
    return session;
  }

  /** The session's id. */
  get id(): string {
    return this.#ticket.session_id;
  }

  /** What {@link Session.resume} needs. Keep it as secret as a token. */
  get ticket(): SessionTicket {
    return { ...this.#ticket };
  }

  /** Opens a turn; in a two-way session with the speaker. */
  turnStart(speaker?: "a" | "b"): void {
    this.#mayStillSend();
    this.#outbox.turnStart(speaker);
    this.#send();
  }

  /** Ends the turn. */
  turnEnd(): void {
    this.#mayStillSend();
    this.#outbox.turnEnd();
    this.#send();
  }

  /** Sends a turn of text. */
  text(text: string, speaker?: "a" | "b"): void {
    this.#mayStillSend();
    if (text.trim() !== "") {
      this.#outbox.text(text, speaker);
      this.#send();
    }
  }

  /**
   * Sends audio of any length, no faster than the scheduler takes it. Await it to send a file; a
   * microphone need not.
   */
  async audio(audio: ArrayBuffer | ArrayBufferView): Promise<void> {
    this.#mayStillSend();
    const bytes = ArrayBuffer.isView(audio)
      ? new Uint8Array(audio.buffer, audio.byteOffset, audio.byteLength)
      : new Uint8Array(audio);
    if (!this.#outbox.audio(bytes)) {
      const detail = `${bytes.length} bytes of audio were dropped: too much waits to be sent`;
      this.#events.push({ type: "refused", error: new LinguaError("AUDIO_DROPPED", detail) });
    }
    this.#send();
    while (this.#outbox.unsentMs > UNSENT_MAX_MS && !this.#events.isClosed) {
      await new Promise<void>((resolve) => this.#sent.push(resolve));
    }
  }

  /** Ends the session: what is open still comes, then the events end. */
  end(): void {
    if (!this.#isEnding) {
      this.#isEnding = true;
      this.#send();
    }
  }

  /** Leaves at once. The session can be resumed with its {@link ticket} for a while. */
  close(): void {
    this.#finish();
  }

  /** Connects anew, such as when the network is another one. */
  reconnect(): void {
    const connection = this.#connection;
    if (connection) {
      connection.drop();
      this.#onLost(new LinguaError("UNREACHABLE", "the connection was given up"), false);
    } else {
      this.#retryNow();
    }
  }

  /** The next event; done after the last. */
  next(): Promise<IteratorResult<SessionEvent, void>> {
    return this.#events.next();
  }

  /** The events. Leaving the loop does not end the session. */
  [Symbol.asyncIterator](): AsyncIterator<SessionEvent, void> {
    return { next: () => this.next() };
  }

  #mayStillSend(): void {
    if (this.#isEnding || this.#events.isClosed) {
      throw new LinguaError("SESSION_ENDED", "the session has ended; start another one");
    }
  }

  #connect(first: string): Promise<void> {
    const events: ConnectionEvents = {
      started: (connection, started) => this.#onStarted(connection, started),
      update: (update) => this.#onUpdate(update),
      lost: (error, isNormal) => this.#onLost(error, isNormal),
    };
    return Connection.open(this.#options, first, events);
  }

  #onStarted(connection: Connection, started: SessionStarted): void {
    if (this.#events.isClosed) {
      connection.drop();
      return;
    }
    this.#connection = connection;
    this.#connectedAt = performance.now();
    const { session_id, resume_token } = started;
    this.#ticket = { ...this.#ticket, session_id, resume_token };
    this.#resumeMs = started.resume_ms;
    this.warning = started.warning ?? undefined;
    if (started.resumed) {
      this.#outbox.resume(started);
      this.#events.push({ type: "resumed" });
    }
    this.#send();
  }

  #onUpdate(update: SessionUpdate): void {
    switch (update.type) {
      case "job_accepted":
        this.#outbox.arrived(update.turn);
        this.#openSegments.add(`${update.turn}.${update.segment}`);
        this.#events.push(update);
        break;
      case "partial":
        this.#events.replaceLast(update, (last) => last.type === "partial" && isSame(last, update));
        break;
      case "result":
      case "missing":
        this.#outbox.arrived(update.turn);
        this.#ticket.last_seq = update.seq;
        this.#openSegments.delete(`${update.turn}.${update.segment}`);
        this.#events.push(update);
        break;
      case "error":
        this.#events.push({ type: "refused", error: new LinguaError(update.error, update.detail) });
        break;
      default:
      // A message of a later version.
    }
  }

  #onLost(error: LinguaError, isNormal: boolean): void {
    this.#connection = undefined;
    clearTimeout(this.#paceTimer);
    if (this.#isEnding && isNormal) {
      this.#finish();
    } else if (this.#mayResumeAfter(error)) {
      this.#events.push({ type: "disconnected", error });
      void this.#resume();
    } else {
      this.#finish(error);
    }
  }

  /** Connects again, for as long as the scheduler keeps the session. */
  async #resume(): Promise<void> {
    const lostAt = performance.now();
    if (lostAt - this.#connectedAt > GOOD_MS) {
      this.#retryMs = 0;
    }
    for (;;) {
      await this.#pause(this.#retryMs);
      this.#retryMs = Math.min(RETRY_MAX_MS, Math.max(RETRY_MS, 2 * this.#retryMs));
      if (this.#events.isClosed) {
        return;
      }
      try {
        return await this.#connect(this.#resumeMessage());
      } catch (thrown) {
        const error = thrown as LinguaError;
        const isTooLate = performance.now() - lostAt > this.#resumeMs;
        if (this.#hasEverything(error)) {
          return this.#finish();
        }
        if (!this.#mayResumeAfter(error) || isTooLate) {
          return this.#finish(error);
        }
      }
    }
  }

  /** Waits, with some randomness, so that clients do not all come back at once. */
  #pause(ms: number): Promise<void> {
    return new Promise((resolve) => {
      const timer = setTimeout(resolve, ms * (0.5 + Math.random()));
      this.#retryNow = () => {
        clearTimeout(timer);
        resolve();
      };
    });
  }

  #mayResumeAfter(error: LinguaError): boolean {
    // A grant that has expired is replaced by the next one.
    const isRenewed = error.code === "UNAUTHORIZED" && typeof this.#options.token === "function";
    return isRenewed || RESUMABLE.includes(error.code);
  }

  /** Whether the session has ended well, although the last close frame was lost. */
  #hasEverything(error: LinguaError): boolean {
    const isDone = this.#openSegments.size === 0 && this.#outbox.peek() === undefined;
    return this.#isEnding && isDone && error.code === "SESSION_NOT_FOUND";
  }

  #resumeMessage(): string {
    return JSON.stringify({ type: "session_resume", ...this.#ticket });
  }

  /** Sends what waits, as fast as the scheduler takes it. */
  #send(): void {
    const connection = this.#connection;
    if (!connection) {
      return;
    }
    clearTimeout(this.#paceTimer);
    const now = performance.now();
    this.#allowedUs = Math.min(BURST_US, this.#allowedUs + (now - this.#allowedAt) * 1000 * RATE);
    this.#allowedAt = now;
    let item = this.#outbox.peek();
    for (; item && item.us <= this.#allowedUs; item = this.#outbox.peek()) {
      connection.send(item.frame);
      this.#outbox.take();
      this.#allowedUs -= item.us;
    }
    if (item) {
      this.#paceTimer = setTimeout(() => this.#send(), PACE_MS);
    } else if (this.#isEnding) {
      connection.send(JSON.stringify({ type: "session_end" }));
    }
    if (this.#outbox.unsentMs <= UNSENT_MAX_MS) {
      this.#wakeSenders();
    }
  }

  #wakeSenders(): void {
    for (const wake of this.#sent.splice(0)) {
      wake();
    }
  }

  /** Ends the events, with an error if there is one. */
  #finish(error?: LinguaError): void {
    clearTimeout(this.#paceTimer);
    this.#connection?.drop();
    this.#connection = undefined;
    if (error) {
      this.#events.fail(error);
    } else {
      this.#events.finish();
    }
    this.#retryNow();
    this.#wakeSenders();
  }
}

function isSame(one: { turn: number; segment: number }, other: typeof one): boolean {
  return one.turn === other.turn && one.segment === other.segment;
}
