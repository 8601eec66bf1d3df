"""The messages and bodies of the scheduler, as types.

Made by `tools/generate.py` from `/openapi.json`; do not change it by hand. All of them are plain
dicts. A union of messages is told apart by `type`.
"""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Literal, TypedDict

if TYPE_CHECKING:
    from typing_extensions import NotRequired
elif sys.version_info >= (3, 11):
    from typing import NotRequired
else:
    from typing import Optional as NotRequired


class AssignOptions(TypedDict):
    """The options of the client that the node has to know."""

    labels: NotRequired[list[NodeLabel] | None]
    """Labels that the client required."""

    priority: int
    """A higher number is more urgent."""

    require_tts: bool
    """The result must include speech."""

    services: Services
    """Further services that the job needs."""


class AttemptView(TypedDict):
    """One try of a job."""

    acked_ms: NotRequired[int | None]
    """When the node acknowledged the job."""

    attempt_id: Attempt
    """The number of the try, from 1."""

    dispatched_ms: NotRequired[int | None]
    """When the job was sent to the node."""

    ended_ms: NotRequired[int | None]
    """When the attempt ended."""

    node_id: NotRequired[NodeId | None]
    """The node, once one was chosen."""

    reason: NotRequired[str | None]
    """Why the attempt failed."""

    reserved_ms: NotRequired[int | None]
    """When a slot was reserved."""

    state: JobState
    """How far the attempt got, or how it ended."""


class Audio(TypedDict):
    """A piece of audio."""

    bytes: NotRequired[int | None]
    """How many bytes the next binary frame has."""

    data: NotRequired[str | None]
    """The audio as base64."""

    format: NotRequired[str]
    """`pcm16`, `wav`, `opus`, …"""

    gone: NotRequired[bool]
    """There was audio, and it is not kept any more. Only results of the scheduler say so."""

    sample_rate: NotRequired[int | None]
    """Samples a second; formats with a header of their own may leave it out."""

    stream: NotRequired[bool]
    """The frames follow while it is being spoken, each tagged with the job, until `audio_end`."""


class AudioFormat(TypedDict):
    """How the binary frames of a session are encoded."""

    format: str
    """`pcm16` (16 bits, one channel, little-endian) or `opus` (one packet per frame)."""

    sample_rate: NotRequired[int | None]
    """Samples per second of `pcm16`: 8000, 16000, 24000 or 48000."""


class Bind(TypedDict):
    """Segments with one key go to one node while that is possible."""

    bind_key: str
    """The key that the client gave."""

    moved: bool
    """Whether earlier segments ran on another node, so that their context is not here."""


class CancelResponse(TypedDict):
    """The response of `POST /v1/jobs/{id}/cancel`."""

    ok: bool
    """Always true."""

    state: JobState
    """How the job ended: `CANCELLED`, or another end that came first."""


class ClusterView(TypedDict):
    """All instances and what they share."""

    as_of_ms: NotRequired[int | None]
    """When it was seen, if it is stale."""

    instance_id: InstanceId
    """The instance that answered."""

    instances: list[InstanceView]
    """Every known instance."""

    leader: InstanceId | None
    """The leader, if there is one."""

    nodes: dict[str, int]
    """How many nodes are in each state."""

    stale: NotRequired[bool]
    """Whether this is what was seen last, because the store does not answer."""

    store: StoreView
    """The store that the instances share."""

    table_published_ms: NotRequired[int | None]
    """When the pool table was published."""

    table_version: int
    """Version of the pool table."""

    term: Term
    """Number of the leader's term."""

    version: str
    """Version of that instance."""


class DayUsage(TypedDict):
    """What a tenant has used on one day."""

    day: str
    """The day, such as `2026-11-18`, in UTC."""

    total: UsageTotals
    """What was used on it."""


class Dispatch(TypedDict):
    """A request for a job."""

    audio: NotRequired[Audio | None]
    """Audio inside the request."""

    audio_ref: NotRequired[str | None]
    """Address of audio that is stored elsewhere."""

    context: NotRequired[list[str] | None]
    """Earlier texts of this conversation, the oldest first."""

    options: NotRequired[DispatchOptions | None]
    """How the job is to be run."""

    session_id: NotRequired[str | None]
    """The conversation that the job belongs to."""

    src_lang: str
    """Source language, or `auto`."""

    text: NotRequired[str | None]
    """Text instead of audio: recognition is skipped."""

    tgt_lang: str
    """Language to translate to, as a BCP 47 tag."""

    trace_id: NotRequired[str | None]
    """Names the job in all logs; made up if it is left out."""

    two_way: NotRequired[list[str] | None]
    """With `auto`: the source is one of these two languages, and the target is the other one."""


class DispatchOptions(TypedDict):
    """How a job is to be run."""

    bind_key: NotRequired[str | None]
    """Segments with one key go to one node while that is possible."""

    deadline_ms: NotRequired[int | None]
    """How long the job may take altogether, in milliseconds."""

    exclude_node_ids: NotRequired[list[NodeId] | None]
    """Nodes that must not run the job."""

    labels: NotRequired[list[NodeLabel] | dict[str, str] | None]
    """Labels that the node must have; an object such as `{"region": "eu"}` stands for
    `["region:eu"]`.
    """

    preferred_node_id: NotRequired[NodeId | None]
    """The node that should run the job."""

    priority: NotRequired[int | None]
    """A higher number is more urgent (0)."""

    public: NotRequired[bool | None]
    """Whether any node that accepts public jobs may run the job (true); if false, only nodes of
    the caller's own tenant.
    """

    require_tts: NotRequired[bool | None]
    """Whether the result must include speech (false)."""

    services: NotRequired[list[Service] | None]
    """Further services that the node must offer."""

    strict: NotRequired[bool | None]
    """Whether the job fails if the preferred node cannot take it (false)."""

    wait_ms: NotRequired[int | None]
    """How long the job may wait for a slot, in milliseconds."""


class DispatchResponse(TypedDict):
    """The response of `POST /v1/dispatch/f2f`."""

    attempt_id: Attempt
    """The try of the job, from 1."""

    job_id: JobId
    """The new job."""

    node_id: NodeId
    """The node that the job was sent to."""


class EraseResponse(TypedDict):
    """The response of `DELETE /v1/jobs` and `DELETE /v1/jobs/{id}`."""

    erased: int
    """How many jobs were erased."""

    more: bool
    """Whether there may be more: send the request again."""

    ok: bool
    """Always true."""


class ErrorBody(TypedDict):
    """The body of every HTTP response that is not a success."""

    detail: str
    """What is wrong and what to do."""

    error: ErrorCode
    """The code; text, so that a client can read codes newer than itself."""

    field: NotRequired[str | None]
    """The field that is wrong."""

    job_id: NotRequired[JobId | None]
    """The job that the error is about; it may still run."""

    retry_after_ms: NotRequired[int | None]
    """How long to wait before the next try, in milliseconds."""


class ExplainResponse(TypedDict):
    """The response of `POST /v1/explain`."""

    capable: int
    """How many registered nodes can run the job, busy or not."""

    chosen: NodeId | None
    """The node that would get the job now."""

    error: NotRequired[str | None]
    """The code of the error that the job would end with if it were sent now."""

    free: int
    """Free slots of these nodes."""

    nodes: list[ExplainedNode]
    """The verdict about each node."""

    policy: str
    """The policy that chooses among the nodes."""

    pool: Pool
    """The pool that the job belongs to."""

    served_as: NotRequired[Pool | None]
    """The pool that would serve it, if that is one with fewer subtags."""


class ExplainedNode(TypedDict):
    """The verdict of the selection about a node."""

    cell: int
    """Number of the cell that the node is in."""

    node_id: NodeId
    """The name that the node registered with."""

    score: NotRequired[int | None]
    """Lower is better; what it counts depends on the policy."""

    verdict: str
    """`chosen`, `as_good` (a random draw chose another node), `eligible` or `refused`."""

    why: NotRequired[str | None]
    """The first reason why the node cannot get the job."""


class Heartbeat(TypedDict):
    """The body of `POST /v1/node/heartbeat`, and a frame of a node's socket."""

    accept_public_jobs: NotRequired[bool | None]
    """Whether the node accepts jobs of all tenants."""

    asr_langs: NotRequired[list[str] | None]
    """Languages that the node recognises, flat."""

    current_load: NotRequired[LoadFields | None]
    """How busy the node is."""

    epoch: NotRequired[Epoch | None]
    """The epoch that the registration was answered with."""

    health: NotRequired[NodeState | None]
    """The node's own view of its health; `offline` signs it off."""

    labels: NotRequired[list[NodeLabel] | dict[str, str] | None]
    """Labels that jobs may require, such as `["eu", "region:eu"]`; an object such as
    `{"region": "eu"}` stands for `["region:eu"]`.
    """

    language_capabilities: NotRequired[LanguageLists | None]
    """The lists, nested."""

    max_concurrent_jobs: NotRequired[int | None]
    """How many jobs the node runs at the same time."""

    nmt_pairs: NotRequired[list[tuple[str, str]] | None]
    """Directions that the node translates, flat."""

    node_id: NotRequired[NodeId | None]
    """The node's id; a socket knows it already."""

    running: NotRequired[list[JobRef] | None]
    """The attempts that run on the node. An empty list means none. Without a list what the node
    runs goes on.
    """

    semantic_langs: NotRequired[list[str] | None]
    """Languages in which the node repairs recognised text, flat."""

    services: NotRequired[ServiceFlags | None]
    """Which services are on."""

    streaming: NotRequired[bool | None]
    """Whether the node gets a job with its first sound, and the audio while it is being spoken."""

    tts_langs: NotRequired[list[str] | None]
    """Languages that the node speaks, flat."""


class HeartbeatResponse(TypedDict):
    """The response to a heartbeat over HTTP."""

    cancel: list[JobRef]
    """Attempts that the node should stop, because their results are not needed."""

    drain: bool
    """Whether the node should finish its jobs and accept no more."""

    ok: bool
    """Always true."""


class InstanceView(TypedDict):
    """One scheduler process."""

    address: str
    """The address at which clients reach it."""

    alive: bool
    """Whether its announcement is still valid."""

    instance_id: InstanceId
    """The configured name of the instance."""

    leader: bool
    """Whether it is the leader."""

    until_ms: int
    """When its announcement expires."""


class JobAck(TypedDict):
    """The node has received the job."""

    attempt_id: Attempt
    """The try of the job, from 1."""

    fence: NotRequired[Fence | None]
    """The fence that came with the job."""

    job_id: JobId
    """The id from `job_assign`."""

    node_id: NotRequired[NodeId | None]
    """The node that reports; a socket knows it already."""


class JobAssign(TypedDict):
    """A job for the node."""

    attempt_id: Attempt
    """The try of the job, from 1."""

    audio: NotRequired[Audio | None]
    """Audio inside the message or in the frames that follow."""

    audio_ref: NotRequired[str | None]
    """Address of audio that is stored elsewhere."""

    bind: NotRequired[Bind | None]
    """The binding that chose this node."""

    context: NotRequired[list[str]]
    """Earlier texts of this conversation, the oldest first."""

    deadline_ms: int | None
    """How many milliseconds are left. A duration and not a moment, because clocks differ."""

    fence: Fence
    """Rises with every assignment; a node refuses a fence that is not above the highest it saw."""

    job_id: JobId
    """The same in every attempt of the job."""

    options: AssignOptions
    """What the client asked for."""

    session_id: str
    """The conversation that the job belongs to."""

    src_lang: SourceLanguage
    """Source language, or `auto`."""

    text: NotRequired[str | None]
    """Text instead of audio: recognition is skipped."""

    tgt_lang: Language
    """Language to translate to."""

    trace_id: str
    """Names the job in all logs."""

    two_way: NotRequired[list[Language] | None]
    """With `auto`: the source is one of these two languages, and the target is the other one."""


class JobCounts(TypedDict):
    """How many jobs ended in which way."""

    cancelled: int
    """Jobs that a client or an operator cancelled."""

    done: int
    """Jobs that ended with a result."""

    failed: int
    """Jobs that failed or ran out of time."""


class JobDone(TypedDict):
    """The job is done."""

    attempt_id: Attempt
    """The try of the job, from 1."""

    fence: NotRequired[Fence | None]
    """The fence that came with the job."""

    job_id: JobId
    """The id from `job_assign`."""

    node_id: NotRequired[NodeId | None]
    """The node that reports; a socket knows it already."""

    result: NotRequired[JobResult | None]
    """The result, which reaches the client unchanged. [`JobResult`] has the known fields."""

    status: NotRequired[str | None]
    """`ok`, or left out."""


class JobFail(TypedDict):
    """The job failed on this node, or the node refused it."""

    attempt_id: Attempt
    """The try of the job, from 1."""

    detail: NotRequired[str | None]
    """The reason as a sentence, for people."""

    fence: NotRequired[Fence | None]
    """The fence that came with the job."""

    job_id: JobId
    """The id from `job_assign`."""

    node_id: NotRequired[NodeId | None]
    """The node that reports; a socket knows it already."""

    reason: str
    """The reason as one word, such as `MODEL_LOAD_FAILED`."""

    retryable: NotRequired[bool | None]
    """Whether another node might succeed; true if it is left out."""

    status: NotRequired[str | None]
    """`error`, or left out."""


class JobList(TypedDict):
    """The response of `GET /v1/jobs`."""

    jobs: list[JobView]
    """The jobs, the newest first."""

    next: NotRequired[JobId | None]
    """Where the next page starts, if there is one."""


class JobPartial(TypedDict):
    """The text that the node has so far."""

    attempt_id: Attempt
    """The try of the job, from 1."""

    fence: NotRequired[Fence | None]
    """The fence that came with the job."""

    job_id: JobId
    """The id from `job_assign`."""

    node_id: NotRequired[NodeId | None]
    """The node that reports; a socket knows it already."""

    text: str
    """Replaces the text that was sent before."""


class JobRef(TypedDict):
    """One attempt of one job."""

    attempt_id: Attempt
    """The try of the job, from 1."""

    job_id: JobId
    """The id from `job_assign`."""


class JobResult(TypedDict):
    """The known fields of a result."""

    src_lang: NotRequired[str | None]
    """The recognised language, if the source was `auto`."""

    text_asr: NotRequired[str | None]
    """The recognised text."""

    text_translated: NotRequired[str | None]
    """The text in the target language."""

    tts_audio: NotRequired[Audio | None]
    """The translation as speech."""


class JobUpdate(TypedDict):
    """A job changed."""

    attempt_id: Attempt
    """The current attempt."""

    job_id: JobId
    """The job that took the step."""

    kind: JobUpdateKind
    """Which step of the job this is."""

    node_id: NodeId | None
    """The node of the current attempt, if there is one."""

    state: JobState
    """The state of the job now."""

    text: NotRequired[str | None]
    """The text so far, if `kind` is `partial`. Never sent after the end of the job."""


class JobView(TypedDict):
    """A job, as its client and operators see it."""

    attempt_id: Attempt
    """The current attempt."""

    attempts: list[AttemptView]
    """All attempts, the first one first."""

    created_ms: int
    """When the job was accepted."""

    deadline_at_ms: NotRequired[int | None]
    """When the deadline passes, if the job has one."""

    detail: NotRequired[str | None]
    """Why the job failed, and what to do."""

    error: NotRequired[str | None]
    """The error code, if the job failed."""

    instance_id: NotRequired[InstanceId | None]
    """The instance that runs the job."""

    job_id: JobId
    """The id that the dispatch replied."""

    node_id: NotRequired[NodeId | None]
    """The node of the current attempt."""

    partial: NotRequired[str | None]
    """The text that the node has so far; absent after the end of the attempt."""

    result: NotRequired[JobResult | None]
    """The result, as the node sent it."""

    served_as: NotRequired[Pool | None]
    """The direction in the tags that the node of the current attempt registered, such as
    `zh:en`, if those are not the tags that were asked for.
    """

    session_id: NotRequired[str | None]
    """The conversation that the job belongs to."""

    src_lang: SourceLanguage
    """Source language, or `auto`."""

    state: JobState
    """The state of the job."""

    tgt_lang: Language
    """Language to translate to."""

    timings: Timings
    """How long each part took."""

    trace_id: NotRequired[str | None]
    """Names the job in all logs."""

    updated_ms: int
    """When the job last changed its state."""


class LanguageLists(TypedDict):
    """The nested lists of languages."""

    asr_languages: NotRequired[list[str] | None]
    """Languages that the node recognises."""

    nmt_pairs: NotRequired[list[tuple[str, str]] | None]
    """Directions that the node translates; any to any if they are left out."""

    semantic_languages: NotRequired[list[str] | None]
    """Languages in which the node repairs recognised text."""

    tts_languages: NotRequired[list[str] | None]
    """Languages that the node speaks."""


class LeaderUpdate(TypedDict):
    """Another instance became the leader."""

    term: Term
    """Number of the new leader's term."""


class LeftView(TypedDict):
    """What is left of limits."""

    event_streams: NotRequired[int | None]
    """Streams of `/v1/events`."""

    nodes: NotRequired[int | None]
    """Node ids that it may still register; at most a second old."""

    open_bytes: NotRequired[int | None]
    """Bytes of those jobs."""

    open_jobs: NotRequired[int | None]
    """Jobs that run or wait."""

    requests: NotRequired[int | None]
    """Requests that it may send at once."""

    sessions: NotRequired[int | None]
    """Sessions at a time."""


class LimitsView(TypedDict):
    """How much a caller may use."""

    event_streams: NotRequired[int | None]
    """Streams of `/v1/events`."""

    nodes_max: NotRequired[int | None]
    """Node ids, those of nodes that are gone for less than an hour included."""

    open_bytes: NotRequired[int | None]
    """Bytes of those jobs."""

    open_jobs: NotRequired[int | None]
    """Jobs that run or wait."""

    priority_max: NotRequired[int | None]
    """Highest priority of a job."""

    requests_per_second: NotRequired[int | None]
    """Requests in a second."""

    sessions: NotRequired[int | None]
    """Sessions at a time."""


class LoadFields(TypedDict):
    """How busy a node is, as fractions of one; what a node leaves out stays as it was, at first
    0.
    """

    cpu: NotRequired[float | None]
    """Share of the processor that is busy, 0 to 1."""

    gpu: NotRequired[float | None]
    """Share of the accelerator that is busy, 0 to 1."""

    memory: NotRequired[float | None]
    """Share of the main memory that is used, 0 to 1."""


class LoadView(TypedDict):
    """How busy a node is, as fractions of one."""

    cpu: float
    """Share of the processor that is busy, 0 to 1."""

    gpu: float
    """Share of the accelerator that is busy, 0 to 1."""

    memory: float
    """Share of the main memory that is used, 0 to 1."""


class MeView(TypedDict):
    """Who the caller is, as `GET /v1/me` tells it."""

    expires_ms: NotRequired[int | None]
    """When its token or grant expires."""

    left: LeftView
    """What is left of its limits now."""

    limits: LimitsView
    """What it may use at one instance; what is absent has no limit of its own."""

    name: str
    """The name of its token, or key and subject of its grant; empty if it has no name."""

    role: str
    """`node`, `client`, `viewer`, `admin`, or `grant`."""

    tenant: str
    """To whom belongs what it makes."""


class NodeJobs(TypedDict):
    """The response of `GET /v1/node/{id}/jobs`."""

    jobs: list[JobAssign]
    """Jobs for the node; audio is inside, because no frame can follow."""


class NodeList(TypedDict):
    """The response of `GET /v1/nodes`."""

    as_of_ms: NotRequired[int | None]
    """When it was seen, if it is stale."""

    nodes: list[NodeView]
    """The nodes that the caller may see."""

    stale: NotRequired[bool]
    """Whether this is what was seen last, because the store does not answer."""


class NodeUpdate(TypedDict):
    """A node registered, left, or changed its state."""

    epoch: Epoch
    """Number of the node's incarnation."""

    node_id: NodeId
    """The node that changed; `GET /v1/nodes/{id}` has its state."""


class NodeView(TypedDict):
    """A registered node, as operators see it."""

    accept_public_jobs: bool
    """Whether it accepts jobs of all tenants."""

    as_of_ms: NotRequired[int | None]
    """When it was seen, if it is stale."""

    cell: int
    """Number of the cell that the node is in."""

    cost_ms: int
    """How long a job takes there on average, in milliseconds."""

    drain_ordered: bool
    """Whether an operator ordered it to drain."""

    epoch: Epoch
    """Number of the node's incarnation."""

    fresh: bool
    """Whether the last heartbeat is recent enough for the node to get jobs."""

    labels: NotRequired[list[NodeLabel] | None]
    """Its labels, which jobs may require."""

    languages: LanguageLists
    """The languages and directions that it serves."""

    last_heartbeat_ms: int
    """When the last sign of life came."""

    load: LoadView
    """How busy the node reports to be."""

    max: int
    """Jobs that the node does at once at most."""

    node_id: NodeId
    """The name that the node registered with."""

    pairs: int
    """How many pools of a known source language it belongs to."""

    pools: NotRequired[list[Pool] | None]
    """The pools that it belongs to, at most 1000; only in the response for a single node."""

    services: ServiceFlags
    """The services that are on."""

    silent_ms: NotRequired[int | None]
    """For how long there was none, if the node is offline or silent for too long."""

    slot: int
    """Number of the node in its cell."""

    stale: NotRequired[bool]
    """Whether this is what was seen last, because the store does not answer."""

    state: NodeState
    """The state of the node."""

    streaming: bool
    """Whether it gets audio while it is being spoken."""

    used: int
    """Slots in use."""

    version: NotRequired[str | None]
    """Version of the node's software."""


class Offline(TypedDict):
    """The body of `POST /v1/node/offline`."""

    node_id: NodeId
    """The node that leaves."""


class OkResponse(TypedDict):
    """The response to a request that only succeeds or fails."""

    ok: bool
    """Always true."""


class PoolCell(TypedDict):
    """The part of a pool that is in one cell."""

    cell: int
    """Number of the cell."""

    free: int
    """Free slots of the nodes that accept jobs."""

    nodes: int
    """How many of its nodes serve the pair."""

    ready: int
    """How many of them accept jobs."""

    slots: int
    """All slots of the nodes that accept jobs."""


class PoolList(TypedDict):
    """The response of `GET /v1/pools`."""

    as_of_ms: NotRequired[int | None]
    """When it was seen, if it is stale."""

    generated_by: NotRequired[InstanceId | None]
    """The instance that made the table."""

    generated_ms: NotRequired[int | None]
    """When it made the table."""

    left_out: int
    """How many exact pools are left out because they are too small or too many."""

    pools: list[PoolView]
    """All pools that a node serves."""

    stale: NotRequired[bool]
    """Whether this is what was seen last, because the store does not answer."""

    table_version: int
    """Version of the pool table that the list comes from."""


class PoolUpdate(TypedDict):
    """The leader published a new pool table."""

    table_version: int
    """Version of the new table."""


class PoolView(TypedDict):
    """The nodes that can serve a directed pair of languages."""

    as_of_ms: NotRequired[int | None]
    """When it was seen, if it is stale."""

    cells: NotRequired[list[PoolCell] | None]
    """The pool by cell; only in the response for a single pool."""

    free: int
    """Free slots of the nodes that accept jobs."""

    node_ids: NotRequired[list[NodeId] | None]
    """The nodes; only in the response for a single pool."""

    nodes: int
    """How many nodes serve the pair, with text as the result."""

    pool: Pool
    """`zh:en`, or `*:en` for the mixed pool."""

    ready: int
    """How many of them accept jobs."""

    slots: int
    """All slots of the nodes that accept jobs."""

    speech: int
    """How many of them also speak the target language."""

    src_lang: SourceLanguage
    """Source language, or `auto`."""

    stale: NotRequired[bool]
    """Whether this is what was seen last, because the store does not answer."""

    tgt_lang: Language
    """Language that the nodes of the pool translate to."""


class Register(TypedDict):
    """The body of `POST /v1/node/register`, and the first frame of a node's socket."""

    accept_public_jobs: NotRequired[bool | None]
    """Whether the node accepts jobs of all tenants."""

    asr_langs: NotRequired[list[str] | None]
    """Languages that the node recognises, flat."""

    health: NotRequired[Health | None]
    """The node's own view of its health; `ready` if it is left out."""

    labels: NotRequired[list[NodeLabel] | dict[str, str] | None]
    """Labels that jobs may require, such as `["eu", "region:eu"]`; an object such as
    `{"region": "eu"}` stands for `["region:eu"]`.
    """

    language_capabilities: NotRequired[LanguageLists | None]
    """The lists, nested."""

    max_concurrent_jobs: NotRequired[int | None]
    """How many jobs the node runs at the same time."""

    nmt_pairs: NotRequired[list[tuple[str, str]] | None]
    """Directions that the node translates, flat."""

    node_id: NotRequired[NodeId | None]
    """The node's id; the scheduler makes one up if it is left out."""

    running: NotRequired[list[JobRef] | None]
    """The attempts that run on the node and that it goes on with, if it was connected before."""

    semantic_langs: NotRequired[list[str] | None]
    """Languages in which the node repairs recognised text, flat."""

    services: NotRequired[ServiceFlags | None]
    """Which services are on."""

    streaming: NotRequired[bool | None]
    """Whether the node gets a job with its first sound, and the audio while it is being spoken."""

    tts_langs: NotRequired[list[str] | None]
    """Languages that the node speaks, flat."""

    version: NotRequired[str | None]
    """Version of the node's software; for people to read."""


class RegisterResponse(TypedDict):
    """The response to a registration over HTTP."""

    epoch: Epoch
    """Number of this incarnation of the node."""

    heartbeat_interval_ms: int
    """How often the node has to send a heartbeat, in milliseconds."""

    node_id: NodeId
    """The node's id from now on."""

    ok: bool
    """Always true."""

    pairs: int
    """How many pools of a known source language the node belongs to."""

    status: NodeState
    """The node's state in the scheduler."""


class SegmentTimings(TypedDict):
    """Where the time of a segment went."""

    ack_ms: NotRequired[int | None]
    """From sending it to the acknowledgement."""

    delay_ms: NotRequired[int | None]
    """From the segment's end to its result."""

    dispatch_ms: NotRequired[int | None]
    """From accepting the job to sending it."""

    queue_ms: NotRequired[int | None]
    """Waiting for a slot."""

    run_ms: NotRequired[int | None]
    """From the acknowledgement to the result."""

    speech_ms: NotRequired[int | None]
    """From the segment's first speech to its end."""

    total_ms: NotRequired[int | None]
    """From accepting the job to its end."""


class ServiceFlags(TypedDict):
    """Which services are on. A service that is not named is on, except `tone`."""

    asr: NotRequired[bool | None]
    """It recognises speech."""

    nmt: NotRequired[bool | None]
    """It translates text."""

    semantic: NotRequired[bool | None]
    """Repair of what was recognised."""

    tone: NotRequired[bool | None]
    """Keeping the tone of voice."""

    tts: NotRequired[bool | None]
    """It synthesises speech."""


class SessionStart(TypedDict):
    """Starts a session: one way (`src_lang`, `tgt_lang`) or `two_way` (`lang_a`, `lang_b`)."""

    audio: NotRequired[AudioFormat | None]
    """How audio is encoded; `pcm16` at 16,000 Hz by default."""

    context: NotRequired[bool | None]
    """Send the last two texts with each job, so that any node can follow; false by default."""

    labels: NotRequired[list[NodeLabel] | dict[str, str] | None]
    """Labels that the nodes must have; an object such as `{"region": "eu"}` stands for
    `["region:eu"]`.
    """

    lang_a: NotRequired[str | None]
    """Two ways: the language of speaker `a`."""

    lang_b: NotRequired[str | None]
    """Two ways: the language of speaker `b`."""

    mode: NotRequired[str | None]
    """`one_way` (the default) or `two_way`."""

    partials: NotRequired[bool | None]
    """Send partial texts before the result; false by default."""

    preferred_node_id: NotRequired[NodeId | None]
    """The node that should run the jobs of this session."""

    public: NotRequired[bool | None]
    """Whether nodes that accept public jobs may run the jobs of this session; if false, only
    nodes of the caller's own tenant. The tenant's setting by default.
    """

    require_tts: NotRequired[bool | None]
    """Results must include synthesised speech; false by default."""

    src_lang: NotRequired[str | None]
    """One way: the spoken language, or `auto`."""

    tgt_lang: NotRequired[str | None]
    """One way: the language of the translation."""

    vad: NotRequired[bool | None]
    """Silence ends a turn, so that a microphone may stay open; only for `pcm16`. The server's
    setting by default.
    """


class StoreView(TypedDict):
    """The store that holds the state."""

    kind: str
    """`embedded` or `redis`."""

    up: bool
    """Whether it answers this instance."""


class TenantUsage(TypedDict):
    """What a tenant has used."""

    days: NotRequired[list[DayUsage]]
    """Each day, if they were asked for."""

    tenant: str
    """The name of the tenant."""

    total: UsageTotals
    """All days together."""


class Timings(TypedDict):
    """How long the parts of a job took; a part that has not ended is left out."""

    ack_ms: NotRequired[int | None]
    """From sending it to the acknowledgement."""

    dispatch_ms: NotRequired[int | None]
    """From accepting the job to sending it."""

    queue_ms: NotRequired[int | None]
    """Waiting for a slot."""

    run_ms: NotRequired[int | None]
    """From the acknowledgement to the result."""

    total_ms: NotRequired[int | None]
    """From accepting the job to its end."""


class UsageTotals(TypedDict):
    """Jobs, and the audio and the characters of those that are done."""

    audio_in_seconds: float
    """Seconds of audio that was sent."""

    audio_out_seconds: float
    """Seconds of speech that was made."""

    chars_source: int
    """Characters that were recognised or sent as text."""

    chars_translated: int
    """Characters of the translations."""

    jobs: JobCounts
    """How many jobs ended in which way."""


class UsageView(TypedDict):
    """The response of `GET /v1/usage`."""

    since: str
    """The first day that is counted, such as `2026-11-18`, in UTC."""

    tenants: list[TenantUsage]
    """Every tenant that has used anything, by name."""

    until: str
    """The last day that is counted."""


class AudioEndMessage(TypedDict):
    """The audio of a streamed job is complete."""

    type: Literal["audio_end"]

    attempt_id: Attempt
    """The try of the job, from 1."""

    bytes: int
    """How many bytes the audio has, without tags."""

    job_id: JobId
    """The job whose audio this is."""


class ByeMessage(TypedDict):
    """The node leaves; its open jobs are retried elsewhere."""

    type: Literal["bye"]

    reason: NotRequired[str | None]
    """For the log."""


class DrainMessage(TypedDict):
    """Finish the jobs that run and accept no more."""

    type: Literal["drain"]


class ErrorMessage(TypedDict):
    """The scheduler refused a message or closes the connection. Sessions get the same message."""

    type: Literal["error"]

    detail: str
    """What is wrong and what to do."""

    error: str
    """The code; text, so that a receiver can read codes newer than itself."""

    fatal: bool
    """Whether the scheduler closes the socket after this message."""


class HeartbeatAckMessage(TypedDict):
    """The response to a heartbeat."""

    type: Literal["heartbeat_ack"]

    cancel: list[JobRef]
    """Attempts that the node should stop, because their results are not needed."""

    drain: bool
    """Whether the node should finish its jobs and accept no more."""


class HeartbeatMessage(Heartbeat):
    """`Heartbeat` as a message."""

    type: Literal["heartbeat"]


class JobAcceptedMessage(TypedDict):
    """A segment has become a job."""

    type: Literal["job_accepted"]

    job_id: JobId
    """The job's id, for `/v1/jobs/{job_id}`."""

    segment: int
    """Counts from 1 within the turn."""

    turn: int
    """Counts from 1 within the session."""


class JobAckMessage(JobAck):
    """`JobAck` as a message."""

    type: Literal["job_ack"]


class JobAssignMessage(JobAssign):
    """`JobAssign` as a message."""

    type: Literal["job_assign"]


class JobCancelMessage(TypedDict):
    """Stop a job: its result is not needed any more."""

    type: Literal["job_cancel"]

    attempt_id: Attempt
    """The try of the job, from 1."""

    job_id: JobId
    """The job to stop."""

    reason: str
    """For the log and for the handler."""


class JobConfirmedMessage(TypedDict):
    """A result or a failure has arrived; the node need not send it again."""

    type: Literal["job_confirmed"]

    accepted: bool
    """Whether it counted; false if the job had ended or moved to another attempt."""

    attempt_id: Attempt
    """The try of the job, from 1."""

    job_id: JobId
    """The job that the report was about."""


class JobDoneMessage(JobDone):
    """`JobDone` as a message."""

    type: Literal["job_done"]


class JobFailMessage(JobFail):
    """`JobFail` as a message."""

    type: Literal["job_fail"]


class JobPartialMessage(JobPartial):
    """`JobPartial` as a message."""

    type: Literal["job_partial"]


class MissingMessage(TypedDict):
    """There is no result for a segment; the segments after it are not affected."""

    type: Literal["missing"]

    detail: str
    """What happened and what to do."""

    error: str
    """The error code; a text, so that clients can read codes that are newer than themselves."""

    job_id: NotRequired[JobId | None]
    """The segment's job; absent if the segment did not become one."""

    segment: int
    """Counts from 1 within the turn."""

    seq: int
    """Counts the results and missing segments of the session from 1."""

    turn: int
    """Counts from 1 within the session."""


class PartialMessage(TypedDict):
    """A partial text; it replaces the previous one, and never comes after the result."""

    type: Literal["partial"]

    segment: int
    """Counts from 1 within the turn."""

    text: str
    """The text so far."""

    turn: int
    """Counts from 1 within the session."""


class RegisterMessage(Register):
    """`Register` as a message."""

    type: Literal["register"]


class RegisteredMessage(TypedDict):
    """The node is registered."""

    type: Literal["registered"]

    epoch: Epoch
    """Number of this incarnation of the node."""

    heartbeat_interval_ms: int
    """How often the node has to send a heartbeat, in milliseconds."""

    node_id: NodeId
    """The node's id from now on."""

    pairs: int
    """How many pools of a known source language the node belongs to."""


class SegmentResultMessage(TypedDict):
    """The result of a segment."""

    type: Literal["result"]

    job_id: JobId
    """The segment's job."""

    segment: int
    """Counts from 1 within the turn."""

    seq: int
    """Counts the results and missing segments of the session from 1."""

    served_as: NotRequired[Pool | None]
    """The direction in the tags that the node registered, such as `zh:en`, if those are not the
    tags that were asked for.
    """

    src_lang: SourceLanguage
    """The spoken language; `auto` if the node did not report it."""

    text_asr: NotRequired[str | None]
    """The recognised text."""

    text_translated: NotRequired[str | None]
    """The translated text."""

    tgt_lang: Language
    """The language of the translation."""

    timings: SegmentTimings
    """Where the time went."""

    tts_audio: NotRequired[Audio | None]
    """The translation as speech, in base64."""

    turn: int
    """Counts from 1 within the session."""


class SessionEndMessage(TypedDict):
    """Ends the session: open segments are still delivered, then the scheduler closes the
    socket.
    """

    type: Literal["session_end"]


class SessionResumeMessage(TypedDict):
    """Resumes a session whose connection broke."""

    type: Literal["session_resume"]

    last_seq: NotRequired[int]
    """The last `seq` that the client has seen; 0 if none."""

    resume_token: str
    """From `session_started`."""

    session_id: str
    """From `session_started`."""


class SessionStartMessage(SessionStart):
    """`SessionStart` as a message."""

    type: Literal["session_start"]


class SessionStartedMessage(TypedDict):
    """The session has started, or is resumed."""

    type: Literal["session_started"]

    received_ms: NotRequired[int | None]
    """After a resume: how much sound of the open turn had arrived, in milliseconds. 0 if no
    turn is open, because it ended, or because another instance has taken the session over.
    """

    resume_ms: int
    """How long after its connection broke the session can be resumed."""

    resume_token: str
    """The secret for `session_resume`."""

    resumed: bool
    """True if the client resumed a session."""

    session_id: str
    """For `session_resume`."""

    turn_open: NotRequired[bool | None]
    """After a resume: whether the last of these turns is still open."""

    turns: NotRequired[int | None]
    """After a resume: how many turns the session has had. Later ones have not arrived."""

    warning: NotRequired[str | None]
    """What will not work now, for people: no node serves the languages."""


class TextTurnMessage(TypedDict):
    """A turn of text instead of speech."""

    type: Literal["text"]

    speaker: NotRequired[str | None]
    """`a` or `b`, in a two-way session."""

    text: str
    """The text to translate."""


class TurnEndMessage(TypedDict):
    """Ends the turn."""

    type: Literal["turn_end"]


class TurnStartMessage(TypedDict):
    """Opens a turn. Without it, the first speech opens one."""

    type: Literal["turn_start"]

    speaker: NotRequired[str | None]
    """`a` or `b`, in a two-way session; if absent, the node finds out who speaks."""


Attempt = int
"""A try of a job, counted from 1."""


Epoch = int
"""Number of a node's incarnation; each registration raises it."""


ErrorCode = str
"""What went wrong. A later version may know further codes."""


Fence = int
"""Rises with every assignment."""


Health = Literal["ready", "registering", "degraded", "draining"]
"""How a node describes its own condition."""


InstanceId = str
"""The id of a scheduler process."""


JobId = str
"""The id of a job."""


JobState = Literal[
    "NEW", "SELECTING", "RESERVED", "DISPATCHED", "ACKED", "RETRYING", "DONE", "FAILED", "CANCELLED"
]
"""State of a job."""


JobUpdateKind = Literal["state", "partial"]
"""What changed about a job."""


Language = str
"""A BCP-47 language tag, such as zh or pt-BR."""


NodeId = str
"""The id of a node."""


NodeLabel = str
"""A label of a node, such as eu or region:eu."""


NodeState = Literal["registering", "ready", "degraded", "draining", "offline"]
"""State of a node."""


Pool = str
"""zh:en, or *:en for the mixed pool."""


Service = Literal["asr", "semantic", "nmt", "tts", "tone", "streaming"]
"""What a node can offer."""


SourceLanguage = str
"""A BCP-47 language tag, or auto."""


Term = int
"""Number of a leader's term of office; each election raises it."""


Services = list[Service]
"""Services, each of them once."""


NodeMessage = (
    RegisterMessage
    | HeartbeatMessage
    | JobAckMessage
    | JobPartialMessage
    | JobDoneMessage
    | JobFailMessage
    | ByeMessage
)
"""What the node sends on `/v1/node/ws`."""


SchedulerMessage = (
    RegisteredMessage
    | HeartbeatAckMessage
    | JobAssignMessage
    | AudioEndMessage
    | JobCancelMessage
    | JobConfirmedMessage
    | DrainMessage
    | ErrorMessage
)
"""What the scheduler sends on `/v1/node/ws`."""


SessionRequest = (
    SessionStartMessage
    | SessionResumeMessage
    | TurnStartMessage
    | TurnEndMessage
    | TextTurnMessage
    | SessionEndMessage
)
"""What the client sends on `/v1/session/ws`."""


SessionUpdate = (
    SessionStartedMessage
    | JobAcceptedMessage
    | PartialMessage
    | SegmentResultMessage
    | MissingMessage
    | ErrorMessage
)
"""What the scheduler sends on `/v1/session/ws`."""
