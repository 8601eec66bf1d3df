/**
 * The messages and bodies of the scheduler's HTTP and session interfaces.
 *
 * Made from its `/openapi.json` by `npm run types`; a test compares. Do not edit.
 */

/** A try of a job, counted from 1. */
export type Attempt = number;

/** One try of a job. */
export interface AttemptView {
  /** When the node acknowledged the job. */
  acked_ms?: number | null;
  /** The number of the try, from 1. */
  attempt_id: Attempt;
  /** When the job was sent to the node. */
  dispatched_ms?: number | null;
  /** When the attempt ended. */
  ended_ms?: number | null;
  /** The node, once one was chosen. */
  node_id?: NodeId | null;
  /** Why the attempt failed. */
  reason?: string | null;
  /** When a slot was reserved. */
  reserved_ms?: number | null;
  /** How far the attempt got, or how it ended. */
  state: JobState;
}

/** A piece of audio. */
export interface Audio {
  /** How many bytes the next binary frame has. */
  bytes?: number | null;
  /** The audio as base64. */
  data?: string | null;
  /** `pcm16`, `wav`, `opus`, … */
  format?: string;
  /** There was audio, and it is not kept any more. Only results of the scheduler say so. */
  gone?: boolean;
  /** Samples a second; formats with a header of their own may leave it out. */
  sample_rate?: number | null;
  /** The frames follow while it is being spoken, each tagged with the job, until `audio_end`. */
  stream?: boolean;
}

/** How the binary frames of a session are encoded. */
export interface AudioFormat {
  /** `pcm16` (16 bits, one channel, little-endian) or `opus` (one packet per frame). */
  format: string;
  /** Samples per second of `pcm16`: 8000, 16000, 24000 or 48000. */
  sample_rate?: number | null;
}

/** The response of `POST /v1/jobs/{id}/cancel`. */
export interface CancelResponse {
  /** Always true. */
  ok: boolean;
  /** How the job ended: `CANCELLED`, or another end that came first. */
  state: JobState;
}

/** All instances and what they share. */
export interface ClusterView {
  /** When it was seen, if it is stale. */
  as_of_ms?: number | null;
  /** The instance that answered. */
  instance_id: InstanceId;
  /** Every known instance. */
  instances: InstanceView[];
  /** The leader, if there is one. */
  leader: InstanceId | null;
  /** How many nodes are in each state. */
  nodes: Record<string, number>;
  /** Whether this is what was seen last, because the store does not answer. */
  stale?: boolean;
  /** The store that the instances share. */
  store: StoreView;
  /** When the pool table was published. */
  table_published_ms?: number | null;
  /** Version of the pool table. */
  table_version: number;
  /** Number of the leader's term. */
  term: Term;
  /** Version of that instance. */
  version: string;
}

/** What a tenant has used on one day. */
export interface DayUsage {
  /** The day, such as `2026-11-18`, in UTC. */
  day: string;
  /** What was used on it. */
  total: UsageTotals;
}

/** A request for a job. */
export interface Dispatch {
  /** Audio inside the request. */
  audio?: Audio | null;
  /** Address of audio that is stored elsewhere. */
  audio_ref?: string | null;
  /** Earlier texts of this conversation, the oldest first. */
  context?: string[] | null;
  /** How the job is to be run. */
  options?: DispatchOptions | null;
  /** The conversation that the job belongs to. */
  session_id?: string | null;
  /** Source language, or `auto`. */
  src_lang: string;
  /** Text instead of audio: recognition is skipped. */
  text?: string | null;
  /** Language to translate to, as a BCP 47 tag. */
  tgt_lang: string;
  /** Names the job in all logs; made up if it is left out. */
  trace_id?: string | null;
  /** With `auto`: the source is one of these two languages, and the target is the other one. */
  two_way?: string[] | null;
}

/** How a job is to be run. */
export interface DispatchOptions {
  /** Segments with one key go to one node while that is possible. */
  bind_key?: string | null;
  /** How long the job may take altogether, in milliseconds. */
  deadline_ms?: number | null;
  /** Nodes that must not run the job. */
  exclude_node_ids?: NodeId[] | null;
  /**
   * Labels that the node must have; an object such as `{"region": "eu"}` stands for
   * `["region:eu"]`.
   */
  labels?: NodeLabel[] | Record<string, string> | null;
  /** The node that should run the job. */
  preferred_node_id?: NodeId | null;
  /** A higher number is more urgent (0). */
  priority?: number | null;
  /**
   * Whether any node that accepts public jobs may run the job (true); if false, only nodes of the
   * caller's own tenant.
   */
  public?: boolean | null;
  /** Whether the result must include speech (false). */
  require_tts?: boolean | null;
  /** Further services that the node must offer. */
  services?: Service[] | null;
  /** Whether the job fails if the preferred node cannot take it (false). */
  strict?: boolean | null;
  /** How long the job may wait for a slot, in milliseconds. */
  wait_ms?: number | null;
}

/** The response of `POST /v1/dispatch/f2f`. */
export interface DispatchResponse {
  /** The try of the job, from 1. */
  attempt_id: Attempt;
  /** The new job. */
  job_id: JobId;
  /** The node that the job was sent to. */
  node_id: NodeId;
}

/** Number of a node's incarnation; each registration raises it. */
export type Epoch = number;

/** The response of `DELETE /v1/jobs` and `DELETE /v1/jobs/{id}`. */
export interface EraseResponse {
  /** How many jobs were erased. */
  erased: number;
  /** Whether there may be more: send the request again. */
  more: boolean;
  /** Always true. */
  ok: boolean;
}

/** The body of every HTTP response that is not a success. */
export interface ErrorBody {
  /** What is wrong and what to do. */
  detail: string;
  /** The code; text, so that a client can read codes newer than itself. */
  error: ErrorCode;
  /** The field that is wrong. */
  field?: string | null;
  /** The job that the error is about; it may still run. */
  job_id?: JobId | null;
  /** How long to wait before the next try, in milliseconds. */
  retry_after_ms?: number | null;
}

/** What went wrong. A later version may know further codes. */
export type ErrorCode =
  | "NO_CAPABLE_NODE"
  | "ALL_CANDIDATES_FULL_OR_FAILED"
  | "PREFERRED_NODE_NOT_CAPABLE"
  | "SCHEDULER_DEPENDENCY_DOWN"
  | "NODE_NOT_REGISTERED"
  | "STALE_EPOCH"
  | "STALE_ATTEMPT"
  | "JOB_NOT_FOUND"
  | "NODE_NOT_FOUND"
  | "POOL_NOT_FOUND"
  | "ASR_LANGUAGES_REQUIRED"
  | "SEMANTIC_LANGUAGES_REQUIRED"
  | "TTS_LANGUAGES_REQUIRED"
  | "INVALID_LANGUAGE"
  | "INVALID_REQUEST"
  | "PAYLOAD_TOO_LARGE"
  | "RATE_LIMITED"
  | "UNAUTHORIZED"
  | "FORBIDDEN"
  | "IDEMPOTENCY_KEY_REUSED"
  | "DEADLINE_EXCEEDED"
  | "INSTANCE_LOST"
  | "NODE_FAILED"
  | "SESSION_NOT_FOUND"
  | "SESSION_IDLE"
  | "FLEET_FULL"
  | "NODE_ID_TAKEN"
  | "INTERNAL"
  | (string & {});

/** The scheduler refused a message or closes the connection. Sessions get the same message. */
export interface ErrorMessage {
  /** What is wrong and what to do. */
  detail: string;
  /** The code; text, so that a receiver can read codes newer than itself. */
  error: string;
  /** Whether the scheduler closes the socket after this message. */
  fatal: boolean;
}

/** The response of `POST /v1/explain`. */
export interface ExplainResponse {
  /** How many registered nodes can run the job, busy or not. */
  capable: number;
  /** The node that would get the job now. */
  chosen: NodeId | null;
  /** The code of the error that the job would end with if it were sent now. */
  error?: string | null;
  /** Free slots of these nodes. */
  free: number;
  /** The verdict about each node. */
  nodes: ExplainedNode[];
  /** The policy that chooses among the nodes. */
  policy: string;
  /** The pool that the job belongs to. */
  pool: Pool;
  /** The pool that would serve it, if that is one with fewer subtags. */
  served_as?: Pool | null;
}

/** The verdict of the selection about a node. */
export interface ExplainedNode {
  /** Number of the cell that the node is in. */
  cell: number;
  /** The name that the node registered with. */
  node_id: NodeId;
  /** Lower is better; what it counts depends on the policy. */
  score?: number | null;
  /** `chosen`, `as_good` (a random draw chose another node), `eligible` or `refused`. */
  verdict: string;
  /** The first reason why the node cannot get the job. */
  why?: string | null;
}

/** The id of a scheduler process. */
export type InstanceId = string;

/** One scheduler process. */
export interface InstanceView {
  /** The address at which clients reach it. */
  address: string;
  /** Whether its announcement is still valid. */
  alive: boolean;
  /** The configured name of the instance. */
  instance_id: InstanceId;
  /** Whether it is the leader. */
  leader: boolean;
  /** When its announcement expires. */
  until_ms: number;
}

/** How many jobs ended in which way. */
export interface JobCounts {
  /** Jobs that a client or an operator cancelled. */
  cancelled: number;
  /** Jobs that ended with a result. */
  done: number;
  /** Jobs that failed or ran out of time. */
  failed: number;
}

/** The id of a job. */
export type JobId = string;

/** The response of `GET /v1/jobs`. */
export interface JobList {
  /** The jobs, the newest first. */
  jobs: JobView[];
  /** Where the next page starts, if there is one. */
  next?: JobId | null;
}

/** The known fields of a result. */
export interface JobResult {
  /** The recognised language, if the source was `auto`. */
  src_lang?: string | null;
  /** The recognised text. */
  text_asr?: string | null;
  /** The text in the target language. */
  text_translated?: string | null;
  /** The translation as speech. */
  tts_audio?: Audio | null;
}

/** State of a job. */
export type JobState =
  | "NEW"
  | "SELECTING"
  | "RESERVED"
  | "DISPATCHED"
  | "ACKED"
  | "RETRYING"
  | "DONE"
  | "FAILED"
  | "CANCELLED";

/** A job changed. */
export interface JobUpdate {
  /** The current attempt. */
  attempt_id: Attempt;
  /** The job that took the step. */
  job_id: JobId;
  /** Which step of the job this is. */
  kind: JobUpdateKind;
  /** The node of the current attempt, if there is one. */
  node_id: NodeId | null;
  /** The state of the job now. */
  state: JobState;
  /** The text so far, if `kind` is `partial`. Never sent after the end of the job. */
  text?: string | null;
}

/** What changed about a job. */
export type JobUpdateKind = "state" | "partial";

/** A job, as its client and operators see it. */
export interface JobView {
  /** The current attempt. */
  attempt_id: Attempt;
  /** All attempts, the first one first. */
  attempts: AttemptView[];
  /** When the job was accepted. */
  created_ms: number;
  /** When the deadline passes, if the job has one. */
  deadline_at_ms?: number | null;
  /** Why the job failed, and what to do. */
  detail?: string | null;
  /** The error code, if the job failed. */
  error?: string | null;
  /** The instance that runs the job. */
  instance_id?: InstanceId | null;
  /** The id that the dispatch replied. */
  job_id: JobId;
  /** The node of the current attempt. */
  node_id?: NodeId | null;
  /** The text that the node has so far; absent after the end of the attempt. */
  partial?: string | null;
  /** The result, as the node sent it. */
  result?: JobResult | null;
  /**
   * The direction in the tags that the node of the current attempt registered, such as `zh:en`, if
   * those are not the tags that were asked for.
   */
  served_as?: Pool | null;
  /** The conversation that the job belongs to. */
  session_id?: string | null;
  /** Source language, or `auto`. */
  src_lang: SourceLanguage;
  /** The state of the job. */
  state: JobState;
  /** Language to translate to. */
  tgt_lang: Language;
  /** How long each part took. */
  timings: Timings;
  /** Names the job in all logs. */
  trace_id?: string | null;
  /** When the job last changed its state. */
  updated_ms: number;
}

/** A BCP-47 language tag, such as zh or pt-BR. */
export type Language = string;

/** The nested lists of languages. */
export interface LanguageLists {
  /** Languages that the node recognises. */
  asr_languages?: string[] | null;
  /** Directions that the node translates; any to any if they are left out. */
  nmt_pairs?: [string, string][] | null;
  /** Languages in which the node repairs recognised text. */
  semantic_languages?: string[] | null;
  /** Languages that the node speaks. */
  tts_languages?: string[] | null;
}

/** Another instance became the leader. */
export interface LeaderUpdate {
  /** Number of the new leader's term. */
  term: Term;
}

/** What is left of limits. */
export interface LeftView {
  /** Streams of `/v1/events`. */
  event_streams?: number | null;
  /** Node ids that it may still register; at most a second old. */
  nodes?: number | null;
  /** Bytes of those jobs. */
  open_bytes?: number | null;
  /** Jobs that run or wait. */
  open_jobs?: number | null;
  /** Requests that it may send at once. */
  requests?: number | null;
  /** Sessions at a time. */
  sessions?: number | null;
}

/** How much a caller may use. */
export interface LimitsView {
  /** Streams of `/v1/events`. */
  event_streams?: number | null;
  /** Node ids, those of nodes that are gone for less than an hour included. */
  nodes_max?: number | null;
  /** Bytes of those jobs. */
  open_bytes?: number | null;
  /** Jobs that run or wait. */
  open_jobs?: number | null;
  /** Highest priority of a job. */
  priority_max?: number | null;
  /** Requests in a second. */
  requests_per_second?: number | null;
  /** Sessions at a time. */
  sessions?: number | null;
}

/** How busy a node is, as fractions of one. */
export interface LoadView {
  /** Share of the processor that is busy, 0 to 1. */
  cpu: number;
  /** Share of the accelerator that is busy, 0 to 1. */
  gpu: number;
  /** Share of the main memory that is used, 0 to 1. */
  memory: number;
}

/** Who the caller is, as `GET /v1/me` tells it. */
export interface MeView {
  /** When its token or grant expires. */
  expires_ms?: number | null;
  /** What is left of its limits now. */
  left: LeftView;
  /** What it may use at one instance; what is absent has no limit of its own. */
  limits: LimitsView;
  /** The name of its token, or key and subject of its grant; empty if it has no name. */
  name: string;
  /** `node`, `client`, `viewer`, `admin`, or `grant`. */
  role: string;
  /** To whom belongs what it makes. */
  tenant: string;
}

/** There is no result for a segment; the segments after it are not affected. */
export interface Missing {
  /** What happened and what to do. */
  detail: string;
  /** The error code; a text, so that clients can read codes that are newer than themselves. */
  error: string;
  /** The segment's job; absent if the segment did not become one. */
  job_id?: JobId | null;
  /** Counts from 1 within the turn. */
  segment: number;
  /** Counts the results and missing segments of the session from 1. */
  seq: number;
  /** Counts from 1 within the session. */
  turn: number;
}

/** The id of a node. */
export type NodeId = string;

/** A label of a node, such as eu or region:eu. */
export type NodeLabel = string;

/** The response of `GET /v1/nodes`. */
export interface NodeList {
  /** When it was seen, if it is stale. */
  as_of_ms?: number | null;
  /** The nodes that the caller may see. */
  nodes: NodeView[];
  /** Whether this is what was seen last, because the store does not answer. */
  stale?: boolean;
}

/** State of a node. */
export type NodeState = "registering" | "ready" | "degraded" | "draining" | "offline";

/** A node registered, left, or changed its state. */
export interface NodeUpdate {
  /** Number of the node's incarnation. */
  epoch: Epoch;
  /** The node that changed; `GET /v1/nodes/{id}` has its state. */
  node_id: NodeId;
}

/** A registered node, as operators see it. */
export interface NodeView {
  /** Whether it accepts jobs of all tenants. */
  accept_public_jobs: boolean;
  /** When it was seen, if it is stale. */
  as_of_ms?: number | null;
  /** Number of the cell that the node is in. */
  cell: number;
  /** How long a job takes there on average, in milliseconds. */
  cost_ms: number;
  /** Whether an operator ordered it to drain. */
  drain_ordered: boolean;
  /** Number of the node's incarnation. */
  epoch: Epoch;
  /** Whether the last heartbeat is recent enough for the node to get jobs. */
  fresh: boolean;
  /** Its labels, which jobs may require. */
  labels?: NodeLabel[] | null;
  /** The languages and directions that it serves. */
  languages: LanguageLists;
  /** When the last sign of life came. */
  last_heartbeat_ms: number;
  /** How busy the node reports to be. */
  load: LoadView;
  /** Jobs that the node does at once at most. */
  max: number;
  /** The name that the node registered with. */
  node_id: NodeId;
  /** How many pools of a known source language it belongs to. */
  pairs: number;
  /** The pools that it belongs to, at most 1000; only in the response for a single node. */
  pools?: Pool[] | null;
  /** The services that are on. */
  services: ServiceFlags;
  /** For how long there was none, if the node is offline or silent for too long. */
  silent_ms?: number | null;
  /** Number of the node in its cell. */
  slot: number;
  /** Whether this is what was seen last, because the store does not answer. */
  stale?: boolean;
  /** The state of the node. */
  state: NodeState;
  /** Whether it gets audio while it is being spoken. */
  streaming: boolean;
  /** Slots in use. */
  used: number;
  /** Version of the node's software. */
  version?: string | null;
}

/** zh:en, or *:en for the mixed pool. */
export type Pool = string;

/** The part of a pool that is in one cell. */
export interface PoolCell {
  /** Number of the cell. */
  cell: number;
  /** Free slots of the nodes that accept jobs. */
  free: number;
  /** How many of its nodes serve the pair. */
  nodes: number;
  /** How many of them accept jobs. */
  ready: number;
  /** All slots of the nodes that accept jobs. */
  slots: number;
}

/** The response of `GET /v1/pools`. */
export interface PoolList {
  /** When it was seen, if it is stale. */
  as_of_ms?: number | null;
  /** The instance that made the table. */
  generated_by?: InstanceId | null;
  /** When it made the table. */
  generated_ms?: number | null;
  /** How many exact pools are left out because they are too small or too many. */
  left_out: number;
  /** All pools that a node serves. */
  pools: PoolView[];
  /** Whether this is what was seen last, because the store does not answer. */
  stale?: boolean;
  /** Version of the pool table that the list comes from. */
  table_version: number;
}

/** The leader published a new pool table. */
export interface PoolUpdate {
  /** Version of the new table. */
  table_version: number;
}

/** The nodes that can serve a directed pair of languages. */
export interface PoolView {
  /** When it was seen, if it is stale. */
  as_of_ms?: number | null;
  /** The pool by cell; only in the response for a single pool. */
  cells?: PoolCell[] | null;
  /** Free slots of the nodes that accept jobs. */
  free: number;
  /** The nodes; only in the response for a single pool. */
  node_ids?: NodeId[] | null;
  /** How many nodes serve the pair, with text as the result. */
  nodes: number;
  /** `zh:en`, or `*:en` for the mixed pool. */
  pool: Pool;
  /** How many of them accept jobs. */
  ready: number;
  /** All slots of the nodes that accept jobs. */
  slots: number;
  /** How many of them also speak the target language. */
  speech: number;
  /** Source language, or `auto`. */
  src_lang: SourceLanguage;
  /** Whether this is what was seen last, because the store does not answer. */
  stale?: boolean;
  /** Language that the nodes of the pool translate to. */
  tgt_lang: Language;
}

/** The result of a segment. */
export interface SegmentResult {
  /** The segment's job. */
  job_id: JobId;
  /** Counts from 1 within the turn. */
  segment: number;
  /** Counts the results and missing segments of the session from 1. */
  seq: number;
  /**
   * The direction in the tags that the node registered, such as `zh:en`, if those are not the tags
   * that were asked for.
   */
  served_as?: Pool | null;
  /** The spoken language; `auto` if the node did not report it. */
  src_lang: SourceLanguage;
  /** The recognised text. */
  text_asr?: string | null;
  /** The translated text. */
  text_translated?: string | null;
  /** The language of the translation. */
  tgt_lang: Language;
  /** Where the time went. */
  timings: SegmentTimings;
  /** The translation as speech, in base64. */
  tts_audio?: Audio | null;
  /** Counts from 1 within the session. */
  turn: number;
}

/** Where the time of a segment went. */
export interface SegmentTimings {
  /** From sending it to the acknowledgement. */
  ack_ms?: number | null;
  /** From the segment's end to its result. */
  delay_ms?: number | null;
  /** From accepting the job to sending it. */
  dispatch_ms?: number | null;
  /** Waiting for a slot. */
  queue_ms?: number | null;
  /** From the acknowledgement to the result. */
  run_ms?: number | null;
  /** From the segment's first speech to its end. */
  speech_ms?: number | null;
  /** From accepting the job to its end. */
  total_ms?: number | null;
}

/** What a node can offer. */
export type Service = "asr" | "semantic" | "nmt" | "tts" | "tone" | "streaming";

/** Which services are on. A service that is not named is on, except `tone`. */
export interface ServiceFlags {
  /** It recognises speech. */
  asr?: boolean | null;
  /** It translates text. */
  nmt?: boolean | null;
  /** Repair of what was recognised. */
  semantic?: boolean | null;
  /** Keeping the tone of voice. */
  tone?: boolean | null;
  /** It synthesises speech. */
  tts?: boolean | null;
}

/** A BCP-47 language tag, or auto. */
export type SourceLanguage = string;

/** The store that holds the state. */
export interface StoreView {
  /** `embedded` or `redis`. */
  kind: string;
  /** Whether it answers this instance. */
  up: boolean;
}

/** What a tenant has used. */
export interface TenantUsage {
  /** Each day, if they were asked for. */
  days?: DayUsage[];
  /** The name of the tenant. */
  tenant: string;
  /** All days together. */
  total: UsageTotals;
}

/** Number of a leader's term of office; each election raises it. */
export type Term = number;

/** A turn of text instead of speech. */
export interface TextTurn {
  /** `a` or `b`, in a two-way session. */
  speaker?: string | null;
  /** The text to translate. */
  text: string;
}

/** How long the parts of a job took; a part that has not ended is left out. */
export interface Timings {
  /** From sending it to the acknowledgement. */
  ack_ms?: number | null;
  /** From accepting the job to sending it. */
  dispatch_ms?: number | null;
  /** Waiting for a slot. */
  queue_ms?: number | null;
  /** From the acknowledgement to the result. */
  run_ms?: number | null;
  /** From accepting the job to its end. */
  total_ms?: number | null;
}

/** Jobs, and the audio and the characters of those that are done. */
export interface UsageTotals {
  /** Seconds of audio that was sent. */
  audio_in_seconds: number;
  /** Seconds of speech that was made. */
  audio_out_seconds: number;
  /** Characters that were recognised or sent as text. */
  chars_source: number;
  /** Characters of the translations. */
  chars_translated: number;
  /** How many jobs ended in which way. */
  jobs: JobCounts;
}

/** The response of `GET /v1/usage`. */
export interface UsageView {
  /** The first day that is counted, such as `2026-11-18`, in UTC. */
  since: string;
  /** Every tenant that has used anything, by name. */
  tenants: TenantUsage[];
  /** The last day that is counted. */
  until: string;
}

/** A segment has become a job. */
export interface JobAccepted {
  /** The job's id, for `/v1/jobs/{job_id}`. */
  job_id: JobId;
  /** Counts from 1 within the turn. */
  segment: number;
  /** Counts from 1 within the session. */
  turn: number;
}

/** A partial text; it replaces the previous one, and never comes after the result. */
export interface SessionPartial {
  /** Counts from 1 within the turn. */
  segment: number;
  /** The text so far. */
  text: string;
  /** Counts from 1 within the session. */
  turn: number;
}

/** Ends the session: open segments are still delivered, then the scheduler closes the socket. */
export type SessionEnd = Record<string, unknown>;

/** Resumes a session whose connection broke. */
export interface SessionResume {
  /** The last `seq` that the client has seen; 0 if none. */
  last_seq?: number;
  /** From `session_started`. */
  resume_token: string;
  /** From `session_started`. */
  session_id: string;
}

/** Starts a session: one way (`src_lang`, `tgt_lang`) or `two_way` (`lang_a`, `lang_b`). */
export interface SessionStart {
  /** How audio is encoded; `pcm16` at 16,000 Hz by default. */
  audio?: AudioFormat | null;
  /** Send the last two texts with each job, so that any node can follow; false by default. */
  context?: boolean | null;
  /**
   * Labels that the nodes must have; an object such as `{"region": "eu"}` stands for
   * `["region:eu"]`.
   */
  labels?: NodeLabel[] | Record<string, string> | null;
  /** Two ways: the language of speaker `a`. */
  lang_a?: string | null;
  /** Two ways: the language of speaker `b`. */
  lang_b?: string | null;
  /** `one_way` (the default) or `two_way`. */
  mode?: string | null;
  /** Send partial texts before the result; false by default. */
  partials?: boolean | null;
  /** The node that should run the jobs of this session. */
  preferred_node_id?: NodeId | null;
  /**
   * Whether nodes that accept public jobs may run the jobs of this session; if false, only nodes of
   * the caller's own tenant. The tenant's setting by default.
   */
  public?: boolean | null;
  /** Results must include synthesised speech; false by default. */
  require_tts?: boolean | null;
  /** One way: the spoken language, or `auto`. */
  src_lang?: string | null;
  /** One way: the language of the translation. */
  tgt_lang?: string | null;
  /**
   * Silence ends a turn, so that a microphone may stay open; only for `pcm16`. The server's setting
   * by default.
   */
  vad?: boolean | null;
}

/** The session has started, or is resumed. */
export interface SessionStarted {
  /**
   * After a resume: how much sound of the open turn had arrived, in milliseconds. 0 if no turn is
   * open, because it ended, or because another instance has taken the session over.
   */
  received_ms?: number | null;
  /** How long after its connection broke the session can be resumed. */
  resume_ms: number;
  /** The secret for `session_resume`. */
  resume_token: string;
  /** True if the client resumed a session. */
  resumed: boolean;
  /** For `session_resume`. */
  session_id: string;
  /** After a resume: whether the last of these turns is still open. */
  turn_open?: boolean | null;
  /** After a resume: how many turns the session has had. Later ones have not arrived. */
  turns?: number | null;
  /** What will not work now, for people: no node serves the languages. */
  warning?: string | null;
}

/** Ends the turn. */
export type TurnEnd = Record<string, unknown>;

/** Opens a turn. Without it, the first speech opens one. */
export interface TurnStart {
  /** `a` or `b`, in a two-way session; if absent, the node finds out who speaks. */
  speaker?: string | null;
}

/** Messages from a client to a session, by type. */
export interface SessionRequests {
  session_start: SessionStart;
  session_resume: SessionResume;
  turn_start: TurnStart;
  turn_end: TurnEnd;
  text: TextTurn;
  session_end: SessionEnd;
}

/** Messages from a session to its client, by type. */
export interface SessionUpdates {
  session_started: SessionStarted;
  job_accepted: JobAccepted;
  partial: SessionPartial;
  result: SegmentResult;
  missing: Missing;
  error: ErrorMessage;
}

/** Events of `GET /v1/events`, by name. */
export interface ServerEvents {
  job: JobUpdate;
  leader: LeaderUpdate;
  node: NodeUpdate;
  pool: PoolUpdate;
}

/** The parameters of routes in their addresses. */
export interface Queries {
  "DELETE /v1/jobs": {
    /** The jobs of this session. */
    session?: string | null;
    /** The jobs of this tenant. */
    tenant?: string | null;
  };
  "GET /v1/jobs": {
    /** The `next` of the page before. */
    cursor?: string | null;
    /** At most this many; 100 by default, 1000 at most. */
    limit?: number | null;
    /** Only jobs whose last attempt is or was on this node. */
    node?: string | null;
    /** Only jobs of this session. */
    session?: string | null;
    /** Only jobs in this state. */
    state?: string | null;
  };
  "GET /v1/jobs/{id}": {
    /** Answer when the job has ended, or after this time, at most 60 s; at once by default. */
    wait_ms?: number | null;
  };
  "GET /v1/usage": {
    /** Whether to show each day as well. */
    days?: boolean | null;
    /** The first day, such as `2026-11-01`, in UTC; the first that is kept by default. */
    since?: string | null;
    /** Only this tenant. */
    tenant?: string | null;
    /** The last day; today by default. */
    until?: string | null;
  };
}
