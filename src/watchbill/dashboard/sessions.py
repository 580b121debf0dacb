"""Logins of people: users of `dashboard_users`, signed cookies, form tokens, and what a request from another site may
not do. API keys are in `keys.py`; a mounted dashboard asks the `auth` of its application instead.
"""

from __future__ import annotations

import asyncio
import base64
import binascii
import hashlib
import hmac
import json
import secrets
import time
from collections import OrderedDict, deque
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import urlsplit

from starlette.requests import Request

from watchbill.dashboard.identity import Identity
from watchbill.dashboard.problems import Problem

COOKIE = "watchbill_session"
FORM_FIELD = "form_token"  # a hidden field of every form
FORM_HEADER = "X-Form-Token"  # the same for scripts
SESSION_SECONDS = 12 * 3600
FAILURES_PER_MINUTE = 5
_MOST_ADDRESSES = 10_000  # whose failures are remembered
_MOST_ENDED = 100_000  # logouts that are remembered
SAFE_METHODS = frozenset({"GET", "HEAD", "OPTIONS"})
# About 50 ms and 16 MB for each try.
_SCRYPT = {"n": 2**14, "r": 8, "p": 1, "dklen": 32}


@dataclass(frozen=True)
class User:
    """One entry of `dashboard_users`: `ann:operator:SALT:HASH`, as `watchbill keys user` prints it."""

    name: str
    role: Any
    salt: bytes
    digest: bytes

    @classmethod
    def read(cls, text: str) -> User:
        try:
            name, role, salt, digest = text.split(":")
            found = cls(name, role, _decode(salt), _decode(digest))
            Identity(name, found.role)
        except (ValueError, binascii.Error):
            shown = text.split(":")[0][:40]
            raise ValueError(
                f"the entry of {shown!r} is invalid: write NAME:ROLE:SALT:HASH, as `watchbill keys user` prints it"
            ) from None
        return found

    @classmethod
    def make(cls, name: str, role: Any, password: str) -> User:
        salt = secrets.token_bytes(16)
        Identity(name, role)
        if ":" in name or "," in name:
            raise ValueError("the name of a user has neither a colon nor a comma")
        return cls(name, role, salt, _hash_password(password, salt))

    def as_setting(self) -> str:
        return ":".join((self.name, self.role, _encode(self.salt), _encode(self.digest)))

    def has_password(self, password: str) -> bool:
        return hmac.compare_digest(_hash_password(password, self.salt), self.digest)


@dataclass(frozen=True)
class Session:
    """What a signed cookie says. `kind` is `user` or `key`; `name` that of the user, or the public part of the key.
    Roles are looked up anew for each request, so a session has no more rights than its user or key has now."""

    kind: str
    name: str
    id: str
    until: int


@dataclass
class Sessions:
    """`secret` signs cookies and form tokens; without one, a random one, so that a restart logs everybody out."""

    secret: str | None = None
    users: Mapping[str, User] = field(default_factory=dict)
    _failures: OrderedDict[str, deque[float]] = field(default_factory=OrderedDict)
    _ended: OrderedDict[str, int] = field(default_factory=OrderedDict)

    def __post_init__(self) -> None:
        self._key = hashlib.sha256((self.secret or secrets.token_hex(32)).encode()).digest()

    # -- Logins

    def refuse_guessing(self, address: str) -> None:
        """Raises after five failures in a minute from one address."""
        recent = self._failures.get(address)
        while recent and recent[0] < time.monotonic() - 60:
            recent.popleft()
        if recent and len(recent) >= FAILURES_PER_MINUTE:
            raise Problem(429, "There were five failed logins within a minute.", headers={"Retry-After": "60"})

    def note_failure(self, address: str) -> None:
        self._failures.setdefault(address, deque(maxlen=FAILURES_PER_MINUTE)).append(time.monotonic())
        self._failures.move_to_end(address)
        while len(self._failures) > _MOST_ADDRESSES:
            self._failures.popitem(last=False)

    async def check_password(self, name: str, password: str) -> Identity | None:
        """The user with this name and password. An unknown name takes as long as a wrong password."""
        user = self.users.get(name)
        tried = user or User(name, "reader", b"no such user....", b"")
        is_right = await asyncio.to_thread(tried.has_password, password)
        return Identity(user.name, user.role) if user is not None and is_right else None

    # -- Cookies

    def begin(self, kind: str, name: str) -> str:
        """The value of a new session's cookie."""
        until = int(time.time()) + SESSION_SECONDS
        text = json.dumps([kind, name, secrets.token_urlsafe(16), until]).encode()
        return f"{_encode(text)}.{self._sign(b'cookie', text)}"

    def read(self, cookie: str | None) -> Session | None:
        """The session of a cookie; None if it is forged, too old or ended."""
        text, _, signature = (cookie or "").partition(".")
        try:
            raw = _decode(text)
        except (ValueError, binascii.Error):
            return None
        if not hmac.compare_digest(self._sign(b"cookie", raw), signature.encode("ascii", "replace").decode()):
            return None
        kind, name, session_id, until = json.loads(raw)
        if until < time.time() or session_id in self._ended:
            return None
        return Session(kind, name, session_id, until)

    def end(self, session: Session) -> None:
        """A cookie that somebody has copied is of no use after the logout."""
        self._ended[session.id] = session.until
        while self._ended and (len(self._ended) > _MOST_ENDED or next(iter(self._ended.values())) < time.time()):
            self._ended.popitem(last=False)

    # -- Forms

    def make_form_token(self, identity: Identity, session: Session | None) -> str:
        """What a form has to send. It holds for this session only; without a session, for this identity."""
        owner = session.id if session else f"{identity.name}\0{identity.role}\0{identity.tenant or ''}"
        return self._sign(b"form", owner.encode())

    def is_form_token(self, given: str | None, identity: Identity, session: Session | None) -> bool:
        expected = self.make_form_token(identity, session)
        return hmac.compare_digest(expected.encode(), (given or "").encode("utf-8", "replace"))

    def _sign(self, purpose: bytes, text: bytes) -> str:
        return _encode(hmac.digest(self._key, purpose + b"\0" + text, "sha256"))


def refuse_other_site(request: Request) -> None:
    """Raises if a browser says that another site has made this request. Programs say nothing, and may pass."""
    site = request.headers.get("sec-fetch-site")
    if site is not None:
        is_same = site in ("same-origin", "none")
    else:
        origin = request.headers.get("origin")
        is_same = origin is None or (urlsplit(origin).netloc == request.headers.get("host") and origin != "null")
    if not is_same:
        raise Problem(403, "Another site has made this request.", title="Cross-site request")


def _hash_password(password: str, salt: bytes) -> bytes:
    return hashlib.scrypt(password.encode("utf-8", "surrogatepass"), salt=salt, **_SCRYPT)


def _encode(raw: bytes) -> str:
    return base64.urlsafe_b64encode(raw).rstrip(b"=").decode()


def _decode(text: str) -> bytes:
    return base64.b64decode(text + "=" * (-len(text) % 4), altchars=b"-_", validate=True)
