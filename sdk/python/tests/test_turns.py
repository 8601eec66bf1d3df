"""What is said again after a resume: exactly what had not arrived."""

from __future__ import annotations

import random

import pytest

from lingua_sdk.turns import SESSION_END, TURN_END, TurnLog

START = '{"type":"turn_start","speaker":"a"}'
TEXT = '{"type":"text","text":"x"}'
RATE = 8000
FRAME_MS = 20


def frame(number: int) -> bytes:
    """Make 20 ms of sound."""
    return number.to_bytes(4, "big") * (RATE * FRAME_MS // 1000 * 2 // 4)


class Listener:
    """Counts turns as the scheduler does."""

    def __init__(self) -> None:
        self.turns: list[list[str | bytes]] = []
        self.is_open = False

    def hear(self, said: str | bytes) -> None:
        if isinstance(said, bytes):
            assert self.is_open, "audio outside a turn"
            self.turns[-1].append(said)
        elif said == TURN_END:
            self.is_open = False
        elif said != SESSION_END:
            self.is_open = said != TEXT
            self.turns.append([said])

    def resume(self, log: TurnLog) -> list[str | bytes]:
        heard = len(self.turns[-1]) - 1 if self.is_open else 0
        return log.lost(len(self.turns), is_open=self.is_open, received_ms=heard * FRAME_MS)


@pytest.mark.parametrize("seed", range(200))
def test_everything_arrives_once_wherever_the_connection_breaks(seed: int) -> None:
    chance = random.Random(seed)
    script: list[str | bytes] = []
    for number in range(chance.randrange(1, 12)):
        if chance.random() < 0.3:
            script.append(TEXT)
        else:
            script += [START, *(frame(100 * number + n) for n in range(chance.randrange(6)))]
            # A turn may also end with the next one.
            script += [TURN_END] if chance.random() < 0.7 else []
    script += [TURN_END, SESSION_END]
    whole = Listener()
    for said in script:
        whole.hear(said)

    log, listener, waiting = TurnLog(RATE), Listener(), list(script)
    while waiting:
        # So many frames are written, of which the last ones are lost with the connection.
        count = chance.randrange(len(waiting) + 1) if chance.random() < 0.8 else len(waiting)
        written, waiting = waiting[:count], waiting[count:]
        kept = [log.keep(said) for said in written]
        assert all(kept[:-1])
        arrived = chance.randrange(count + 1) if waiting or chance.random() < 0.5 else count
        for said in written[:arrived]:
            listener.hear(said)
        if chance.random() < 0.3 and listener.turns:
            log.has_arrived(len(listener.turns))
        if arrived < count or waiting:
            again = listener.resume(log)
            if SESSION_END in written[arrived:]:
                waiting.append(SESSION_END)
            waiting = again + waiting
    assert listener.turns == whole.turns


def test_audio_outside_turns_is_not_said_again_until_the_next_connection() -> None:
    log = TurnLog(RATE)
    assert log.keep(TEXT)
    assert not log.keep(frame(1))
    assert not log.keep(TEXT)
    assert log.lost(1, is_open=False, received_ms=0) == []
    assert log.keep(TEXT)
    assert log.lost(1, is_open=False, received_ms=0) == [TEXT]


def test_a_turn_goes_on_at_another_instance_with_its_speaker() -> None:
    log = TurnLog(RATE)
    for said in (START, frame(1), frame(2)):
        log.keep(said)
    assert log.lost(7, is_open=False, received_ms=0) == [START]
    for said in (START, frame(3), TURN_END):
        log.keep(said)
    assert log.lost(8, is_open=False, received_ms=0) == []


def test_a_scheduler_that_does_not_count_gets_nothing_twice() -> None:
    log = TurnLog(RATE)
    for said in (TEXT, START, frame(1)):
        log.keep(said)
    assert log.lost(None, is_open=False, received_ms=20) == [START]
    assert not log.keep(START)


def test_packets_of_unknown_length_are_not_said_again() -> None:
    log = TurnLog(None)
    for said in (START, b"opus", b"opus", TURN_END):
        log.keep(said)
    assert log.lost(1, is_open=True, received_ms=20) == [TURN_END]


def test_no_more_is_kept_than_memory_allows() -> None:
    log = TurnLog(RATE)
    log.keep(START)
    kept = [log.keep(bytes(65_536)) for _ in range(257)]
    assert kept == [True] * 255 + [False] * 2
    log = TurnLog(RATE)
    for turn in range(1, 600):
        assert log.keep(START)
        assert log.keep(bytes(65_536))
        log.has_arrived(turn)
