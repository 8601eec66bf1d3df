"""Handlers that run in processes: functions of a module."""

from __future__ import annotations

import os
import signal
import sys
import time
from pathlib import Path

from lingua_sdk import Failure, Job, Output, Sound

loaded: list[str] = []


def load() -> None:
    loaded.append("model")


def load_nothing() -> None:
    raise FileNotFoundError("/models/zh-en.bin is missing")


def exit_at_start() -> None:
    os._exit(7)


def work(job: Job) -> Output | str:
    """Do what the text says."""
    text = job.text or ""
    if text == "crash":
        os.kill(os.getpid(), signal.SIGKILL)
    if text == "raise":
        raise ValueError("no luck")
    if text == "fail":
        raise Failure("NO_MEMORY", "gpu 0", retryable=False)
    if text == "exit":
        sys.exit(3)
    if text == "lambda":
        return Output("x", extra={"x": lambda: 0})
    if text == "partials":
        for shown in ("a", "ab"):
            job.partial(shown)
    if text == "polite":
        while not job.is_cancelled:
            time.sleep(0.005)
        raise Failure("STOPPED", job.cancel_reason, retryable=False)
    if text.startswith("meet "):
        Path(text[5:], str(os.getpid())).touch()
        while len(list(Path(text[5:]).iterdir())) < 2 and not job.is_cancelled:
            time.sleep(0.005)
    if text.startswith("touch "):
        Path(text[6:]).write_text(str(os.getpid()))
        time.sleep(1000)
    if job.audio is not None:
        return Output(f"{len(job.audio.data)} bytes", tts_audio=Sound("raw", job.audio.data[::-1]))
    return Output(text.upper(), extra={"pid": os.getpid(), "loaded": len(loaded)})
