"""The life of a node: connect, serve, connect again, until it is asked to stop.

Start at `Worker.run`; `Worker._serve` is one connection. `messages.py` acts on each message.

Invariant: the thread of the event loop owns all state. Whatever a handler does (return, raise,
ignore its cancellation), its slot is free when it has ended, and one result is kept for its job.
"""

from __future__ import annotations

import asyncio
import random
import threading
from typing import TYPE_CHECKING, NoReturn

from websockets.asyncio.connection import broadcast
from websockets.exceptions import ConnectionClosed

from lingua_sdk.connect import OPEN_TIMEOUT_S
from lingua_sdk.errors import UnreachableError

from . import report
from .admission import Admission, log
from .job import Failure, Job, JobKey
from .messages import Messages
from .stream import SoundStreams

if TYPE_CHECKING:
    from websockets.asyncio.client import ClientConnection

    from lingua_sdk import wire

    from .handler import Handler
    from .options import NodeOptions, Stats

ROUTE = "/v1/node/ws"

_HEARTBEAT_S = (0.01, 60.0)
"""Shortest and longest pause between heartbeats, whatever the scheduler asks for."""

_HEARTBEAT_JITTER = 0.2
"""How far such a pause may be off, so that a fleet does not send in step."""

_SILENT_INTERVALS_MAX = 3
"""After so many intervals without a frame, the connection counts as lost."""

_CONFIRM_WAIT_S = 5.0
"""How long a node that stops waits for the confirmation of its last results."""

_HEALTHY_S = 60.0
"""After a connection that lasted this long, the pauses start small again."""

_DOUBLINGS_MAX = 20
_WRITE_BYTES_MAX = 128 * 1024 * 1024
"""A connection that takes no more than this is lost; twice what may wait for confirmation."""

_PARTIAL_WRITE_BYTES_MAX = 1024 * 1024
"""Partial texts are dropped while so much waits to be written."""

_CLOSE_WAIT_S = 2.0
_STOP_REASON = "the node stops"


class Worker:
    """A running node."""

    def __init__(self, options: NodeOptions, handler: Handler, stats: Stats) -> None:
        self.options = options
        self.stats = stats
        self.admission = Admission(options.slots, options.health)
        self.streams = SoundStreams()
        self.registered: wire.RegisteredMessage | None = None
        """What the scheduler knows the node by on this connection, or knew it by on the last."""
        self._handler = handler
        self._messages = Messages(self)
        self._connection: ClientConnection | None = None
        """`None` while there is none; what is sent then is dropped."""
        self._tasks: dict[JobKey, asyncio.Task[object]] = {}
        self._slots_told = 0
        self._heard_at = 0.0
        self._failures = 0
        self._may_end = asyncio.Event()
        self._loop = asyncio.get_running_loop()
        self._thread = threading.get_ident()

    async def run(self) -> None:
        """Run until the node was asked to stop, or no scheduler will accept it."""
        connecting = asyncio.create_task(self._stay_connected())
        ending = asyncio.create_task(self._may_end.wait())
        reason = _STOP_REASON
        try:
            await asyncio.wait({connecting, ending}, return_when=asyncio.FIRST_COMPLETED)
            if connecting.done():
                reason = str(connecting.exception())
            else:
                await self._say_bye()
        finally:
            connecting.cancel()
            ending.cancel()
            await asyncio.wait({connecting, ending})
            await self._end_jobs(reason)
        if not connecting.cancelled():
            connecting.result()

    def stop(self) -> None:
        """Accept no more jobs, finish those that run, then end."""
        if not self.admission.is_stopping:
            self.admission.is_stopping = True
            self._loop.call_later(self.options.grace_s, self._may_end.set)
            self.send_heartbeat()
            self._end_if_drained()

    def _end_if_drained(self) -> None:
        if self.admission.is_stopping and self.admission.is_drained:
            self._may_end.set()
        elif self.admission.is_stopping and self.admission.is_idle:
            self._loop.call_later(_CONFIRM_WAIT_S, self._may_end.set)

    async def _stay_connected(self) -> None:
        while True:
            since = self._loop.time()
            try:
                await self._serve()
            except UnreachableError as error:
                why = str(error)
            if self._may_end.is_set():
                return
            if self._loop.time() - since >= _HEALTHY_S:
                self._failures = 0
            delay = self._next_delay()
            log.warning("%s; next try in %.1f s", why, delay)
            await asyncio.sleep(delay)

    def _next_delay(self) -> float:
        """Choose the pause: between the shortest one and a ceiling that doubles."""
        shortest, longest = self.options.backoff_s
        self._failures = min(self._failures + 1, _DOUBLINGS_MAX)
        return random.uniform(shortest, max(shortest, min(longest, shortest * 2**self._failures)))

    async def _serve(self) -> NoReturn:
        """Connect, register, and act on messages until the connection ends."""
        self.admission.begin_epoch()
        connection = await self.options.endpoint.open(ROUTE)
        beating: asyncio.Task[None] | None = None
        try:
            await connection.send(report.message(self._register()).text)
            registered = await self._answer(connection)
            self._connection = connection
            self._on_registered(registered)
            beating = asyncio.create_task(self._beat(connection))
            self._heard_at = self._loop.time()
            while True:
                frame = await connection.recv()
                self._heard_at = self._loop.time()
                self._messages.on_frame(frame)
        except ConnectionClosed as error:
            raise UnreachableError(f"the connection to the scheduler ended: {error}") from None
        finally:
            self._connection = None
            self.stats.is_connected = False
            if beating is not None:
                beating.cancel()
            connection.transport.abort()
            self._messages.on_connection_lost()

    def _register(self) -> wire.RegisterMessage:
        fields = self.options.register()
        fields["health"] = self.admission.health
        self._slots_told = fields["max_concurrent_jobs"] = self.admission.usable_slots
        if self.registered is not None:
            fields["node_id"] = self.registered["node_id"]
            going_on = [job.key for job in self.admission.all_running() if not job.is_cancelled]
            fields["running"] = report.keys(going_on)
        return fields

    async def _answer(self, connection: ClientConnection) -> wire.RegisteredMessage:
        try:
            return await asyncio.wait_for(self._first_registered(connection), OPEN_TIMEOUT_S)
        except asyncio.TimeoutError:
            raise UnreachableError("the scheduler did not answer the registration") from None

    async def _first_registered(self, connection: ClientConnection) -> wire.RegisteredMessage:
        while True:
            registered = self._messages.registered(await connection.recv())
            if registered is not None:
                return registered

    def _on_registered(self, registered: wire.RegisteredMessage) -> None:
        """Take the new identity, and send the results that are not confirmed again."""
        log.info("registered as %s, epoch %s", registered["node_id"], registered["epoch"])
        is_again = self.registered is not None
        self.registered = registered
        self.stats.is_connected = True
        for result in self.admission.unconfirmed():
            self.send(result)
        if is_again:
            self.stats.reconnects += 1
            self.send_heartbeat()

    async def _beat(self, connection: ClientConnection) -> None:
        registered = self.registered
        shortest, longest = _HEARTBEAT_S
        asked = registered["heartbeat_interval_ms"] / 1000 if registered else longest
        interval = min(max(asked, shortest), longest)
        while True:
            await asyncio.sleep(
                interval * random.uniform(1 - _HEARTBEAT_JITTER, 1 + _HEARTBEAT_JITTER)
            )
            if self._loop.time() - self._heard_at > _SILENT_INTERVALS_MAX * interval:
                log.warning("the scheduler was silent for too long")
                connection.transport.abort()
                return
            self.send_heartbeat()

    def send(self, message: report.Outbound) -> None:
        """Send a message now; without a connection it is dropped."""
        connection = self._connection
        if connection is None:
            return
        if connection.transport.get_write_buffer_size() > _WRITE_BYTES_MAX:
            log.warning("the connection is too slow for what is sent")
            connection.transport.abort()
            return
        # Unlike `send` of a connection this never waits, so nothing comes between the two frames.
        broadcast((connection,), message.text)
        if message.audio is not None:
            broadcast((connection,), message.audio)

    def send_heartbeat(self) -> None:
        """Tell the scheduler what runs, and how the node is."""
        if self.registered is None:
            return
        fields: wire.HeartbeatMessage = {
            "type": "heartbeat",
            "node_id": self.registered["node_id"],
            "epoch": self.registered["epoch"],
            "health": self.admission.health,
            "running": report.keys(self.admission.keys()),
        }
        if self.admission.usable_slots != self._slots_told:
            self._slots_told = fields["max_concurrent_jobs"] = self.admission.usable_slots
        if self.options.load is not None:
            fields["current_load"] = self.options.load()
        self.send(report.message(fields))

    def start(self, job: Job) -> None:
        """Start the handler of a job that has a slot."""
        task = self._loop.create_task(self._handle(job))
        self._tasks[job.key] = task
        task.add_done_callback(lambda task: self._on_task_done(job, task))
        self.stats.running_max = max(self.stats.running_max, len(self._tasks))

    async def _handle(self, job: Job) -> object:
        try:
            return await self._handler(job)
        except Failure as failure:
            return failure
        # A handler that calls `sys.exit` must not end the node.
        except (Exception, SystemExit) as error:  # noqa: BLE001
            log.exception("the handler of %s raised", job.job_id)
            return Failure(Failure.RAISED, f"{type(error).__name__}: {error}")

    def _on_task_done(self, job: Job, task: asyncio.Task[object]) -> None:
        self._tasks.pop(job.key, None)
        if not task.cancelled():
            self.finish(job, task.result())
        elif job.is_cancelled:
            self.finish(job, Failure(Failure.CANCELLED, job.cancel_reason, retryable=False))
        else:
            self.finish(job, Failure(Failure.RAISED, "the handler cancelled itself"))

    def finish(self, job: Job, outcome: object) -> None:
        """Free the slot, keep the result of the job, and send it."""
        if self.admission.release(job.key) is None:
            return
        self.streams.drop(job.key)
        result, failure = report.finished(job, outcome)
        if failure is None:
            self.stats.done += 1
        else:
            self.stats.failed += 1
            log.log(
                20 if job.is_cancelled else 30,
                "%s failed: %s (%s)", job.job_id, failure.reason, failure.detail,
            )  # fmt: skip
        self.admission.keep_result(job.key, result)
        self.send(result)
        if self.admission.usable_slots != self._slots_told:
            self.send_heartbeat()
        self._end_if_drained()

    def confirm(self, key: JobKey) -> None:
        """Forget a result that has arrived."""
        self.admission.confirm(key)
        self._end_if_drained()

    def cancel(self, key: JobKey, reason: str) -> None:
        """Tell the handler of a job that nobody waits for it."""
        job = self.admission.running(key)
        if job is None or job.is_cancelled:
            return
        job.cancel_reason = reason
        if job.stream is not None:
            job.stream.break_off(reason)
        if (task := self._tasks.get(key)) is not None:
            task.cancel()
            self._loop.call_later(self.options.cancel_grace_s, self._on_overdue, job)

    def _on_overdue(self, job: Job) -> None:
        if self.admission.running(job.key) is job:
            log.error(
                "the handler of %s goes on %g s after its cancellation; its slot stays taken",
                job.job_id,
                self.options.cancel_grace_s,
            )
            self.admission.set_stuck(job.key)
            self.send_heartbeat()

    def show(self, job: Job, text: str) -> None:
        """Send a text that is not final; from any thread."""
        if threading.get_ident() != self._thread:
            self._loop.call_soon_threadsafe(self.show, job, text)
            return
        connection = self._connection
        is_open = self.admission.running(job.key) is job and not job.is_cancelled
        if connection is None or not is_open:
            return
        if connection.transport.get_write_buffer_size() < _PARTIAL_WRITE_BYTES_MAX:
            self.send(report.partial(job, text))

    async def _say_bye(self) -> None:
        connection = self._connection
        if connection is not None:
            self.send(report.message({"type": "bye", "reason": _STOP_REASON}))
            await asyncio.wait({asyncio.ensure_future(connection.close())}, timeout=_CLOSE_WAIT_S)

    async def _end_jobs(self, reason: str) -> None:
        for job in self.admission.all_running():
            self.cancel(job.key, reason)
        for wait_s in (self.options.cancel_grace_s, 1.0):
            if not self._tasks:
                return
            await asyncio.wait(self._tasks.values(), timeout=wait_s)
            # A handler in a thread ends its task only at the second cancellation.
            for task in self._tasks.values():
                task.cancel()
        for key in self._tasks:
            log.error("the handler of %s did not end", key[0])
