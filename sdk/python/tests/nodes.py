"""Nodes that run beside a test, and handlers that a test controls."""

from __future__ import annotations

import asyncio
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any

from lingua_sdk import Job, Node, Output
from scheduler import until

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator

    from lingua_sdk.node import Handler
    from lingua_sdk.node.handler import BlockingHandler

LANGUAGES = ("zh", "en")


async def upper(job: Job) -> Output:
    """Translate a text by capital letters, and a sound by its length."""
    text = (
        job.text if job.text is not None else f"{len(job.audio.data if job.audio else b'')} bytes"
    )
    return Output(text_asr=text, text_translated=text.upper())


class Manual:
    """A handler whose jobs end when the test says so."""

    def __init__(self) -> None:
        self._jobs: asyncio.Queue[tuple[Job, asyncio.Future[object]]] = asyncio.Queue()

    async def __call__(self, job: Job) -> Any:
        outcome: asyncio.Future[object] = asyncio.get_running_loop().create_future()
        self._jobs.put_nowait((job, outcome))
        result = await outcome
        if isinstance(result, BaseException):
            raise result
        return result

    async def next(self) -> tuple[Job, asyncio.Future[object]]:
        return await asyncio.wait_for(self._jobs.get(), 10)


@asynccontextmanager
async def running(
    address: str, handler: Handler | BlockingHandler, **options: Any
) -> AsyncGenerator[Node]:
    """Run a node until the end of the block; its own error ends the test."""
    options = {"languages": LANGUAGES, "node_id": "py-1", "backoff_s": (0.01, 0.05)} | options
    node = Node(address, handler, **options)
    task = asyncio.create_task(node.run(handle_signals=False))
    try:
        yield node
    finally:
        task.cancel()
        await asyncio.wait({task})
        if not task.cancelled() and (error := task.exception()) is not None:
            raise error


@asynccontextmanager
async def connected(
    address: str, handler: Handler | BlockingHandler, **options: Any
) -> AsyncGenerator[Node]:
    """Run a node, and wait until it is registered."""
    async with running(address, handler, **options) as node:
        await until(lambda: node.stats.is_connected)
        yield node
