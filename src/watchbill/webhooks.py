"""Signs webhooks, and verifies them, as Standard Webhooks says. Needs only the standard library.

The signature is HMAC-SHA256 over `id.timestamp.body`. While a secret is replaced, a sender signs with the old one and
the new one, and a receiver accepts both.
"""

from __future__ import annotations

import base64
import binascii
import hmac
import json
import time
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from watchbill.errors import WatchbillError

PREFIX = "whsec_"
SHORTEST_SECRET, LONGEST_SECRET = 16, 64  # bytes; Standard Webhooks says 24 to 64
TOLERANCE_SECONDS = 300
_NAMES = ("webhook-id", "webhook-timestamp", "webhook-signature")


class InvalidSignature(WatchbillError):
    """A webhook was not signed with one of the secrets, or is too old, or is not complete."""


def read_secret(secret: str) -> bytes:
    """Returns the key in a secret such as `whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw`. Raises ValueError without
    repeating the secret."""
    try:
        key = base64.b64decode(secret.removeprefix(PREFIX), validate=True)
    except (binascii.Error, ValueError):
        key = b""
    if not SHORTEST_SECRET <= len(key) <= LONGEST_SECRET:
        raise ValueError(
            f"a webhook secret must be {PREFIX} and the base64 form of {SHORTEST_SECRET} to {LONGEST_SECRET} bytes"
        )
    return key


def sign(id: str, timestamp: int, body: bytes, secrets: Sequence[str]) -> str:
    """Returns the value of `webhook-signature`: one signature for each secret, separated by spaces."""
    return " ".join(f"v1,{_sign(read_secret(secret), id, timestamp, body)}" for secret in secrets)


def make_headers(id: str, body: bytes, secrets: Sequence[str], *, at: float | None = None) -> dict[str, str]:
    """Returns the three headers of a webhook that is sent now. `at` is another time, in seconds since 1970."""
    timestamp = int(time.time() if at is None else at)
    return dict(zip(_NAMES, (id, str(timestamp), sign(id, timestamp, body, secrets)), strict=True))


def verify_webhook(
    headers: Mapping[str, str] | Iterable[tuple[str, str]],
    body: bytes | str,
    secrets: str | Sequence[str],
    tolerance: float = TOLERANCE_SECONDS,
    *,
    at: float | None = None,
) -> dict[str, Any]:
    """Returns the content of a webhook that was signed with one of the secrets, or raises InvalidSignature.

    `body` is the body as it arrived, before anything parses it. A webhook whose time is more than `tolerance` seconds
    in the past or the future is refused, because somebody may have recorded it. `webhook-id` is the same whenever the
    sender tries again: remember it, and act on each id once.
    """
    pairs = headers.items() if isinstance(headers, Mapping) else headers
    found = {name.lower(): value for name, value in pairs if name.lower() in _NAMES}
    missing = [name for name in _NAMES if not found.get(name)]
    if missing:
        raise InvalidSignature(f"the webhook has no header {' and no '.join(missing)}")
    webhook_id, written, signatures = (found[name] for name in _NAMES)
    timestamp = _check_time(written, tolerance, time.time() if at is None else at)
    raw = body.encode() if isinstance(body, str) else bytes(body)
    keys = [read_secret(each) for each in ([secrets] if isinstance(secrets, str) else secrets)]
    wanted = [_sign(key, webhook_id, timestamp, raw).encode() for key in keys]
    given = [each.partition(",")[2].encode() for each in signatures.split(" ") if each.startswith("v1,")]
    # Compares every pair, so that the time it takes does not say which secret fits.
    if not sum(hmac.compare_digest(one, other) for one in wanted for other in given):
        raise InvalidSignature("the webhook was not signed with one of these secrets, or has changed on its way")
    try:
        content = json.loads(raw)
    except ValueError:
        content = None
    if not isinstance(content, dict):
        raise InvalidSignature("the webhook is signed, but its body is not a JSON object")
    return content


def _sign(key: bytes, id: str, timestamp: int, body: bytes) -> str:
    signed = f"{id}.{timestamp}.".encode() + body
    return base64.b64encode(hmac.digest(key, signed, "sha256")).decode()


def _check_time(written: str, tolerance: float, now: float) -> int:
    if not (written.isascii() and written.isdigit() and len(written) <= 12):
        raise InvalidSignature("the header webhook-timestamp is not a number of seconds")
    timestamp = int(written)
    if abs(now - timestamp) > tolerance:
        when = "in the past" if timestamp < now else "in the future"
        raise InvalidSignature(
            f"the time of the webhook is {abs(now - timestamp):.0f} s {when}, and {tolerance:g} s are allowed",
            hint="Check the clock of this machine, and of the sender.",
        )
    return timestamp
