"""Translates a text: `python client.py http://127.0.0.1:7410 zh en 你好`."""

import asyncio
import sys

from lingua_sdk import Client


async def main(address: str, src_lang: str, tgt_lang: str, text: str) -> None:
    async with Client(address) as client:
        job = await client.translate(src_lang=src_lang, tgt_lang=tgt_lang, text=text)
        print((job.get("result") or {}).get("text_translated"))


asyncio.run(main(*sys.argv[1:]))
