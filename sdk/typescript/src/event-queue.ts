/**
 * Events that wait for their reader.
 *
 * Start at {@link EventQueue.next}. Invariant: the number of waiting events is bounded, and they
 * are read in the order in which they came.
 */

import { LinguaError } from "./error.js";

/** Most events that wait. */
const EVENTS_MAX = 4096;

/** A queue with one reader. */
export class EventQueue<T> {
  readonly #waiting: T[] = [];
  readonly #readers: PromiseWithResolvers<IteratorResult<T, void>>[] = [];
  #end: { error?: unknown } | undefined;

  /** Adds an event. If too many wait, they are the last ones. */
  push(event: T): void {
    if (this.#end) {
      return;
    }
    const reader = this.#readers.shift();
    if (reader) {
      reader.resolve({ value: event, done: false });
    } else if (this.#waiting.length < EVENTS_MAX) {
      this.#waiting.push(event);
    } else {
      const detail = `${EVENTS_MAX} events wait to be read; read them with "for await"`;
      this.fail(new LinguaError("NOT_READ", detail));
    }
  }

  /** The newest of the waiting events may be replaced. */
  replaceLast(event: T, isOlder: (last: T) => boolean): void {
    const last = this.#waiting.at(-1);
    if (last !== undefined && isOlder(last)) {
      this.#waiting.pop();
    }
    this.push(event);
  }

  /** Nothing follows the waiting events. */
  finish(): void {
    this.#close({});
  }

  /** An error follows the waiting events. */
  fail(error: unknown): void {
    this.#close({ error });
  }

  get isClosed(): boolean {
    return this.#end !== undefined;
  }

  /** The next event; done after the last. */
  next(): Promise<IteratorResult<T, void>> {
    const event = this.#waiting.shift();
    if (event !== undefined) {
      return Promise.resolve({ value: event, done: false });
    }
    const reader = withResolvers<IteratorResult<T, void>>();
    this.#readers.push(reader);
    if (this.#end) {
      this.#answerReaders(this.#end);
    }
    return reader.promise;
  }

  #close(end: { error?: unknown }): void {
    if (!this.#end) {
      this.#end = end;
      this.#answerReaders(end);
    }
  }

  /** The first reader gets the error, those after it the end. */
  #answerReaders(end: { error?: unknown }): void {
    for (const reader of this.#readers.splice(0)) {
      if (end.error === undefined) {
        reader.resolve({ value: undefined, done: true });
      } else {
        reader.reject(end.error);
        delete end.error;
      }
    }
  }
}

/** A promise with the functions that settle it. */
export interface PromiseWithResolvers<T> {
  promise: Promise<T>;
  resolve(value: T): void;
  reject(reason: unknown): void;
}

/** `Promise.withResolvers`, which Node 20 lacks. */
export function withResolvers<T>(): PromiseWithResolvers<T> {
  let settle: Omit<PromiseWithResolvers<T>, "promise"> | undefined;
  const promise = new Promise<T>((resolve, reject) => {
    settle = { resolve, reject };
  });
  return { promise, ...(settle as Omit<PromiseWithResolvers<T>, "promise">) };
}
