"""A node: a program that does jobs for a scheduler.

| file | what it holds |
|---|---|
| `job.py` | `Job`, `Output`, `Failure`: what a handler gets, and how it ends |
| `handler.py` | `in_threads`: handlers that block |
| `processes.py` | `in_processes`: handlers that block, each in a process of its own |
| `stream.py` | `SoundStream`: audio that arrives while it is being spoken |
| `worker.py` | the loop: connect, serve, connect again; the tasks in which handlers run |
| `messages.py` | what the node does on each message of the scheduler |
| `admission.py` | which jobs are accepted, and which results wait for confirmation |
| `report.py` | messages about jobs |
| `options.py`, `signals.py` | options and counters; SIGTERM, and handlers that block the loop |

Start at `Node.run`. A node registers, sends heartbeats, and accepts jobs up to its slots. When the
connection breaks, the node connects again under the same id. Jobs go on meanwhile, and their
results are kept until the scheduler has confirmed them.

Invariant: when another process takes over its id, a node stops with an error and does not register
again.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from lingua_sdk.connect import Endpoint
from lingua_sdk.version import __version__

from .handler import BlockingHandler, Handler, in_threads, is_async
from .job import Failure, Job, Output
from .options import NodeOptions, Stats
from .processes import in_processes
from .signals import stop_signals
from .stream import SoundStream
from .worker import Worker

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from pathlib import Path

    from lingua_sdk import wire

    from .admission import Health

__all__ = [
    "Failure",
    "Handler",
    "Job",
    "Node",
    "Output",
    "SoundStream",
    "Stats",
    "in_processes",
    "in_threads",
]


class Node:
    """A node that does its jobs with one function.

    The function is an `async def` with a `Job`, and returns an `Output` or just the translation.
    A plain `def` runs in threads; `in_processes` is for models that need processes.
    """

    def __init__(
        self,
        address: str,
        handler: Handler | BlockingHandler,
        *,
        languages: Sequence[str] = (),
        asr: Sequence[str] | None = None,
        semantic: Sequence[str] | None = None,
        tts: Sequence[str] | None = None,
        nmt_pairs: Sequence[tuple[str, str]] | None = None,
        services: wire.ServiceFlags | None = None,
        labels: Sequence[str] = (),
        slots: int = 4,
        node_id: str | None = None,
        token: str | None = None,
        ca: str | Path | None = None,
        streaming: bool = False,
        accept_public_jobs: bool = True,
        health: Health = "ready",
        version: str = __version__,
        load: Callable[[], wire.LoadFields] | None = None,
        grace_s: float = 30.0,
        cancel_grace_s: float = 10.0,
        backoff_s: tuple[float, float] = (0.1, 5.0),
    ) -> None:
        """Check the options; nothing is connected yet.

        `languages` are those that the node recognises, repairs and speaks; `asr`, `semantic` and
        `tts` are for nodes that differ. Jobs may require `labels`. `load` is asked before each
        heartbeat. `ca` is a PEM file to trust instead of the certificates of this machine.
        `grace_s` is how long running jobs may go on after `stop`, `cancel_grace_s` how long a
        handler may after its cancellation.
        """
        self._options = NodeOptions(
            endpoint=Endpoint.parse(address, token, ca),
            node_id=node_id,
            asr=languages if asr is None else asr,
            semantic=languages if semantic is None else semantic,
            tts=languages if tts is None else tts,
            nmt_pairs=nmt_pairs,
            services=services,
            labels=labels,
            slots=slots,
            streaming=streaming,
            accept_public_jobs=accept_public_jobs,
            health=health,
            version=version,
            load=load,
            grace_s=grace_s,
            cancel_grace_s=cancel_grace_s,
            backoff_s=backoff_s,
        )
        self._handler = handler if is_async(handler) else in_threads(handler)
        self._worker: Worker | None = None
        self._is_stopped = False
        self.stats = Stats()

    async def run(self, *, handle_signals: bool = True) -> None:
        """Run until `stop`, SIGTERM or Ctrl-C.

        Then the node accepts no more jobs, finishes those that run, says `bye` and returns. It
        raises only if another try to connect would not help: `RefusedError`, `TakenOverError`.
        `handle_signals` works in the main thread only, and does nothing elsewhere.
        """
        handler = self._handler
        with stop_signals(self.stop, self._options, is_on=handle_signals):
            try:
                # Models are loaded before the scheduler hears of the node.
                await getattr(handler, "open", _nothing)()
                if not self._is_stopped:
                    self._worker = Worker(self._options, handler, self.stats)
                    await self._worker.run()
            finally:
                self._worker = None
                await getattr(handler, "close", _nothing)()

    def stop(self) -> None:
        """Ask the node to finish its jobs and end; from the thread of its event loop."""
        self._is_stopped = True
        if self._worker is not None:
            self._worker.stop()


async def _nothing() -> None:
    pass
