"""Sessions and the real program: each result once, in the order spoken, whatever breaks."""

from __future__ import annotations

import asyncio
import hashlib
import json
from typing import TYPE_CHECKING, Any

import pytest
from websockets.asyncio.client import connect

from lingua_sdk import Client, Job, Output, RefusedError, Session, Sound, UnreachableError, frames
from nodes import Manual, connected, upper
from scheduler import Proxy, Scheduler, until

if TYPE_CHECKING:
    from collections.abc import Callable

ZH_EN: Any = {"src_lang": "zh", "tgt_lang": "en"}
FRAME = 640
"""20 ms of 16 kHz."""


def speech(frames_count: int, seed: int = 1) -> bytes:
    """Make sound of which no two frames are equal."""
    return b"".join(
        hashlib.sha256(f"{seed}.{number}".encode()).digest() * (FRAME // 32)
        for number in range(frames_count)
    )


async def digest(job: Job) -> Output:
    """Tell exactly which sound arrived."""
    data = job.audio.data if job.audio else b""
    return Output(hashlib.sha256(data).hexdigest(), text_asr=f"{len(data)} bytes")


async def collect(session: Session) -> list[Any]:
    return [event async for event in session]


def results(events: list[Any]) -> list[Any]:
    return [event for event in events if event["type"] in {"result", "missing"}]


async def test_a_turn_becomes_one_result_with_its_speech(scheduler: Scheduler) -> None:
    async def speak(job: Job) -> Output:
        assert job.audio is not None
        return Output("hello", "你好", Sound.pcm16(job.audio.data[:100], 16_000))

    said = speech(10)
    async with connected(scheduler.url, speak), scheduler.client() as client:
        async with client.session(**ZH_EN, require_tts=True) as session:
            assert session.started["session_id"].startswith("sess-")
            assert session.started.get("warning") is None
            async for frame in frames(Sound.pcm16(said), speed=4):
                session.audio(frame)
            session.turn_end()
            session.end()
            events = await collect(session)
    kinds = [event["type"] for event in events]
    assert kinds == ["job_accepted", "result"]
    result = events[1]
    assert (result["seq"], result["turn"], result["segment"]) == (1, 1, 1)
    assert (result["text_asr"], result["text_translated"]) == ("你好", "hello")
    assert Sound.decode(result["tts_audio"]) == Sound.pcm16(said[:100], 16_000)


async def test_results_come_in_the_order_spoken_though_nodes_finish_in_another(
    scheduler: Scheduler,
) -> None:
    async def later_is_faster(job: Job) -> str:
        await asyncio.sleep(0.2 / int(job.text or "1"))
        return job.text or ""

    async with connected(scheduler.url, later_is_faster, slots=8), scheduler.client() as client:
        async with client.session(**ZH_EN) as session:
            for number in range(1, 9):
                session.text(str(number))
            session.end()
            events = results(await collect(session))
    assert [event["text_translated"] for event in events] == [str(n) for n in range(1, 9)]
    assert [event["seq"] for event in events] == list(range(1, 9))


async def test_two_speakers_hear_each_other(scheduler: Scheduler) -> None:
    async with connected(scheduler.url, upper), scheduler.client() as client:
        async with client.session(mode="two_way", lang_a="zh", lang_b="en") as session:
            session.text("ni hao", speaker="a")
            session.turn_start(speaker="b")
            session.audio(speech(3))
            session.turn_end()
            session.end()
            events = results(await collect(session))
    assert [(event["src_lang"], event["tgt_lang"]) for event in events] == [
        ("zh", "en"),
        ("en", "zh"),
    ]


async def test_a_turn_is_whole_although_the_connection_was_cut_in_it(scheduler: Scheduler) -> None:
    said = speech(60)
    async with Proxy(scheduler.port) as proxy, connected(scheduler.url, digest):
        async with Client(proxy.url).session(**ZH_EN) as session:
            events = asyncio.create_task(collect(session))
            session.turn_start()
            number = 0
            async for frame in frames(Sound.pcm16(said), speed=3):
                session.audio(frame)
                number += 1
                if number in {10, 25, 40}:
                    proxy.cut()
            session.turn_end()
            session.end()
            seen = await events
    assert [event["type"] for event in seen].count("resumed") == 3
    assert [event["text_translated"] for event in results(seen)] == [
        hashlib.sha256(said).hexdigest()
    ]


async def test_what_was_said_without_a_connection_is_said_after_it(
    start_scheduler: Callable[..., Scheduler],
) -> None:
    # 3 s, of which the scheduler takes 2 s at once.
    scheduler = start_scheduler({"SESSION__RATE_WINDOW_MS": "500"})
    said = speech(150)
    async with Proxy(scheduler.port) as proxy, connected(scheduler.url, digest):
        async with Client(proxy.url).session(**ZH_EN) as session:
            events = asyncio.create_task(collect(session))
            session.turn_start()
            proxy.is_refusing = True
            proxy.cut()
            for at in range(0, len(said), FRAME):
                session.audio(said[at : at + FRAME])
            session.turn_end()
            session.end()
            await asyncio.sleep(0.1)
            proxy.is_refusing = False
            seen = await events
    assert [event["text_translated"] for event in results(seen)] == [
        hashlib.sha256(said).hexdigest()
    ]


async def test_results_are_neither_lost_nor_repeated_over_many_cuts(scheduler: Scheduler) -> None:
    turns = 30

    async def slow(job: Job) -> str:
        await asyncio.sleep(0.02)
        return hashlib.sha256(job.audio.data if job.audio else b"").hexdigest()

    async with Proxy(scheduler.port) as proxy, connected(scheduler.url, slow, slots=8):
        async with Client(proxy.url).session(**ZH_EN) as session:
            events = asyncio.create_task(collect(session))
            for turn in range(turns):
                session.turn_start()
                said = speech(4, turn)
                for at in range(0, len(said), FRAME):
                    session.audio(said[at : at + FRAME])
                    await asyncio.sleep(0.005)
                session.turn_end()
                if turn % 5 == 3:
                    proxy.cut()
                    await until(lambda: session.is_connected)
            session.end()
            seen = results(await events)
    assert [event["seq"] for event in seen] == list(range(1, len(seen) + 1))
    digests = [hashlib.sha256(speech(4, turn)).hexdigest() for turn in range(turns)]
    heard = [event["text_translated"] for event in seen]
    assert heard == digests


async def test_a_cut_while_the_session_ends_loses_no_result(scheduler: Scheduler) -> None:
    handler = Manual()
    async with Proxy(scheduler.port) as proxy, connected(scheduler.url, handler):
        async with Client(proxy.url).session(**ZH_EN) as session:
            events = asyncio.create_task(collect(session))
            session.text("one")
            session.text("two")
            session.end()
            jobs = [await handler.next() for _ in "12"]
            proxy.cut()
            for job, outcome in jobs:
                outcome.set_result((job.text or "").upper())
            seen = await events
    assert [event["text_translated"] for event in results(seen)] == ["ONE", "TWO"]


async def test_a_session_that_waits_too_long_is_over(
    start_scheduler: Callable[..., Scheduler],
) -> None:
    scheduler = start_scheduler({"SESSION__RESUME_MS": "50"})
    async with Proxy(scheduler.port) as proxy:
        async with Client(proxy.url).session(**ZH_EN) as session:
            proxy.is_refusing = True
            proxy.cut()
            with pytest.raises(UnreachableError):
                await collect(session)
        proxy.is_refusing = False
        async with Client(proxy.url).session(**ZH_EN) as session:
            scheduler.stop()
            with pytest.raises(UnreachableError):
                await collect(session)


async def test_an_empty_scheduler_does_not_know_the_session(
    start_scheduler: Callable[..., Scheduler],
) -> None:
    scheduler = start_scheduler()
    async with scheduler.client().session(**ZH_EN) as session:
        scheduler.stop()
        start_scheduler(port=scheduler.port)
        with pytest.raises(RefusedError) as raised:
            await collect(session)
        assert raised.value.code == "SESSION_NOT_FOUND"


async def test_a_second_connection_takes_the_session_over(scheduler: Scheduler) -> None:
    async with scheduler.client().session(**ZH_EN) as first:
        async with connect(f"ws://{scheduler.address}/v1/session/ws") as socket:
            started = first.started
            await socket.send(
                json.dumps(
                    {
                        "type": "session_resume",
                        "session_id": started["session_id"],
                        "resume_token": started["resume_token"],
                        "last_seq": 0,
                    }
                )
            )
            with pytest.raises(RefusedError) as raised:
                await collect(first)
    assert raised.value.code == "STALE_EPOCH"


async def test_what_is_wrong_with_a_session_is_said(scheduler: Scheduler) -> None:
    with pytest.raises(RefusedError) as raised:
        async with scheduler.client().session(src_lang="klingon", tgt_lang="en"):
            pass
    assert raised.value.code == "INVALID_LANGUAGE"
    async with scheduler.client().session(**ZH_EN) as session:
        assert "zh" in (session.started.get("warning") or "")
        # A bad frame is refused, and the session goes on.
        session.text("x" * 20_000)
        session.text("nobody can")
        session.end()
        events = await collect(session)
    assert events[0]["type"] == "error"
    assert results(events)[0]["error"] == "NO_CAPABLE_NODE"
    with pytest.raises(UnreachableError, match="lingua serve"):
        async with Client("http://127.0.0.1:9").session(**ZH_EN):
            pass


async def test_a_program_that_sends_too_much_is_told(scheduler: Scheduler) -> None:
    async with Proxy(scheduler.port) as proxy:
        async with Client(proxy.url).session(**ZH_EN) as session:
            proxy.is_refusing = True
            proxy.cut()
            for _ in range(256):
                session.audio(bytes(65_536))
            with pytest.raises(UnreachableError, match="wait for the connection"):
                session.audio(bytes(65_536))
