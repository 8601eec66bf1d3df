"""HTTP/1.1 over the streams of asyncio: as much as a client of one scheduler needs.

Start at `Connections.request`. Cancelling a request closes its connection, so the scheduler sees
that nobody waits. Connections are kept and used again.

Invariant: nothing is sent twice, except a GET whose kept connection had been closed.
"""

from __future__ import annotations

import asyncio
from collections import deque
from dataclasses import dataclass
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

from .connect import OPEN_TIMEOUT_S, unreachable
from .errors import BadAnswerError, TimedOutError

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Mapping

    from .connect import Endpoint

_IDLE_S = 20.0
"""How long an unused connection is kept; shorter than the scheduler keeps its own."""

_IDLE_MAX = 1024
_ANSWER_BYTES_MAX = 256 * 1024 * 1024
"""Longest answer: a list of all nodes that there can be."""

_HEADERS_MAX = 100
_STREAM_LINE_BYTES_MAX = 4 * 1024 * 1024


@dataclass(frozen=True)
class Answer:
    """An answer of any status."""

    status: int
    headers: Mapping[str, str]
    """With names in small letters."""
    body: bytes


class _NoAnswerError(ConnectionError):
    """The connection ended before the first byte of an answer."""


class Connections:
    """Connections to one scheduler."""

    def __init__(self, endpoint: Endpoint) -> None:
        self.base = endpoint.base("http")
        url = urlsplit(self.base)
        self._endpoint = endpoint
        self._host = url.hostname or ""
        self._port = url.port or (443 if endpoint.tls else 80)
        self._netloc = url.netloc.rpartition("@")[2]
        self._path = url.path
        self._idle: deque[tuple[_Connection, float]] = deque()
        self._loop: asyncio.AbstractEventLoop | None = None

    async def request(
        self,
        method: str,
        path: str,
        body: bytes | None = None,
        headers: Mapping[str, str] | None = None,
        *,
        timeout_s: float,
    ) -> Answer:
        """Send a request and wait for the whole answer, of any status."""
        head = self._head(method, path, body, headers)
        try:
            return await asyncio.wait_for(self._request(method, head + (body or b"")), timeout_s)
        except asyncio.TimeoutError:
            raise TimedOutError(
                f"{self.base} did not answer within {timeout_s:g} s; it may still have carried out "
                "the request: check before you repeat it"
            ) from None
        except (OSError, asyncio.IncompleteReadError) as error:
            raise unreachable(self.base, error, is_secure=bool(self._endpoint.tls)) from error
        except (ValueError, asyncio.LimitOverrunError) as error:
            advice = "is it a Lingua scheduler, and does it speak http:// or https://?"
            raise BadAnswerError(
                f"cannot read the answer of {self.base}: {error}: {advice}"
            ) from None

    async def lines(self, path: str) -> AsyncIterator[str | Answer]:
        """Stream the lines of an answer; if its status is no success, give the answer instead."""
        connection = await self._open()
        try:
            connection.write(self._head("GET", path, None, {"Accept": "text/event-stream"}))
            status, headers = await connection.read_head()
            if status != 200:
                yield Answer(status, headers, await connection.read_body(headers))
                return
            rest = b""
            async for chunk in connection.read_chunks(headers):
                *whole, rest = (rest + chunk).split(b"\n")
                for line in whole:
                    yield line.decode()
                if len(rest) > _STREAM_LINE_BYTES_MAX:
                    raise BadAnswerError(f"{self.base} sent an endless line")
        except (OSError, asyncio.IncompleteReadError) as error:
            raise unreachable(self.base, error, is_secure=bool(self._endpoint.tls)) from error
        finally:
            connection.close()

    def close(self) -> None:
        """Close the connections that are kept."""
        while self._idle:
            self._idle.pop()[0].close()

    def _head(
        self, method: str, path: str, body: bytes | None, headers: Mapping[str, str] | None
    ) -> bytes:
        all_headers = {"Host": self._netloc, **self._endpoint.headers(), **(headers or {})}
        if body is not None:
            all_headers |= {"Content-Type": "application/json", "Content-Length": str(len(body))}
        elif method == "POST":
            all_headers["Content-Length"] = "0"
        lines = [f"{method} {self._path}{path} HTTP/1.1"]
        lines += [f"{name}: {value}" for name, value in all_headers.items()]
        return "\r\n".join([*lines, "", ""]).encode("latin-1")

    async def _request(self, method: str, request: bytes) -> Answer:
        kept = self._take()
        if kept is not None:
            try:
                return await self._exchange(kept, request)
            except _NoAnswerError:
                if method != "GET":
                    raise
        return await self._exchange(await self._open(), request)

    async def _exchange(self, connection: _Connection, request: bytes) -> Answer:
        is_reusable = False
        try:
            connection.write(request)
            status, headers = await connection.read_head()
            body = await connection.read_body(headers)
            is_reusable = headers.get("connection", "").lower() != "close"
        finally:
            if is_reusable and len(self._idle) < _IDLE_MAX:
                self._idle.append((connection, asyncio.get_running_loop().time()))
            else:
                connection.close()
        return Answer(status, headers, body)

    def _take(self) -> _Connection | None:
        """Take the connection that was used last, if it is still good."""
        loop = asyncio.get_running_loop()
        if loop is not self._loop:
            # Those of a loop that has ended cannot be used, nor closed.
            self._idle.clear()
            self._loop = loop
        while self._idle:
            connection, since = self._idle.pop()
            if loop.time() - since < _IDLE_S and connection.is_good():
                return connection
            connection.close()
        return None

    async def _open(self) -> _Connection:
        opening = asyncio.open_connection(self._host, self._port, ssl=self._endpoint.tls)
        try:
            return _Connection(*await asyncio.wait_for(opening, OPEN_TIMEOUT_S))
        except asyncio.TimeoutError:
            raise ConnectionError(f"no connection within {OPEN_TIMEOUT_S:g} s") from None


class _Connection:
    """One connection: a request, an answer, and so on."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader = reader
        self._writer = writer

    def is_good(self) -> bool:
        return not (self._reader.at_eof() or self._writer.is_closing())

    def write(self, request: bytes) -> None:
        # Nothing waits for the writing: a scheduler may refuse a body before it has read it.
        self._writer.write(request)

    def close(self) -> None:
        self._writer.transport.abort()

    async def read_head(self) -> tuple[int, dict[str, str]]:
        status = 100
        headers: dict[str, str] = {}
        while status < 200:
            try:
                first = await self._reader.readline()
            except ConnectionError as error:
                raise _NoAnswerError(str(error)) from None
            if not first:
                raise _NoAnswerError("the connection was closed before an answer came")
            version, _, rest = first.decode("latin-1").partition(" ")
            if not version.startswith("HTTP/1."):
                raise ValueError(f"{first[:40]!r} is no HTTP")
            status = int(rest[:3])
            headers = await self._read_headers()
        return status, headers

    async def _read_headers(self) -> dict[str, str]:
        headers: dict[str, str] = {}
        while line := (await self._reader.readline()).strip():
            name, _, value = line.decode("latin-1").partition(":")
            headers[name.strip().lower()] = value.strip()
            if len(headers) > _HEADERS_MAX:
                raise ValueError("it has too many headers")
        return headers

    async def read_body(self, headers: Mapping[str, str]) -> bytes:
        parts: list[bytes] = []
        size = 0
        async for chunk in self.read_chunks(headers):
            size += len(chunk)
            if size > _ANSWER_BYTES_MAX:
                raise ValueError(f"it is longer than {_ANSWER_BYTES_MAX} bytes")
            parts.append(chunk)
        return b"".join(parts)

    async def read_chunks(self, headers: Mapping[str, str]) -> AsyncIterator[bytes]:
        if headers.get("transfer-encoding", "").lower() == "chunked":
            while size := int((await self._reader.readline()).split(b";")[0], 16):
                if size > _ANSWER_BYTES_MAX:
                    raise ValueError(f"it is longer than {_ANSWER_BYTES_MAX} bytes")
                yield (await self._reader.readexactly(size + 2))[:-2]
            await self._read_headers()
            return
        size = int(headers.get("content-length", "0"))
        if size > _ANSWER_BYTES_MAX:
            raise ValueError(f"it is longer than {_ANSWER_BYTES_MAX} bytes")
        if size:
            yield await self._reader.readexactly(size)
