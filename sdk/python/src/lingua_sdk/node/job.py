"""A job as a handler sees it, and how it may end.

Start at `Job`, `Output` and `Failure`: the messages `job_assign`, `job_done` and `job_fail`
without the protocol around them.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Mapping

    from lingua_sdk import wire
    from lingua_sdk.audio import Sound

    from .stream import SoundStream

JobKey = tuple[str, int]
"""A job and its attempt, as every message about it names them."""


ShowPartial = Callable[["Job", str], None]
"""Sends a text that is not final: to the scheduler, or to the process that is connected to it."""


class Job:
    """One utterance to translate. `assign` is the whole message of the scheduler."""

    def __init__(self, assign: wire.JobAssign, show: ShowPartial) -> None:
        self.assign = assign
        self.audio: Sound | None = None
        """Audio that came with the job."""
        self.stream: SoundStream | None = None
        """Audio that is still being spoken; only nodes with `streaming=True` get it."""
        self.cancel_reason: str | None = None
        """Why nobody waits for the result any more; `None` while somebody does."""
        self._show = show

    def partial(self, text: str) -> None:
        """Show a text that is not final; it replaces the one before. It may be dropped."""
        self._show(self, text)

    @property
    def is_cancelled(self) -> bool:
        """Whether nobody waits for the result any more; for handlers that block."""
        return self.cancel_reason is not None

    @property
    def key(self) -> JobKey:
        """The job and its attempt."""
        return self.assign["job_id"], self.assign["attempt_id"]

    @property
    def job_id(self) -> str:
        """The job."""
        return self.assign["job_id"]

    @property
    def session_id(self) -> str:
        """The conversation that the job belongs to."""
        return self.assign["session_id"]

    @property
    def src_lang(self) -> str:
        """Source language, or `auto`."""
        return self.assign["src_lang"]

    @property
    def tgt_lang(self) -> str:
        """Target language."""
        return self.assign["tgt_lang"]

    @property
    def text(self) -> str | None:
        """Text instead of audio: recognition is skipped."""
        return self.assign.get("text")

    @property
    def audio_ref(self) -> str | None:
        """Address of audio that is stored elsewhere."""
        return self.assign.get("audio_ref")

    @property
    def context(self) -> list[str]:
        """Earlier texts of this conversation, the oldest first."""
        return self.assign.get("context", [])

    @property
    def options(self) -> wire.AssignOptions:
        """What the client asked for."""
        return self.assign["options"]

    def __repr__(self) -> str:
        return f"Job({self.job_id}, {self.src_lang} to {self.tgt_lang})"

    def __getstate__(self) -> dict[str, Any]:
        # A copy in another process gets another `show`.
        return {"assign": self.assign, "audio": self.audio}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state, stream=None, cancel_reason=None)

    def show_with(self, show: ShowPartial) -> None:
        """Complete a copy in another process."""
        self._show = show


@dataclass
class Output:
    """The result of a job. `extra` holds further fields, which reach the client unchanged."""

    text_translated: str | None = None
    text_asr: str | None = None
    tts_audio: Sound | None = None
    src_lang: str | None = None
    """The recognised language, if the source of the job was `auto`."""
    extra: Mapping[str, Any] = field(default_factory=dict[str, Any])


class Failure(Exception):  # noqa: N818 - it is what a job ends with, and no fault of the program
    """Raise it in a handler: the job fails for this reason, one word such as `NO_MEMORY`."""

    CANCELLED = "CANCELLED"
    RAISED = "HANDLER_RAISED"
    CRASHED = "HANDLER_CRASHED"
    BAD_AUDIO = "BAD_AUDIO"
    BAD_OUTPUT = "BAD_OUTPUT"
    UNNAMED = "HANDLER_FAILED"
    """The handler's own reason cannot be sent: it is empty, too long or more than printable."""

    def __init__(self, reason: str, detail: str | None = None, *, retryable: bool = True) -> None:
        super().__init__(reason, detail)
        self.reason = reason
        self.detail = detail
        self.retryable = retryable
        """Whether another node might succeed."""

    def __reduce__(self) -> tuple[Any, ...]:
        return _failure, (self.reason, self.detail, self.retryable)


def _failure(reason: str, detail: str | None, retryable: bool) -> Failure:
    return Failure(reason, detail, retryable=retryable)
