"""Compares a node of this SDK with one of the Rust SDK, in one run over one scheduler.

`python tools/bench.py [SECONDS]`. The load comes from `lingua bench`. The work is empty: what is
measured is the way of a job through the scheduler, a connection and the SDK.
"""

from __future__ import annotations

import json
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "tests"))

from scheduler import Scheduler, program

ADDED_P50_MS_MAX = 1.0
JOBS_PER_S_MIN = 4000
AT_ONCE = (1, 50)

NODE = """
import asyncio, sys
from lingua_sdk import Job, Node
async def empty(job: Job) -> str:
    return "x"
asyncio.run(Node(sys.argv[1], empty, languages=["zh", "en"], slots=256).run())
"""


def measure(url: str, at_once: int, seconds: str, *nodes: str) -> dict[str, Any]:
    """Load the scheduler from so many clients."""
    load = ["--concurrency", str(at_once), "--seconds", seconds, *nodes]
    command = [str(program()), "bench", "--url", url, "--json", *load]
    return json.loads(subprocess.run(command, check=True, stdout=subprocess.PIPE).stdout)


def main() -> int:
    """Print a table; fails if a target is missed."""
    seconds = sys.argv[1] if len(sys.argv) > 1 else "5"
    scheduler = Scheduler()
    python = subprocess.Popen([sys.executable, "-c", NODE, scheduler.url])
    try:
        time.sleep(2)
        rust = [measure(scheduler.url, n, seconds, "--nodes", "1") for n in AT_ONCE]
        to_python = ("--nodes", "0", "--src", "zh", "--tgt", "en")
        ours = [measure(scheduler.url, n, seconds, *to_python) for n in AT_ONCE]
    finally:
        python.terminate()
        python.wait()
        scheduler.stop()
    print("| node | clients | jobs/s | p50, p99 ms | failed |\n|---|---|---|---|---|")
    for name, rows in (("Rust SDK", rust), ("Python SDK", ours)):
        for row in rows:
            rate, p50, p99 = row["jobs_per_s"], row["latency_ms"]["p50"], row["latency_ms"]["p99"]
            shown = f"{rate:,.0f} | {p50:.2f}, {p99:.2f} | {row['failed']}"
            print(f"| {name} | {row['concurrency']} | {shown} |")
    added = ours[0]["latency_ms"]["p50"] - rust[0]["latency_ms"]["p50"]
    print(f"\nadded p50: {added:.2f} ms (at most {ADDED_P50_MS_MAX:g})")
    is_met = added <= ADDED_P50_MS_MAX and ours[-1]["jobs_per_s"] >= JOBS_PER_S_MIN
    return 0 if is_met else 1


if __name__ == "__main__":
    sys.exit(main())
