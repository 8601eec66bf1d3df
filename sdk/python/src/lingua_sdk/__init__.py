"""Write a node or a client of Lingua in a few lines.

| name | what it is |
|---|---|
| `Node` | does jobs: registers, reconnects, sends results again until they are confirmed |
| `Client` | every HTTP route as a typed call |
| `Session` | speech or text in, translations in the order spoken out; from `Client.session` |
| `Sound`, `read_wav`, `write_wav`, `frames` | audio, without further packages |
| `wire` | all messages as types, generated from the scheduler's own description |

Start at `Node` and `Client`. `lingua_sdk.microphone` needs `lingua-sdk[microphone]`.

Invariant: the SDK shares only the wire with the scheduler.
"""

from . import wire
from .audio import Sound, frames, read_wav, write_wav
from .client import Client
from .errors import (
    BadAnswerError,
    HandlerError,
    InvalidOptionsError,
    LinguaError,
    MicrophoneError,
    RefusedError,
    TakenOverError,
    TimedOutError,
    UnreachableError,
    UntrustedError,
)
from .node import Failure, Job, Node, Output, SoundStream, Stats, in_processes, in_threads
from .session import Session
from .version import __version__

__all__ = [
    "BadAnswerError",
    "Client",
    "Failure",
    "HandlerError",
    "InvalidOptionsError",
    "Job",
    "LinguaError",
    "MicrophoneError",
    "Node",
    "Output",
    "RefusedError",
    "Session",
    "Sound",
    "SoundStream",
    "Stats",
    "TakenOverError",
    "TimedOutError",
    "UnreachableError",
    "UntrustedError",
    "__version__",
    "frames",
    "in_processes",
    "in_threads",
    "read_wav",
    "wire",
    "write_wav",
]
