"""Translates a WAV file while it is spoken: `python speak.py http://127.0.0.1:7410 en es a.wav`."""

import asyncio
import sys

from lingua_sdk import Client, frames, read_wav


async def main(address: str, src_lang: str, tgt_lang: str, path: str) -> None:
    async with Client(address).session(src_lang=src_lang, tgt_lang=tgt_lang) as session:
        session.turn_start()
        async for frame in frames(read_wav(path)):
            session.audio(frame)
        session.turn_end()
        session.end()
        async for event in session:
            print(event)


asyncio.run(main(*sys.argv[1:]))
