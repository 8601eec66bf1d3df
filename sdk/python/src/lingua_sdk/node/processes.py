"""Handlers in processes of their own: for models that hold the interpreter's lock, or crash.

Start at `in_processes`.

Invariant: a process does one job at a time. One that crashes, or does not follow a cancellation,
fails its job and is replaced.
"""

from __future__ import annotations

import asyncio
import logging
import multiprocessing
import os
import signal
import threading
import time
import traceback
from queue import SimpleQueue
from typing import TYPE_CHECKING, Any

from lingua_sdk.audio import Sound
from lingua_sdk.errors import HandlerError

from .handler import BlockingHandler, ThreadHandler
from .job import Failure, Job

if TYPE_CHECKING:
    from collections.abc import Callable
    from multiprocessing.connection import Connection

    from .job import Output

log = logging.getLogger("lingua_sdk.node")

_POLL_S = 0.05
"""How often a job in a process looks whether it is cancelled."""

_EXIT_WAIT_S = 1.0
_CONTEXT = multiprocessing.get_context("spawn")


def in_processes(
    handler: BlockingHandler,
    *,
    count: int = 1,
    load: Callable[[], None] | None = None,
    kill_after_s: float = 5.0,
) -> ProcessHandler:
    """Run a handler that blocks in processes.

    `handler` and `load` are functions of a module. `count` processes are started, and `load` is
    called in each, before the node registers; more are started if jobs need them. Streamed audio
    is handed over when it is complete. A process that goes on for `kill_after_s` after the
    cancellation of its job is killed.
    """
    return ProcessHandler(handler, count, load, kill_after_s)


class ProcessHandler:
    """Does jobs in processes; a thread waits for each."""

    def __init__(
        self,
        handler: BlockingHandler,
        count: int,
        load: Callable[[], None] | None,
        kill_after_s: float,
    ) -> None:
        self._parts = (handler, load)
        self._count = count
        self._kill_after_s = kill_after_s
        self._threads = ThreadHandler(self._do)
        self._lock = threading.Lock()
        self._idle: list[_Process] = []
        self._all: set[_Process] = set()

    async def open(self) -> None:
        """Start the processes; raises if one cannot load its models."""
        starts = (asyncio.to_thread(self._start) for _ in range(self._count))
        started = await asyncio.gather(*starts, return_exceptions=True)
        for process in started:
            if isinstance(process, BaseException):
                await self.close()
                raise process
            self._idle.append(process)

    async def __call__(self, job: Job) -> Output | str:
        """Do one job."""
        if job.stream is not None:
            stream, job.stream = job.stream, None
            job.audio = Sound(stream.format, await stream.read(), stream.sample_rate)
        return await self._threads(job)

    async def close(self) -> None:
        """End all processes."""
        await self._threads.close()
        for process in list(self._all):
            await asyncio.to_thread(self._end, process)

    def _start(self) -> _Process:
        process = _Process(*self._parts)
        with self._lock:
            self._all.add(process)
        return process

    def _end(self, process: _Process) -> None:
        with self._lock:
            self._all.discard(process)
        process.end()

    def _do(self, job: Job) -> Output | str:
        with self._lock:
            process = self._idle.pop() if self._idle else None
        process = process or self._start()
        try:
            outcome = process.do(job, self._kill_after_s)
        except (EOFError, OSError):
            self._end(process)
            code = process.exit_code
            raise Failure(Failure.CRASHED, f"its process ended with code {code}") from None
        except _NotFollowedError:
            self._end(process)
            raise Failure(Failure.CANCELLED, job.cancel_reason, retryable=False) from None
        with self._lock:
            self._idle.append(process)
        if isinstance(outcome, Failure):
            raise outcome
        return outcome


class _NotFollowedError(Exception):
    """The handler did not follow its cancellation."""


class _Process:
    """One process, as the node sees it."""

    def __init__(self, handler: BlockingHandler, load: Callable[[], None] | None) -> None:
        self._connection, theirs = _CONTEXT.Pipe()
        self._process = _CONTEXT.Process(
            target=_main, args=(theirs, handler, load), name="lingua-job", daemon=True
        )
        self._process.start()
        theirs.close()
        try:
            kind, detail = self._connection.recv()
        except (EOFError, OSError):
            self.end()
            raise HandlerError(
                f"a process of the handler ended with code {self.exit_code} before it was ready; "
                "the handler has to be a function of a module, and a program that starts it has to "
                'do so under `if __name__ == "__main__":`'
            ) from None
        if kind != "ready":
            self.end()
            raise HandlerError(f"the handler cannot be loaded: {detail}")

    @property
    def exit_code(self) -> int | None:
        return self._process.exitcode

    def do(self, job: Job, kill_after_s: float) -> Any:
        """Do one job; gives what the handler returned, or its failure."""
        self._connection.send(("job", job))
        kill_at: float | None = None
        while True:
            if self._connection.poll(_POLL_S):
                kind, value = self._connection.recv()
                if kind == "ended":
                    return value
                job.partial(value)
            if not job.is_cancelled:
                continue
            if kill_at is None:
                kill_at = time.monotonic() + kill_after_s
                self._connection.send(("cancel", job.cancel_reason))
            elif time.monotonic() > kill_at:
                raise _NotFollowedError

    def end(self) -> None:
        """End the process, by force if it does not."""
        self._connection.close()
        self._process.join(_EXIT_WAIT_S if self._process.is_alive() else None)
        if self._process.is_alive():
            self._process.kill()
            self._process.join()


def _main(
    connection: Connection, handler: BlockingHandler, load: Callable[[], None] | None
) -> None:
    """Run in the process: do job after job until the node closes the connection."""
    # Ctrl-C goes to all processes of a terminal; the node finishes its jobs first.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    threading.Thread(target=_exit_with_parent, daemon=True).start()
    try:
        if load is not None:
            load()
    except Exception as error:  # noqa: BLE001 - the node raises it
        connection.send(("failed", f"{type(error).__name__}: {error}"))
        return
    connection.send(("ready", None))
    jobs: SimpleQueue[Job | None] = SimpleQueue()
    threading.Thread(target=_receive, args=(connection, jobs), daemon=True).start()
    lock = threading.Lock()

    def send(kind: str, value: object) -> None:
        with lock:
            connection.send((kind, value))

    while (job := jobs.get()) is not None:
        job.show_with(lambda _, text: send("partial", text))
        outcome = _outcome(handler, job)
        try:
            send("ended", outcome)
        except OSError:
            return
        except Exception as error:  # noqa: BLE001 - pickle raises whatever it likes
            why = f"the result cannot leave its process: {error}"
            send("ended", Failure(Failure.BAD_OUTPUT, why, retryable=False))


def _outcome(handler: BlockingHandler, job: Job) -> object:
    try:
        return handler(job)
    except Failure as failure:
        return failure
    except Exception as error:  # noqa: BLE001 - it fails the job, not the process
        traceback.print_exc()
        return Failure(Failure.RAISED, f"{type(error).__name__}: {error}")


def _receive(connection: Connection, jobs: SimpleQueue[Job | None]) -> None:
    current: Job | None = None
    try:
        while True:
            kind, value = connection.recv()
            if kind == "job":
                current = value
                jobs.put(value)
            elif current is not None:
                current.cancel_reason = value
    except (EOFError, OSError):
        jobs.put(None)


def _exit_with_parent() -> None:
    parent = multiprocessing.parent_process()
    if parent is not None:
        parent.join()
        os._exit(1)
