/**
 * Live speech translation with Lingua: a client and a session, for browsers and Node.
 *
 * Start at {@link Session.start} for speech and at {@link Client.translate} for requests.
 * `lingua-sdk/browser` has the microphone and the playback.
 */

export {
  type CallOptions,
  Client,
  type ClientOptions,
  type JobOptions,
} from "./client.js";
export type { SessionOptions, WebSocketClass, WebSocketLike } from "./connection.js";
export { type ErrorFacts, LinguaError, type LocalCode } from "./error.js";
export type { ServerEvent } from "./server-events.js";
export { Session, type SessionEvent, type SessionTicket } from "./session.js";
export type { TokenSource } from "./token.js";
export type * from "./wire.js";
