"""Values that nobody sees, and searches that would reveal them."""

from __future__ import annotations

from typing import Any

import pytest

from watchbill.redaction import HIDDEN, Redaction

PAYLOAD = {"to": "a@b", "user": {"token": "t", "id": 4}, "cards": [{"number": "1"}, {"number": "2"}], "token": 1}


@pytest.mark.parametrize(
    ("path", "hidden"),
    [
        ("payload.to", {"to": HIDDEN}),
        ("*.token", {"user": {"token": HIDDEN, "id": 4}, "token": HIDDEN}),
        ("payload.*.token", {"user": {"token": HIDDEN, "id": 4}}),
        ("payload.cards.number", {"cards": [{"number": HIDDEN}, {"number": HIDDEN}]}),
        ("payload.user", {"user": HIDDEN}),
        ("mail.send:payload.to", {"to": HIDDEN}),
        ("mail.other:payload.to", {}),
        ("result.to", {}),
    ],
)
def test_paths_hide_values(path: str, hidden: dict[str, Any]) -> None:
    assert Redaction((path,)).hide("payload", PAYLOAD, type="mail.send") == PAYLOAD | hidden


def test_a_whole_payload_can_be_hidden() -> None:
    assert Redaction(("payload",)).hide("payload", PAYLOAD, type="x") == HIDDEN


def test_patterns_hide_texts_wherever_they_are() -> None:
    redaction = Redaction(patterns=(r"\d{4}-\d{4}",))
    assert redaction.hide_text("card 1234-5678 refused") == f"card {HIDDEN} refused"
    assert redaction.hide("error", {"message": "1234-5678"}, type="x") == {"message": HIDDEN}


@pytest.mark.parametrize(
    ("path", "types", "is_hidden"),
    [
        (("payload", "user", "token"), [], True),
        (("payload", "user"), [], True),  # a comparison with the whole object compares the token too
        (("payload", "to"), ["mail.send"], True),
        (("payload", "to"), ["mail.other"], False),
        (("payload", "to"), [], True),
        (("payload", "secret", "inner"), [], True),
        (("payload", "id"), [], False),
    ],
)
def test_a_search_that_would_reveal_is_known(path: tuple[str, ...], types: list[str], is_hidden: bool) -> None:
    redaction = Redaction(("payload.user.token", "mail.send:payload.to", "payload.secret"))
    assert redaction.hides(path, types=types) is is_hidden


@pytest.mark.parametrize("options", [{"paths": ("a..b",)}, {"paths": (":payload",)}, {"patterns": ("(",)}])
def test_what_cannot_be_read_is_refused(options: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match=r"is not a path|is invalid"):
        Redaction(**options).check()


def test_a_hidden_message_is_not_in_the_traceback() -> None:
    error = {"type": "E", "message": "card 4711\nis bad", "traceback": "line 1\nE: card 4711\nis bad"}
    hidden = Redaction(("error.message",)).hide_error(error, type="a")
    assert hidden == {"type": "E", "message": HIDDEN, "traceback": f"line 1\nE: {HIDDEN}\n{HIDDEN}"}
    assert Redaction(("error",)).hide_error(error, type="a") == HIDDEN
    assert Redaction().hide_error(None, type="a") is None
    assert error["message"] == "card 4711\nis bad"
