"""Messages about jobs.

Start at `finished`.

Invariant: the scheduler can read every message made here; a result or a reason that breaks a
bound becomes a failure that says so.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any, NamedTuple, cast

from lingua_sdk.audio import Sound

from .job import Failure, JobKey, Output

if TYPE_CHECKING:
    from collections.abc import Mapping

    from lingua_sdk import wire

    from .job import Job

TEXT_BYTES_MAX = 16 * 1024
AUDIO_BYTES_MAX = 2 * 1024 * 1024
RESULT_BYTES_MAX = 512 * 1024
"""Longest message of a result, without its audio."""

_REASON_BYTES_MAX = 128
_DETAIL_BYTES_MAX = 2048
_FORMAT_BYTES_MAX = 32
_DEPTH_MAX = 64

_encode = json.JSONEncoder(ensure_ascii=False, allow_nan=False, separators=(",", ":")).encode


class Outbound(NamedTuple):
    """A message, and the audio that belongs to it."""

    text: str
    audio: bytes | None

    @property
    def size(self) -> int:
        """About how much memory it takes."""
        return len(self.text) + len(self.audio or b"")


def message(fields: wire.NodeMessage) -> Outbound:
    """Make a message without audio."""
    return Outbound(_encode(fields), None)


def ack(job: Job) -> Outbound:
    """Confirm that the job has arrived."""
    job_id, attempt_id = job.key
    fence = job.assign["fence"]
    return message({"type": "job_ack", "job_id": job_id, "attempt_id": attempt_id, "fence": fence})


def partial(job: Job, text: str) -> Outbound:
    """Show a text that is not final, cut at the bound of the contract."""
    text = text.encode(errors="replace")[:TEXT_BYTES_MAX].decode(errors="ignore")
    job_id, attempt_id = job.key
    return message(
        {
            "type": "job_partial",
            "job_id": job_id,
            "attempt_id": attempt_id,
            "fence": job.assign["fence"],
            "text": text,
        }
    )


def fail(job: Job, failure: Failure) -> Outbound:
    """Report a failure or a refusal."""
    reason, detail = failure.reason, failure.detail
    if not _is_reason(reason):
        reason, detail = Failure.UNNAMED, f"the reason was {reason!r}: {detail or ''}"
    job_id, attempt_id = job.key
    fields: wire.JobFailMessage = {
        "type": "job_fail",
        "job_id": job_id,
        "attempt_id": attempt_id,
        "fence": job.assign["fence"],
        "reason": reason,
        "retryable": bool(failure.retryable),
    }
    if detail is not None:
        fields["detail"] = _printable(str(detail), _DETAIL_BYTES_MAX)
    return message(fields)


def finished(job: Job, outcome: object) -> tuple[Outbound, Failure | None]:
    """Report what a handler ended with: an `Output`, a text, a `Failure`, or something else."""
    if not isinstance(outcome, Failure):
        try:
            return _done(job, outcome), None
        except _BadOutputError as bad:
            outcome = Failure(Failure.BAD_OUTPUT, str(bad), retryable=False)
    return fail(job, outcome), outcome


class _BadOutputError(Exception):
    """What a handler returned cannot be sent."""


def _done(job: Job, outcome: object) -> Outbound:
    output = Output(outcome) if isinstance(outcome, str) else outcome
    if not isinstance(output, Output):
        raise _BadOutputError(
            f"the handler returned {type(outcome).__name__}; return an Output or a text"
        )
    fields: dict[str, Any] = {**_extra(output.extra)}
    for name in ("text_asr", "text_translated", "src_lang"):
        value = getattr(output, name)
        if not isinstance(value, (str, type(None))):
            raise _BadOutputError(f"{name} is {type(value).__name__}; give a text")
        fields[name] = value
    fields["tts_audio"] = None if output.tts_audio is None else _announced(output.tts_audio)
    given = {name: value for name, value in fields.items() if value is not None}
    done: wire.JobDoneMessage = {
        "type": "job_done",
        "job_id": job.job_id,
        "attempt_id": job.key[1],
        "fence": job.assign["fence"],
        "result": cast("wire.JobResult", given),
    }
    try:
        text = _encode(done)
        size = len(text.encode())
    except (TypeError, ValueError, RecursionError) as error:
        raise _BadOutputError(f"the result is not JSON: {error}") from None
    if size > RESULT_BYTES_MAX:
        raise _BadOutputError(f"the result has {size} bytes; send at most {RESULT_BYTES_MAX}")
    return Outbound(text, output.tts_audio.data if output.tts_audio else None)


def _extra(extra: object) -> Mapping[str, Any]:
    if not isinstance(extra, dict):
        raise _BadOutputError(f"extra is {type(extra).__name__}; give a dict")
    fields = cast("dict[object, Any]", extra)
    if any(not isinstance(name, str) for name in fields):
        raise _BadOutputError("extra has a key that is no text")
    if _is_deeper(fields, _DEPTH_MAX):
        raise _BadOutputError(f"extra is nested more than {_DEPTH_MAX} times")
    known = ("text_asr", "text_translated", "src_lang", "tts_audio")
    return {str(name): value for name, value in fields.items() if name not in known}


def _is_deeper(value: object, levels: int) -> bool:
    if not isinstance(value, (dict, list, tuple)):
        return False
    container = cast("dict[Any, object] | list[object]", value)
    children = container.values() if isinstance(container, dict) else container
    return levels == 0 or any(_is_deeper(child, levels - 1) for child in children)


def _announced(sound: object) -> wire.Audio:
    if not isinstance(sound, Sound):
        raise _BadOutputError(f"tts_audio is {type(sound).__name__}; give a Sound")
    data = cast("object", sound.data)
    if not isinstance(data, bytes):
        raise _BadOutputError(f"the audio is {type(data).__name__}; give bytes")
    if not sound.data or len(sound.data) > AUDIO_BYTES_MAX:
        raise _BadOutputError(
            f"the audio has {len(sound.data)} bytes; send at least 1 and at most {AUDIO_BYTES_MAX}"
        )
    if not 0 < len(sound.format.encode()) <= _FORMAT_BYTES_MAX:
        raise _BadOutputError(f"the audio format is {sound.format!r}; name one, such as pcm16")
    audio: wire.Audio = {"format": sound.format, "bytes": len(sound.data)}
    if sound.sample_rate is not None:
        audio["sample_rate"] = sound.sample_rate
    elif sound.format == "pcm16":
        raise _BadOutputError("pcm16 has no sample_rate; give one")
    return audio


def _is_reason(reason: object) -> bool:
    return (
        isinstance(reason, str)
        and 0 < len(reason.encode(errors="replace")) <= _REASON_BYTES_MAX
        and reason.isprintable()
    )


def _printable(text: str, bytes_max: int) -> str:
    return text.encode(errors="replace")[:bytes_max].decode(errors="ignore")


def keys(running: list[JobKey]) -> list[wire.JobRef]:
    """List jobs as a heartbeat does."""
    return [{"job_id": job_id, "attempt_id": attempt_id} for job_id, attempt_id in running]
