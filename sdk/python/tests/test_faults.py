"""Many jobs through four nodes of which one is killed, one is cut off and one is slow.

`LINGUA_JOBS=10000` makes it long.
"""

from __future__ import annotations

import asyncio
import hashlib
import os
import sys
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from lingua_sdk import Client, Job, Output, RefusedError, Sound
from nodes import connected
from scheduler import Proxy, Scheduler, until

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

JOBS = int(os.environ.get("LINGUA_JOBS", "2000"))
AT_ONCE = 48

KILLED = """
import asyncio, sys
from lingua_sdk import Node
from test_faults import digest
asyncio.run(Node(sys.argv[1], digest, languages=["zh", "en"], node_id="killed").run())
"""


def expected(text: str) -> Output:
    """Give the one right result of a text."""
    data = hashlib.sha256(text.encode()).digest()
    return Output(data.hex(), text, Sound("raw", data * 20))


async def digest(job: Job) -> Output:
    await asyncio.sleep(0.003)
    return expected(job.text or "")


async def slow(job: Job) -> Output:
    await asyncio.sleep(0.2)
    return expected(job.text or "")


async def kill_often(url: str, killed: Counter[str]) -> None:
    """Run a node in a process of its own, and kill it again and again while it works."""
    client = Client(url)

    async def is_working() -> bool:
        return any(
            node["node_id"] == "killed" and node["used"] for node in (await client.nodes())["nodes"]
        )

    env = {**os.environ, "PYTHONPATH": str(Path(__file__).parent)}
    while True:
        process = await asyncio.create_subprocess_exec(sys.executable, "-c", KILLED, url, env=env)
        try:
            await until(is_working)
            await asyncio.sleep(0.2)
        finally:
            process.kill()
            await process.wait()
        killed["killed"] += 1


async def cut_often(proxy: Proxy, killed: Counter[str]) -> None:
    while True:
        await asyncio.sleep(0.15)
        proxy.cut()
        killed["cut"] += 1


async def translate(client: Client, text: str) -> Any:
    """Translate, and send again what may be sent again."""
    while True:
        try:
            return await client.translate(
                key=text, src_lang="zh", tgt_lang="en", text=text, options={"wait_ms": 30_000}
            )
        except RefusedError as error:
            if not error.is_safe_to_retry:
                raise
            await asyncio.sleep((error.retry_after_ms or 50) / 1000)


async def in_parallel(work: Callable[[int], Awaitable[Any]]) -> list[Any]:
    limit = asyncio.Semaphore(AT_ONCE)

    async def limited(number: int) -> Any:
        async with limit:
            return await work(number)

    return await asyncio.gather(*map(limited, range(JOBS)))


@pytest.mark.limit_s(40 + JOBS // 50)
async def test_every_job_comes_back_once_and_right(scheduler: Scheduler) -> None:
    faults: Counter[str] = Counter()
    async with (
        Proxy(scheduler.port) as proxy,
        connected(scheduler.url, digest, node_id="well", slots=4) as well,
        connected(proxy.url, digest, node_id="cut", slots=8) as cut,
        connected(scheduler.url, slow, node_id="slow", slots=4),
        scheduler.client() as client,
    ):
        breaking = [
            asyncio.create_task(kill_often(scheduler.url, faults)),
            asyncio.create_task(cut_often(proxy, faults)),
        ]

        async def all_are_there() -> bool:
            return len((await client.nodes())["nodes"]) == 4

        # A new process takes its time to start, on a busy machine longer than all jobs.
        await until(all_are_there)
        ended = await in_parallel(lambda number: translate(client, f"text {number}"))
        for task in breaking:
            task.cancel()
        await asyncio.wait(breaking)
        assert cut.stats.reconnects > 2
        assert well.stats.refused == 0
    assert faults["killed"] > 0
    assert {job["node_id"] for job in ended} == {"well", "cut", "slow", "killed"}
    assert Counter(job["state"] for job in ended) == {"DONE": JOBS}
    assert len({job["job_id"] for job in ended}) == JOBS
    for number, job in enumerate(ended):
        right = expected(f"text {number}")
        assert job["result"]["text_translated"] == right.text_translated
        assert Sound.decode(job["result"]["tts_audio"]) == right.tts_audio
