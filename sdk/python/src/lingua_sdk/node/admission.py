"""Which jobs a node accepts, which ones run, and which results wait for their confirmation.

Start at `Admission.admit`. Nothing here waits or knows of connections.

Invariant: at most `slots` jobs run. A slot is free when its handler has really ended. A result
stays until it is confirmed, or until newer ones need its place.
"""

from __future__ import annotations

import logging
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

if TYPE_CHECKING:
    from .job import Job, JobKey
    from .report import Outbound

log = logging.getLogger("lingua_sdk.node")

UNCONFIRMED_MAX = 256
"""Most results that wait for their confirmation."""

UNCONFIRMED_BYTES_MAX = 64 * 1024 * 1024

_RUNNING_LISTED_MAX = 2048

Health = Literal["ready", "registering", "degraded", "draining"]


@dataclass
class Accepted:
    """The job has a slot."""


@dataclass
class Known:
    """The job was accepted before: it runs, or this is its result."""

    result: Outbound | None


@dataclass
class Refused:
    """The job is refused for this reason."""

    reason: Literal["BUSY", "STALE_FENCE"]


class Admission:
    """The state of a node that outlives its connections."""

    def __init__(self, slots: int, health: Health) -> None:
        self._slots = slots
        self._health: Health = health
        self._fence_highest = -1
        self._running: dict[JobKey, Job] = {}
        self._stuck: set[JobKey] = set()
        self._unconfirmed: dict[JobKey, Outbound] = {}
        self._unconfirmed_bytes = 0
        self.is_draining = False
        """The scheduler ordered the node to drain."""
        self.is_stopping = False
        """The node itself was asked to stop."""

    def admit(self, job: Job) -> Accepted | Known | Refused:
        """Decide on an assignment and take a slot for it."""
        key, fence = job.key, job.assign["fence"]
        running = self._running.get(key)
        # Refusing an assignment that came twice would end the attempt that runs.
        if running is not None and running.assign["fence"] == fence:
            return Known(None)
        if (result := self._unconfirmed.get(key)) is not None:
            return Known(result)
        if fence <= self._fence_highest:
            return Refused("STALE_FENCE")
        self._fence_highest = fence
        has_room = len(self._running) < self._slots and running is None
        if not has_room or self.is_draining or self.is_stopping:
            return Refused("BUSY")
        self._running[key] = job
        return Accepted()

    def begin_epoch(self) -> None:
        """Begin a connection: fences start again, and the scheduler repeats an order to drain."""
        self._fence_highest = -1
        self.is_draining = False

    def running(self, key: JobKey) -> Job | None:
        """Give a job that runs."""
        return self._running.get(key)

    def all_running(self) -> list[Job]:
        """Give all jobs that run."""
        return list(self._running.values())

    def keys(self) -> list[JobKey]:
        """Give the jobs that run, as a heartbeat lists them."""
        return list(self._running)[:_RUNNING_LISTED_MAX]

    def release(self, key: JobKey) -> Job | None:
        """Free the slot of a job."""
        self._stuck.discard(key)
        return self._running.pop(key, None)

    def keep_result(self, key: JobKey, result: Outbound) -> None:
        """Keep a result until it is confirmed."""
        self._unconfirmed[key] = result
        self._unconfirmed_bytes += result.size
        # The newest stays even if it alone is too big: it was within the bounds of a message.
        while len(self._unconfirmed) > UNCONFIRMED_MAX or (
            self._unconfirmed_bytes > UNCONFIRMED_BYTES_MAX and len(self._unconfirmed) > 1
        ):
            oldest = next(iter(self._unconfirmed))
            self.confirm(oldest)
            log.warning("too many results wait for confirmation; dropped that of %s", oldest[0])

    def confirm(self, key: JobKey) -> None:
        """Forget a result that has arrived."""
        if (result := self._unconfirmed.pop(key, None)) is not None:
            self._unconfirmed_bytes -= result.size

    def unconfirmed(self) -> list[Outbound]:
        """Give the results that are not confirmed, the oldest first."""
        return list(self._unconfirmed.values())

    def set_stuck(self, key: JobKey) -> None:
        """Note that a handler goes on although nobody waits for it."""
        if key in self._running:
            self._stuck.add(key)

    @property
    def is_idle(self) -> bool:
        """Whether no job runs."""
        return not self._running

    @property
    def is_drained(self) -> bool:
        """Whether no job runs and every result is confirmed."""
        return not self._running and not self._unconfirmed

    @property
    def usable_slots(self) -> int:
        """The slots that are not taken by handlers that ignore their cancellation."""
        return max(1, self._slots - len(self._stuck))

    @property
    def health(self) -> Health:
        """The health that the node reports."""
        if self.is_draining or self.is_stopping:
            return "draining"
        return "degraded" if len(self._stuck) >= self._slots else self._health
