"""Audio, and what one needs to read, write and pace it without further packages.

Start at `Sound`. `read_wav` and `frames` turn a file into what a session sends.
"""

from __future__ import annotations

import asyncio
import base64
import binascii
import sys
import wave
from array import array
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from .errors import InvalidOptionsError

if TYPE_CHECKING:
    from collections.abc import AsyncIterator
    from pathlib import Path

    from . import wire

SAMPLE_BYTES = 2
"""One sample of `pcm16`."""

SAMPLE_RATE_DEFAULT = 16_000
FRAME_MS = 20


@dataclass(frozen=True)
class Sound:
    """A piece of audio: `pcm16` is bare samples of 16 bits, other formats have a header."""

    format: str
    data: bytes = field(repr=False)
    sample_rate: int | None = None

    @classmethod
    def pcm16(cls, data: bytes, sample_rate: int = SAMPLE_RATE_DEFAULT) -> Sound:
        """Make a sound of bare samples: 16 bits, little-endian, one channel."""
        return cls("pcm16", data, sample_rate)

    @classmethod
    def decode(cls, audio: wire.Audio) -> Sound | None:
        """Read audio inside a message; `None` if it is not there (`gone`, or in a frame)."""
        data = audio.get("data")
        if data is None:
            return None
        try:
            decoded = base64.b64decode(data + "=" * (-len(data) % 4), validate=True)
        except binascii.Error as error:
            raise ValueError(f"the audio is not base64: {error}") from None
        return cls(audio.get("format", ""), decoded, audio.get("sample_rate"))

    def encode(self) -> wire.Audio:
        """Write the audio into a message, such as `client.translate(audio=sound.encode())`."""
        audio: wire.Audio = {"format": self.format, "data": base64.b64encode(self.data).decode()}
        if self.sample_rate is not None:
            audio["sample_rate"] = self.sample_rate
        return audio

    @property
    def duration_ms(self) -> float:
        """How long `pcm16` lasts."""
        return len(self.data) * 1000 / (SAMPLE_BYTES * (self.sample_rate or SAMPLE_RATE_DEFAULT))


def read_wav(path: str | Path, sample_rate: int | None = SAMPLE_RATE_DEFAULT) -> Sound:
    """Read a WAV file of 16 bits as `pcm16` with one channel, in this sample rate."""
    with wave.open(str(path), "rb") as file:
        if file.getsampwidth() != SAMPLE_BYTES:
            raise InvalidOptionsError(
                f"{path} has {8 * file.getsampwidth()} bits; convert it to 16 bits"
            )
        channels, rate = file.getnchannels(), file.getframerate()
        samples = _samples(file.readframes(file.getnframes()))
    if channels > 1:
        whole = len(samples) - len(samples) % channels
        mixed = (sum(samples[at : at + channels]) // channels for at in range(0, whole, channels))
        samples = array("h", mixed)
    target = sample_rate or rate
    return Sound.pcm16(_bytes(_resample(samples, rate, target)), target)


def write_wav(path: str | Path, sound: Sound) -> None:
    """Write `pcm16` as a WAV file; a sound that is a WAV file already is written as it is."""
    if sound.format == "wav":
        with open(path, "wb") as file:  # noqa: PTH123 - a path may be a text
            file.write(sound.data)
        return
    if sound.format != "pcm16":
        raise InvalidOptionsError(f"cannot write {sound.format!r} as WAV; give pcm16")
    with wave.open(str(path), "wb") as file:
        file.setnchannels(1)
        file.setsampwidth(SAMPLE_BYTES)
        file.setframerate(sound.sample_rate or SAMPLE_RATE_DEFAULT)
        file.writeframes(sound.data)


async def frames(
    sound: Sound, frame_ms: int = FRAME_MS, *, speed: float = 1.0
) -> AsyncIterator[bytes]:
    """Give `pcm16` in frames, as fast as it would be spoken, or `speed` times faster."""
    rate = sound.sample_rate or SAMPLE_RATE_DEFAULT
    size = max(1, rate * frame_ms // 1000) * SAMPLE_BYTES
    loop = asyncio.get_running_loop()
    next_at = loop.time()
    for at in range(0, len(sound.data), size):
        await asyncio.sleep(max(0.0, next_at - loop.time()))
        next_at += frame_ms / 1000 / speed
        yield sound.data[at : at + size]


def _resample(samples: array[int], rate: int, target: int) -> array[int]:
    """Resample by straight lines between the samples: enough for speech."""
    if rate == target or not samples:
        return samples
    last = len(samples) - 1
    resampled = array("h")
    for at in range(len(samples) * target // rate):
        left, part = divmod(at * rate, target)
        a, b = samples[left], samples[min(left + 1, last)]
        resampled.append(a + (b - a) * part // target)
    return resampled


def _samples(data: bytes) -> array[int]:
    samples = array("h", data)
    if sys.byteorder == "big":
        samples.byteswap()
    return samples


def _bytes(samples: array[int]) -> bytes:
    if sys.byteorder == "big":
        samples = array("h", samples)
        samples.byteswap()
    return samples.tobytes()
