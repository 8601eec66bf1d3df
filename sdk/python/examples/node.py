"""A node with a model of one's own: `python node.py http://127.0.0.1:7410`."""

import asyncio
import logging
import sys

from lingua_sdk import Failure, Job, Node, Output


async def handle(job: Job) -> Output:
    if job.text is None:
        raise Failure("TEXT_ONLY", retryable=False)
    job.partial("…")
    return Output(text_asr=job.text, text_translated=job.text[::-1])  # your model here


logging.basicConfig(level=logging.INFO)
asyncio.run(Node(sys.argv[1], handle, languages=["zh", "en"], node_id="py-1", slots=4).run())
