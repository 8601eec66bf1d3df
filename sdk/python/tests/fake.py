"""A scheduler written from docs/nodes.md, for what the real one never does.

Start at `FakeScheduler` and `Peer`.
"""

from __future__ import annotations

import asyncio
import json
from typing import Any

from websockets.asyncio.server import Server, ServerConnection, serve

WAIT_S = 10.0


class FakeScheduler:
    """Accepts connections of nodes, one after the other."""

    def __init__(self) -> None:
        self._connections: asyncio.Queue[Peer] = asyncio.Queue()
        self._server: Server | None = None

    async def __aenter__(self) -> FakeScheduler:
        self._server = await serve(self._serve, "127.0.0.1", 0, max_size=None)
        return self

    async def __aexit__(self, *_: object) -> None:
        assert self._server is not None
        self._server.close()

    @property
    def url(self) -> str:
        assert self._server is not None
        return f"ws://127.0.0.1:{next(iter(self._server.sockets)).getsockname()[1]}"

    async def accept(self) -> Peer:
        """The next connection, not registered yet."""
        return await asyncio.wait_for(self._connections.get(), WAIT_S)

    async def registered(self, epoch: int = 1, heartbeat_ms: int = 60_000) -> Peer:
        """The next connection, registered."""
        peer = await self.accept()
        await peer.register(epoch, heartbeat_ms)
        return peer

    async def _serve(self, connection: ServerConnection) -> None:
        peer = Peer(connection)
        self._connections.put_nowait(peer)
        await connection.wait_closed()


class Peer:
    """One connection of a node."""

    def __init__(self, connection: ServerConnection) -> None:
        self.connection = connection

    async def register(self, epoch: int, heartbeat_ms: int) -> dict[str, Any]:
        registration = await self.next()
        assert registration["type"] == "register"
        node_id = registration.get("node_id", "node-0000CAFE")
        await self.send(
            type="registered", node_id=node_id, epoch=epoch, heartbeat_interval_ms=heartbeat_ms
        )
        return registration

    async def send(self, **message: Any) -> None:
        await self.connection.send(json.dumps(message))

    async def send_bytes(self, frame: bytes) -> None:
        await self.connection.send(frame)

    async def next(self) -> dict[str, Any]:
        """The next message."""
        frame = await asyncio.wait_for(self.connection.recv(), WAIT_S)
        assert isinstance(frame, str), f"{len(frame)} bytes without a message"
        return json.loads(frame)

    async def next_bytes(self) -> bytes:
        frame = await asyncio.wait_for(self.connection.recv(), WAIT_S)
        assert isinstance(frame, bytes), frame
        return frame

    async def expect(self, kind: str, **fields: Any) -> dict[str, Any]:
        """The next message, which has to be this one."""
        message = await self.next()
        shown = {name: message.get(name) for name in ("type", *fields)}
        assert shown == {"type": kind, **fields}, message
        return message

    async def assign(self, number: int, fence: int, **fields: Any) -> str:
        job_id = f"job-{number:032x}"
        assign: dict[str, Any] = {
            "type": "job_assign", "job_id": job_id, "attempt_id": 1, "fence": fence,
            "session_id": "room-1", "src_lang": "zh", "tgt_lang": "en", "trace_id": "t",
            "options": {"require_tts": False, "services": [], "priority": 0}, "deadline_ms": 5000,
        }  # fmt: skip
        await self.send(**(assign | fields))
        return job_id

    async def assign_acked(self, number: int, fence: int, **fields: Any) -> str:
        job_id = await self.assign(number, fence, **fields)
        await self.expect("job_ack", job_id=job_id)
        return job_id

    async def confirm(self, job_id: str, *, accepted: bool = True) -> None:
        await self.send(type="job_confirmed", job_id=job_id, attempt_id=1, accepted=accepted)

    async def cancel(self, job_id: str, reason: str) -> None:
        await self.send(type="job_cancel", job_id=job_id, attempt_id=1, reason=reason)

    def drop(self) -> None:
        """Break the connection without a goodbye."""
        self.connection.transport.abort()
