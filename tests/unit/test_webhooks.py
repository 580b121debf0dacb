"""Signatures of webhooks agree with the package standardwebhooks in both directions."""

from __future__ import annotations

import base64
import datetime as dt
import os
import time

import pytest
from standardwebhooks.webhooks import Webhook, WebhookVerificationError

from watchbill.webhooks import InvalidSignature, make_headers, read_secret, sign, verify_webhook

OLD, NEW, OTHER = (f"whsec_{base64.b64encode(bytes([number]) * 24).decode()}" for number in (1, 2, 3))
BODY = '{"type": "order.paid", "data": {"name": "Jürgen"}}'.encode()
CONTENT = {"type": "order.paid", "data": {"name": "Jürgen"}}


def test_the_other_implementation_accepts_our_signatures() -> None:
    assert Webhook(OLD).verify(BODY, make_headers("msg_1", BODY, [OLD])) == CONTENT
    for secret in (OLD, NEW):
        assert Webhook(secret).verify(BODY, make_headers("msg_1", BODY, [OLD, NEW])) == CONTENT
    with pytest.raises(WebhookVerificationError):
        Webhook(OTHER).verify(BODY, make_headers("msg_1", BODY, [OLD, NEW]))


def test_we_accept_signatures_of_the_other_implementation() -> None:
    now = dt.datetime.now(dt.UTC)
    for _ in range(20):
        secret = f"whsec_{base64.b64encode(os.urandom(32)).decode()}"
        signature = Webhook(secret).sign("msg_1", now, BODY.decode())
        assert signature == sign("msg_1", int(now.timestamp()), BODY, [secret])
        headers = {"webhook-id": "msg_1", "webhook-timestamp": str(int(now.timestamp()))}
        assert verify_webhook(headers | {"webhook-signature": signature}, BODY, secret) == CONTENT


def test_a_receiver_accepts_old_and_new_secrets_while_they_rotate() -> None:
    for sent in ([OLD], [OLD, NEW], [NEW]):
        assert verify_webhook(make_headers("a", BODY, sent), BODY, [OLD, NEW]) == CONTENT
    with pytest.raises(InvalidSignature, match="not signed with one of these"):
        verify_webhook(make_headers("a", BODY, [OTHER]), BODY, [OLD, NEW])


@pytest.mark.parametrize("shift", [-301, 301])
def test_old_and_future_webhooks_are_refused(shift: int) -> None:
    headers = make_headers("a", BODY, [OLD], at=time.time() + shift)
    with pytest.raises(InvalidSignature, match="in the past" if shift < 0 else "in the future"):
        verify_webhook(headers, BODY, OLD)
    assert verify_webhook(headers, BODY, OLD, tolerance=400) == CONTENT


def test_every_part_is_signed() -> None:
    headers = make_headers("a", BODY, [OLD])
    for changed in (
        headers | {"webhook-id": "b"},
        headers | {"webhook-timestamp": str(int(headers["webhook-timestamp"]) + 1)},
        headers | {"webhook-signature": headers["webhook-signature"].replace("v1,", "v2,")},
        headers | {"webhook-signature": "v1,"},
        headers | {"webhook-signature": "v1,ä"},
    ):
        with pytest.raises(InvalidSignature, match="not signed"):
            verify_webhook(changed, BODY, OLD)
    with pytest.raises(InvalidSignature, match="not signed"):
        verify_webhook(headers, BODY + b" ", OLD)


@pytest.mark.parametrize("name", ["webhook-id", "webhook-timestamp", "webhook-signature"])
def test_a_missing_header_is_named(name: str) -> None:
    headers = make_headers("a", BODY, [OLD])
    del headers[name]
    with pytest.raises(InvalidSignature, match=f"no header {name}"):
        verify_webhook(headers, BODY, OLD)


@pytest.mark.parametrize("written", ["", "x", "1e9", "-1", "١٢", "9" * 400, "1.5"])
def test_an_invalid_time_is_refused(written: str) -> None:
    with pytest.raises(InvalidSignature):
        verify_webhook(make_headers("a", BODY, [OLD]) | {"webhook-timestamp": written}, BODY, OLD)


def test_headers_may_be_pairs_in_any_case() -> None:
    pairs = [(name.title(), value) for name, value in make_headers("a", BODY, [OLD]).items()]
    assert verify_webhook(pairs, BODY.decode(), [OLD]) == CONTENT


@pytest.mark.parametrize("body", [b"[]", b"no JSON", b"\xff"])
def test_a_signed_body_that_is_not_an_object_is_refused(body: bytes) -> None:
    with pytest.raises(InvalidSignature, match="not a JSON object"):
        verify_webhook(make_headers("a", body, [OLD]), body, OLD)


@pytest.mark.parametrize("secret", ["", "whsec_", "whsec_!!!!", "whsec_c2hvcnQ=", "planted-secret"])
def test_an_invalid_secret_is_refused_without_being_repeated(secret: str) -> None:
    with pytest.raises(ValueError, match="a webhook secret must be") as error:
        read_secret(secret)
    assert "planted" not in str(error.value)
