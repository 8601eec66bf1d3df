"""Audio that arrives while it is being spoken.

Start at `SoundStream` on the handler's side and at `SoundStreams` on the node's.

Invariant: iterating a stream ends only if all audio has arrived; otherwise it raises.
"""

from __future__ import annotations

import asyncio
from collections import deque
from typing import TYPE_CHECKING

from .job import Failure, JobKey

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Iterator

TAG_BYTES = 20
"""Bytes before the audio of a frame: 16 of the job's number and 4 of the attempt's."""

_PIECES_MAX = 8192
"""Most pieces that wait for a handler: minutes of speech in frames of 20 ms."""


class SoundStream:
    """Audio that arrives while it is being spoken: `async for piece in job.stream`.

    A handler that blocks in a thread iterates it with `for`.
    """

    def __init__(self, audio_format: str, sample_rate: int | None) -> None:
        self.format = audio_format
        """`pcm16`, or `opus_packets` (each packet after its length in two bytes, big-endian)."""
        self.sample_rate = sample_rate
        self._loop = asyncio.get_running_loop()
        self._pieces: deque[bytes] = deque()
        self._bytes = 0
        self._is_ended = False
        self._failure: Failure | None = None
        self._changed = asyncio.Event()

    async def __aiter__(self) -> AsyncIterator[bytes]:
        while (piece := await self._next()) is not None:
            yield piece

    def __iter__(self) -> Iterator[bytes]:
        while (
            piece := asyncio.run_coroutine_threadsafe(self._next(), self._loop).result()
        ) is not None:
            yield piece

    async def read(self) -> bytes:
        """Wait for the end and give all audio that was not read yet."""
        return b"".join([piece async for piece in self])

    async def _next(self) -> bytes | None:
        while not self._pieces:
            if self._failure is not None:
                raise self._failure
            if self._is_ended:
                return None
            self._changed.clear()
            await self._changed.wait()
        return self._pieces.popleft()

    def push(self, piece: bytes) -> bool:
        """Pass on a piece; whether the handler keeps up."""
        self._bytes += len(piece)
        self._pieces.append(piece)
        self._changed.set()
        return len(self._pieces) < _PIECES_MAX

    def end(self, announced: int) -> None:
        """End the stream; so many bytes should have arrived."""
        if self._bytes != announced:
            self.break_off(f"{self._bytes} bytes arrived, {announced} were announced")
        self._is_ended = True
        self._changed.set()

    def break_off(self, why: str) -> None:
        """End the stream although audio is missing."""
        self._failure = Failure(Failure.BAD_AUDIO, why)
        self._changed.set()


class SoundStreams:
    """The streams that are open on a connection."""

    def __init__(self) -> None:
        self._open: dict[JobKey, SoundStream] = {}
        self._keys: dict[bytes, JobKey] = {}

    def open(self, key: JobKey, audio_format: str, sample_rate: int | None) -> SoundStream:
        """Open the stream of a job."""
        stream = self._open[key] = SoundStream(audio_format, sample_rate)
        self._keys[tag(key)] = key
        return stream

    def push(self, frame: bytes) -> JobKey | None:
        """Pass on a tagged frame; gives the job if its handler does not keep up."""
        key = self._keys.get(frame[:TAG_BYTES])
        # Frames of jobs that were refused or have ended lead nowhere.
        if key is None or self._open[key].push(frame[TAG_BYTES:]):
            return None
        return key

    def end(self, key: JobKey, announced: int) -> None:
        """End a stream of so many bytes."""
        if (stream := self._open.pop(key, None)) is not None:
            del self._keys[tag(key)]
            stream.end(announced)

    def drop(self, key: JobKey) -> None:
        """Forget the stream of a job that has ended."""
        if self._open.pop(key, None) is not None:
            del self._keys[tag(key)]

    def open_jobs(self) -> list[JobKey]:
        """Give the jobs whose audio is still arriving."""
        return list(self._open)


def tag(key: JobKey) -> bytes:
    """Give the bytes that each frame of a job begins with."""
    job_id, attempt_id = key
    return int(job_id.removeprefix("job-"), 16).to_bytes(16, "big") + attempt_id.to_bytes(4, "big")
