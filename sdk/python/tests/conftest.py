"""Runs tests that are coroutines, each with a limit, and gives them a scheduler."""

from __future__ import annotations

import asyncio
import inspect
from typing import TYPE_CHECKING

import pytest

from scheduler import Scheduler

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

TEST_LIMIT_S = 40.0


@pytest.hookimpl(tryfirst=True)
def pytest_pyfunc_call(pyfuncitem: pytest.Function) -> bool | None:
    """Run a coroutine to its end; every task that it leaves behind is cancelled."""
    if not inspect.iscoroutinefunction(pyfuncitem.obj):
        return None
    names = inspect.signature(pyfuncitem.obj).parameters
    arguments = {name: pyfuncitem.funcargs[name] for name in names}

    marker = pyfuncitem.get_closest_marker("limit_s")
    limit_s = TEST_LIMIT_S if marker is None else marker.args[0]

    async def limited() -> None:
        await asyncio.wait_for(pyfuncitem.obj(**arguments), limit_s)

    asyncio.run(limited())
    return True


@pytest.fixture
def scheduler(start_scheduler: Callable[..., Scheduler]) -> Scheduler:
    """Give a scheduler with default settings."""
    return start_scheduler()


@pytest.fixture
def start_scheduler() -> Iterator[Callable[..., Scheduler]]:
    """Start schedulers that end with the test."""
    started: list[Scheduler] = []

    def start(
        settings: dict[str, str] | None = None, config: Path | None = None, port: int = 0
    ) -> Scheduler:
        started.append(Scheduler(settings, config, port))
        return started[-1]

    yield start
    for scheduler in started:
        scheduler.stop()
