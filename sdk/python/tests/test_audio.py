"""Audio files, frames and the microphone."""

from __future__ import annotations

import asyncio
import math
import sys
import types
import wave
from array import array
from typing import TYPE_CHECKING, Any

import pytest

from lingua_sdk import InvalidOptionsError, MicrophoneError, Sound, frames, read_wav, write_wav
from lingua_sdk.microphone import microphone

if TYPE_CHECKING:
    from pathlib import Path


def tone(rate: int, ms: int = 100) -> array[int]:
    """440 Hz."""
    return array(
        "h", (int(9000 * math.sin(math.tau * 440 * n / rate)) for n in range(rate * ms // 1000))
    )


def write(path: Path, samples: array[int], rate: int, channels: int = 1, width: int = 2) -> None:
    with wave.open(str(path), "wb") as file:
        file.setnchannels(channels)
        file.setsampwidth(width)
        file.setframerate(rate)
        file.writeframes(samples.tobytes())


def test_a_file_is_read_as_it_was_written(tmp_path: Path) -> None:
    sound = Sound.pcm16(tone(16_000).tobytes())
    write_wav(tmp_path / "a.wav", sound)
    assert read_wav(tmp_path / "a.wav") == sound
    assert sound.duration_ms == 100
    write_wav(tmp_path / "b.wav", Sound("wav", (tmp_path / "a.wav").read_bytes()))
    assert read_wav(tmp_path / "b.wav") == sound


@pytest.mark.parametrize("rate", [8000, 11_025, 22_050, 44_100, 48_000])
def test_other_rates_and_channels_become_what_a_session_takes(tmp_path: Path, rate: int) -> None:
    path = tmp_path / "a.wav"
    stereo = array("h", (value for sample in tone(rate) for value in (sample, sample)))
    write(path, stereo, rate, channels=2)
    sound = read_wav(path)
    assert sound.sample_rate == 16_000
    assert abs(sound.duration_ms - 100) < 1
    heard, expected = array("h", sound.data), tone(16_000)
    # Behind the last sample there is nothing to draw a line to.
    worst = max(abs(a - b) for a, b in zip(heard[:-8], expected, strict=False))
    assert worst < 400, "it is another sound"
    assert read_wav(path, None).sample_rate == rate


def test_what_cannot_be_read_or_written_is_said(tmp_path: Path) -> None:
    write(tmp_path / "a.wav", tone(8000), 8000, width=1)
    with pytest.raises(InvalidOptionsError, match="16 bits"):
        read_wav(tmp_path / "a.wav")
    with pytest.raises(InvalidOptionsError, match="opus"):
        write_wav(tmp_path / "b.wav", Sound("opus", b"x"))


def test_audio_in_messages_is_read_with_and_without_padding() -> None:
    sound = Sound.pcm16(b"ab", 8000)
    assert sound.encode() == {"format": "pcm16", "sample_rate": 8000, "data": "YWI="}
    for data in ("YWI=", "YWI"):
        assert Sound.decode({"format": "pcm16", "sample_rate": 8000, "data": data}) == sound
    assert Sound.decode({"gone": True}) is None
    with pytest.raises(ValueError, match="base64"):
        Sound.decode({"format": "wav", "data": "%"})


async def test_frames_have_one_length_and_come_in_time() -> None:
    sound = Sound.pcm16(bytes(range(250)) * 10)
    loop = asyncio.get_running_loop()
    start = loop.time()
    pieces = [piece async for piece in frames(sound, 20, speed=4)]
    assert b"".join(pieces) == sound.data
    assert [len(piece) for piece in pieces] == [640, 640, 640, 580]
    assert loop.time() - start >= 0.014


class FakeDevices(types.ModuleType):
    """A library of sound devices, with a microphone that hears what the test says."""

    class PortAudioError(Exception):
        pass

    def __init__(self, error: Exception | None = None) -> None:
        super().__init__("sounddevice")
        self.error = error
        self.is_open = False
        self.callback: Any = None

    def RawInputStream(self, **options: Any) -> FakeDevices:  # noqa: N802
        if self.error is not None:
            raise self.error
        assert (options["samplerate"], options["blocksize"], options["dtype"]) == (
            8000,
            80,
            "int16",
        )
        self.callback = options["callback"]
        return self

    def start(self) -> None:
        self.is_open = True

    def close(self) -> None:
        self.is_open = False


async def test_a_microphone_gives_frames_and_is_closed(monkeypatch: pytest.MonkeyPatch) -> None:
    devices = FakeDevices()
    monkeypatch.setitem(sys.modules, "sounddevice", devices)
    heard = microphone(sample_rate=8000, frame_ms=10)
    first = asyncio.ensure_future(anext(heard))
    await asyncio.sleep(0)
    # The library calls back from a thread of its own, with memory that it uses again.
    await asyncio.to_thread(devices.callback, bytearray(b"\1\2" * 80), 80, None, None)
    assert await first == b"\1\2" * 80
    assert devices.is_open
    await heard.aclose()  # type: ignore[attr-defined]
    assert not devices.is_open


async def test_a_microphone_that_is_refused_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(
        sys.modules, "sounddevice", FakeDevices(FakeDevices.PortAudioError("-9996"))
    )
    with pytest.raises(MicrophoneError, match=r"-9996.*may this program use it"):
        await anext(microphone(8000, 10))
    monkeypatch.setitem(sys.modules, "sounddevice", None)
    with pytest.raises(MicrophoneError, match="pip install"):
        await anext(microphone())
