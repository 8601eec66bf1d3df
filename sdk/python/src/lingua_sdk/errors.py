"""What can go wrong, for programs (`code`) and for people (the message says what to do).

Start at `LinguaError`: every other error here is one.
"""

_SAFE_TO_RETRY = frozenset(
    {
        "NO_CAPABLE_NODE",
        "ALL_CANDIDATES_FULL_OR_FAILED",
        "SCHEDULER_DEPENDENCY_DOWN",
        "RATE_LIMITED",
        "FLEET_FULL",
        "INSTANCE_LOST",
    }
)


class LinguaError(Exception):
    """Something failed. `code` is stable and meant for programs."""

    code: str = "INTERNAL"
    retry_after_ms: int | None = None

    @property
    def is_safe_to_retry(self) -> bool:
        """Whether the same request may succeed later and cannot have been carried out now."""
        return self.code in _SAFE_TO_RETRY


class InvalidOptionsError(LinguaError, ValueError):
    """An address, a token or another option cannot be used."""

    code = "INVALID_REQUEST"


class UnreachableError(LinguaError):
    """There was no connection, or it broke. Another try may succeed."""

    code = "UNREACHABLE"


class UntrustedError(UnreachableError):
    """The certificate of the scheduler is not trusted."""

    code = "UNTRUSTED"


class TimedOutError(LinguaError):
    """There was a connection, but no answer in time; the request may have been carried out."""

    code = "TIMED_OUT"


class BadAnswerError(LinguaError):
    """The answer is not one of a scheduler."""

    code = "BAD_ANSWER"


class RefusedError(LinguaError):
    """The scheduler refused a request, or ended a connection for good."""

    def __init__(
        self,
        code: str,
        detail: str,
        *,
        status: int | None = None,
        retry_after_ms: int | None = None,
        job_id: str | None = None,
    ) -> None:
        where = "" if status is None else f" (status {status})"
        super().__init__(f"{code}{where}: {detail}")
        self.code = code
        self.detail = detail
        self.status = status
        self.retry_after_ms = retry_after_ms
        self.job_id = job_id


class TakenOverError(RefusedError):
    """Another process registered with the id of this node."""


class HandlerError(LinguaError):
    """A handler could not be started: its processes ended before they were ready."""

    code = "HANDLER_FAILED"


class MicrophoneError(LinguaError):
    """There is no microphone, or this program may not use it."""

    code = "MICROPHONE"
