"""What a node does on each message of the scheduler.

Start at `Messages.on_frame`. A message that this version does not know is ignored, so that the
scheduler may be newer than its nodes; one that makes no sense is ignored with a warning.

Invariant: an assignment is answered at once, with `job_ack` or a refusal, whether or not its
audio has arrived.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, cast

from lingua_sdk.audio import Sound
from lingua_sdk.errors import RefusedError, TakenOverError, UnreachableError

from . import report
from .admission import Accepted, Known, Refused, log
from .job import Failure, Job
from .stream import tag

if TYPE_CHECKING:
    from collections.abc import Callable

    from lingua_sdk import wire

    from .worker import Worker

_NONSENSE = (
    KeyError, TypeError, ValueError, AttributeError, OverflowError, RecursionError
)  # fmt: skip
"""What reading a message raises that is none."""

_CREDENTIALS = frozenset({"UNAUTHORIZED", "FORBIDDEN"})
_BAD_REGISTRATION = frozenset(
    {
        "INVALID_REQUEST",
        "INVALID_LANGUAGE",
        "ASR_LANGUAGES_REQUIRED",
        "SEMANTIC_LANGUAGES_REQUIRED",
        "TTS_LANGUAGES_REQUIRED",
        "PAYLOAD_TOO_LARGE",
    }
)


@dataclass
class _PendingAudio:
    """Audio that the next binary frame has to bring; of no job if that was refused."""

    size: int
    job: Job | None


class Messages:
    """Acts on the messages of one connection after the other."""

    def __init__(self, worker: Worker) -> None:
        self._worker = worker
        self._pending: _PendingAudio | None = None
        self._actions: dict[str, Callable[[Any], None]] = {
            "job_assign": self._on_assign,
            "job_confirmed": self._on_confirmed,
            "job_cancel": self._on_cancel,
            "heartbeat_ack": self._on_heartbeat_ack,
            "audio_end": self._on_audio_end,
            "drain": lambda _: self._on_drain(True),
            "error": self._on_error,
            "registered": self._on_registered_again,
        }

    def registered(self, frame: str | bytes) -> wire.RegisteredMessage | None:
        """Read the answer to a registration; `None` if this is another message."""
        try:
            message = cast("wire.RegisteredMessage | wire.ErrorMessage", json.loads(frame))
            if message["type"] == "registered":
                _ = message["node_id"], message["epoch"], message["heartbeat_interval_ms"] / 1000
                return message
            if message["type"] != "error":
                return None
            code, detail = message["error"], message["detail"]
        except _NONSENSE:
            why = f"it answered {frame[:80]!r}: is it a Lingua scheduler?"
            raise UnreachableError(f"the scheduler did not register the node: {why}") from None
        if code in _CREDENTIALS or code in _BAD_REGISTRATION:
            raise RefusedError(code, detail)
        raise UnreachableError(f"the scheduler did not register the node: {code}: {detail}")

    def on_frame(self, frame: str | bytes) -> None:
        """Act on a frame."""
        try:
            if isinstance(frame, bytes):
                self._on_audio(frame)
                return
            self._drop_pending("a message came where the audio of the job was announced")
            message = json.loads(frame)
            action = self._actions.get(message["type"])
            if action is not None:
                action(message)
        except _NONSENSE as error:
            log.warning("ignored what is no message (%r): %.200r", error, frame)

    def on_connection_lost(self) -> None:
        """Let go of what only this connection could have brought."""
        pending, self._pending = self._pending, None
        if pending is not None and pending.job is not None:
            # Its audio will not arrive any more, so it never starts.
            self._worker.admission.release(pending.job.key)
        for key in self._worker.streams.open_jobs():
            self._worker.cancel(key, "the connection that brought its audio was lost")

    def _drop_pending(self, why: str) -> None:
        pending, self._pending = self._pending, None
        if pending is not None and pending.job is not None:
            self._worker.finish(pending.job, Failure(Failure.BAD_AUDIO, why))

    def _on_assign(self, assign: wire.JobAssignMessage) -> None:
        worker = self._worker
        job = Job(assign, worker.show)
        # What is no job is refused here, before it takes a slot.
        tag(job.key)
        audio = assign.get("audio")
        size = None if audio is None or "data" in audio else audio.get("bytes")
        sound = (
            None if audio is None else Sound(audio.get("format", ""), b"", audio.get("sample_rate"))
        )
        verdict = worker.admission.admit(job)
        if isinstance(verdict, Refused):
            worker.stats.refused += 1
            worker.send(report.fail(job, Failure(verdict.reason)))
        else:
            worker.send(report.ack(job))
        if isinstance(verdict, Known) and verdict.result is not None:
            worker.send(verdict.result)
        is_accepted = isinstance(verdict, Accepted)
        if size is not None:
            job.audio = sound
            self._pending = _PendingAudio(size, job if is_accepted else None)
        elif is_accepted:
            self._start(job, audio, sound)

    def _start(self, job: Job, audio: wire.Audio | None, sound: Sound | None) -> None:
        if audio is not None and sound is not None:
            if audio.get("stream"):
                job.stream = self._worker.streams.open(job.key, sound.format, sound.sample_rate)
            else:
                try:
                    job.audio = Sound.decode(audio)
                except ValueError as error:
                    self._worker.finish(job, Failure(Failure.BAD_AUDIO, str(error)))
                    return
        self._worker.start(job)

    def _on_audio(self, frame: bytes) -> None:
        pending, self._pending = self._pending, None
        if pending is None:
            slow = self._worker.streams.push(frame)
            if slow is not None:
                self._worker.cancel(slow, "the handler is too slow for its audio")
        elif pending.job is not None and pending.job.audio is not None:
            job, sound = pending.job, pending.job.audio
            if len(frame) != pending.size:
                why = f"{len(frame)} bytes arrived, {pending.size} were announced"
                self._worker.finish(job, Failure(Failure.BAD_AUDIO, why))
                return
            job.audio = Sound(sound.format, frame, sound.sample_rate)
            self._worker.start(job)

    def _on_audio_end(self, message: wire.AudioEndMessage) -> None:
        self._worker.streams.end((message["job_id"], message["attempt_id"]), message["bytes"])

    def _on_confirmed(self, message: wire.JobConfirmedMessage) -> None:
        if not message["accepted"]:
            log.debug("the result of %s came too late to count", message["job_id"])
        self._worker.confirm((message["job_id"], message["attempt_id"]))

    def _on_cancel(self, message: wire.JobCancelMessage) -> None:
        self._cancel((message["job_id"], message["attempt_id"]), message["reason"])

    def _cancel(self, key: tuple[str, int], reason: str) -> None:
        pending = self._pending
        if pending is not None and pending.job is not None and pending.job.key == key:
            # It has not started yet, and does not need to.
            self._worker.admission.release(key)
            pending.job = None
        self._worker.cancel(key, reason)

    def _on_heartbeat_ack(self, message: wire.HeartbeatAckMessage) -> None:
        for job in message["cancel"]:
            self._cancel((job["job_id"], job["attempt_id"]), "nobody waits for it")
        self._on_drain(message["drain"])

    def _on_drain(self, drain: bool) -> None:
        if self._worker.admission.is_draining != drain:
            log.info("the scheduler %s", "drains the node" if drain else "gives jobs again")
            self._worker.admission.is_draining = drain
            self._worker.send_heartbeat()

    def _on_registered_again(self, message: wire.RegisteredMessage) -> None:
        # The scheduler's store had forgotten the node; the connection goes on.
        log.info("registered again as %s, epoch %s", message["node_id"], message["epoch"])
        self._worker.registered = message
        self._worker.send_heartbeat()

    def _on_error(self, message: wire.ErrorMessage) -> None:
        code, detail = message["error"], message["detail"]
        # A scheduler that has forgotten the node may leave the connection open, but sends no jobs.
        if not message.get("fatal") and code != "NODE_NOT_REGISTERED":
            log.warning("the scheduler refused a message: %s: %s", code, detail)
            return
        if code == "STALE_EPOCH":
            advice = "stop one of the two processes, or give them different node ids"
            raise TakenOverError(code, f"{detail}; {advice}")
        if code in _CREDENTIALS:
            raise RefusedError(code, detail)
        raise UnreachableError(f"the scheduler ended the connection: {code}: {detail}")
