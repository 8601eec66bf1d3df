"""What a node sends, frame by frame, to a scheduler that does what the real one never does."""

from __future__ import annotations

import asyncio
import contextlib
import threading
import time
from typing import Any

import pytest

from fake import FakeScheduler
from lingua_sdk import Failure, Job, Node, Output, RefusedError, Sound, TakenOverError
from nodes import Manual, running
from scheduler import until


async def test_the_registration_says_what_the_options_say() -> None:
    async with FakeScheduler() as scheduler:
        options: dict[str, Any] = {
            "languages": ["zh"], "asr": ["zh_CN", "en"], "nmt_pairs": [("zh", "en")], "slots": 3,
            "services": {"tts": False}, "accept_public_jobs": False, "health": "degraded",
            "version": "7.1", "token": "secret", "node_id": None, "streaming": True,
        }  # fmt: skip
        async with running(scheduler.url, Manual(), **options):
            peer = await scheduler.accept()
            assert peer.connection.request is not None
            assert peer.connection.request.headers["Authorization"] == "Bearer secret"
            assert await peer.register(1, 60_000) == {
                "type": "register",
                "version": "7.1",
                "health": "degraded",
                "language_capabilities": {
                    "asr_languages": ["zh_CN", "en"],
                    "semantic_languages": ["zh"],
                    "tts_languages": ["zh"],
                    "nmt_pairs": [["zh", "en"]],
                },
                "services": {"tts": False},
                "max_concurrent_jobs": 3,
                "accept_public_jobs": False,
                "streaming": True,
            }
            peer.drop()
            # The node keeps the id that the scheduler made up.
            again = await (await scheduler.accept()).register(2, 60_000)
            assert (again["node_id"], again["running"]) == ("node-0000CAFE", [])


async def test_a_job_is_acknowledged_before_it_is_done() -> None:
    handler = Manual()
    async with FakeScheduler() as scheduler, running(scheduler.url, handler) as node:
        peer = await scheduler.registered()
        job_id = await peer.assign_acked(1, 10, text="hello")
        job, outcome = await handler.next()
        assert (job.text, job.session_id, job.assign["deadline_ms"]) == ("hello", "room-1", 5000)
        job.partial("he")
        job.partial("hel")
        outcome.set_result(Output("你好", "hello", extra={"model": "m1", "text_asr": "no"}))
        await peer.expect("job_partial", job_id=job_id, text="he")
        await peer.expect("job_partial", job_id=job_id, text="hel")
        result = {"text_asr": "hello", "text_translated": "你好", "model": "m1"}
        await peer.expect("job_done", job_id=job_id, attempt_id=1, result=result)
        assert (node.stats.done, node.stats.running_max) == (1, 1)


async def test_a_node_without_a_free_slot_refuses_with_busy() -> None:
    handler = Manual()
    async with FakeScheduler() as scheduler, running(scheduler.url, handler, slots=2) as node:
        peer = await scheduler.registered()
        for number in (1, 2):
            await peer.assign_acked(number, number)
        refused = await peer.assign(3, 3)
        await peer.expect("job_fail", job_id=refused, reason="BUSY", retryable=True)
        (await handler.next())[1].set_result("one")
        await peer.expect("job_done")
        await peer.assign_acked(4, 4)
        assert (node.stats.refused, node.stats.running_max) == (1, 2)


async def test_an_old_fence_is_refused_until_a_new_connection() -> None:
    async with FakeScheduler() as scheduler, running(scheduler.url, Manual(), slots=8):
        peer = await scheduler.registered()
        first = await peer.assign_acked(1, 10)
        for old in (9, 10):
            await peer.assign(2, old)
            await peer.expect("job_fail", reason="STALE_FENCE")
        # The same assignment twice is not an old one: a refusal would end the attempt that runs.
        assert await peer.assign_acked(1, 10) == first
        peer.drop()
        peer = await scheduler.registered(2)
        await peer.expect("heartbeat")
        await peer.assign_acked(3, 5)


async def test_the_audio_of_a_refused_job_is_not_taken_for_another() -> None:
    handler = Manual()
    audio = {"format": "pcm16", "sample_rate": 16000, "bytes": 4}
    async with FakeScheduler() as scheduler, running(scheduler.url, handler, slots=1):
        peer = await scheduler.registered()
        await peer.assign(1, 1, audio=audio)
        await peer.assign_acked(1, 1)  # it runs only when its audio is there
    async with FakeScheduler() as scheduler, running(scheduler.url, handler, slots=1):
        peer = await scheduler.registered()
        await peer.assign_acked(1, 1, audio=audio)
        await peer.send_bytes(b"one!")
        job, outcome = await handler.next()
        assert job.audio == Sound("pcm16", b"one!", 16000)
        await peer.assign(2, 2, audio=audio)
        await peer.expect("job_fail", reason="BUSY")
        await peer.send_bytes(b"two!")
        outcome.set_result("one")
        await peer.expect("job_done")
        await peer.assign_acked(3, 3, audio=audio)
        await peer.send_bytes(b"3!!!")
        job, _ = await handler.next()
        assert job.audio == Sound("pcm16", b"3!!!", 16000)


@pytest.mark.parametrize("case", ["short", "text", "base64"])
async def test_audio_that_is_not_as_announced_fails_its_job_and_frees_the_slot(case: str) -> None:
    async with FakeScheduler() as scheduler, running(scheduler.url, Manual(), slots=1):
        peer = await scheduler.registered()
        audio: dict[str, Any] = {"format": "pcm16", "sample_rate": 16000}
        audio |= {"data": "%%%"} if case == "base64" else {"bytes": 4}
        job_id = await peer.assign_acked(1, 1, audio=audio)
        if case == "short":
            await peer.send_bytes(b"123")
        elif case == "text":
            await peer.send(type="heartbeat_ack", cancel=[], drain=False)
        await peer.expect("job_fail", job_id=job_id, reason="BAD_AUDIO", retryable=True)
        await peer.assign_acked(2, 2)


async def test_a_result_is_sent_again_until_it_is_confirmed_and_not_after() -> None:
    handler = Manual()
    async with FakeScheduler() as scheduler, running(scheduler.url, handler) as node:
        peer = await scheduler.registered()
        job_id = await peer.assign_acked(1, 1)
        sound = Sound.pcm16(b"\1\2" * 8, 8000)
        (await handler.next())[1].set_result(Output("one", tts_audio=sound))
        first = await peer.expect("job_done", job_id=job_id)
        assert await peer.next_bytes() == sound.data
        for epoch in (2, 3):
            peer.drop()
            peer = await scheduler.registered(epoch)
            assert await peer.next() == first
            assert await peer.next_bytes() == sound.data
            await peer.expect("heartbeat", epoch=epoch, running=[])
        # A duplicate of the assignment gets the result as well.
        await peer.assign_acked(1, 1)
        assert await peer.next() == first
        await peer.next_bytes()
        await peer.confirm(job_id)
        await peer.assign_acked(2, 2)
        peer.drop()
        peer = await scheduler.registered(4)
        await peer.expect("heartbeat", running=[{"job_id": f"job-{2:032x}", "attempt_id": 1}])
        assert (node.stats.done, node.stats.reconnects) == (1, 3)


async def test_a_job_goes_on_while_the_connection_is_lost_and_is_listed_when_it_returns() -> None:
    handler = Manual()
    async with FakeScheduler() as scheduler, running(scheduler.url, handler) as node:
        peer = await scheduler.registered()
        job_id = await peer.assign_acked(1, 1)
        _, outcome = await handler.next()
        peer.drop()
        await until(lambda: not node.stats.is_connected)
        peer = await scheduler.accept()
        again = await peer.register(2, 60_000)
        assert again["running"] == [{"job_id": job_id, "attempt_id": 1}]
        await peer.expect("heartbeat")
        peer.drop()
        await until(lambda: not node.stats.is_connected)
        outcome.set_result("made without a connection")
        peer = await scheduler.registered(3)
        await peer.expect("job_done", result={"text_translated": "made without a connection"})


async def test_a_cancellation_ends_the_handler() -> None:
    handler = Manual()
    async with FakeScheduler() as scheduler, running(scheduler.url, handler) as node:
        peer = await scheduler.registered(heartbeat_ms=200)
        job_id = await peer.assign_acked(1, 1)
        job, outcome = await handler.next()
        await peer.cancel(job_id, "the client left")
        await until(lambda: node.stats.failed == 1)
        assert (job.cancel_reason, outcome.cancelled()) == ("the client left", True)
        other = await peer.assign(2, 2)
        await handler.next()
        ref = {"job_id": other, "attempt_id": 1}
        while (await peer.next())["type"] != "heartbeat":
            pass
        await peer.send(type="heartbeat_ack", cancel=[ref], drain=False)
        await until(lambda: node.stats.failed == 2)


async def test_a_handler_that_ignores_its_cancellation_keeps_its_slot() -> None:
    release = asyncio.Event()

    async def stubborn(_: Job) -> str:
        while not release.is_set():
            try:
                await release.wait()
            except asyncio.CancelledError:
                continue
        return "late"

    async with (
        FakeScheduler() as scheduler,
        running(scheduler.url, stubborn, slots=2, cancel_grace_s=0.01),
    ):
        peer = await scheduler.registered()
        first = await peer.assign_acked(1, 1)
        second = await peer.assign_acked(2, 2)
        await peer.cancel(first, "gone")
        await peer.expect("heartbeat", max_concurrent_jobs=1, health="ready")
        await peer.cancel(second, "gone")
        await peer.expect("heartbeat", health="degraded")
        await peer.assign(3, 3)
        await peer.expect("job_fail", reason="BUSY")
        release.set()
        await peer.expect("job_done", job_id=first)
        await peer.expect("job_done", job_id=second)
        # The slots are back, and the scheduler hears of it.
        await peer.expect("heartbeat", max_concurrent_jobs=2, health="ready", running=[])


class Rubbish:
    pass


def nested(levels: int) -> dict[str, Any]:
    return {"in": nested(levels - 1)} if levels else {}


def circle() -> list[Any]:
    own: list[Any] = []
    own.append(own)
    return own


@pytest.mark.parametrize(
    ("outcome", "reason", "retryable", "part"),
    [
        (Rubbish(), "BAD_OUTPUT", False, "Rubbish"),
        (None, "BAD_OUTPUT", False, "NoneType"),
        (Output(text_asr=b"bytes"), "BAD_OUTPUT", False, "bytes"),  # type: ignore[arg-type]
        (Output(extra={"x": Rubbish()}), "BAD_OUTPUT", False, "not JSON"),
        (Output(extra={"x": float("nan")}), "BAD_OUTPUT", False, "not JSON"),
        (Output("\ud800"), "BAD_OUTPUT", False, "not JSON"),
        (Output(extra={"x": nested(200)}), "BAD_OUTPUT", False, "nested"),
        (Output(extra={"x": circle()}), "BAD_OUTPUT", False, "nested"),
        (Output(extra={1: 2}), "BAD_OUTPUT", False, "key"),  # type: ignore[dict-item]
        (Output(extra=7), "BAD_OUTPUT", False, "int"),  # type: ignore[arg-type]
        (Output("x" * 600_000), "BAD_OUTPUT", False, "at most"),
        (Output(tts_audio=Sound("wav", b"x" * (2**21 + 1))), "BAD_OUTPUT", False, "at most"),
        (Output(tts_audio=Sound("pcm16", b"xx")), "BAD_OUTPUT", False, "sample_rate"),
        (Output(tts_audio=b"xx"), "BAD_OUTPUT", False, "Sound"),  # type: ignore[arg-type]
        (ValueError("no luck"), "HANDLER_RAISED", True, "ValueError: no luck"),
        (SystemExit(3), "HANDLER_RAISED", True, "SystemExit"),
        (asyncio.CancelledError(), "HANDLER_RAISED", True, "cancelled itself"),
        (Failure("NO_MEMORY", "gpu 0", retryable=False), "NO_MEMORY", False, "gpu 0"),
        (Failure("two\nlines"), "HANDLER_FAILED", True, "two\\nlines"),
        (Failure("x" * 129), "HANDLER_FAILED", True, "xxx"),
        (Failure("\ud800"), "HANDLER_FAILED", True, "ud800"),
    ],
)
async def test_whatever_a_handler_does_its_job_ends_once_and_its_slot_is_free(
    outcome: object, reason: str, retryable: bool, part: str
) -> None:
    handler = Manual()
    async with FakeScheduler() as scheduler, running(scheduler.url, handler, slots=1):
        peer = await scheduler.registered()
        job_id = await peer.assign_acked(1, 1)
        (await handler.next())[1].set_result(outcome)
        failed = await peer.expect("job_fail", job_id=job_id, reason=reason, retryable=retryable)
        assert part in failed["detail"]
        await peer.assign_acked(2, 2)


@pytest.mark.parametrize(
    "frame",
    [
        "no json", "[]", "7", "{}", '{"type": 7}', '{"type": "news"}', "[" * 100_000,
        '{"type": "job_assign"}',
        '{"type": "job_assign", "job_id": "job-x", "attempt_id": 1, "fence": 1}',
        '{"type": "job_assign", "job_id": 7, "attempt_id": "1", "fence": {}}',
        '{"type": "job_assign", "job_id": "job-1", "attempt_id": 1, "fence": "high"}',
        '{"type": "job_assign", "job_id": "job-1", "attempt_id": -1, "fence": 1}',
        '{"type": "job_confirmed"}', '{"type": "heartbeat_ack", "cancel": 7}',
        '{"type": "audio_end", "job_id": "job-1"}', '{"type": "error"}',
        '{"type": "error", "error": "ODD", "detail": "x", "fatal": false}',
        '{"type": "registered"}', b"", b"x" * 19, b"x" * 100,
    ],
)  # fmt: skip
async def test_nonsense_is_ignored_and_takes_no_slot(frame: str | bytes) -> None:
    async with FakeScheduler() as scheduler, running(scheduler.url, Manual(), slots=1):
        peer = await scheduler.registered()
        await peer.connection.send(frame)
        await peer.assign_acked(1, 1)


async def test_streamed_audio_is_an_iterator_right_to_the_byte() -> None:
    async def listen(job: Job) -> Output:
        assert job.stream is not None
        pieces = [piece async for piece in job.stream]
        return Output(f"{job.stream.sample_rate} {b'|'.join(pieces).decode()}")

    stream = {"format": "pcm16", "sample_rate": 8000, "stream": True}
    async with FakeScheduler() as scheduler, running(scheduler.url, listen):
        peer = await scheduler.registered()
        jobs = {number: await peer.assign_acked(number, number, audio=stream) for number in (1, 2)}
        for piece in (b"a", b"bc", b"d"):
            for number in (1, 2):
                tag = number.to_bytes(16, "big") + (1).to_bytes(4, "big")
                await peer.send_bytes(tag + piece * number)
        for number, job_id in jobs.items():
            await peer.send(type="audio_end", job_id=job_id, attempt_id=1, bytes=4 * number)
        await peer.expect("job_done", job_id=jobs[1], result={"text_translated": "8000 a|bc|d"})
        await peer.expect("job_done", result={"text_translated": "8000 aa|bcbc|dd"})


async def test_a_stream_that_is_not_whole_fails_its_job() -> None:
    async def listen(job: Job) -> str:
        assert job.stream is not None
        return (await job.stream.read()).decode()

    stream = {"format": "pcm16", "sample_rate": 8000, "stream": True}
    async with FakeScheduler() as scheduler, running(scheduler.url, listen) as node:
        peer = await scheduler.registered()
        job_id = await peer.assign_acked(1, 1, audio=stream)
        await peer.send(type="audio_end", job_id=job_id, attempt_id=1, bytes=4)
        await peer.expect("job_fail", job_id=job_id, reason="BAD_AUDIO", retryable=True)
        # One whose connection is lost never becomes whole, and is not listed as going on.
        await peer.assign_acked(2, 2, audio=stream)
        peer.drop()
        await until(lambda: node.stats.failed == 2)
        assert (await (await scheduler.accept()).register(2, 60_000))["running"] == []


async def test_a_job_whose_audio_went_down_with_the_connection_does_not_go_on() -> None:
    async def stubborn(_: Job) -> str:
        while True:
            with contextlib.suppress(asyncio.CancelledError):
                await go_on.wait()
                return "late"

    go_on = asyncio.Event()
    audio = {"format": "pcm16", "sample_rate": 8000}
    async with FakeScheduler() as scheduler, running(scheduler.url, stubborn, slots=2) as node:
        try:
            peer = await scheduler.registered()
            # The audio of one was still being spoken, that of the other had only been announced.
            await peer.assign_acked(1, 1, audio=audio | {"stream": True})
            await peer.assign_acked(2, 2, audio=audio | {"bytes": 4})
            peer.drop()
            await until(lambda: not node.stats.is_connected)
            peer = await scheduler.accept()
            assert (await peer.register(2, 60_000))["running"] == []
            await peer.expect("heartbeat", running=[{"job_id": f"job-{1:032x}", "attempt_id": 1}])
            # The slot of the second one is free.
            await peer.assign_acked(3, 3)
        finally:
            go_on.set()


async def test_a_node_that_was_taken_over_stops_and_does_not_come_back() -> None:
    handler = Manual()
    async with FakeScheduler() as scheduler:
        node = Node(scheduler.url, handler, languages=["en"], node_id="n1", backoff_s=(0.01, 0.01))
        task = asyncio.create_task(node.run())
        peer = await scheduler.registered()
        await peer.assign_acked(1, 1)
        _, outcome = await handler.next()
        await peer.send(type="error", error="STALE_EPOCH", detail="n1 registered again", fatal=True)
        with pytest.raises(TakenOverError, match="different node ids"):
            await task
        assert outcome.cancelled()


@pytest.mark.parametrize("code", ["UNAUTHORIZED", "INVALID_LANGUAGE"])
async def test_a_refused_registration_is_final(code: str) -> None:
    async with FakeScheduler() as scheduler:
        node = Node(scheduler.url, Manual(), languages=["en"], backoff_s=(0.01, 0.01))
        task = asyncio.create_task(node.run())
        peer = await scheduler.accept()
        await peer.next()
        await peer.send(type="error", error=code, detail="give another", fatal=True)
        with pytest.raises(RefusedError, match="give another") as raised:
            await task
        assert raised.value.code == code


@pytest.mark.parametrize("answer", ["no json", '{"type": "registered"}', "[]", None])
async def test_a_registration_without_a_proper_answer_is_tried_again(answer: str | None) -> None:
    async with FakeScheduler() as scheduler, running(scheduler.url, Manual()):
        peer = await scheduler.accept()
        await peer.next()
        if answer is None:
            peer.drop()
        else:
            await peer.connection.send(answer)
        await scheduler.registered()


async def test_a_scheduler_that_forgot_the_node_gets_a_new_registration() -> None:
    async with FakeScheduler() as scheduler, running(scheduler.url, Manual()):
        peer = await scheduler.registered()
        await peer.send(type="error", error="NODE_NOT_REGISTERED", detail="again", fatal=False)
        peer = await scheduler.registered(2)
        await peer.expect("heartbeat", epoch=2)
        await peer.send(
            type="registered", node_id="py-1", epoch=9, heartbeat_interval_ms=60_000, pairs=1
        )
        await peer.expect("heartbeat", epoch=9)


async def test_a_silent_scheduler_is_left() -> None:
    async with FakeScheduler() as scheduler, running(scheduler.url, Manual()) as node:
        await scheduler.registered(heartbeat_ms=20)
        await scheduler.registered(2)
        await until(lambda: node.stats.reconnects == 1)


async def test_a_drain_lasts_until_it_is_taken_back() -> None:
    async with FakeScheduler() as scheduler, running(scheduler.url, Manual()):
        peer = await scheduler.registered()
        await peer.send(type="drain")
        await peer.expect("heartbeat", health="draining")
        await peer.assign(1, 1)
        await peer.expect("job_fail", reason="BUSY")
        await peer.send(type="heartbeat_ack", cancel=[], drain=False)
        await peer.expect("heartbeat", health="ready")
        await peer.assign_acked(2, 2)


async def test_a_node_that_stops_finishes_waits_for_the_confirmation_and_says_bye() -> None:
    handler = Manual()
    async with FakeScheduler() as scheduler:
        node = Node(scheduler.url, handler, languages=["en"])
        task = asyncio.create_task(node.run())
        peer = await scheduler.registered()
        job_id = await peer.assign_acked(1, 1)
        node.stop()
        await peer.expect("heartbeat", health="draining")
        await peer.assign(2, 2)
        await peer.expect("job_fail", reason="BUSY")
        (await handler.next())[1].set_result("done")
        await peer.expect("job_done", job_id=job_id)
        assert not task.done()
        await peer.confirm(job_id)
        await peer.expect("bye")
        await task
        assert peer.connection.close_code in {None, 1000}


async def test_a_node_that_may_not_wait_longer_cancels_and_ends() -> None:
    handler = Manual()
    async with FakeScheduler() as scheduler:
        node = Node(scheduler.url, handler, languages=["en"], grace_s=0.01)
        task = asyncio.create_task(node.run())
        peer = await scheduler.registered()
        await peer.assign_acked(1, 1)
        job, outcome = await handler.next()
        node.stop()
        await peer.expect("heartbeat")
        await peer.expect("bye")
        await task
        assert outcome.cancelled()
        assert job.is_cancelled


async def test_a_handler_that_blocks_runs_in_a_thread_and_shows_partials_in_order() -> None:
    threads: set[str] = set()

    def block(job: Job) -> str:
        threads.add(threading.current_thread().name)
        for text in ("a", "ab", "abc"):
            job.partial(text)
        return "abcd"

    async with FakeScheduler() as scheduler, running(scheduler.url, block):
        peer = await scheduler.registered()
        await peer.assign_acked(1, 1)
        for text in ("a", "ab", "abc"):
            await peer.expect("job_partial", text=text)
        await peer.expect("job_done", result={"text_translated": "abcd"})
    assert threads == {"lingua-job"}


async def test_a_thread_hears_of_the_cancellation_and_a_blocked_one_keeps_nothing_alive() -> None:
    blocked = threading.Event()
    started = threading.Event()

    def block(job: Job) -> str:
        if job.text == "for ever":
            started.set()
            blocked.wait()
        while not job.is_cancelled:
            time.sleep(0.001)
        raise Failure("STOPPED", job.cancel_reason, retryable=False)

    async with FakeScheduler() as scheduler:
        async with running(scheduler.url, block, cancel_grace_s=0.1):
            peer = await scheduler.registered()
            job_id = await peer.assign_acked(1, 1, text="polite")
            await peer.cancel(job_id, "no one waits")
            await peer.expect("job_fail", reason="STOPPED", detail="no one waits")
            await peer.assign_acked(2, 2, text="for ever")
            await until(started.is_set)
        # The node has ended although the thread has not.
        blocked.set()


async def test_a_stream_can_be_read_in_a_thread_and_breaks_off_there_too() -> None:
    def listen(job: Job) -> str:
        assert job.stream is not None
        return b"|".join(job.stream).decode()

    stream = {"format": "pcm16", "sample_rate": 8000, "stream": True}
    async with FakeScheduler() as scheduler, running(scheduler.url, listen) as node:
        peer = await scheduler.registered()
        job_id = await peer.assign_acked(1, 1, audio=stream)
        for piece in (b"ab", b"c"):
            await peer.send_bytes((1).to_bytes(16, "big") + (1).to_bytes(4, "big") + piece)
        await peer.send(type="audio_end", job_id=job_id, attempt_id=1, bytes=3)
        await peer.expect("job_done", result={"text_translated": "ab|c"})
        await peer.assign_acked(2, 2, audio=stream)
        peer.drop()
        await until(lambda: node.stats.failed == 1)
