"""What is around each page: the rail, choices that a browser keeps, files, forms, and pages for what went wrong."""

from __future__ import annotations

import re
from pathlib import Path

import psycopg
import pytest

from tests.dashboard.conftest import OpenBoard, as_role
from watchbill.dashboard import application
from watchbill.dashboard.sessions import User
from watchbill.dashboard.visit import Look

PACKAGE = Path(application.__file__).parent
ANN = User.make("ann", "operator", "correct horse")


def test_a_stranger_is_led_to_the_login_and_back(open_board: OpenBoard) -> None:
    client = open_board(auth=None, users={"ann": ANN})
    answer = client.get("/?window=6h")
    assert (answer.status_code, answer.headers["location"]) == (303, "/login?next=%2F%3Fwindow%3D6h")
    page = client.get(answer.headers["location"])
    assert 'name="next" value="/?window=6h"' in page.text
    assert "Jobs" not in page.text  # no rail for strangers
    failed = client.post("/login", data={"name": "ann", "password": "wrong"})
    assert failed.status_code == 401
    assert "Name or password is wrong." in failed.text
    entered = client.post("/login", data={"name": "ann", "password": "correct horse", "next": "/?window=6h"})
    assert entered.headers["location"] == "/?window=6h"
    assert "ann, operator" in client.get("/").text
    assert "Log out" in client.get("/").text


def test_problems_are_pages(open_board: OpenBoard) -> None:
    answer = open_board().get("/nothing/<script>")
    assert answer.status_code == 404
    assert "There is nothing at this address." in answer.text
    assert "<script>" not in answer.text


@pytest.mark.parametrize("choice", ["theme=dark", "theme=light", "zone=local"])
def test_a_browser_keeps_what_was_chosen(open_board: OpenBoard, choice: str) -> None:
    client = open_board()
    answer = client.get(f"/prefer?{choice}&back=/?window=6h")
    assert (answer.status_code, answer.headers["location"]) == (303, "/?window=6h")
    page = client.get("/").text
    name, value = choice.split("=")
    assert {"theme": f'<html lang="en" data-theme="{value}">', "zone": 'back=%2F" aria-current="true">local'}[
        name
    ] in page
    client.get(f"/prefer?{name}=system")
    assert "data-theme" not in client.get("/").text


@pytest.mark.parametrize("back", ["//evil.example", "https://evil.example", "/\\evil.example", "/a\nb"])
def test_no_choice_and_no_form_leads_to_another_site(open_board: OpenBoard, back: str) -> None:
    assert open_board().get("/prefer", params={"theme": "dark", "back": back}).headers["location"] == "/"


def test_times_are_shown_in_the_zone_of_the_browser(open_board: OpenBoard) -> None:
    client = open_board()
    client.cookies.set("watchbill_zone", "local")
    for zone in ("Asia%2FKathmandu", "../../etc/passwd", "x" * 5000, "%00"):
        client.cookies.set("watchbill_local", zone)
        assert client.get("/").status_code == 200


def test_files_are_kept_for_ever_under_their_hash(open_board: OpenBoard) -> None:
    client = open_board(look=Look(color="#123456"))
    page = client.get("/").text
    addresses = re.findall(r'<link rel="[^"]+" href="([^"]+)"', page)
    assert [address.rpartition("/")[2] for address in addresses] == ["icon.svg", "style.css", "mark.css"]
    for address in addresses:
        answer = client.get(address)
        assert answer.status_code == 200
        assert "immutable" in answer.headers["cache-control"]
        assert "#123456" in answer.text or address.endswith("style.css")
        old = client.get(re.sub(r"/static/[^/]+", "/static/000000000000", address))
        assert (old.content, old.headers["cache-control"]) == (answer.content, "no-cache")
    assert client.get("/static/x/..%2Fwords.py").status_code == 404
    assert client.get("/static/x/nothing.js").status_code == 404


def test_the_stylesheet_is_small_and_uses_tokens_only() -> None:
    text = (PACKAGE / "static" / "style.css").read_text()
    assert len(text.encode()) < 40_000
    rules = re.sub(r":root\s*\{[^}]*\}|\[data-theme=[^}]*\}|/\*.*?\*/", "", text, flags=re.DOTALL)
    assert re.findall(r"#[0-9a-fA-F]{3,8}\b", re.sub(r"url\(#[\w-]+\)", "", rules)) == []
    sizes = set(re.findall(r"(?<![\w.-])\d*\.?\d+px\b", re.sub(r"@media[^{]*", "", rules)))
    assert sizes == set()


def test_no_template_has_style_or_script_of_its_own() -> None:
    for file in (PACKAGE / "templates").glob("*.html"):
        text = file.read_text()
        assert not re.search(r"\sstyle=|<script(?![^>]*\bsrc=)|\son\w+=", text), file.name
        assert "|safe" not in text.replace(" ", ""), file.name


def test_a_form_acts_and_the_next_page_says_so(open_board: OpenBoard, schema_database: str) -> None:
    client = open_board(auth=as_role("operator"))
    form = {"form_token": read_token(client.get("/").text, client), "queue": "mail", "reason": "down <b>", "back": "/"}
    answer = client.post("/queue/pause", data=form)
    assert (answer.status_code, answer.headers["location"]) == (303, "/")
    page = client.get("/").text
    assert "Queue mail is paused: none of its jobs start." in page
    assert "is paused by ann" in page
    assert "“down &lt;b&gt;”" in page
    assert "none of its jobs start" not in client.get("/").text  # it is said once
    assert client.post("/queue/resume", data=form).status_code == 303
    with psycopg.connect(schema_database) as connection:
        rows = connection.execute("SELECT actor, action, subject FROM watchbill.audit ORDER BY id").fetchall()
    assert rows == [("ann", "pause", "queue mail"), ("ann", "resume", "queue mail")]


def read_token(page: str, client: object) -> str:
    """The form token of a page; of any page if this one has no form."""
    found = re.search(r'name="form_token" value="([^"]+)"', page)
    if found:
        return found[1]
    board = client.app.board  # type: ignore[attr-defined]
    return str(board.sessions.make_form_token(as_role("operator")(None), None))


@pytest.mark.parametrize("role", ["reader", "producer", "worker"])
def test_a_role_that_may_not_gets_neither_button_nor_answer(open_board: OpenBoard, role: str) -> None:
    operator = open_board(auth=as_role("operator"), secret="s" * 32)
    operator.post("/queue/pause", data={"form_token": read_token("", operator), "queue": "mail"})
    client = open_board(auth=as_role(role), secret="s" * 32)
    assert "Resume mail" in operator.get("/").text
    assert "Resume mail" not in client.get("/").text
    token = client.app.board.sessions.make_form_token(as_role(role)(None), None)  # type: ignore[attr-defined]
    answer = client.post("/queue/resume", data={"form_token": token, "queue": "mail"})
    assert answer.status_code == 403
    assert "this needs the role operator" in answer.text


def test_everything_works_under_a_prefix(open_board: OpenBoard) -> None:
    client = open_board(prefix="/ops/watchbill")
    for path in ("/", "/ops/watchbill/"):
        page = client.get(path).text
        addresses = re.findall(r'(?:href|action)="(/[^"]*)"', page)
        assert addresses
        assert all(address.startswith("/ops/watchbill/") for address in addresses)
