"""Addresses of schedulers, and opening WebSockets to them, for nodes and for sessions.

Start at `Endpoint.open`.

Invariant: an `UnreachableError` may pass; every other error needs a person.
"""

from __future__ import annotations

import ssl
from dataclasses import dataclass, field
from http import HTTPStatus
from typing import TYPE_CHECKING
from urllib.parse import SplitResult, urlsplit

from websockets.asyncio.client import connect
from websockets.exceptions import InvalidHandshake, InvalidStatus, InvalidURI

from .errors import InvalidOptionsError, RefusedError, UnreachableError, UntrustedError

if TYPE_CHECKING:
    from pathlib import Path

    from websockets.asyncio.client import ClientConnection

OPEN_TIMEOUT_S = 10.0
"""How long it may take to connect, and then again to get the first answer."""

MESSAGE_BYTES_MAX = 4 * 1024 * 1024

_FRAMES_QUEUED_MAX = 64
_CLOSE_TIMEOUT_S = 1.0
_REFUSALS = {HTTPStatus.UNAUTHORIZED: "UNAUTHORIZED", HTTPStatus.FORBIDDEN: "FORBIDDEN"}


@dataclass(frozen=True)
class Endpoint:
    """The address of a scheduler, the token to show it, and the certificates to trust."""

    url: SplitResult
    token: str | None = field(repr=False)
    tls: ssl.SSLContext | None

    @classmethod
    def parse(cls, address: str, token: str | None, ca: str | Path | None) -> Endpoint:
        """Check an address such as `http://127.0.0.1:7410` or `wss://host`; connect nothing."""
        try:
            url = urlsplit(address)
            _ = url.port
        except ValueError as error:
            raise _unusable(address, str(error)) from None
        if url.scheme not in {"http", "https", "ws", "wss"}:
            raise _unusable(address, "it does not start with http://, https://, ws:// or wss://")
        if not url.hostname or url.query or url.fragment:
            raise _unusable(address, "it is more or less than a scheme, a host and a port")
        if token is not None and not (token.isascii() and token.isprintable() and token.strip()):
            raise InvalidOptionsError(
                "the token has characters that cannot be sent; use printable ASCII"
            )
        tls = _trust(ca) if url.scheme in {"https", "wss"} else None
        return cls(url, token, tls)

    def base(self, scheme: str) -> str:
        """Give the address for `http` or `ws`, encrypted if this one is, without a route."""
        secure = "s" if self.tls else ""
        path = self.url.path.rstrip("/").partition("/v1/")[0]
        return f"{scheme}{secure}://{self.url.netloc}{path}"

    def headers(self) -> dict[str, str]:
        """Give the headers that show the token."""
        return {} if self.token is None else {"Authorization": f"Bearer {self.token}"}

    async def open(self, route: str, *, ping_interval_s: float | None = None) -> ClientConnection:
        """Open the WebSocket of a route."""
        url = self.base("ws") + route
        try:
            return await connect(
                url,
                additional_headers=self.headers(),
                compression=None,
                proxy=None,
                ssl=self.tls,
                open_timeout=OPEN_TIMEOUT_S,
                ping_interval=ping_interval_s,
                ping_timeout=ping_interval_s,
                close_timeout=_CLOSE_TIMEOUT_S,
                max_size=MESSAGE_BYTES_MAX,
                max_queue=_FRAMES_QUEUED_MAX,
            )
        except InvalidURI as error:
            raise _unusable(url, str(error)) from None
        except InvalidStatus as error:
            raise _refused(url, route, error.response.status_code) from None
        except (OSError, InvalidHandshake, EOFError) as error:
            raise unreachable(url, error, is_secure=self.tls is not None) from error


def unreachable(url: str, error: Exception, *, is_secure: bool) -> UnreachableError:
    """Say why there is no connection, and what to do."""
    if isinstance(error, ssl.SSLCertVerificationError):
        return UntrustedError(
            f"the certificate of {url} is not trusted: {error.verify_message}; if the scheduler "
            "is yours, give the certificate that signed it as `ca`"
        )
    if isinstance(error, ssl.SSLError) and is_secure:
        why = f"{error.reason or error}: does it speak TLS? try {url.replace('s://', '://', 1)}"
    elif isinstance(error, TimeoutError):
        why = f"no answer within {OPEN_TIMEOUT_S:g} s"
    else:
        why = str(error) or type(error).__name__
    return UnreachableError(f"cannot reach {url}: {why}: is `lingua serve` running?")


def _unusable(address: str, why: str) -> InvalidOptionsError:
    message = f"{address!r} is not usable: {why}; give an address like http://127.0.0.1:7410"
    return InvalidOptionsError(message)


def _refused(url: str, route: str, status: int) -> RefusedError | UnreachableError:
    code = _REFUSALS.get(HTTPStatus(status)) if status in set(HTTPStatus) else None
    if code is not None:
        return RefusedError(code, f"{url} answered so; check the token", status=status)
    if status == HTTPStatus.NOT_FOUND:
        return UnreachableError(f"{url} does not exist: is a Lingua scheduler there? ({route})")
    return UnreachableError(f"{url} answered with status {status}")


def _trust(ca: str | Path | None) -> ssl.SSLContext:
    try:
        return ssl.create_default_context(cafile=None if ca is None else str(ca))
    except (OSError, ssl.SSLError) as error:
        raise InvalidOptionsError(
            f"cannot trust {ca}: {error}; give a PEM file of certificates"
        ) from None
