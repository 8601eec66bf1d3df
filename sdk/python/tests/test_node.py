"""Nodes and the real program: jobs are neither lost nor doubled, whatever breaks."""

from __future__ import annotations

import asyncio
import hashlib
import time
from collections import Counter
from typing import TYPE_CHECKING, Any

import pytest

from lingua_sdk import Client, Failure, Job, Node, Output, RefusedError, Sound, TakenOverError
from nodes import Manual, connected, running, upper
from scheduler import Proxy, Scheduler, until

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

ZH_EN: Any = {"src_lang": "zh", "tgt_lang": "en"}


async def test_a_job_is_done_and_the_client_gets_every_field(scheduler: Scheduler) -> None:
    async def handle(job: Job) -> Output:
        assert job.audio == Sound.pcm16(b"\1\0" * 1600)
        assert (job.src_lang, job.tgt_lang, job.session_id) == ("zh", "en", "room-7")
        assert (job.context, job.options["priority"]) == (["earlier"], 3)
        speech = Sound.pcm16(b"\2\0" * 4000, 24_000)
        return Output("hello", "你好", speech, extra={"model": "m1", "timings": {"asr_ms": 3}})

    async with connected(scheduler.url, handle), scheduler.client() as client:
        job = await client.translate(
            **ZH_EN,
            audio=Sound.pcm16(b"\1\0" * 1600).encode(),
            session_id="room-7",
            context=["earlier"],
            options={"priority": 3, "require_tts": True},
        )
    result: Any = job.get("result")
    assert (job["state"], job.get("node_id"), len(job["attempts"])) == ("DONE", "py-1", 1)
    speech = Sound.decode(result.pop("tts_audio"))
    assert speech == Sound.pcm16(b"\2\0" * 4000, 24_000)
    assert result == {
        "text_asr": "你好", "text_translated": "hello", "model": "m1", "timings": {"asr_ms": 3}
    }  # fmt: skip


async def test_the_node_is_registered_as_it_said(scheduler: Scheduler) -> None:
    options: dict[str, Any] = {
        "languages": ["zh"], "asr": ["zh", "en"], "tts": ["en"], "slots": 7, "version": "9.9",
        "services": {"tts": False, "tone": True}, "nmt_pairs": [("zh", "en")],
        "load": lambda: {"cpu": 0.25}, "labels": ["gpu", "eu"],
    }  # fmt: skip
    async with connected(scheduler.url, upper, **options) as node, scheduler.client() as client:
        view: Any = await client.node("py-1")
        assert (view["state"], view["max"], view["version"]) == ("ready", 7, "9.9")
        assert view["languages"]["asr_languages"] == ["en", "zh"]
        assert sorted(view["labels"]) == ["eu", "gpu"]
        assert (view["services"]["tts"], view["services"]["tone"]) == (False, True)
        assert set(view["pools"]) == {"zh:en", "*:en"}
        node.stop()
        await until(lambda: not node.stats.is_connected)
        assert (await client.node("py-1"))["state"] == "offline"


async def test_partials_are_seen_before_the_result(scheduler: Scheduler) -> None:
    handler = Manual()
    async with connected(scheduler.url, handler), scheduler.client() as client:
        sent = await client.dispatch(**ZH_EN, text="你好")
        job, outcome = await handler.next()
        job.partial("hel")

        async def is_shown() -> bool:
            return (await client.job(sent["job_id"])).get("partial") == "hel"

        await until(is_shown)
        outcome.set_result("hello")
        ended = await client.job(sent["job_id"], wait_ms=5000)
        assert (ended["state"], ended.get("partial")) == ("DONE", None)


async def test_a_failure_is_retried_elsewhere_unless_it_is_final(scheduler: Scheduler) -> None:
    async def fail(job: Job) -> str:
        raise Failure("NO_MEMORY", "gpu 0", retryable=job.text != "final")

    async with connected(scheduler.url, fail), scheduler.client() as client:
        with pytest.raises(RefusedError) as raised:
            await client.translate(**ZH_EN, text="final")
        assert (raised.value.code, raised.value.status) == ("NODE_FAILED", 502)
        assert "NO_MEMORY" in raised.value.detail
        async with connected(scheduler.url, upper, node_id="py-2"):
            jobs = [client.translate(**ZH_EN, text=f"try {number}") for number in range(8)]
            for job in await asyncio.gather(*jobs):
                assert job.get("node_id") == "py-2"


async def test_a_cancelled_job_ends_the_handler_and_frees_the_slot(scheduler: Scheduler) -> None:
    handler = Manual()
    async with connected(scheduler.url, handler, slots=1), scheduler.client() as client:
        sent = await client.dispatch(**ZH_EN, text="a")
        job, outcome = await handler.next()
        assert (await client.cancel(sent["job_id"]))["state"] == "CANCELLED"
        await until(outcome.cancelled)
        assert job.is_cancelled
        # A client that hangs up cancels as well.
        hanging = asyncio.create_task(client.translate(**ZH_EN, text="b"))
        job, outcome = await handler.next()
        hanging.cancel()
        await until(outcome.cancelled)
        assert job.is_cancelled
        again = asyncio.create_task(client.translate(**ZH_EN, text="c"))
        (await handler.next())[1].set_result("C")
        assert (await again)["state"] == "DONE"


async def test_slots_are_never_exceeded_and_all_are_used(scheduler: Scheduler) -> None:
    async def slow(job: Job) -> str:
        await asyncio.sleep(0.01)
        return job.text or ""

    async with connected(scheduler.url, slow, slots=3) as node, scheduler.client() as client:
        jobs = [
            client.translate(**ZH_EN, text=str(number), options={"wait_ms": 30_000})
            for number in range(60)
        ]
        texts = [
            (job.get("result") or {}).get("text_translated") for job in await asyncio.gather(*jobs)
        ]
        assert texts == [str(number) for number in range(60)]
        assert (node.stats.running_max, node.stats.done, node.stats.refused) == (3, 60, 0)


async def test_a_result_made_without_a_connection_is_not_lost(scheduler: Scheduler) -> None:
    started, go_on = asyncio.Event(), asyncio.Event()

    async def handle(job: Job) -> str:
        started.set()
        if job.key[1] == 1:
            await go_on.wait()
        return f"attempt {job.key[1]}"

    async with Proxy(scheduler.port) as proxy, scheduler.client() as client:
        async with connected(proxy.url, handler=handle, slots=1) as node:
            sent = await client.dispatch(**ZH_EN, text="a", options={"wait_ms": 10_000})
            await started.wait()
            proxy.is_refusing = True
            proxy.cut()
            await until(lambda: not node.stats.is_connected)
            go_on.set()
            await until(lambda: node.stats.done == 1)
            proxy.is_refusing = False
            ended = await client.job(sent["job_id"], wait_ms=10_000)
            # The late result or that of another attempt: one of them counts.
            assert ended["state"] == "DONE"
            assert node.stats.reconnects >= 1


async def test_a_job_goes_on_when_only_the_node_noticed_the_break(
    start_scheduler: Callable[..., Scheduler],
) -> None:
    scheduler = start_scheduler({"SCHEDULER__HEARTBEAT_INTERVAL_MS": "100"})
    handler = Manual()
    async with Proxy(scheduler.port) as proxy, scheduler.client() as client:
        async with connected(proxy.url, handler, slots=1) as node:
            sent = await client.dispatch(**ZH_EN, text="a")
            _, outcome = await handler.next()
            proxy.is_mute = True
            await until(lambda: not node.stats.is_connected)
            proxy.is_mute = False
            await until(lambda: node.stats.is_connected)
            outcome.set_result("one")
            ended = await client.job(sent["job_id"], wait_ms=10_000)
            assert (ended["state"], len(ended["attempts"])) == ("DONE", 1)


async def test_no_job_is_lost_or_wrong_while_connections_are_cut(scheduler: Scheduler) -> None:
    jobs_at_once = 300

    async def digest(job: Job) -> Output:
        await asyncio.sleep(0.002)
        data = (job.text or "").encode()
        return Output(hashlib.sha256(data).hexdigest(), tts_audio=Sound("raw", data * 50))

    async def translate(client: Client, number: int) -> Any:
        options: Any = {"wait_ms": 30_000, "require_tts": True}
        while True:
            try:
                return await client.translate(
                    key=f"job {number}", text=f"text {number}", options=options, **ZH_EN
                )
            except RefusedError as error:
                if not error.is_safe_to_retry:
                    raise
                await asyncio.sleep(0.02)

    async def cut_often(proxies: list[Proxy]) -> None:
        while True:
            for proxy in proxies:
                await asyncio.sleep(0.05)
                proxy.cut()

    async with Proxy(scheduler.port) as one, Proxy(scheduler.port) as two:
        async with (
            connected(one.url, digest, node_id="a", slots=4) as first,
            connected(two.url, digest, node_id="b", slots=4) as second,
            scheduler.client() as client,
        ):
            cutting = asyncio.create_task(cut_often([one, two]))
            limit = asyncio.Semaphore(16)

            async def limited(number: int) -> Any:
                async with limit:
                    return await translate(client, number)

            # As many jobs as it takes: a fast machine does hundreds between two cuts.
            ended: list[Any] = []
            while first.stats.reconnects + second.stats.reconnects <= 3:
                numbers = range(len(ended), len(ended) + jobs_at_once)
                ended += await asyncio.gather(*map(limited, numbers))
            cutting.cancel()
    assert Counter(job["state"] for job in ended) == {"DONE": len(ended)}
    for number, job in enumerate(ended):
        data = f"text {number}".encode()
        assert job["result"]["text_translated"] == hashlib.sha256(data).hexdigest()
        assert Sound.decode(job["result"]["tts_audio"]) == Sound("raw", data * 50)


async def test_a_drained_node_finishes_and_gets_no_more_until_it_is_resumed(
    start_scheduler: Callable[..., Scheduler],
) -> None:
    scheduler = start_scheduler({"SCHEDULER__HEARTBEAT_INTERVAL_MS": "100"})
    handler = Manual()
    async with connected(scheduler.url, handler) as node, scheduler.client() as client:
        sent = await client.dispatch(**ZH_EN, text="a")
        _, outcome = await handler.next()
        assert (await client.drain("py-1"))["state"] == "draining"
        with pytest.raises(RefusedError) as raised:
            await client.translate(**ZH_EN, text="b", options={"wait_ms": 0})
        assert raised.value.code == "ALL_CANDIDATES_FULL_OR_FAILED"
        assert raised.value.is_safe_to_retry and raised.value.retry_after_ms is not None
        outcome.set_result("A")
        assert (await client.job(sent["job_id"], wait_ms=5000))["state"] == "DONE"
        await client.resume("py-1")
        task = asyncio.create_task(client.translate(**ZH_EN, text="c"))
        (await handler.next())[1].set_result("C")
        assert (await task)["state"] == "DONE"
        assert node.stats.refused == 0


async def test_a_node_that_stops_finishes_its_job_and_is_offline(scheduler: Scheduler) -> None:
    handler = Manual()
    async with scheduler.client() as client:
        node = Node(scheduler.url, handler, languages=["zh", "en"], node_id="py-1")
        task = asyncio.create_task(node.run())
        await until(lambda: node.stats.is_connected)
        sent = await client.dispatch(**ZH_EN, text="a")
        _, outcome = await handler.next()
        node.stop()

        async def is_draining() -> bool:
            return (await client.node("py-1"))["state"] == "draining"

        await until(is_draining)
        outcome.set_result("A")
        await task
        ended = await client.job(sent["job_id"])
        assert (ended["state"], len(ended["attempts"])) == ("DONE", 1)
        assert (await client.node("py-1"))["state"] == "offline"


async def test_a_second_process_with_the_id_takes_over(scheduler: Scheduler) -> None:
    first = Node(scheduler.url, upper, languages=["zh", "en"], node_id="py-1")
    task = asyncio.create_task(first.run())
    await until(lambda: first.stats.is_connected)
    async with connected(scheduler.url, upper) as second, scheduler.client() as client:
        with pytest.raises(TakenOverError, match="different node ids"):
            await task
        assert (await client.translate(**ZH_EN, text="a"))["state"] == "DONE"
        assert second.stats.done == 1


async def test_nodes_survive_a_scheduler_that_restarts_empty(
    start_scheduler: Callable[..., Scheduler],
) -> None:
    first = start_scheduler()
    port = first.port
    async with connected(first.url, upper) as node:
        first.stop()
        await until(lambda: not node.stats.is_connected)
        second = start_scheduler(port=port)
        await until(lambda: node.stats.is_connected)
        async with second.client() as client:
            assert (await client.translate(**ZH_EN, text="a"))["state"] == "DONE"


async def test_streamed_audio_reaches_the_handler_while_it_is_spoken(scheduler: Scheduler) -> None:
    first_piece = asyncio.Event()

    async def listen(job: Job) -> Output:
        assert job.stream is not None
        heard = b""
        async for piece in job.stream:
            heard += piece
            first_piece.set()
            job.partial(f"{len(heard)} bytes")
        return Output(hashlib.sha256(heard).hexdigest())

    speech = bytes(range(1, 201)) * 320
    async with connected(scheduler.url, listen, streaming=True), scheduler.client() as client:
        async with client.session(**ZH_EN, partials=True) as session:
            session.turn_start()
            session.audio(speech[:32_000])
            # It hears the beginning although the turn has not ended.
            await asyncio.wait_for(first_piece.wait(), 10)
            session.audio(speech[32_000:])
            session.turn_end()
            session.end()
            events = [event async for event in session]
    result = next(event for event in events if event["type"] == "result")
    assert result.get("text_translated") == hashlib.sha256(speech).hexdigest()
    assert any(event["type"] == "partial" for event in events)


TOKENS = """
[[auth.tokens]]
name = "fleet"
role = "node"
nodes = ["py-*"]
sha256 = "{node}"
[[auth.tokens]]
name = "app"
role = "client"
sha256 = "{client}"
"""


async def test_with_tokens_each_role_does_its_own(
    start_scheduler: Callable[..., Scheduler], tmp_path: Path
) -> None:
    digests = {role: hashlib.sha256(role.encode()).hexdigest() for role in ("node", "client")}
    config = tmp_path / "lingua.toml"
    config.write_text(TOKENS.format(**digests))
    scheduler = start_scheduler(config=config)
    async with connected(scheduler.url, upper, token="node"), scheduler.client("client") as client:
        assert (await client.translate(**ZH_EN, text="a"))["state"] == "DONE"
        me: Any = await client.me()
        assert (me["name"], me["role"]) == ("app", "client")
        with pytest.raises(RefusedError) as raised:
            await client.nodes()
        assert (raised.value.code, raised.value.status) == ("FORBIDDEN", 403)
        async with client.session(**ZH_EN) as session:
            session.text("b")
            session.end()
            assert [event["type"] async for event in session][-1] == "result"
    for token, code in ((None, "UNAUTHORIZED"), ("wrong", "UNAUTHORIZED"), ("client", "FORBIDDEN")):
        with pytest.raises(RefusedError) as raised:
            await Node(scheduler.url, upper, languages=["en"], token=token).run()
        assert raised.value.code == code
    assert "secret" not in repr(Node(scheduler.url, upper, languages=["en"], token="secret"))
    with pytest.raises(RefusedError) as raised:
        async with Client(scheduler.url).session(**ZH_EN):
            pass
    assert raised.value.code == "UNAUTHORIZED"


async def test_a_registration_that_cannot_be_right_names_the_field(scheduler: Scheduler) -> None:
    with pytest.raises(RefusedError, match="klingon_empire") as raised:
        await Node(scheduler.url, upper, languages=["klingon_empire_1"]).run()
    assert raised.value.code == "INVALID_LANGUAGE"


async def test_a_blocking_handler_keeps_the_node_alive(
    start_scheduler: Callable[..., Scheduler],
) -> None:
    def block(job: Job) -> str:
        time.sleep(0.3)
        return job.text or ""

    settings = {"SCHEDULER__HEARTBEAT_INTERVAL_MS": "50", "SCHEDULER__RUN_LEASE_MS": "200"}
    scheduler = start_scheduler(settings)
    async with running(scheduler.url, block, slots=4) as node, scheduler.client() as client:
        await until(lambda: node.stats.is_connected)
        jobs = (client.translate(**ZH_EN, text=str(number)) for number in range(4))
        ended = await asyncio.gather(*jobs)
        assert [len(job["attempts"]) for job in ended] == [1, 1, 1, 1]
        assert node.stats.running_max == 4
