"""The list of jobs, one job, and what people do to jobs: filters, paging, rights, what is hidden, bulk operations."""

from __future__ import annotations

import re
from typing import Any
from uuid import UUID

import psycopg
import pytest
from starlette.testclient import TestClient

from tests.browser.story import BIG, HOSTILE, NOW, Story
from tests.dashboard.conftest import OpenBoard, as_role
from watchbill.dashboard.identity import Identity
from watchbill.dashboard.pages import jobs
from watchbill.dashboard.pages.job_actions import read_payload, read_when
from watchbill.dashboard.problems import Problem
from watchbill.redaction import Redaction

ROW = re.compile(r'data-row="([0-9a-f-]+)"')


def find_rows(page: str) -> list[UUID]:
    return [UUID(each) for each in ROW.findall(page)]


def send(client: TestClient, path: str, **fields: Any) -> Any:
    """Sends a form with the token of the client's first page."""
    board, identity = client.app.board, client.app._gate._rules.auth(None)  # type: ignore[attr-defined]
    return client.post(path, data={"form_token": board.sessions.make_form_token(identity, None), **fields})


def open_shop(open_board: OpenBoard, shop: Story, role: str = "operator", **options: Any) -> TestClient:
    return open_board(shop.db.url, **({"auth": as_role(role), "redact": ["payload.token"]} | options))


def test_the_list_shows_what_matches_newest_first(open_board: OpenBoard, shop: Story) -> None:
    client = open_shop(open_board, shop)
    everything = find_rows(client.get("/jobs").text)
    assert set(everything) >= set(shop.jobs.values())
    page = client.get("/jobs", params={"q": "payload.user.id:42 state:failed"}).text
    assert set(find_rows(page)) == {shop.jobs["mail"], shop.jobs["mail-0"]}
    assert "1,031 alike" in page
    assert str(BIG) in page  # exact, although it has more digits than a browser's number
    assert "secret-4711" not in page


def test_an_invalid_filter_is_shown_at_its_column(open_board: OpenBoard, shop: Story) -> None:
    answer = open_shop(open_board, shop).get("/jobs", params={"q": "queue:mail stat:failed"})
    assert answer.status_code == 422
    assert "invalid at column 12" in answer.text
    assert "Did you mean state?" in answer.text
    assert "queue:mail stat:failed\n           ^" in answer.text


def test_pages_follow_each_other_without_gap_or_repeat(
    open_board: OpenBoard, shop: Story, monkeypatch: pytest.MonkeyPatch
) -> None:
    client = open_shop(open_board, shop)
    everything = find_rows(client.get("/jobs").text)
    monkeypatch.setattr(jobs, "MOST_ROWS", 7)
    found: list[UUID] = []
    address = "/jobs"
    while address:
        page = client.get(address).text
        found += find_rows(page)
        following = re.search(r'href="([^"]+)" rel="next"', page)
        address = following[1].replace("&amp;", "&") if following else ""
    assert found == everything
    assert client.get("/jobs", params={"after": "nonsense"}).status_code == 422


def test_a_hidden_value_is_shown_nowhere_and_cannot_be_searched(open_board: OpenBoard, shop: Story) -> None:
    client = open_shop(open_board, shop, redact=["payload.token"], redact_text=["refused"])
    for path in (
        f"/job/{shop.jobs['mail']}",
        f"/job/{shop.jobs['mail']}/payload",
        "/jobs",
        f"/copy?id={shop.jobs['mail']}",
    ):
        page = client.get(path).text
        assert "secret-4711" not in page
        assert "mail.example refused" not in page
    for search in ("payload.token:secret-4711", "payload.token:s*", "error:ref", "message:mail*", "payload.to:a*"):
        answer = client.get("/jobs", params={"q": search})
        assert (answer.status_code, find_rows(answer.text)) == (422, [])
        assert "hidden here" in answer.text
    assert shop.jobs["mail"] in find_rows(client.get("/jobs", params={"q": "payload.user.locale:fr"}).text)


@pytest.mark.parametrize("name", ["mail", "running", "declined", "canceled", "scheduled", "hostile", "large", "close"])
def test_a_job_of_every_kind_has_a_page(open_board: OpenBoard, shop: Story, name: str) -> None:
    answer = open_shop(open_board, shop).get(f"/job/{shop.jobs[name]}")
    assert answer.status_code == 200
    assert "<script>alert" not in answer.text
    assert "\u202e" not in answer.text.partition("Payload")[2]


def test_a_job_says_why_it_waits_and_offers_the_way_out(open_board: OpenBoard, shop: Story) -> None:
    client = open_shop(open_board, shop)
    page = client.get(f"/job/{shop.jobs['mail']}").text
    assert "Queue mail is paused by ann since 14:33:53 (7 min ago): provider down." in page
    assert '<button class="main">Resume mail</button>' in page
    assert "▸ 1 frame of watchbill" in page
    assert "▸ 1 frame of asyncio" in page
    assert '<span class="hit">    async with Connection' in page
    assert '<button class="main">' not in open_shop(open_board, shop, "reader").get(f"/job/{shop.jobs['mail']}").text
    assert client.get(f"/job/{UUID(int=7)}").status_code == 404
    assert client.get("/job/nonsense").status_code == 404


def test_an_open_page_of_a_job_is_kept_up_to_date(open_board: OpenBoard, shop: Story) -> None:
    client = open_shop(open_board, shop)
    assert client.get("/live", params={"page": "/job/x/y/z"}).status_code == 404
    assert client.get("/live", params={"page": "/static/x/style.css"}).status_code == 404


def test_people_act_on_one_job(open_board: OpenBoard, shop: Story) -> None:
    client = open_shop(open_board, shop, "producer")
    job = shop.db.enqueue("search.index", tenant="acme", now=NOW)
    shop.jobs["acted"] = job
    assert send(client, "/job/retry", id=job, run_at="2h").headers["location"] == f"/job/{job}"
    assert "The job is due at 2031-03-25 16:40:53 UTC." in client.get(f"/job/{job}").text
    assert send(client, "/job/retry", id=job, run_at="whenever").status_code == 422
    send(client, "/job/cancel", id=job, reason="<b>no</b>")
    page = client.get(f"/job/{job}").text
    assert "It is canceled" in page
    assert "&lt;b&gt;no&lt;/b&gt;" in page
    assert send(client, "/job/release", id=job).status_code == 403
    assert send(client, "/job/cancel", id=job, force="yes").status_code == 403
    assert client.post("/job/retry", data={"id": job}).status_code == 403  # without the token of the form


def test_a_producer_changes_only_jobs_of_its_queues(open_board: OpenBoard, shop: Story) -> None:
    identity = Identity("shop", "producer", queues=("mail",), types=("mail.send",))
    client = open_shop(open_board, shop, auth=lambda _: identity)
    assert send(client, "/job/cancel", id=shop.jobs["ready"]).status_code == 403
    assert "Cancel the job" not in client.get(f"/job/{shop.jobs['ready']}").text
    assert "Cancel the job" in client.get(f"/job/{shop.jobs['mail']}").text
    answer = send(client, "/copy", id=shop.jobs["mail"], payload="{}", queue="orders")
    assert "may not enqueue in queue orders" in answer.text


def test_a_copy_keeps_what_was_hidden(open_board: OpenBoard, shop: Story, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("watchbill.dashboard.pages.job_actions.new_id", shop.db.new_id)
    client = open_shop(open_board, shop, "producer")
    form = client.get("/copy", params={"id": str(shop.jobs["mail"])}).text
    payload = re.search(r"<textarea[^>]*>\n(.*?)</textarea>", form, re.DOTALL)
    assert payload is not None
    text = payload[1].replace("&#34;", '"').replace("a.meyer@example.com", "b@example.com")
    shop.db.now = NOW
    answer = send(client, "/copy", id=shop.jobs["mail"], payload=text, queue="mail", priority="3")
    copy = UUID(answer.headers["location"].removeprefix("/job/"))
    shop.jobs["copy"] = copy
    assert shop.db.look(copy).payload == shop.db.look(shop.jobs["mail"]).payload | {"to": "b@example.com"}
    assert (shop.db.look(copy).priority, shop.db.look(copy).max_attempts) == (3, 5)


@pytest.mark.parametrize("text", ["", "[]", "{", '{"a": NaN}', '{"a": 9223372036854775808}', '{"a": "\\u0000"}'])
def test_what_cannot_be_stored_is_refused_with_what_was_typed(open_board: OpenBoard, shop: Story, text: str) -> None:
    answer = send(open_shop(open_board, shop), "/copy", id=shop.jobs["mail"], payload=text, queue="mail")
    assert answer.status_code == 422
    assert 'role="alert"' in answer.text


def test_a_number_beyond_64_bits_is_shown(open_board: OpenBoard, schema_database: str) -> None:
    with psycopg.connect(schema_database, autocommit=True) as connection:
        payload = f'{{"long": {"7" * 100}, "longer": {"7" * 5000}}}'
        ((job,),) = connection.execute("SELECT id FROM watchbill.enqueue('t', %s::jsonb)", (payload,)).fetchall()
    client = open_board()
    for path in ("/jobs", f"/job/{job}", f"/api/v1/jobs/{job}"):
        answer = client.get(path)
        assert answer.status_code == 200, answer.text
        assert "7" * 100 in answer.text or path == "/jobs"


def test_a_hidden_value_moves_to_no_other_place() -> None:
    class Job:
        payload, type = {"token": "s3", "list": [{"token": "t4"}]}, "a"

    redaction = Redaction(("*.token",))
    given = '{"token": "[hidden]", "other": "[hidden]", "list": [{"token": "[hidden]"}, {"token": "[hidden]"}]}'
    whole = read_payload(given, Job(), redaction)  # type: ignore[arg-type]
    assert whole == {"token": "s3", "other": "[hidden]", "list": [{"token": "t4"}, {"token": "[hidden]"}]}


def test_times_are_read_as_people_write_them() -> None:
    zone = NOW.tzinfo
    assert zone is not None
    assert str(read_when("in 30m", NOW, zone))[11:16] == "15:10"
    assert str(read_when("14:00", NOW, zone)) == "2031-03-26 14:00:00+00:00"
    assert str(read_when("15:00", NOW, zone)) == "2031-03-25 15:00:00+00:00"
    assert str(read_when("2031-04-01 09:00", NOW, zone)) == "2031-04-01 09:00:00+00:00"
    assert read_when(" ", NOW, zone) is None
    for wrong in ("99:99", "2031-02-30", "soon", "1e400s", "-5"):
        with pytest.raises(Problem):
            read_when(wrong, NOW, zone)


def test_many_jobs_are_changed_after_a_preview(open_board: OpenBoard, shop: Story) -> None:
    client = open_shop(open_board, shop)
    chosen = [shop.db.enqueue("search.index", queue="bulk", tenant="acme", now=NOW) for _ in range(3)]
    ended = shop.jobs["canceled"]
    fields = {"kind": "cancel", "scope": "chosen", "id": [str(each) for each in (*chosen, ended)], "back": "/jobs"}
    asked = send(client, "/jobs/preview", **fields).text
    assert "Cancel 3 jobs?" in asked
    assert "1 that cannot be changed: it is canceled" in asked
    assert shop.db.states(*chosen) == ["queued"] * 3
    ids = re.search(r'name="id" value="([^"]+)"', asked)
    assert ids is not None
    answer = send(client, "/jobs/change", kind="cancel", scope="chosen", id=ids[1], key="k1", back="/jobs?q=queue:bulk")
    assert answer.headers["location"] == "/jobs?q=queue:bulk"
    assert "3 jobs canceled or asked to stop. 1 not, because it is canceled." in client.get("/jobs").text
    assert shop.db.states(*chosen) == ["canceled"] * 3


def test_a_purge_asks_for_the_number(open_board: OpenBoard, shop: Story) -> None:
    client = open_shop(open_board, shop)
    fields = {"kind": "purge", "scope": "all", "q": "state:canceled queue:purged"}
    job = shop.db.enqueue("search.index", queue="purged", tenant="acme", now=NOW)
    shop.db.call("cancel", id=job)
    assert "Type 1 to go on" in send(client, "/jobs/preview", **fields).text
    refused = send(client, "/jobs/change", **fields, number="2")
    assert (refused.status_code, "Nothing was changed" in refused.text) == (422, True)
    assert send(client, "/jobs/change", **fields, number="1").status_code == 303
    assert client.get(f"/job/{job}").status_code == 404


@pytest.mark.parametrize(
    "fields",
    [
        {"kind": "retry"},
        {"kind": "retry", "scope": "all", "q": ""},
        {"kind": "explode", "scope": "all", "q": "queue:mail"},
        {"kind": "retry", "id": "nonsense"},
        {"kind": "retry", "id": [str(UUID(int=number)) for number in range(101)]},
        {"kind": "retry", "scope": "all", "q": "payload.token:x"},
        {"kind": "move_queue", "scope": "all", "q": "queue:mail"},
        {"kind": "set_priority", "scope": "all", "q": "queue:mail", "priority": "high"},
    ],
)
def test_a_change_of_many_jobs_that_makes_no_sense_is_refused(
    open_board: OpenBoard, shop: Story, fields: dict[str, Any]
) -> None:
    assert send(open_shop(open_board, shop), "/jobs/change", **fields).status_code == 422


def test_only_operators_change_many_jobs(open_board: OpenBoard, shop: Story) -> None:
    for role in ("reader", "producer", "worker"):
        client = open_shop(open_board, shop, role)
        assert 'name="kind"' not in client.get("/jobs").text
        for path in ("/jobs/preview", "/jobs/change"):
            assert send(client, path, kind="cancel", scope="all", q="queue:mail").status_code == 403


def test_filters_are_saved_for_those_who_see_the_same(open_board: OpenBoard, shop: Story) -> None:
    client = open_shop(open_board, shop, "producer")
    assert send(client, "/jobs/save", name=HOSTILE, q="state:dead").headers["location"] == "/jobs?q=state%3Adead"
    page = client.get("/jobs").text
    assert "&lt;script&gt;alert(1)" in page
    number = re.search(r'action="/jobs/forget".*?name="id" value="(\d+)"', page, re.DOTALL)
    assert number is not None
    assert send(open_shop(open_board, shop, "reader"), "/jobs/save", name="x", q="y").status_code == 403
    send(client, "/jobs/forget", id=number[1])
    assert "No filter is saved yet." in client.get("/jobs").text
    assert send(client, "/jobs/forget", id="7x").status_code == 422


def test_a_person_answers_what_a_step_asks_and_runs_it_again(open_board: OpenBoard, shop: Story) -> None:
    client = open_shop(open_board, shop, "producer")
    job = str(shop.jobs["refund"])
    page = client.get(f"/job/{job}").text
    assert "It waits for a signal: approval" in page
    assert "&#34;risk&#34;" in page or '"risk"' in page
    assert 'aria-label="Steps: 3 steps"' in page
    fields = {"id": job, "step": "approval", "name": "approval"}
    for wrong in ({"verdict": "json", "payload": "["}, {"verdict": "json", "payload": '"\\u0000"'}, {"name": ""}):
        assert send(client, "/job/signal", **(fields | {"verdict": "yes"} | wrong)).status_code == 422, wrong
    assert send(open_shop(open_board, shop, "reader"), "/job/signal", **fields, verdict="yes").status_code == 403
    assert send(client, "/job/signal", **fields, verdict="yes", note="ok").headers["location"] == f"/job/{job}"
    assert "The job has your answer, and goes on." in client.get("/").text
    send(client, "/job/signal", **fields, verdict="no")
    assert "the first answer counts" in client.get("/").text
    (signal,) = shop.db.rows("signals")
    assert (signal.name, signal.payload, signal.sent_by) == ("approval", {"verdict": "yes", "note": "ok"}, "ann")
    assert (
        send(open_shop(open_board, shop, "producer"), "/job/retry_from", id=job, step="score_risk").status_code == 403
    )
    client = open_shop(open_board, shop)  # and again from a step, after its end
    shop.db.call("cancel", id=shop.jobs["refund"])
    assert "Retry from here" in client.get(f"/job/{job}").text
    assert send(client, "/job/retry_from", id=job, step="score_risk").status_code == 303
    assert [row.name for row in shop.db.rows("steps")] == ["load_order"]
