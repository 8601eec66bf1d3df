/**
 * The HTTP routes of the scheduler as typed calls.
 *
 * Start at {@link Client.translate}. For many jobs at once keep many calls open; a stream of jobs
 * over one connection (`/v1/client/ws`) will take the place of {@link Client.translate} there, once
 * the scheduler has it.
 *
 * Invariant: nothing is sent twice. To repeat a call, ask {@link LinguaError.isSafeToRetry} first,
 * or give it an idempotency key.
 */

import { parseAddress } from "./address.js";
import { LinguaError, reasonOf } from "./error.js";
import { readServerEvents, type ServerEvent } from "./server-events.js";
import { currentToken, type TokenSource } from "./token.js";
import type {
  CancelResponse,
  ClusterView,
  Dispatch,
  DispatchResponse,
  EraseResponse,
  ErrorBody,
  ExplainResponse,
  JobList,
  JobView,
  MeView,
  NodeList,
  NodeView,
  PoolList,
  PoolView,
  Queries,
  UsageView,
} from "./wire.js";

/** How long a call may take, besides the time that it asks the scheduler to wait. */
const TIME_LIMIT_MS = 30_000;

/** How long the scheduler works on a translation that names no deadline. */
const TRANSLATE_MS_DEFAULT = 30_000;

/** How much of an unreadable answer an error repeats. */
const SHOWN_CHARACTERS_MAX = 200;

/** How to reach the scheduler. */
export interface ClientOptions {
  /** Such as `https://lingua.example`. */
  url: string | URL;
  token?: TokenSource | undefined;
  /** In place of the global `fetch`, for proxies and certificates of one's own. */
  fetch?: typeof globalThis.fetch | undefined;
}

/** Options of a single call. */
export interface CallOptions {
  /** Ends the call early; a translation without a key is cancelled by that. */
  signal?: AbortSignal | undefined;
}

/** Options of a call that makes a job. */
export interface JobOptions extends CallOptions {
  /** Calls with the same key and the same job make one job. */
  idempotencyKey?: string | undefined;
}

interface Call extends JobOptions {
  body?: unknown;
  /** How long the scheduler may wait before it answers. */
  waitMs?: number;
}

/** A client of one scheduler. */
export class Client {
  readonly #url: string;
  readonly #token: TokenSource | undefined;
  readonly #fetch: typeof globalThis.fetch;

  /** Nothing is connected yet. */
  constructor(options: ClientOptions) {
    const { origin, pathname } = parseAddress(options.url, ["http:", "https:"]);
    this.#url = `${origin}${pathname}`.replace(/\/+$/, "");
    this.#token = options.token;
    this.#fetch = options.fetch ?? ((input, init) => globalThis.fetch(input, init));
  }

  /** Sends a job and waits for its end. */
  translate(job: Dispatch, options: JobOptions = {}): Promise<JobView> {
    const waitMs = job.options?.deadline_ms ?? TRANSLATE_MS_DEFAULT;
    return this.#post("/v1/translate", { ...options, body: job, waitMs });
  }

  /** Sends a job to a node and answers once it was sent. */
  dispatch(job: Dispatch, options: JobOptions = {}): Promise<DispatchResponse> {
    return this.#post("/v1/dispatch/f2f", { ...options, body: job });
  }

  /** A job; waits up to `waitMs` for its end. */
  job(
    id: string,
    { waitMs = 0, signal }: CallOptions & { waitMs?: number } = {},
  ): Promise<JobView> {
    return this.#get(`/v1/jobs/${encodeURIComponent(id)}?wait_ms=${waitMs}`, { waitMs, signal });
  }

  /** A page of jobs, newest first; `cursor` is the `next` of the page before. */
  jobs(query: Queries["GET /v1/jobs"] = {}, options: CallOptions = {}): Promise<JobList> {
    return this.#get(withQuery("/v1/jobs", query), options);
  }

  /** Cancels a job; the answer says how it ended. */
  cancel(id: string, options: CallOptions = {}): Promise<CancelResponse> {
    return this.#post(`/v1/jobs/${encodeURIComponent(id)}/cancel`, options);
  }

  /** Erases what is kept of a job; cancels it if it has not ended. */
  erase(id: string, options: CallOptions = {}): Promise<EraseResponse> {
    return this.#call("DELETE", `/v1/jobs/${encodeURIComponent(id)}`, options);
  }

  /** Erases what is kept of the jobs of a session or tenant; while there are `more`, call again. */
  eraseJobs(query: Queries["DELETE /v1/jobs"], options: CallOptions = {}): Promise<EraseResponse> {
    return this.#call("DELETE", withQuery("/v1/jobs", query), options);
  }

  /** What tenants have used. */
  usage(query: Queries["GET /v1/usage"] = {}, options: CallOptions = {}): Promise<UsageView> {
    return this.#get(withQuery("/v1/usage", query), options);
  }

  /** Who the token is, its limits and what is left of them. */
  me(options: CallOptions = {}): Promise<MeView> {
    return this.#get("/v1/me", options);
  }

  /** Why each node would or would not get this job now. */
  explain(job: Dispatch, options: CallOptions = {}): Promise<ExplainResponse> {
    return this.#post("/v1/explain", { ...options, body: job });
  }

  /** The directions that nodes serve. */
  pools(options: CallOptions = {}): Promise<PoolList> {
    return this.#get("/v1/pools", options);
  }

  /** One direction, such as `zh:en`, with its nodes. */
  pool(pair: string, options: CallOptions = {}): Promise<PoolView> {
    return this.#get(`/v1/pools/${encodeURIComponent(pair)}`, options);
  }

  /** Changes of jobs, nodes, pools and the leader, as they come. Ends with the connection. */
  async *events(options: CallOptions = {}): AsyncGenerator<ServerEvent, void> {
    const answer = await this.#open("GET", "/v1/events", options, options.signal);
    if (answer.body) {
      yield* readServerEvents(answer.body);
    }
  }

  /** All nodes. */
  nodes(options: CallOptions = {}): Promise<NodeList> {
    return this.#get("/v1/nodes", options);
  }

  /** One node. */
  node(id: string, options: CallOptions = {}): Promise<NodeView> {
    return this.#get(`/v1/nodes/${encodeURIComponent(id)}`, options);
  }

  /** Lets a node finish its jobs and gives it no new ones. */
  drain(id: string, options: CallOptions = {}): Promise<NodeView> {
    return this.#post(`/v1/nodes/${encodeURIComponent(id)}/drain`, options);
  }

  /** Lets a drained node take jobs again. */
  resume(id: string, options: CallOptions = {}): Promise<NodeView> {
    return this.#post(`/v1/nodes/${encodeURIComponent(id)}/resume`, options);
  }

  /** The scheduler's processes, their leader and the store. */
  cluster(options: CallOptions = {}): Promise<ClusterView> {
    return this.#get("/v1/cluster", options);
  }

  #get<T>(path: string, call: Call): Promise<T> {
    return this.#call("GET", path, call);
  }

  #post<T>(path: string, call: Call): Promise<T> {
    return this.#call("POST", path, call);
  }

  async #call<T>(method: string, path: string, call: Call): Promise<T> {
    const limit = AbortSignal.timeout(TIME_LIMIT_MS + (call.waitMs ?? 0));
    const signal = call.signal ? AbortSignal.any([limit, call.signal]) : limit;
    const answer = await this.#open(method, path, call, signal);
    const text = await answer.text().catch((cause) => this.#failed(cause));
    return this.#parse(answer.status, text) as T;
  }

  /** Sends a request; the answer if it is a success. */
  async #open(method: string, path: string, call: Call, signal?: AbortSignal): Promise<Response> {
    const token = await currentToken(this.#token);
    const headers: Record<string, string> = {};
    if (token !== undefined) {
      headers.Authorization = `Bearer ${token}`;
    }
    if (call.idempotencyKey !== undefined) {
      headers["Idempotency-Key"] = call.idempotencyKey;
    }
    const init: RequestInit = { method, headers, signal: signal ?? null };
    if (call.body !== undefined) {
      headers["Content-Type"] = "application/json";
      init.body = JSON.stringify(call.body);
    }
    const sent = this.#fetch(`${this.#url}${path}`, init);
    const answer = await sent.catch((cause: unknown) => this.#failed(cause));
    if (answer.ok) {
      return answer;
    }
    const text = await answer.text().catch((cause: unknown) => this.#failed(cause));
    throw this.#refusal(answer.status, text);
  }

  #failed(cause: unknown): never {
    const name = cause instanceof Error ? cause.name : "";
    if (name === "AbortError") {
      throw cause;
    }
    if (name === "TimeoutError") {
      const detail = `${this.#url} did not answer in time; it may still carry out the request`;
      throw new LinguaError("TIMED_OUT", detail, { cause });
    }
    throw new LinguaError("UNREACHABLE", `cannot reach ${this.#url}: ${reasonOf(cause)}`, {
      cause,
    });
  }

  #refusal(status: number, text: string): LinguaError {
    const body = this.#parse(status, text) as Partial<ErrorBody>;
    if (typeof body?.error !== "string") {
      return this.#badAnswer(status, text);
    }
    const retryAfterMs = body.retry_after_ms ?? undefined;
    return new LinguaError(body.error, body.detail ?? "", { status, retryAfterMs });
  }

  #parse(status: number, text: string): unknown {
    try {
      return JSON.parse(text);
    } catch (cause) {
      throw this.#badAnswer(status, text, cause);
    }
  }

  #badAnswer(status: number, text: string, cause?: unknown): LinguaError {
    const shown = text.slice(0, SHOWN_CHARACTERS_MAX);
    const detail = `${this.#url} answered ${status} with "${shown}": is it a Lingua scheduler?`;
    return new LinguaError("BAD_ANSWER", detail, { cause });
  }
}

function withQuery(path: string, query: Record<string, unknown>): string {
  const given = Object.entries(query).filter(([, value]) => value !== undefined && value !== null);
  const parameters = new URLSearchParams(given.map(([name, value]) => [name, String(value)]));
  return given.length > 0 ? `${path}?${parameters}` : path;
}
