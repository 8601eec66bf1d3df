"""The types are those of the program under test, and no route of a client is forgotten."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, get_args, get_type_hints

import pytest

import generate
from lingua_sdk import Client, wire
from lingua_sdk.node import report

if TYPE_CHECKING:
    from scheduler import Scheduler

ROUTES = {
    "post /v1/translate": Client.translate,
    "post /v1/dispatch/f2f": Client.dispatch,
    "get /v1/jobs/{id}": Client.job,
    "get /v1/jobs": Client.jobs,
    "post /v1/jobs/{id}/cancel": Client.cancel,
    "delete /v1/jobs/{id}": Client.erase,
    "delete /v1/jobs": Client.erase_jobs,
    "get /v1/usage": Client.usage,
    "post /v1/explain": Client.explain,
    "get /v1/me": Client.me,
    "get /v1/pools": Client.pools,
    "get /v1/pools/{pair}": Client.pool,
    "get /v1/nodes": Client.nodes,
    "get /v1/nodes/{id}": Client.node,
    "post /v1/nodes/{id}/drain": Client.drain,
    "post /v1/nodes/{id}/resume": Client.resume,
    "get /v1/cluster": Client.cluster,
    "get /v1/events": Client.events,
    "get /metrics": Client.metrics,
    "get /healthz": Client.is_healthy,
    "get /readyz": Client.is_ready,
    "get /openapi.json": Client.openapi,
    "get /v1/session/ws": Client.session,
}

NOT_FOR_CLIENTS = {"get /"}
"""Pages for people; the routes of nodes have their own tag."""

NOT_YET = {"get /v1/client/ws", "get /v1/coverage"}
"""Routes of newer schedulers that this SDK does not use."""


async def test_the_types_are_those_of_the_program(scheduler: Scheduler) -> None:
    async with scheduler.client() as client:
        text = generate.render(await client.openapi())
    assert text == generate.FILE.read_text(), "run python sdk/python/tools/generate.py"


async def test_every_route_of_a_client_has_a_method(scheduler: Scheduler) -> None:
    async with scheduler.client() as client:
        paths: dict[str, Any] = (await client.openapi())["paths"]
    routes = {
        f"{method} {path}"
        for path, methods in paths.items()
        for method, operation in methods.items()
        if operation["tags"] != ["node"]
    }
    assert routes - ROUTES.keys() - NOT_FOR_CLIENTS - NOT_YET == set()
    assert ROUTES.keys() <= routes


async def test_a_changed_description_is_noticed(scheduler: Scheduler) -> None:
    async with scheduler.client() as client:
        document = await client.openapi()
    fields = document["components"]["schemas"]["JobView"]["properties"]
    fields["mood"] = {"type": ["string", "null"], "description": "How the speaker feels."}
    text = generate.render(document)
    assert text != generate.FILE.read_text()
    assert "    mood: NotRequired[str | None]\n" in text


@pytest.mark.parametrize("message", [wire.JobAckMessage, wire.RegisterMessage])
def test_every_message_has_its_type(message: type) -> None:
    hints = get_type_hints(message)
    assert get_args(hints["type"])[0] in {"job_ack", "register"}


def test_a_message_is_one_line_of_json() -> None:
    assert (
        report.message({"type": "bye", "reason": "a\nb"}).text == '{"type":"bye","reason":"a\\nb"}'
    )
