"""What a node offers, and how it behaves when something goes wrong.

Start at `NodeOptions`; `Node` takes the same names.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from lingua_sdk.errors import InvalidOptionsError

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from lingua_sdk import wire
    from lingua_sdk.connect import Endpoint

    from .admission import Health

_SLOTS_MAX = 1024


@dataclass
class Stats:
    """Counters of a node, to be read while it runs."""

    is_connected: bool = False
    running_max: int = 0
    done: int = 0
    failed: int = 0
    refused: int = 0
    reconnects: int = 0


@dataclass(frozen=True)
class NodeOptions:
    """The options of a node, checked."""

    endpoint: Endpoint
    node_id: str | None
    asr: Sequence[str]
    semantic: Sequence[str]
    tts: Sequence[str]
    nmt_pairs: Sequence[tuple[str, str]] | None
    services: wire.ServiceFlags | None
    labels: Sequence[str]
    slots: int
    streaming: bool
    accept_public_jobs: bool
    health: Health
    version: str
    load: Callable[[], wire.LoadFields] | None
    grace_s: float
    cancel_grace_s: float
    backoff_s: tuple[float, float]

    def __post_init__(self) -> None:
        if not 1 <= self.slots <= _SLOTS_MAX:
            raise InvalidOptionsError(f"{self.slots} slots; give 1 to {_SLOTS_MAX}")
        for name in ("asr", "semantic", "tts"):
            if not getattr(self, name):
                raise InvalidOptionsError(
                    f"{name} is empty; name the languages, or give all of them as `languages`"
                )
        if min(*self.backoff_s, self.grace_s, self.cancel_grace_s) < 0:
            raise InvalidOptionsError("a time is negative")

    def register(self) -> wire.RegisterMessage:
        """Make the registration of a node that was not registered before."""
        languages: wire.LanguageLists = {
            "asr_languages": list(self.asr),
            "semantic_languages": list(self.semantic),
            "tts_languages": list(self.tts),
        }
        if self.nmt_pairs is not None:
            languages["nmt_pairs"] = [(source, target) for source, target in self.nmt_pairs]
        fields: wire.RegisterMessage = {
            "type": "register",
            "version": self.version,
            "language_capabilities": languages,
            "accept_public_jobs": self.accept_public_jobs,
        }
        if self.node_id is not None:
            fields["node_id"] = self.node_id
        if self.services is not None:
            fields["services"] = self.services
        if self.labels:
            fields["labels"] = list(self.labels)
        if self.streaming:
            fields["streaming"] = True
        return fields
