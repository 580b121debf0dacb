"""What every request passes: hosts, logins, forged requests, headers."""

from __future__ import annotations

from typing import Any

import pytest
from starlette.testclient import TestClient

from tests.dashboard.conftest import OpenBoard, as_role
from watchbill.dashboard.sessions import COOKIE, FAILURES_PER_MINUTE, SESSION_SECONDS, Sessions, User

ANN = User.make("ann", "operator", "correct horse")


def log_in(client: TestClient, password: str = "correct horse", **fields: str) -> Any:
    return client.post("/login", data={"name": "ann", "password": password, **fields})


@pytest.mark.parametrize("host", ["evil.example", "127.0.0.1.evil.example", "localhost.evil.example:8484", "", "[::2]"])
def test_a_foreign_host_is_misdirected(open_board: OpenBoard, host: str) -> None:
    answer = open_board().get("/health/live", headers={"Host": host})
    assert answer.status_code == 421
    assert answer.headers["content-type"] == "application/problem+json"


@pytest.mark.parametrize("host", ["localhost", "LOCALHOST:8484", "127.0.0.1:1", "[::1]:8484", "board.example"])
def test_known_hosts_are_answered(open_board: OpenBoard, host: str) -> None:
    assert open_board(hosts=["board.example"]).get("/health/live", headers={"Host": host}).status_code == 200


def test_every_answer_has_the_headers_of_a_closed_page(open_board: OpenBoard) -> None:
    client = open_board()
    for path in ("/health/live", "/nothing", "/login"):
        headers = client.get(path).headers
        assert headers["content-security-policy"].startswith("default-src 'none'; script-src 'self'; style-src 'self'")
        assert "frame-ancestors 'none'" in headers["content-security-policy"]
        assert headers["x-content-type-options"] == "nosniff"
        assert headers["referrer-policy"] == "no-referrer"
        assert headers["cross-origin-opener-policy"] == "same-origin"


@pytest.mark.parametrize(
    "headers",
    [
        {"Sec-Fetch-Site": "cross-site"},
        {"Sec-Fetch-Site": "same-site"},
        {"Origin": "http://evil.example"},
        {"Origin": "null"},
        {"Origin": "http://127.0.0.1:9999"},
    ],
)
def test_a_post_from_another_site_is_refused_even_with_a_token(open_board: OpenBoard, headers: dict[str, str]) -> None:
    client = open_board(auth=as_role("admin"))
    answer = client.post("/logout", headers=headers)
    assert (answer.status_code, answer.json()["title"]) == (403, "Cross-site request")


@pytest.mark.parametrize("form", [{}, {"form_token": ""}, {"form_token": "x" * 43}])
def test_a_post_without_the_form_token_is_refused(open_board: OpenBoard, form: dict[str, str]) -> None:
    answer = open_board().post("/logout", data=form, headers={"Sec-Fetch-Site": "same-origin"})
    assert (answer.status_code, answer.json()["title"]) == (403, "Not from a form of this session")


def test_the_form_token_is_taken_from_a_field_or_a_header(open_board: OpenBoard) -> None:
    client = open_board(secret="s" * 32)
    token = Sessions("s" * 32).make_form_token(as_role("admin")(None).__class__("anyone", "admin"), None)
    assert client.post("/logout", data={"form_token": token}).status_code == 303
    assert client.post("/logout", headers={"X-Form-Token": token}).status_code == 303


def test_a_login_gives_a_cookie_that_scripts_cannot_read(open_board: OpenBoard) -> None:
    client = open_board(auth=None, users={"ann": ANN})
    answer = log_in(client, next="/jobs")
    assert (answer.status_code, answer.headers["location"]) == (303, "/jobs")
    cookie = answer.headers["set-cookie"]
    assert f"Max-Age={SESSION_SECONDS}" in cookie
    assert "HttpOnly" in cookie
    assert "samesite=lax" in cookie.lower()
    assert "Secure" not in cookie


@pytest.mark.parametrize("wanted", ["//evil.example", "https://evil.example", "/\\evil.example", "/a\r\nSet-Cookie: x"])
def test_a_login_leads_to_no_other_site(open_board: OpenBoard, wanted: str) -> None:
    assert log_in(open_board(auth=None, users={"ann": ANN}), next=wanted).headers["location"] == "/"


def test_five_failed_logins_in_a_minute_close_the_door(open_board: OpenBoard) -> None:
    client = open_board(auth=None, users={"ann": ANN})
    assert [log_in(client, "wrong").status_code for _ in range(FAILURES_PER_MINUTE)] == [401] * FAILURES_PER_MINUTE
    answer = log_in(client)
    assert (answer.status_code, answer.headers["retry-after"]) == (429, "60")


def test_a_cookie_that_was_copied_is_of_no_use_after_the_logout(open_board: OpenBoard) -> None:
    client = open_board(auth=None, users={"ann": ANN}, secret="s" * 32)
    log_in(client)
    cookie = client.cookies[COOKIE]
    sessions = client.app.board.sessions  # type: ignore[attr-defined]
    session = sessions.read(cookie)
    token = sessions.make_form_token(ANN_IDENTITY, session)
    assert client.post("/logout", data={"form_token": token}).status_code == 303
    assert sessions.read(cookie) is None


ANN_IDENTITY = as_role("operator")(None)


def test_a_forged_or_old_cookie_is_nobody() -> None:
    sessions = Sessions("s" * 32)
    good = sessions.begin("user", "ann")
    assert sessions.read(good) is not None
    for bad in (None, "", ".", "a.b", good[:-2] + "xx", "x" + good, Sessions("t" * 32).begin("user", "ann"), "é.é"):
        assert sessions.read(bad) is None


def test_a_token_of_one_session_is_wrong_in_another() -> None:
    sessions = Sessions()
    one, other = (sessions.read(sessions.begin("user", "ann")) for _ in range(2))
    token = sessions.make_form_token(ANN_IDENTITY, one)
    assert sessions.is_form_token(token, ANN_IDENTITY, one)
    assert not sessions.is_form_token(token, ANN_IDENTITY, other)
    assert not sessions.is_form_token(None, ANN_IDENTITY, one)


@pytest.mark.parametrize("text", ["ann", "ann:king:a:b", "ann:admin:%:b", ":admin:YQ:YQ"])
def test_a_user_that_cannot_be_read_is_named(text: str) -> None:
    with pytest.raises(ValueError, match="is invalid: write NAME:ROLE:SALT:HASH"):
        User.read(text)


def test_a_user_is_written_and_read_again() -> None:
    assert User.read(ANN.as_setting()) == ANN
    assert ANN.has_password("correct horse")
    assert not ANN.has_password("Correct horse")
