"""SIGTERM and Ctrl-C, and handlers that keep the event loop from running.

Start at `stop_signals`.

Invariant: after a signal the process ends, at the latest when all graces are over.
"""

from __future__ import annotations

import asyncio
import logging
import os
import signal
import sys
import threading
import time
import traceback
from contextlib import contextmanager
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable, Generator
    from types import FrameType

    from .options import NodeOptions

log = logging.getLogger("lingua_sdk.node")

_LOOK_S = 0.5
_BLOCKED_S = 5.0
"""How long a handler may keep the event loop from running before the log says so."""

_END_S = 10.0
"""How long the end may take after all graces: the last confirmations, and the goodbye."""


@contextmanager
def stop_signals(stop: Callable[[], None], options: NodeOptions, *, is_on: bool) -> Generator[None]:
    """Call `stop` at the first SIGTERM or SIGINT; the second ends the program at once."""
    if not is_on or threading.current_thread() is not threading.main_thread():
        yield
        return
    loop = asyncio.get_running_loop()
    watch = _LoopWatch(loop, options.grace_s + options.cancel_grace_s + _END_S)

    # Not a handler of the loop: this one runs even if a handler of jobs blocks the loop.
    def on_signal(number: int, _: FrameType | None) -> None:
        if watch.is_stopping:
            raise KeyboardInterrupt
        log.info("%s: finishing the jobs that run", signal.Signals(number).name)
        watch.is_stopping = True
        loop.call_soon_threadsafe(stop)

    before = {
        number: signal.signal(number, on_signal) for number in (signal.SIGINT, signal.SIGTERM)
    }
    watch.start()
    try:
        yield
    finally:
        watch.ended.set()
        for number, previous in before.items():
            signal.signal(number, previous)


class _LoopWatch(threading.Thread):
    """Notices that the event loop does not run, and ends a process that does not stop."""

    def __init__(self, loop: asyncio.AbstractEventLoop, stop_within_s: float) -> None:
        super().__init__(name="lingua-watch", daemon=True)
        self.is_stopping = False
        self.ended = threading.Event()
        self._loop = loop
        self._loop_thread = threading.get_ident()
        self._stop_within_s = stop_within_s
        self._ran_at = time.monotonic()

    def run(self) -> None:
        was_blocked = False
        stop_at: float | None = None
        while not self.ended.wait(_LOOK_S):
            now = time.monotonic()
            is_blocked = now - self._ran_at > _BLOCKED_S
            if is_blocked and not was_blocked:
                self._report()
            was_blocked = is_blocked
            if self.is_stopping and stop_at is None:
                stop_at = now + self._stop_within_s
            if stop_at is not None and now > stop_at:
                log.critical("the node did not stop within %g s; ends now", self._stop_within_s)
                logging.shutdown()
                os._exit(1)
            self._loop.call_soon_threadsafe(self._on_run)

    def _on_run(self) -> None:
        self._ran_at = time.monotonic()

    def _report(self) -> None:
        frame = sys._current_frames().get(self._loop_thread)  # pyright: ignore[reportPrivateUsage]
        stack = "".join(traceback.format_stack(frame)) if frame is not None else ""
        log.error(
            "the event loop has not run for %g s, so the scheduler hears nothing from this node; "
            "give handlers that block to in_threads or in_processes. It is here:\n%s",
            _BLOCKED_S,
            stack,
        )
