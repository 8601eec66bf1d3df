"""What was said in a session, to say it again if it was lost with a connection.

Start at `TurnLog.keep` and `TurnLog.lost`. Nothing here waits or knows of connections.

Invariant: of turns that begin with `turn_start` or are a text, everything reaches the scheduler
once. Their number tells what has arrived. Audio outside such turns begins turns that only the
scheduler counts, so then nothing is known until the next connection.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass

from .audio import SAMPLE_BYTES

TURN_START = '{"type":"turn_start"'
TURN_END = '{"type":"turn_end"}'
SESSION_END = '{"type":"session_end"}'

_BYTES_MAX = 16 * 1024 * 1024
"""Most bytes that are kept: minutes of speech that the scheduler has not answered yet."""


@dataclass
class _Turn:
    frames: list[str | bytes]
    """The first one is `turn_start` or a text."""

    @property
    def is_open(self) -> bool:
        return str(self.frames[0]).startswith(TURN_START) and self.frames[-1] != TURN_END


class TurnLog:
    """The turns that were written to a connection and may not have arrived."""

    def __init__(self, sample_rate: int | None) -> None:
        """Begin a session of `pcm16` with this sample rate, or of another format."""
        self._sample_rate = sample_rate
        self._turns: deque[_Turn] = deque()
        self._turns_before = 0
        """How many turns the session had before these."""
        self._is_counted = True
        self._bytes = 0

    def keep(self, frame: str | bytes) -> bool:
        """Keep what is written now; whether it would be said again."""
        if frame == SESSION_END or not self._is_counted:
            return False
        is_turn_open = bool(self._turns) and self._turns[-1].is_open
        if isinstance(frame, str) and frame != TURN_END:
            self._turns.append(_Turn([frame]))
        elif is_turn_open:
            self._turns[-1].frames.append(frame)
        elif frame != TURN_END:
            self._forget()
        self._bytes += len(frame)
        if self._bytes > _BYTES_MAX:
            self._forget()
        return self._is_counted

    def _forget(self) -> None:
        self._turns.clear()
        self._bytes = 0
        self._is_counted = False

    def has_arrived(self, turn: int) -> None:
        """Forget the turns before this one: the scheduler has begun to work on it."""
        while self._is_counted and self._turns and self._turns_before + 1 < turn:
            self._turns_before += 1
            self._bytes -= sum(map(len, self._turns.popleft().frames))

    def lost(self, turns: int | None, *, is_open: bool, received_ms: int) -> list[str | bytes]:
        """Say what has to be written again after a resume.

        `turns` have arrived, of which the last one may be open and has so much sound. What is
        given is no longer kept: it is written, and kept, again.
        """
        known, self._turns = self._turns, deque()
        arrived = 0 if turns is None else turns - self._turns_before
        is_counted, self._is_counted = self._is_counted, turns is not None
        self._turns_before, self._bytes = turns or 0, 0
        if not is_counted or not known:
            return []
        if turns is None or not 0 <= arrived <= len(known):
            # Another instance has taken the session over: it says what is missing.
            return known[-1].frames[:1] if known[-1].is_open else []
        again: list[str | bytes] = []
        last = known[arrived - 1] if arrived else None
        if last is not None and is_open:
            count = self._count(last, received_ms)
            again += last.frames[count:]
            self._turns.append(_Turn(last.frames[:count]))
            self._turns_before -= 1
        elif last is not None and last.is_open:
            again += last.frames[:1]
        for turn in list(known)[arrived:]:
            again += turn.frames
        return again

    def _count(self, turn: _Turn, received_ms: int) -> int:
        """Count the frames of a turn that hold so much sound, and its beginning."""
        if self._sample_rate is None:
            return len(turn.frames) - (turn.frames[-1] == TURN_END)
        count, samples = 1, 0
        while (
            count < len(turn.frames)
            and turn.frames[count] != TURN_END
            and samples * 1000 // self._sample_rate < received_ms
        ):
            samples += len(turn.frames[count]) // SAMPLE_BYTES
            count += 1
        return count
