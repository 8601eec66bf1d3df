"""Handlers: what the author of a node writes, and threads for those that block.

Start at `Handler` and `in_threads`.

Invariant: the thread of the event loop never waits for a handler that blocks.
"""

from __future__ import annotations

import asyncio
import inspect
import threading
from collections.abc import Awaitable, Callable
from queue import SimpleQueue
from typing import NamedTuple, TypeGuard, cast

from .job import Job, Output

Handler = Callable[[Job], Awaitable[Output | str]]
"""Does one job; called for up to `slots` jobs at once.

When nobody waits for the result any more, the task of the handler is cancelled.
"""

BlockingHandler = Callable[[Job], Output | str]
"""Does one job in a thread or process of its own, and looks at `job.is_cancelled` if it can."""


def is_async(handler: Handler | BlockingHandler) -> TypeGuard[Handler]:
    """Whether a handler is an `async def`, or an object whose `__call__` is one."""
    return inspect.iscoroutinefunction(handler) or inspect.iscoroutinefunction(
        type(handler).__call__
    )


def in_threads(handler: Handler | BlockingHandler) -> ThreadHandler:
    """Run a handler that blocks in threads, one for each job that runs."""
    return ThreadHandler(cast("BlockingHandler", handler))


class ThreadHandler:
    """Runs a function in threads that are used again.

    They are no `ThreadPoolExecutor`, because that waits at the end of the program for a thread
    that is blocked for ever.
    """

    def __init__(self, handler: BlockingHandler) -> None:
        self._handler = handler
        self._idle: list[SimpleQueue[_Work | None]] = []

    async def __call__(self, job: Job) -> Output | str:
        """Do one job; ends when the thread has ended, or at the second cancellation."""
        loop = asyncio.get_running_loop()
        ended: asyncio.Future[_Outcome] = loop.create_future()
        works = self._idle.pop() if self._idle else self._start_thread()
        works.put(_Work(job, loop, ended))
        ended.add_done_callback(lambda _: self._idle.append(works))
        try:
            outcome = await asyncio.shield(ended)
        except asyncio.CancelledError:
            outcome = await asyncio.shield(ended)
        if outcome.error is not None:
            raise outcome.error
        return cast("Output | str", outcome.value)

    async def close(self) -> None:
        """End the threads that have nothing to do."""
        while self._idle:
            self._idle.pop().put(None)

    def _start_thread(self) -> SimpleQueue[_Work | None]:
        works: SimpleQueue[_Work | None] = SimpleQueue()
        threading.Thread(target=self._run, args=(works,), name="lingua-job", daemon=True).start()
        return works

    def _run(self, works: SimpleQueue[_Work | None]) -> None:
        while (work := works.get()) is not None:
            try:
                outcome = _Outcome(self._handler(work.job), None)
            except BaseException as error:  # noqa: BLE001 - the task of the job raises it
                outcome = _Outcome(None, error)
            try:
                work.loop.call_soon_threadsafe(_end, work.ended, outcome)
            except RuntimeError:
                return  # The loop is closed: the node has ended.
            del work, outcome


class _Outcome(NamedTuple):
    value: object
    error: BaseException | None


class _Work(NamedTuple):
    job: Job
    loop: asyncio.AbstractEventLoop
    ended: asyncio.Future[_Outcome]


def _end(ended: asyncio.Future[_Outcome], outcome: _Outcome) -> None:
    if not ended.done():
        ended.set_result(outcome)
