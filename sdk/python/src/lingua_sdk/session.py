"""Send speech or text, and receive the translation in the order spoken.

Start at `Session`: `async with`, then `audio` or `text`, and `async for`. When the connection
breaks, the session resumes by itself.

Invariant: results and missing segments come in the order spoken, each once. What was not written
yet when the connection broke is written after the session has resumed; of texts, and of turns that
were opened with `turn_start`, also what was on its way.
"""

from __future__ import annotations

import asyncio
import json
import logging
import random
from collections import deque
from typing import TYPE_CHECKING, Any, Literal, TypedDict, cast

from websockets.exceptions import ConnectionClosed
from websockets.frames import CloseCode

from .audio import SAMPLE_BYTES, SAMPLE_RATE_DEFAULT
from .connect import OPEN_TIMEOUT_S
from .errors import InvalidOptionsError, LinguaError, RefusedError, UnreachableError
from .turns import SESSION_END, TURN_END, TurnLog

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Mapping

    from websockets.asyncio.client import ClientConnection

    from . import wire
    from .connect import Endpoint

log = logging.getLogger("lingua_sdk.session")

ROUTE = "/v1/session/ws"

_PING_INTERVAL_S = 10.0
"""A connection whose other end does not answer for so long is broken."""

_RETRY_S = (0.1, 0.4)
"""Shortest and longest pause between two attempts to resume."""

_EVENTS_MAX = 256
"""Most events that wait for the program; then nothing more is read."""

_WAITING_BYTES_MAX = 16 * 1024 * 1024
"""Most audio and text that waits to be written: minutes of speech."""

_CATCH_UP = 2.0
"""How many times faster than real time kept audio is sent; the scheduler allows 4."""


class Resumed(TypedDict):
    """The connection broke, and the session goes on over another one."""

    type: Literal["resumed"]


if TYPE_CHECKING:
    SessionEvent = (
        wire.JobAcceptedMessage
        | wire.PartialMessage
        | wire.SegmentResultMessage
        | wire.MissingMessage
        | wire.ErrorMessage
        | Resumed
    )


class Session:
    """A session, one way or between two speakers. Read its events all the time.

    Each event is a message of the scheduler: look at its `type` (`job_accepted`, `partial`,
    `result`, `missing`, `error` for something that was refused, `resumed`).
    """

    def __init__(self, endpoint: Endpoint, start: wire.SessionStart) -> None:
        self._endpoint = endpoint
        self._start = start
        audio = start.get("audio") or {"format": "pcm16"}
        rate = audio.get("sample_rate") or SAMPLE_RATE_DEFAULT
        self._bytes_per_s = rate * SAMPLE_BYTES if audio["format"] == "pcm16" else 0
        self._started: wire.SessionStartedMessage | None = None
        self._connection: ClientConnection | None = None
        self._events: asyncio.Queue[SessionEvent | LinguaError | None] = asyncio.Queue(_EVENTS_MAX)
        self._last_seq = 0
        self._open_segments: set[tuple[int, int]] = set()
        self._waiting: deque[str | bytes] = deque()
        self._waiting_bytes = 0
        self._wake = asyncio.Event()
        self._log = TurnLog(rate if audio["format"] == "pcm16" else None)
        self._is_catching_up = False
        self._is_ending = False
        self._tasks: list[asyncio.Task[None]] = []

    async def __aenter__(self) -> Session:
        start: dict[str, Any] = {"type": "session_start", **self._start}
        self._connection, self._started = await self._open(start)
        self._tasks = [asyncio.create_task(self._read()), asyncio.create_task(self._write())]
        return self

    async def __aexit__(self, *_exception: object) -> None:
        for task in self._tasks:
            task.cancel()
        await asyncio.wait(self._tasks)
        if self._connection is not None:
            await self._connection.close()

    @property
    def started(self) -> wire.SessionStartedMessage:
        """What the scheduler said when the session started or resumed: its id, a warning."""
        if self._started is None:
            raise InvalidOptionsError("the session has not started; use `async with`")
        return self._started

    @property
    def is_connected(self) -> bool:
        """Whether the session has a connection, or is resuming."""
        return self._connection is not None

    def audio(self, frame: bytes) -> None:
        """Send a frame of audio. It never waits; see `frames` for sending a file."""
        self._send(frame)

    def turn_start(self, speaker: Literal["a", "b"] | None = None) -> None:
        """Open a turn that ends with `turn_end`, not after a pause; with its speaker, if two."""
        self._send_message({"type": "turn_start"}, speaker)

    def turn_end(self) -> None:
        """End the turn."""
        self._send(TURN_END)

    def text(self, text: str, speaker: Literal["a", "b"] | None = None) -> None:
        """Send a turn of text."""
        self._send_message({"type": "text", "text": text}, speaker)

    def end(self) -> None:
        """End the session: open segments still come, then the iteration ends."""
        self._is_ending = True
        self._send(SESSION_END)

    async def __aiter__(self) -> AsyncIterator[SessionEvent]:
        while (event := await self._events.get()) is not None:
            if isinstance(event, LinguaError):
                raise event
            yield event

    def _send_message(self, fields: dict[str, Any], speaker: str | None = None) -> None:
        if speaker is not None:
            fields["speaker"] = speaker
        self._send(json.dumps(fields, ensure_ascii=False, separators=(",", ":")))

    def _send(self, frame: str | bytes) -> None:
        if self._waiting_bytes + len(frame) > _WAITING_BYTES_MAX:
            raise UnreachableError(
                f"{self._waiting_bytes} bytes wait for the connection; send less, or wait"
            )
        self._waiting.append(frame)
        self._waiting_bytes += len(frame)
        self._wake.set()

    async def _write(self) -> None:
        """Write what waits, whenever there is a connection."""
        while True:
            while self._waiting and (connection := self._connection) is not None:
                frame = self._waiting.popleft()
                self._waiting_bytes -= len(frame)
                is_kept = self._log.keep(frame)
                try:
                    await connection.send(frame)
                except ConnectionClosed:
                    # The reader finds out, too, and resumes.
                    if not is_kept:
                        self._put_back([frame])
                    break
                if self._is_catching_up and isinstance(frame, bytes) and self._bytes_per_s:
                    await asyncio.sleep(len(frame) / self._bytes_per_s / _CATCH_UP)
            if not self._waiting:
                self._is_catching_up = False
            self._wake.clear()
            await self._wake.wait()

    def _put_back(self, frames: list[str | bytes]) -> None:
        self._waiting.extendleft(reversed(frames))
        self._waiting_bytes += sum(map(len, frames))

    async def _read(self) -> None:
        """Read events, and resume when the connection breaks."""
        try:
            while True:
                connection = cast("ClientConnection", self._connection)
                try:
                    await self._on_message(await connection.recv())
                except ConnectionClosed:
                    self._connection = None
                    if self._is_ending and connection.close_code == CloseCode.NORMAL_CLOSURE:
                        await self._events.put(None)
                        return
                    try:
                        await self._resume()
                    except RefusedError as error:
                        if self._is_over(error):
                            await self._events.put(None)
                            return
                        raise
                    await self._events.put({"type": "resumed"})
        except LinguaError as error:
            await self._events.put(error)

    def _is_over(self, error: RefusedError) -> bool:
        """Whether only the goodbye of the scheduler was lost."""
        return self._is_ending and error.code == "SESSION_NOT_FOUND" and not self._open_segments

    async def _on_message(self, frame: str | bytes) -> None:
        try:
            message = cast("SessionEvent | wire.SessionStartedMessage", json.loads(frame))
            if message["type"] == "result" or message["type"] == "missing":
                self._last_seq = message["seq"]
                self._open_segments.discard((message["turn"], message["segment"]))
            elif message["type"] == "job_accepted":
                self._open_segments.add((message["turn"], message["segment"]))
                self._log.has_arrived(message["turn"])
            elif message["type"] == "error" and message["fatal"]:
                raise RefusedError(message["error"], message["detail"])
        except (ValueError, KeyError, TypeError) as error:
            log.warning("ignored what is no message (%r): %.200r", error, frame)
            return
        if message["type"] != "session_started":
            await self._events.put(message)

    async def _resume(self) -> None:
        """Resume over another connection, for as long as the session waits."""
        started = self.started
        loop = asyncio.get_running_loop()
        give_up_at = loop.time() + started["resume_ms"] / 1000
        while True:
            resume = {
                "type": "session_resume",
                "session_id": started["session_id"],
                "resume_token": started["resume_token"],
                "last_seq": self._last_seq,
            }
            try:
                connection, resumed = await self._open(resume)
                break
            except UnreachableError as error:
                if loop.time() > give_up_at:
                    raise
                log.info("%s; trying again", error)
                await asyncio.sleep(random.uniform(*_RETRY_S))
        lost = self._log.lost(
            resumed.get("turns"),
            is_open=resumed.get("turn_open") or False,
            received_ms=resumed.get("received_ms") or 0,
        )
        self._put_back(lost)
        if self._is_ending and SESSION_END not in self._waiting:
            self._waiting.append(SESSION_END)
            self._waiting_bytes += len(SESSION_END)
        self._started = resumed
        self._is_catching_up = True
        self._connection = connection
        self._wake.set()

    async def _open(
        self, first: Mapping[str, Any]
    ) -> tuple[ClientConnection, wire.SessionStartedMessage]:
        """Connect, send the first message and wait for the answer."""
        connection = await self._endpoint.open(ROUTE, ping_interval_s=_PING_INTERVAL_S)
        try:
            await connection.send(json.dumps(first, ensure_ascii=False))
            frame = await asyncio.wait_for(connection.recv(), OPEN_TIMEOUT_S)
            answer = cast("wire.SessionStartedMessage | wire.ErrorMessage", json.loads(frame))
            if answer["type"] == "error":
                raise RefusedError(answer["error"], answer["detail"])
            _ = answer["session_id"], answer["resume_token"], answer["resume_ms"] / 1000
        except BaseException as error:
            connection.transport.abort()
            if isinstance(error, (ConnectionClosed, asyncio.TimeoutError)):
                raise UnreachableError(f"the scheduler did not answer: {error}") from None
            if isinstance(error, (ValueError, KeyError, TypeError)):
                raise UnreachableError("the answer is not one of a Lingua scheduler") from None
            raise
        return connection, answer
