/**
 * Tokens and grants: what a client shows to the scheduler.
 *
 * A page gets a short-lived grant from the server of its app. It gives a callback, which is asked
 * again for every connection, so that a grant may expire while a session goes on.
 */

import { LinguaError, reasonOf } from "./error.js";

/** A token, or a callback that gives one; without, the scheduler has to allow everybody. */
export type TokenSource = string | (() => string | Promise<string>);

/** How long the callback may take. */
const CALLBACK_MS = 10_000;

/** What a header and a WebSocket protocol can carry. */
const TOKEN = /^[!#$%&'*+.^_`|~0-9A-Za-z-]+$/;

/** Asks for the token; undefined if there is none. */
export async function currentToken(source: TokenSource | undefined): Promise<string | undefined> {
  if (source === undefined) {
    return undefined;
  }
  const token = typeof source === "function" ? await ask(source) : source;
  if (typeof token !== "string" || !TOKEN.test(token)) {
    throw new LinguaError("BAD_OPTION", "the token has characters that cannot be sent");
  }
  return token;
}

async function ask(callback: () => string | Promise<string>): Promise<string> {
  let timer: ReturnType<typeof setTimeout> | undefined;
  const tooLate = new Promise<never>((_, reject) => {
    const late = () => reject(new Error(`it took longer than ${CALLBACK_MS / 1000} s`));
    timer = setTimeout(late, CALLBACK_MS);
  });
  try {
    return await Promise.race([callback(), tooLate]);
  } catch (cause) {
    const detail = `the callback for the token failed: ${reasonOf(cause)}`;
    throw new LinguaError("TOKEN_UNAVAILABLE", detail, { cause });
  } finally {
    clearTimeout(timer);
  }
}
