"""The client and the real program: answers, errors, connections."""

from __future__ import annotations

import asyncio
import contextlib
import subprocess
from typing import TYPE_CHECKING, Any

import pytest

from lingua_sdk import (
    BadAnswerError,
    Client,
    InvalidOptionsError,
    Node,
    RefusedError,
    TimedOutError,
    UnreachableError,
    UntrustedError,
)
from nodes import Manual, connected, upper
from scheduler import Proxy, Scheduler, until

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Callable
    from pathlib import Path

ZH_EN: Any = {"src_lang": "zh", "tgt_lang": "en"}


async def test_every_route_answers(scheduler: Scheduler) -> None:
    async with connected(scheduler.url, upper), scheduler.client() as client:
        assert await client.is_healthy()
        assert await client.is_ready()
        job = await client.translate(**ZH_EN, text="a", session_id="room 7/ü")
        shown = await client.job(job["job_id"])
        assert (shown["state"], shown.get("result")) == ("DONE", job.get("result"))
        sent = await client.dispatch(**ZH_EN, text="b")
        assert (sent["node_id"], sent["attempt_id"]) == ("py-1", 1)
        assert (await client.job(sent["job_id"], wait_ms=5000))["state"] == "DONE"
        newest = await client.jobs(limit=1)
        assert [listed["job_id"] for listed in newest["jobs"]] == [sent["job_id"]]
        older = await client.jobs(limit=1, cursor=newest.get("next"))
        assert [listed["job_id"] for listed in older["jobs"]] == [job["job_id"]]
        assert len((await client.jobs(session="room 7/ü", state="DONE", node="py-1"))["jobs"]) == 1
        assert (await client.cancel(job["job_id"]))["state"] == "DONE"
        assert [node["node_id"] for node in (await client.nodes())["nodes"]] == ["py-1"]
        assert (await client.node("py-1"))["used"] == 0
        assert (await client.pool("zh", "en"))["nodes"] == 1
        assert "pools" in await client.pools()
        assert (await client.explain(**ZH_EN, text="a"))["nodes"][0]["node_id"] == "py-1"
        assert (await client.cluster())["store"]
        assert (await client.me())["role"]
        assert "lingua_jobs_total" in await client.metrics()

        async def is_counted() -> bool:
            tenants = (await client.usage(tenant="default", days=True))["tenants"]
            return [tenant["total"]["jobs"]["done"] for tenant in tenants] == [2]

        await until(is_counted)
        assert (await client.usage(until="2020-01-01"))["tenants"] == []
        assert (await client.erase(sent["job_id"]))["erased"] == 1
        erased = await client.erase_jobs(session="room 7/ü")
        assert (erased["erased"], erased["more"]) == (1, False)
        assert (await client.jobs())["jobs"] == []


@pytest.mark.parametrize(
    ("path", "code", "status"),
    [
        ("job-" + "0" * 32, "JOB_NOT_FOUND", 404),
        ("not a job/../x?y", "JOB_NOT_FOUND", 404),
    ],
)
async def test_a_refusal_has_its_code(
    scheduler: Scheduler, path: str, code: str, status: int
) -> None:
    async with scheduler.client() as client:
        with pytest.raises(RefusedError) as raised:
            await client.job(path)
    assert (raised.value.code, raised.value.status) == (code, status)
    assert not raised.value.is_safe_to_retry


async def test_a_job_that_nobody_can_do_may_be_sent_again(scheduler: Scheduler) -> None:
    async with scheduler.client() as client:
        with pytest.raises(RefusedError) as raised:
            await client.translate(**ZH_EN, text="a")
        assert raised.value.code == "NO_CAPABLE_NODE"
        assert raised.value.is_safe_to_retry
        with pytest.raises(RefusedError) as raised:
            await client.translate(**ZH_EN, text="a", options={"deadline_ms": -1})
        assert (raised.value.code, raised.value.is_safe_to_retry) == ("INVALID_REQUEST", False)


async def test_calls_with_one_key_make_one_job(scheduler: Scheduler) -> None:
    async with connected(scheduler.url, upper) as node, scheduler.client() as client:
        calls = (client.translate(key="k 1", **ZH_EN, text="a") for _ in range(5))
        jobs = await asyncio.gather(*calls)
        assert len({job["job_id"] for job in jobs}) == 1
        with pytest.raises(RefusedError) as raised:
            await client.translate(key="k 1", **ZH_EN, text="b")
        assert raised.value.code == "IDEMPOTENCY_KEY_REUSED"
        assert node.stats.done == 1


async def test_connections_are_used_again_and_a_closed_one_is_not(
    scheduler: Scheduler,
) -> None:
    async with Proxy(scheduler.port) as proxy, Client(proxy.url) as client:
        for _ in range(5):
            await client.me()
        assert proxy.connections == 1
        await asyncio.gather(*(client.me() for _ in range(5)))
        assert proxy.connections <= 6
        # The kept ones are closed behind the client's back; a GET just works.
        proxy.cut()
        await client.me()


async def test_a_post_does_not_go_over_a_connection_that_was_closed() -> None:
    closed = asyncio.Event()

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.write(OK + b"Content-Length: 2\r\n\r\n{}")
        writer.close()
        await writer.wait_closed()
        closed.set()

    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    port = server.sockets[0].getsockname()[1]
    async with server, Client(f"http://127.0.0.1:{port}") as client:
        for _ in range(3):
            assert await client.cancel("job-1") == {}
            await closed.wait()
            closed.clear()
            # The other end of the same loop hears of it in its next rounds.
            for _ in range(5):
                await asyncio.sleep(0)


async def test_a_post_on_a_connection_that_breaks_is_not_sent_twice(scheduler: Scheduler) -> None:
    handler = Manual()
    async with Proxy(scheduler.port) as proxy, Client(proxy.url) as client:
        async with connected(scheduler.url, handler) as node:
            await client.me()
            call = asyncio.create_task(client.translate(**ZH_EN, text="a"))
            _, outcome = await handler.next()
            proxy.cut()
            with pytest.raises(UnreachableError):
                await call
            await until(outcome.cancelled)
            assert (node.stats.running_max, proxy.connections) == (1, 1)


async def test_a_client_may_be_used_in_one_loop_after_the_other(scheduler: Scheduler) -> None:
    client = scheduler.client()

    def in_another_loop() -> str:
        return asyncio.run(client.me())["role"]

    role = (await client.me())["role"]
    assert await asyncio.to_thread(in_another_loop) == role
    assert (await client.me())["role"] == role


async def test_events_are_streamed(scheduler: Scheduler) -> None:
    async with scheduler.client() as client:
        seen: list[tuple[str, Any]] = []

        async def watch() -> None:
            async for kind, change in client.events():
                seen.append((kind, change))

        watching = asyncio.create_task(watch())
        async with connected(scheduler.url, upper):

            async def is_seen() -> bool:
                await client.translate(**ZH_EN, text="a")
                return {"node", "job"} <= {kind for kind, _ in seen}

            await until(is_seen)
        watching.cancel()
    assert any(change.get("node_id") == "py-1" for kind, change in seen if kind == "node")


async def test_a_big_answer_and_a_big_request_arrive_whole(scheduler: Scheduler) -> None:
    text = "ü" * 8000
    async with connected(scheduler.url, upper), scheduler.client() as client:
        job = await client.translate(**ZH_EN, text=text)
        assert (job.get("result") or {}).get("text_translated") == text.upper()
        with pytest.raises(RefusedError) as raised:
            await client.translate(**ZH_EN, text="x" * 30_000_000)
        assert raised.value.code == "PAYLOAD_TOO_LARGE"


@contextlib.asynccontextmanager
async def answering(answer: bytes) -> AsyncGenerator[str]:
    """Run a server that is no scheduler."""

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.read(1000)
        writer.write(answer)
        writer.close()

    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    async with server:
        yield f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"


OK = b"HTTP/1.1 200 OK\r\n"


@pytest.mark.parametrize(
    ("answer", "error"),
    [
        (b"", UnreachableError),
        (b"SSH-2.0\r\n\r\n", BadAnswerError),
        (b"\x15\x03\x01\x00\x02", BadAnswerError),
        (b"HTTP/1.1 OK\r\n\r\n", BadAnswerError),
        (OK + b"Content-Length: 5\r\n\r\n{}", UnreachableError),
        (OK + b"Content-Length: -5\r\n\r\n{}", BadAnswerError),
        (OK + b"Content-Length: 99999999999\r\n\r\n{}", BadAnswerError),
        (OK + b"Content-Length: 4\r\n\r\nhtml", BadAnswerError),
        (OK + b"Transfer-Encoding: chunked\r\n\r\nxyz\r\n", BadAnswerError),
        (OK + b"Transfer-Encoding: chunked\r\n\r\nffffffffff\r\n", BadAnswerError),
        (OK + b"a: b\r\n" * 200 + b"\r\n", BadAnswerError),
        (OK + b"a: " + b"b" * 100_000 + b"\r\n\r\n", BadAnswerError),
        (b"HTTP/1.1 500 Oops\r\nContent-Length: 5\r\n\r\noops!", BadAnswerError),
        (b"HTTP/1.1 302 Found\r\nContent-Length: 2\r\n\r\n[]", BadAnswerError),
        (b'HTTP/1.1 503 Busy\r\nContent-Length: 14\r\n\r\n{"error":"HM"}', BadAnswerError),
    ],
)
async def test_an_answer_that_is_none_is_told_apart(answer: bytes, error: type) -> None:
    async with answering(answer) as url, Client(url) as client:
        with pytest.raises(error):
            await client.me()


async def test_a_chunked_answer_after_a_preliminary_one_is_read() -> None:
    chunked = b'Transfer-Encoding: chunked\r\n\r\n3;x=y\r\n{"a\r\n4\r\n":1}\r\n0\r\nt: u\r\n\r\n'
    async with answering(b"HTTP/1.1 103 Early\r\n\r\n" + OK + chunked) as url:
        async with Client(url) as client:
            assert await client.openapi() == {"a": 1}


async def test_a_scheduler_that_does_not_answer_is_given_up(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("lingua_sdk.client._TIME_LIMIT_S", 0.05)

    async def silent(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await asyncio.sleep(10)
        writer.close()

    server = await asyncio.start_server(silent, "127.0.0.1", 0)
    port = server.sockets[0].getsockname()[1]
    async with Client(f"http://127.0.0.1:{port}") as client:
        with pytest.raises(TimedOutError, match="check before you repeat"):
            await client.me()
    server.close()


@pytest.mark.parametrize(
    "address",
    ["", "127.0.0.1:7410", "ftp://x", "http://", "http://x:y", "http://x?a=b", "ws:///v1"],
)
def test_an_address_that_cannot_be_one_is_said_at_once(address: str) -> None:
    with pytest.raises(InvalidOptionsError, match=r"127\.0\.0\.1:7410"):
        Client(address)


def test_options_that_cannot_be_sent_are_said_at_once() -> None:
    with pytest.raises(InvalidOptionsError, match="printable"):
        Client("http://x", token="a\nb")
    with pytest.raises(InvalidOptionsError, match="PEM"):
        Client("https://x", ca="/nowhere/ca.pem")
    with pytest.raises(InvalidOptionsError, match="slots"):
        Node("http://x", upper, languages=["en"], slots=0)
    with pytest.raises(InvalidOptionsError, match="semantic is empty"):
        Node("http://x", upper, asr=["en"], tts=["en"])


async def test_a_key_or_a_job_that_cannot_be_sent_is_said_before_it_is() -> None:
    client = Client("http://127.0.0.1:9")
    with pytest.raises(InvalidOptionsError, match="key"):
        await client.translate(key="a\r\nHost: b", **ZH_EN, text="a")
    with pytest.raises(InvalidOptionsError, match="cannot be sent"):
        await client.translate(**ZH_EN, text="\ud800")
    with pytest.raises(UnreachableError, match="lingua serve"):
        await client.translate(**ZH_EN, text="a")


@pytest.fixture(scope="module")
def certificate(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Make a certificate for 127.0.0.1, signed by itself."""
    folder = tmp_path_factory.mktemp("tls")
    subprocess.run(
        [
            "openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "2",
            "-subj", "/CN=127.0.0.1", "-addext", "subjectAltName=IP:127.0.0.1",
            "-keyout", str(folder / "key.pem"), "-out", str(folder / "cert.pem"),
        ],
        check=True, capture_output=True,
    )  # fmt: skip
    (folder / "key.pem").chmod(0o600)
    return folder


async def test_over_tls_everything_works_for_those_who_trust_it(
    certificate: Path, start_scheduler: Callable[..., Scheduler]
) -> None:
    ca = certificate / "cert.pem"
    settings = {"SERVER__TLS_CERT": str(ca), "SERVER__TLS_KEY": str(certificate / "key.pem")}
    scheduler = start_scheduler(settings)
    url = f"https://{scheduler.address}"
    async with connected(url, upper, ca=ca), Client(url, ca=ca) as client:
        job = await client.translate(**ZH_EN, text="a")
        assert job["state"] == "DONE"
        async with client.session(**ZH_EN) as session:
            session.text("b")
            session.end()
            assert [event["type"] async for event in session][-1] == "result"
        for call in (Client(url).me(), _start(Client(url))):
            with pytest.raises(UntrustedError, match="`ca`"):
                await call
        with pytest.raises(BadAnswerError, match="https://"):
            await Client(url.replace("https", "http"), ca=ca).me()
    with pytest.raises(UnreachableError, match="TLS"):
        await Client(start_scheduler().url.replace("http", "https")).me()


async def _start(client: Client) -> None:
    async with client.session(**ZH_EN):
        pass
