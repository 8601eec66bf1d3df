"""The real program, and a network that can be cut between it and its clients.

Start at `Scheduler` and `Proxy`.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import subprocess
import threading
from pathlib import Path
from typing import TYPE_CHECKING, Any

from lingua_sdk import Client

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Mapping

ROOT = Path(__file__).resolve().parents[3]
START_S = 20.0
POLL_S = 0.01


def program() -> Path:
    """The program under test."""
    target = Path(os.environ.get("CARGO_TARGET_DIR", ROOT / "target"))
    path = Path(os.environ.get("TESTED_LINGUA", target / "debug" / "lingua"))
    if not path.is_file():
        raise FileNotFoundError(f"{path} is missing: cargo build --package lingua")
    return path


class Scheduler:
    """A scheduler process on a free port, over the embedded store."""

    def __init__(
        self,
        settings: Mapping[str, str] | None = None,
        config: Path | None = None,
        port: int = 0,
    ) -> None:
        command = [str(program()), "serve", "--listen", f"127.0.0.1:{port}"]
        if config is not None:
            command += ["--config", str(config)]
        env = {name: value for name, value in os.environ.items() if not name.startswith("LINGUA_")}
        env["LINGUA_LOG__FORMAT"] = "json"
        env |= {f"LINGUA_{name}": value for name, value in (settings or {}).items()}
        self.process = subprocess.Popen(command, env=env, stderr=subprocess.PIPE, text=True)
        self.address = self._listening()
        # The process would stop at a full pipe if nobody read its log.
        threading.Thread(target=self._read_log, daemon=True).start()

    @property
    def url(self) -> str:
        return f"http://{self.address}"

    @property
    def port(self) -> int:
        return int(self.address.rpartition(":")[2])

    def client(self, token: str | None = None) -> Client:
        return Client(self.url, token=token)

    def stop(self) -> None:
        if self.process.poll() is None:
            self.process.kill()
        self.process.wait()
        if self.process.stderr is not None:
            with contextlib.suppress(ValueError):
                self.process.stderr.close()

    def _listening(self) -> str:
        shown: list[str] = []
        while line := self._log_line():
            shown.append(line)
            with contextlib.suppress(ValueError):
                fields: dict[str, Any] = json.loads(line).get("fields", {})
                if fields.get("message") == "listening":
                    return str(fields["address"])
        raise AssertionError(f"the scheduler did not start: {''.join(shown)}")

    def _log_line(self) -> str:
        return "" if self.process.stderr is None else self.process.stderr.readline()

    def _read_log(self) -> None:
        with contextlib.suppress(ValueError):
            while self._log_line():
                pass


class Proxy:
    """Passes bytes on, until it is told to cut, to refuse or to be mute."""

    def __init__(self, port: int) -> None:
        self._upstream_port = port
        self._writers: set[asyncio.StreamWriter] = set()
        self._server: asyncio.Server | None = None
        self.is_refusing = False
        self.is_mute = False
        """What the scheduler says is lost, and it does not hear that a client closes."""
        self.connections = 0
        self.sent_bytes = 0
        """How many bytes clients have sent through it."""

    async def __aenter__(self) -> Proxy:
        self._server = await asyncio.start_server(self._serve, "127.0.0.1", 0)
        return self

    async def __aexit__(self, *_: object) -> None:
        if self._server is not None:
            self._server.close()
        self.cut()

    @property
    def url(self) -> str:
        assert self._server is not None
        return f"http://127.0.0.1:{self._server.sockets[0].getsockname()[1]}"

    def cut(self) -> None:
        """Break all connections at once, in both directions."""
        for writer in self._writers:
            writer.transport.abort()
        self._writers.clear()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._writers.add(writer)
        self.connections += 1
        if self.is_refusing:
            writer.transport.abort()
            return
        try:
            up_reader, up_writer = await asyncio.open_connection("127.0.0.1", self._upstream_port)
        except OSError:
            writer.transport.abort()
            return
        self._writers.add(up_writer)
        await asyncio.gather(
            self._pass_on(reader, up_writer, is_upward=True),
            self._pass_on(up_reader, writer, is_upward=False),
        )

    async def _pass_on(
        self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, *, is_upward: bool
    ) -> None:
        with contextlib.suppress(OSError):
            while data := await reader.read(65536):
                if is_upward:
                    self.sent_bytes += len(data)
                if is_upward or not self.is_mute:
                    writer.write(data)
                    await writer.drain()
        if not self.is_mute:
            writer.close()


async def until(holds: Callable[[], bool] | Callable[[], Awaitable[bool]]) -> None:
    """Wait until a condition holds."""

    async def wait() -> None:
        while True:
            result = holds()
            if result if isinstance(result, bool) else await result:
                return
            await asyncio.sleep(POLL_S)

    await asyncio.wait_for(wait(), START_S)
