"""Endpoint: a server to which connectors send requests, as a program's code declares it.

An endpoint has references to secrets, never secrets: `env:NAME` (a variable of the worker), `file:PATH` (a file on its
machine) or `resolver:NAME` (a function that the App registers).
"""

from __future__ import annotations

import re
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, TypeAlias

from watchbill.model.durations import Duration, seconds
from watchbill.model.limits import Rate
from watchbill.model.option_names import suggest_options

SecretResolver: TypeAlias = Callable[[str, str], str | Awaitable[str]]

_REFERENCE = re.compile(r"(env|file|resolver):\S{1,490}")
_NAME = re.compile(r"[A-Za-z0-9._-]{1,100}")


def _check_reference(where: str, secret: object) -> None:
    if not isinstance(secret, str) or _REFERENCE.fullmatch(secret) is None:
        # Does not repeat the value: it may be the secret itself.
        raise ValueError(f"{where} must be a reference to a secret: env:NAME, file:PATH or resolver:NAME")


@dataclass(frozen=True)
class Bearer:
    """Sends `Authorization: Bearer SECRET`."""

    secret: str

    def __post_init__(self) -> None:
        _check_reference("Bearer(secret)", self.secret)

    @property
    def definition(self) -> dict[str, Any]:
        return {"kind": "bearer", "secret": self.secret}


@dataclass(frozen=True)
class Basic:
    """Sends `Authorization: Basic`, with a user and a secret as the password."""

    user: str
    secret: str

    def __post_init__(self) -> None:
        _check_reference("Basic(secret)", self.secret)

    @property
    def definition(self) -> dict[str, Any]:
        return {"kind": "basic", "user": self.user, "secret": self.secret}


@dataclass(frozen=True)
class SecretHeader:
    """Sends the secret in a header, such as `X-Api-Key`."""

    name: str
    secret: str

    def __post_init__(self) -> None:
        _check_reference("SecretHeader(secret)", self.secret)

    @property
    def definition(self) -> dict[str, Any]:
        return {"kind": "header", "name": self.name, "secret": self.secret}


@dataclass(frozen=True, init=False)
class Signature:
    """Signs webhooks. Several secrets sign each webhook several times, while one replaces the other."""

    secrets: tuple[str, ...]

    def __init__(self, *secrets: str) -> None:
        object.__setattr__(self, "secrets", secrets)
        if not 1 <= len(secrets) <= 10:
            raise ValueError("Signature() needs 1 to 10 references to secrets, such as env:WATCHBILL_SECRET_CRM")
        for secret in secrets:
            _check_reference("Signature(secret)", secret)

    @property
    def definition(self) -> dict[str, Any]:
        return {"kind": "signature", "secrets": list(self.secrets)}


Auth: TypeAlias = Bearer | Basic | SecretHeader | Signature


@suggest_options
@dataclass(frozen=True)
class Endpoint:
    """A server of a tenant. `hosts`: where its secret may go; the default is the host of `base_url`. `max`: how many of
    its jobs run at once, in the whole installation, and `rates` how many start in a time. `ordered`: its jobs run one
    at a time, in the order of their enqueues. With a Signature it receives webhooks."""

    name: str
    base_url: str
    auth: Auth | None = None
    headers: Mapping[str, str] = field(default_factory=dict)
    hosts: Sequence[str] = ()
    timeout: Duration | None = None
    max: int = 5
    tenant: str = "default"
    rates: Sequence[Rate] = ()
    ordered: bool = False

    def __post_init__(self) -> None:
        if _NAME.fullmatch(self.name) is None:
            raise ValueError(
                f"Endpoint({self.name!r}) is invalid: a name has 1 to 100 letters, digits, dots, hyphens and "
                "underscores"
            )
        if not self.base_url.startswith(("https://", "http://")):
            raise ValueError(f"Endpoint(base_url={self.base_url!r}) is invalid: give https://api.example.com/v2, say")
        if self.auth is not None and not isinstance(self.auth, Auth):
            raise TypeError("Endpoint(auth=...) is invalid: give Bearer, Basic, SecretHeader or Signature")
        if type(self.max) is not int or not 0 <= self.max <= 100_000:
            raise ValueError(f"Endpoint(max={self.max!r}) is invalid: it must be a whole number from 0 to 100,000")
        if any(type(each) is not Rate or (each.name, each.by) != (None, None) for each in self.rates):
            raise ValueError("Endpoint(rates=...) is invalid: give Rate(10, per='1s'), say, without name and by")
        if type(self.ordered) is not bool:
            raise ValueError(f"Endpoint(ordered={self.ordered!r}) is invalid: it must be True or False")
        if self.timeout is not None and not 0.1 <= seconds(self.timeout) <= 3_600:
            raise ValueError(f"Endpoint(timeout={self.timeout!r}) is invalid: it must be from 0.1 s to an hour")

    @property
    def kind(self) -> Literal["http", "webhook"]:
        return "webhook" if isinstance(self.auth, Signature) else "http"

    @property
    def definition(self) -> dict[str, Any]:
        """The endpoint in the form that the SQL function declare_endpoints() takes."""
        rates = sorted(self.rates, key=lambda rate: seconds(rate.per))
        return {
            "tenant": self.tenant,
            "name": self.name,
            "kind": self.kind,
            "base_url": self.base_url,
            "headers": dict(self.headers),
            "auth": None if self.auth is None else self.auth.definition,
            "hosts": [host.lower() for host in self.hosts],
            "timeout": None if self.timeout is None else seconds(self.timeout),
            "max": self.max,
            "rates": [{"evenly": False, **rate.rule} for rate in rates] or None,
            "ordered": self.ordered,
        }
