"""Programs that run a node, as users write them: signals, examples, nothing left behind."""

from __future__ import annotations

import asyncio
import os
import re
import signal
import subprocess
import sys
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from lingua_sdk import Sound, write_wav
from nodes import connected, upper
from scheduler import Scheduler, until

if TYPE_CHECKING:
    from collections.abc import Generator

SDK = Path(__file__).resolve().parents[1]
ZH_EN: Any = {"src_lang": "zh", "tgt_lang": "en"}

PROGRAM = """
import asyncio, logging, sys, time
import handlers
from lingua_sdk import Job, Node, in_processes
from lingua_sdk.node import signals

async def slow(job: Job) -> str:
    await asyncio.sleep(0.5)
    return "slow"

async def stuck(job: Job) -> str:
    print("stuck", flush=True)
    while True:
        time.sleep(0.01)

async def ignoring(job: Job) -> str:
    print("ignoring", flush=True)
    while True:
        try:
            await asyncio.sleep(100)
        except asyncio.CancelledError:
            pass

def blocked(job: Job) -> str:
    print("blocked", flush=True)
    time.sleep(1000)
    return "never"

if __name__ == "__main__":
    logging.basicConfig(level=logging.INFO)
    kind, address, grace_s = sys.argv[1], sys.argv[2], float(sys.argv[3])
    signals._BLOCKED_S, signals._END_S = 0.5, 1.0
    handler = in_processes(handlers.work) if kind == "processes" else globals()[kind]
    node = Node(address, handler, languages=["zh", "en"], node_id="program", grace_s=grace_s,
                cancel_grace_s=0.1)
    asyncio.run(node.run())
    print("in good order", flush=True)
"""


@contextmanager
def program(tmp_path: Path, *arguments: str) -> Generator[subprocess.Popen[str]]:
    """Start the program; it is killed at the end of the block."""
    path = tmp_path / "program.py"
    path.write_text(PROGRAM)
    process = subprocess.Popen(
        [sys.executable, str(path), *arguments],
        env={**os.environ, "PYTHONPATH": os.pathsep.join([str(SDK / "tests"), str(SDK / "src")])},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    try:
        yield process
    finally:
        process.kill()
        process.communicate()


async def until_registered(scheduler: Scheduler) -> None:
    async def is_registered() -> bool:
        async with scheduler.client() as client:
            nodes = (await client.nodes())["nodes"]
            return [node["state"] for node in nodes] == ["ready"]

    await until(is_registered)


async def end(process: subprocess.Popen[str]) -> tuple[int, str, str]:
    """Wait for the end of a program: its status and what it wrote."""
    out, err = await asyncio.to_thread(process.communicate, timeout=20)
    return process.returncode, out, err


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
async def test_a_signal_lets_the_node_finish_its_jobs(
    scheduler: Scheduler, tmp_path: Path, number: signal.Signals
) -> None:
    with program(tmp_path, "slow", scheduler.url, "10") as process:
        await until_registered(scheduler)
        async with scheduler.client() as client:
            jobs = [await client.dispatch(**ZH_EN, text=text) for text in "ab"]

            async def is_running() -> bool:
                shown = [await client.job(job["job_id"]) for job in jobs]
                return [job["state"] for job in shown] == ["ACKED", "ACKED"]

            await until(is_running)
            process.send_signal(number)
            status, out, err = await end(process)
            assert (status, out) == (0, "in good order\n"), err
            assert "Traceback" not in err
            for job in jobs:
                ended = await client.job(job["job_id"])
                assert (ended["state"], len(ended["attempts"])) == ("DONE", 1)
            node = await client.node("program")
            assert (node["state"], node["used"]) == ("offline", 0)


@pytest.mark.parametrize("kind", ["blocked", "ignoring"])
async def test_a_handler_that_never_ends_does_not_keep_the_node_from_ending(
    scheduler: Scheduler, tmp_path: Path, kind: str
) -> None:
    with program(tmp_path, kind, scheduler.url, "0.1") as process:
        await until_registered(scheduler)
        async with scheduler.client() as client:
            await client.dispatch(**ZH_EN, text="a")
            assert process.stdout is not None
            assert await asyncio.to_thread(process.stdout.readline) == f"{kind}\n"
            process.terminate()
            if kind == "blocked":
                status, out, err = await end(process)
                assert (status, out) == (0, "in good order\n"), err

                async def is_offline() -> bool:
                    return (await client.node("program"))["state"] == "offline"

                await until(is_offline)


@pytest.mark.parametrize("is_impatient", [True, False])
async def test_a_handler_that_blocks_the_loop_is_named_and_the_node_ends_all_the_same(
    scheduler: Scheduler, tmp_path: Path, *, is_impatient: bool
) -> None:
    with program(tmp_path, "stuck", scheduler.url, "0.1") as process:
        await until_registered(scheduler)
        async with scheduler.client() as client:
            await client.dispatch(**ZH_EN, text="a")
            assert process.stdout is not None and process.stderr is not None
            assert await asyncio.to_thread(process.stdout.readline) == "stuck\n"
            log = iter(process.stderr.readline, "")
            while "in_threads" not in await asyncio.to_thread(next, log):
                pass
            process.terminate()
            while "finishing the jobs" not in await asyncio.to_thread(next, log):
                pass
            if is_impatient:
                process.terminate()
            status, out, err = await end(process)
            assert status != 0 and "in good order" not in out
            assert ("in stuck" if is_impatient else "did not stop within") in err


async def test_processes_of_a_killed_node_end(scheduler: Scheduler, tmp_path: Path) -> None:
    marker = tmp_path / "pid"
    with program(tmp_path, "processes", scheduler.url, "10") as process:
        await until_registered(scheduler)
        async with scheduler.client() as client:
            await client.dispatch(**ZH_EN, text=f"touch {marker}")
            await until(lambda: marker.is_file() and marker.read_text() != "")
            process.kill()
            child = Path(f"/proc/{marker.read_text()}")
            await until(lambda: not child.exists())


def example(name: str, *arguments: str) -> list[str]:
    """The command of an example, which is short."""
    path = SDK / "examples" / f"{name}.py"
    lines = [line for line in path.read_text().splitlines() if line.strip()]
    assert len(lines) <= 20, f"{name} has {len(lines)} lines"
    return [sys.executable, str(path), *arguments]


async def test_the_examples_work_together(scheduler: Scheduler, tmp_path: Path) -> None:
    node = subprocess.Popen(example("node", scheduler.url), stderr=subprocess.DEVNULL)
    try:
        await until_registered(scheduler)
        done = await asyncio.to_thread(
            subprocess.run,
            example("client", scheduler.url, "zh", "en", "你好"),
            capture_output=True,
            text=True,
            timeout=20,
        )
        assert (done.returncode, done.stdout) == (0, "好你\n")
    finally:
        node.terminate()
        assert await asyncio.to_thread(node.wait, 20) == 0
    path = tmp_path / "a.wav"
    write_wav(path, Sound.pcm16(bytes(range(1, 201)) * 32))
    async with connected(scheduler.url, upper):
        done = await asyncio.to_thread(
            subprocess.run,
            example("speak", scheduler.url, "en", "zh", str(path)),
            capture_output=True,
            text=True,
            timeout=20,
        )
    assert done.returncode == 0, done.stderr
    assert "'text_asr': '6400 bytes'" in done.stdout


async def test_the_first_snippets_of_the_readme_run(scheduler: Scheduler) -> None:
    text = (SDK / "README.md").read_text().replace("http://127.0.0.1:7410", scheduler.url)
    snippets = re.findall(r"```python\n(.*?)```", text, re.DOTALL)
    node_code, client_code, speech_code = snippets
    models = "async def recognise(a): ...\nasync def translate(t, s, g): return t.upper()\n"
    node = subprocess.Popen([sys.executable, "-c", models + node_code], stderr=subprocess.DEVNULL)
    try:
        await until_registered(scheduler)
        done = await asyncio.to_thread(
            subprocess.run, [sys.executable, "-c", client_code], capture_output=True, text=True
        )
        assert (done.returncode, done.stdout) == (0, "你好\n"), done.stderr
    finally:
        node.terminate()
        node.wait()
    compile(
        f"async def f(client):\n    {speech_code.replace(chr(10), chr(10) + '    ')}", "x", "exec"
    )
