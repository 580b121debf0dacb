"""Groups of failures: what they came with, what is hidden, a probe and what became of it, then the rest."""

from __future__ import annotations

import re

import pytest
from starlette.testclient import TestClient

from tests.browser.story import NOW, Story
from tests.dashboard.conftest import OpenBoard
from tests.dashboard.test_jobs_pages import open_shop, send
from tests.store.harness import End
from watchbill.dashboard.pages.failures import mark_parts


def open_group(client: TestClient, shop: Story, name: str = "refused") -> str:
    answer = client.get("/failures", params={"group": str(shop.groups[name]), "tenant": "acme"})
    assert answer.status_code == 200
    return answer.text


def test_groups_say_what_they_came_with(open_board: OpenBoard, shop: Story) -> None:
    client = open_shop(open_board, shop)
    page = client.get("/failures").text
    assert page.count("after deploy v41") == 2
    assert "2 new since deploy v41" in page
    assert [word in page for word in ("ConnectionError", "TimeoutError", "CardDeclined")] == [True] * 3
    assert "ConnectionError" not in client.get("/failures?show=dead").text
    assert "CardDeclined" not in client.get("/failures?show=new").text
    assert "Nothing has failed in 1 h." not in client.get("/failures?window=1h").text


def test_a_hidden_message_is_not_shown(open_board: OpenBoard, shop: Story) -> None:
    page = open_group(open_shop(open_board, shop, redact=["error.message"], redact_text=["smtp"]), shop)
    assert "mail.example refused" not in page
    assert "smtp.py" not in page
    assert "[hidden]" in page


def test_a_probe_comes_before_the_rest(open_board: OpenBoard, shop: Story) -> None:
    client = open_shop(open_board, shop)
    before = open_group(client, shop)
    assert "Nothing yet." in before
    assert "Jobs of mail are paused by ann, “provider down”" in before
    found = re.search(r'name="q" value="([^"]+)"><input type="hidden" name="most"', before)
    assert found is not None
    fields = {"kind": "retry", "scope": "all", "q": found[1].replace("&#34;", '"'), "most": "2", "back": "/failures"}
    assert "Retry 2 jobs?" in send(client, "/jobs/preview", **fields).text
    assert send(client, "/jobs/change", **fields).status_code == 303
    page = open_group(client, shop)
    assert "ann: retry, 2 changed" in page
    assert 'aria-label="0 of 2 succeeded"' in page
    shop.db.now = NOW
    shop.db.call("resume", queue="mail")
    (node,) = [row.epoch for row in shop.db.rows("nodes") if row.name == "w1"]
    probed = [job for job in shop.db.claim(node, 100, queues=["mail"]) if shop.db.look(job.id).attempt == 0]
    retried = [job for job in probed if job.id in (shop.jobs["mail"], shop.jobs["mail-0"], shop.jobs["mail-1"])]
    shop.db.settle(node, End(retried[0]))
    assert 'aria-label="1 of 2 succeeded"' in open_group(client, shop)


def test_a_reader_sees_no_button(open_board: OpenBoard, shop: Story) -> None:
    page = open_group(open_shop(open_board, shop, "reader"), shop)
    assert "Probe 10" not in page
    assert "Jobs of this group" in page


@pytest.mark.parametrize(
    ("message", "parts"),
    [
        ("no answer from mail.example within 30 s", ["30"]),
        ('order "<b>" of a@example.com', ["&#34;&lt;b&gt;&#34;", "a@example.com"]),
        ("it's 1.5 of 0xdeadbeef", ["1.5", "0xdeadbeef"]),
        ("nothing differs", []),
    ],
)
def test_parts_that_differ_are_marked(message: str, parts: list[str]) -> None:
    assert re.findall(r'<span class="ph">(.*?)</span>', mark_parts(message)) == parts
