"""Handlers in processes: crashes, cancellations and missing models cost one job at most."""

from __future__ import annotations

import asyncio
import os
from typing import TYPE_CHECKING, cast

import pytest

import handlers
from fake import FakeScheduler, Peer
from lingua_sdk import HandlerError, Job, Node, in_processes
from nodes import running
from scheduler import until

if TYPE_CHECKING:
    from pathlib import Path

    from lingua_sdk import wire


def is_alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return True


async def pid_of(peer: Peer, number: int) -> int:
    """The process that does a job."""
    await peer.assign_acked(number, number, text="hello")
    done = await peer.expect("job_done")
    assert done["result"]["text_translated"] == "HELLO"
    assert done["result"]["loaded"] == 1
    return done["result"]["pid"]


async def test_models_are_loaded_before_the_node_registers_and_used_again() -> None:
    handler = in_processes(handlers.work, count=1, load=handlers.load)
    async with FakeScheduler() as scheduler:
        async with running(scheduler.url, handler):
            peer = await scheduler.registered()
            first = await pid_of(peer, 1)
            assert await pid_of(peer, 2) == first != os.getpid()
            await peer.assign_acked(3, 3, text="partials")
            await peer.expect("job_partial", text="a")
            await peer.expect("job_partial", text="ab")
            await peer.expect("job_done")
            audio = {"format": "pcm16", "sample_rate": 16000, "stream": True}
            job_id = await peer.assign_acked(4, 4, audio=audio)
            for piece in (b"abc", b"de"):
                await peer.send_bytes((4).to_bytes(16, "big") + (1).to_bytes(4, "big") + piece)
            await peer.send(type="audio_end", job_id=job_id, attempt_id=1, bytes=5)
            done = await peer.expect("job_done")
            assert done["result"]["text_translated"] == "5 bytes"
            assert await peer.next_bytes() == b"edcba"
        await until(lambda: not is_alive(first))


async def test_a_crash_fails_one_job_and_the_next_gets_a_new_process() -> None:
    handler = in_processes(handlers.work, load=handlers.load)
    async with FakeScheduler() as scheduler, running(scheduler.url, handler, slots=1):
        peer = await scheduler.registered()
        first = await pid_of(peer, 1)
        for number, (text, reason, retryable, part) in enumerate(
            [
                ("crash", "HANDLER_CRASHED", True, "-9"),
                ("raise", "HANDLER_RAISED", True, "ValueError: no luck"),
                ("fail", "NO_MEMORY", False, "gpu 0"),
                ("exit", "HANDLER_CRASHED", True, "3"),
                ("lambda", "BAD_OUTPUT", False, "cannot leave"),
            ],
            start=2,
        ):
            await peer.assign_acked(number, number, text=text)
            failed = await peer.expect("job_fail", reason=reason, retryable=retryable)
            assert part in failed["detail"]
        assert await pid_of(peer, 9) != first


async def test_a_process_that_does_not_follow_a_cancellation_is_killed(tmp_path: Path) -> None:
    handler = in_processes(handlers.work, load=handlers.load, kill_after_s=0.1)
    async with FakeScheduler() as scheduler, running(scheduler.url, handler, slots=1):
        peer = await scheduler.registered()
        polite = await peer.assign_acked(1, 1, text="polite")
        await peer.cancel(polite, "gone")
        await peer.expect("job_fail", reason="STOPPED", detail="gone")
        marker = tmp_path / "pid"
        stuck = await peer.assign_acked(2, 2, text=f"touch {marker}")
        await until(lambda: marker.is_file() and marker.read_text() != "")
        await peer.cancel(stuck, "gone")
        await peer.expect("job_fail", job_id=stuck, reason="CANCELLED")
        await until(lambda: not is_alive(int(marker.read_text())))
        assert await pid_of(peer, 3) != int(marker.read_text())


async def test_a_missing_model_is_said_before_the_node_registers() -> None:
    for load, part in (
        (handlers.load_nothing, "/models/zh-en.bin is missing"),
        (handlers.exit_at_start, "code 7"),
    ):
        handler = in_processes(handlers.work, count=2, load=load)
        async with FakeScheduler() as scheduler:
            node = Node(scheduler.url, handler, languages=["en"])
            with pytest.raises(HandlerError, match=part):
                await node.run()
            assert not node.stats.is_connected


def no_partial(job: Job, text: str) -> None:
    raise AssertionError(f"{job} shows {text}")


async def test_jobs_run_side_by_side_each_in_its_process(tmp_path: Path) -> None:
    handler = in_processes(handlers.work, count=2, load=handlers.load)
    await handler.open()
    assign = cast("wire.JobAssign", {"text": f"meet {tmp_path}"})
    jobs = [Job(assign, no_partial), Job(assign, no_partial)]
    outputs = await asyncio.gather(*map(handler, jobs))
    await handler.close()
    assert len({output.extra["pid"] for output in outputs if not isinstance(output, str)}) == 2
