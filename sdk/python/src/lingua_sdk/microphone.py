"""The microphone of this machine; needs `pip install lingua-sdk[microphone]`.

Start at `microphone`.
"""

from __future__ import annotations

import asyncio
from importlib import import_module
from typing import TYPE_CHECKING, Any

from .audio import FRAME_MS, SAMPLE_RATE_DEFAULT
from .errors import MicrophoneError

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

_FRAMES_MAX = 500
"""Most frames that wait for the program, 10 s; then the oldest is dropped."""


async def microphone(
    sample_rate: int = SAMPLE_RATE_DEFAULT,
    frame_ms: int = FRAME_MS,
    device: str | int | None = None,
) -> AsyncIterator[bytes]:
    """Give frames of `pcm16` as they are heard."""
    sounddevice = _sounddevice()
    loop = asyncio.get_running_loop()
    heard: asyncio.Queue[bytes] = asyncio.Queue()

    def keep(frame: bytes) -> None:
        if heard.qsize() >= _FRAMES_MAX:
            heard.get_nowait()
        heard.put_nowait(frame)

    def on_frame(data: Any, *_: object) -> None:
        loop.call_soon_threadsafe(keep, bytes(data))

    try:
        stream = sounddevice.RawInputStream(
            samplerate=sample_rate, blocksize=sample_rate * frame_ms // 1000, device=device,
            channels=1, dtype="int16", callback=on_frame,
        )  # fmt: skip
        stream.start()
    except (sounddevice.PortAudioError, ValueError) as error:
        raise MicrophoneError(
            f"the microphone cannot be used: {error}; is there one, and may this program use it? "
            "`python -m sounddevice` lists the devices"
        ) from None
    try:
        while True:
            yield await heard.get()
    finally:
        stream.close()


def _sounddevice() -> Any:
    try:
        return import_module("sounddevice")
    except ImportError:
        advice = "pip install 'lingua-sdk[microphone]'"
        raise MicrophoneError(f"the package sounddevice is missing: {advice}") from None
    except OSError as error:
        advice = "install PortAudio, such as the package libportaudio2"
        raise MicrophoneError(f"the library for audio is missing ({error}): {advice}") from None
