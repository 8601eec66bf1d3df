/**
 * The one error of this package.
 *
 * Start at {@link LinguaError.isSafeToRetry}.
 */

import type { ErrorCode } from "./wire.js";

/** Codes of this package, beside those of the scheduler. */
export type LocalCode =
  /** There was no connection, or it broke. */
  | "UNREACHABLE"
  /** There was a connection, but no answer in time. */
  | "TIMED_OUT"
  /** The answer is not one of a scheduler. */
  | "BAD_ANSWER"
  /** The address, a token or an option cannot be used. */
  | "BAD_OPTION"
  /** The callback that gives the token has failed. */
  | "TOKEN_UNAVAILABLE"
  /** Nobody reads the events of the session. */
  | "NOT_READ"
  /** The connection was away for so long that audio had to be dropped. */
  | "AUDIO_DROPPED"
  /** The session has been ended or closed. */
  | "SESSION_ENDED"
  /** The user or the system does not let the page use the microphone. */
  | "MICROPHONE_REFUSED"
  /** There is no microphone, or it was unplugged. */
  | "MICROPHONE_MISSING"
  /** The browser lacks something, or the page is not secure. */
  | "UNSUPPORTED"
  /** The audio cannot be played. */
  | "NOT_PLAYABLE";

/** Codes after which nothing was carried out, and another try may succeed. */
const RETRY_CODES: string[] = [
  "NO_CAPABLE_NODE",
  "ALL_CANDIDATES_FULL_OR_FAILED",
  "SCHEDULER_DEPENDENCY_DOWN",
  "RATE_LIMITED",
  "INSTANCE_LOST",
] satisfies ErrorCode[];

/** What an error knows beside its code. */
export interface ErrorFacts {
  /** The status of the HTTP answer. */
  status?: number | undefined;
  /** How long to wait before the next try, if the scheduler said so. */
  retryAfterMs?: number | undefined;
  cause?: unknown;
}

/** What went wrong and what to do. */
export class LinguaError extends Error {
  override readonly name = "LinguaError";
  /** The error code; a later scheduler may send further codes. */
  readonly code: ErrorCode | LocalCode;
  readonly status: number | undefined;
  readonly retryAfterMs: number | undefined;

  constructor(code: ErrorCode | LocalCode, detail: string, facts: ErrorFacts = {}) {
    super(`${code}: ${detail}`, { cause: facts.cause });
    this.code = code;
    this.status = facts.status;
    this.retryAfterMs = facts.retryAfterMs;
  }

  /** Whether the same request may succeed later and cannot have been carried out now. */
  get isSafeToRetry(): boolean {
    return RETRY_CODES.includes(this.code);
  }
}

/** The text of whatever was thrown. */
export function reasonOf(thrown: unknown): string {
  const error = thrown instanceof Error && thrown.cause instanceof Error ? thrown.cause : thrown;
  return error instanceof Error ? error.message || error.name : String(error);
}
