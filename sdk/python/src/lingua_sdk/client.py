"""Every HTTP route of the scheduler as a typed call, and sessions.

Start at `Client.translate`. Fields and answers are those of `wire.py`, which is generated from the
scheduler's own description.

Invariant: nothing is sent twice. To repeat a request, look at `is_safe_to_retry` of its error
first, or give it a `key`.
"""

from __future__ import annotations

import json
from http import HTTPStatus
from typing import TYPE_CHECKING, Any, cast
from urllib.parse import quote, urlencode

from .connect import Endpoint
from .errors import BadAnswerError, InvalidOptionsError, RefusedError
from .http import Answer, Connections
from .session import Session

if TYPE_CHECKING:
    import sys
    from collections.abc import AsyncIterator
    from pathlib import Path

    from . import wire

    if sys.version_info >= (3, 12):
        from typing import Unpack
    else:
        from typing_extensions import Unpack

_TIME_LIMIT_S = 30.0
"""How long a request may take, besides the time that it asks the scheduler to wait."""

_TRANSLATE_MS_DEFAULT = 30_000
"""How long the scheduler works on a translation that names no deadline."""

_SHOWN_CHARS_MAX = 200
_KEY_BYTES_MAX = 128


class Client:
    """A client of one scheduler: `Client("http://127.0.0.1:7410", token="…")`."""

    def __init__(
        self, address: str, *, token: str | None = None, ca: str | Path | None = None
    ) -> None:
        """Check the address; nothing is connected yet.

        `ca` is a PEM file to trust instead of the certificates of this machine.
        """
        self._endpoint = Endpoint.parse(address, token, ca)
        self._connections = Connections(self._endpoint)

    async def __aenter__(self) -> Client:
        return self

    async def __aexit__(self, *_exception: object) -> None:
        self.close()

    def close(self) -> None:
        """Close the connections that are kept for further requests."""
        self._connections.close()

    def session(self, **start: Unpack[wire.SessionStart]) -> Session:
        """Make a session: `async with client.session(src_lang="en", tgt_lang="es") as session`."""
        return Session(self._endpoint, start)

    async def translate(
        self, *, key: str | None = None, **job: Unpack[wire.Dispatch]
    ) -> wire.JobView:
        """Send a job and wait for its result. Calls with the same `key` make one job.

        Cancelling the call cancels the job, unless it has a key.
        """
        wait_ms = (job.get("options") or {}).get("deadline_ms") or _TRANSLATE_MS_DEFAULT
        return await self._post("/v1/translate", job, key=key, wait_ms=wait_ms)

    async def dispatch(
        self, *, key: str | None = None, **job: Unpack[wire.Dispatch]
    ) -> wire.DispatchResponse:
        """Send a job; returns once it was sent to a node."""
        wait_ms = (job.get("options") or {}).get("wait_ms") or 0
        return await self._post("/v1/dispatch/f2f", job, key=key, wait_ms=wait_ms)

    async def job(self, job_id: str, *, wait_ms: int = 0) -> wire.JobView:
        """Show a job; waits up to `wait_ms` for its end."""
        return await self._get(f"/v1/jobs/{_part(job_id)}?wait_ms={wait_ms}", wait_ms=wait_ms)

    async def jobs(
        self,
        *,
        state: wire.JobState | None = None,
        session: str | None = None,
        node: str | None = None,
        limit: int | None = None,
        cursor: str | None = None,
    ) -> wire.JobList:
        """List jobs, the newest first. `next` of a page is the `cursor` of the following one."""
        query = _query(state=state, session=session, node=node, limit=limit, cursor=cursor)
        return await self._get(f"/v1/jobs?{query}")

    async def cancel(self, job_id: str) -> wire.CancelResponse:
        """Cancel a job; the answer says how it ended."""
        return await self._post(f"/v1/jobs/{_part(job_id)}/cancel", None)

    async def erase(self, job_id: str) -> wire.EraseResponse:
        """Erase everything that is kept of a job; cancels it if it has not ended."""
        return self._read(await self._request("DELETE", f"/v1/jobs/{_part(job_id)}"))

    async def erase_jobs(
        self, *, session: str | None = None, tenant: str | None = None
    ) -> wire.EraseResponse:
        """Erase what is kept of the jobs of a session or a tenant; again while there is `more`."""
        query = _query(session=session, tenant=tenant)
        return self._read(await self._request("DELETE", f"/v1/jobs?{query}"))

    async def usage(
        self,
        *,
        tenant: str | None = None,
        since: str | None = None,
        until: str | None = None,
        days: bool | None = None,
    ) -> wire.UsageView:
        """Show what tenants have used, from and to a day such as `2026-11-18`."""
        query = _query(tenant=tenant, since=since, until=until, days=days)
        return await self._get(f"/v1/usage?{query}")

    async def explain(self, **job: Unpack[wire.Dispatch]) -> wire.ExplainResponse:
        """Show why each node would or would not get such a job now."""
        return await self._post("/v1/explain", job)

    async def me(self) -> wire.MeView:
        """Show who the caller is, its limits and what is left of them."""
        return await self._get("/v1/me")

    async def pools(self) -> wire.PoolList:
        """List all pools."""
        return await self._get("/v1/pools")

    async def pool(self, src_lang: str, tgt_lang: str) -> wire.PoolView:
        """Show the pool of a direction, with its nodes."""
        return await self._get(f"/v1/pools/{_part(src_lang)}:{_part(tgt_lang)}")

    async def nodes(self) -> wire.NodeList:
        """List all nodes."""
        return await self._get("/v1/nodes")

    async def node(self, node_id: str) -> wire.NodeView:
        """Show a node."""
        return await self._get(f"/v1/nodes/{_part(node_id)}")

    async def drain(self, node_id: str) -> wire.NodeView:
        """Let a node finish its jobs and accept no more."""
        return await self._post(f"/v1/nodes/{_part(node_id)}/drain", None)

    async def resume(self, node_id: str) -> wire.NodeView:
        """Let a drained node accept jobs again."""
        return await self._post(f"/v1/nodes/{_part(node_id)}/resume", None)

    async def cluster(self) -> wire.ClusterView:
        """Show the scheduler's processes, the leader and the store."""
        return await self._get("/v1/cluster")

    async def metrics(self) -> str:
        """Give the metrics in the text format of Prometheus."""
        answer = await self._request("GET", "/metrics")
        return self._checked(answer).body.decode()

    async def openapi(self) -> dict[str, Any]:
        """Give the scheduler's description of itself, for programs."""
        return await self._get("/openapi.json")

    async def is_healthy(self) -> bool:
        """Whether the instance is alive."""
        return await self._is_up("/healthz")

    async def is_ready(self) -> bool:
        """Whether the instance takes jobs: it does not while its store is unreachable."""
        return await self._is_up("/readyz")

    async def events(self) -> AsyncIterator[tuple[str, dict[str, Any]]]:
        """Stream changes as (`node`, `job`, `pool` or `leader`; what changed), until it ends."""
        kind = ""
        async for line in self._connections.lines("/v1/events"):
            if isinstance(line, Answer):
                self._checked(line)
            elif line.startswith("event:"):
                kind = line[6:].strip()
            elif line.startswith("data:"):
                yield kind, json.loads(line[5:])

    async def _is_up(self, path: str) -> bool:
        answer = await self._request("GET", path)
        if answer.status == HTTPStatus.SERVICE_UNAVAILABLE:
            return False
        self._checked(answer)
        return True

    async def _get(self, path: str, *, wait_ms: int = 0) -> Any:
        return self._read(await self._request("GET", path, wait_ms=wait_ms))

    async def _post(
        self, path: str, body: wire.Dispatch | None, *, key: str | None = None, wait_ms: int = 0
    ) -> Any:
        headers: dict[str, str] = {}
        if key is not None:
            if not (key.isascii() and key.isprintable() and 0 < len(key) <= _KEY_BYTES_MAX):
                raise InvalidOptionsError(
                    f"the key {key!r} cannot be sent; use 1 to {_KEY_BYTES_MAX} printable ASCII"
                )
            headers["Idempotency-Key"] = key
        data = None if body is None else _encode(body)
        return self._read(await self._request("POST", path, data, headers, wait_ms=wait_ms))

    async def _request(
        self,
        method: str,
        path: str,
        body: bytes | None = None,
        headers: dict[str, str] | None = None,
        *,
        wait_ms: int = 0,
    ) -> Answer:
        timeout_s = _TIME_LIMIT_S + wait_ms / 1000
        return await self._connections.request(method, path, body, headers, timeout_s=timeout_s)

    def _read(self, answer: Answer) -> Any:
        try:
            return json.loads(self._checked(answer).body)
        except ValueError as error:
            raise self._bad(answer, str(error)) from None

    def _checked(self, answer: Answer) -> Answer:
        """Raise what an answer other than a success says."""
        if HTTPStatus.OK <= answer.status < HTTPStatus.MULTIPLE_CHOICES:
            return answer
        try:
            body = cast("wire.ErrorBody", json.loads(answer.body))
            raise RefusedError(
                body["error"],
                body["detail"],
                status=answer.status,
                retry_after_ms=body.get("retry_after_ms"),
                job_id=body.get("job_id"),
            )
        except (ValueError, KeyError, TypeError, AttributeError):
            shown = answer.body[:_SHOWN_CHARS_MAX].decode(errors="replace")
            raise self._bad(answer, repr(shown)) from None

    def _bad(self, answer: Answer, why: str) -> BadAnswerError:
        return BadAnswerError(
            f"the answer of {self._connections.base} (status {answer.status}) cannot be read: "
            f"{why}; is it a Lingua scheduler of this version?"
        )


def _encode(body: wire.Dispatch) -> bytes:
    try:
        return json.dumps(body, ensure_ascii=False, allow_nan=False).encode()
    except (TypeError, ValueError) as error:
        raise InvalidOptionsError(f"the job cannot be sent: {error}") from None


def _query(**filters: str | int | None) -> str:
    """Write what is given; a flag as JSON does."""
    given = {name: value for name, value in filters.items() if value is not None}
    return urlencode(
        {
            name: json.dumps(value) if isinstance(value, bool) else value
            for name, value in given.items()
        }
    )


def _part(name: str) -> str:
    return quote(name, safe="")
