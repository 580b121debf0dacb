"""Schedules: what needs a look comes first, one schedule with its rule and runs, the calendar, and changes."""

from __future__ import annotations

import re
from datetime import UTC, datetime, timedelta

import pytest

from tests.browser.story import NOW, Story
from tests.dashboard.conftest import OpenBoard
from tests.dashboard.test_jobs_pages import open_shop, send
from watchbill.cron.zones import load_zone
from watchbill.dashboard.identity import Identity
from watchbill.dashboard.pages.schedules import explain, list_runs


def test_what_needs_a_look_comes_first(open_board: OpenBoard, shop: Story) -> None:
    page = open_shop(open_board, shop).get("/schedules").text
    names = re.findall(r'<th role="rowheader" scope="row"><a href="[^"]+">([^<]+)</a>', page)
    assert names[:2] == ["nightly-report", "sync-crm"]
    assert names[-1] == "partner-feed"
    assert "overdue since 03:00" in page  # on the clock of Paris
    assert "1 of the last 6 died" in page
    assert "at 02:00 every day <" in page
    assert 'aria-label="The last 30 slots of nightly-report"' in page


@pytest.mark.parametrize(
    ("tab", "name"),
    [("overdue", "nightly-report"), ("disabled", "partner-feed"), ("orphaned", None), ("nonsense", "monthly-bill")],
)
def test_tabs_show_some_schedules(open_board: OpenBoard, shop: Story, tab: str, name: str | None) -> None:
    page = open_shop(open_board, shop).get("/schedules", params={"show": tab}).text
    found = re.findall(r'<th role="rowheader" scope="row"><a href="[^"]+">([^<]+)</a>', page)
    assert (name in found) if name else (found == [])
    assert ("monthly-bill" in found) == (tab == "nonsense")


def test_one_schedule_shows_its_next_runs_across_a_change_of_clocks(open_board: OpenBoard, shop: Story) -> None:
    client = open_shop(open_board, shop)
    page = client.get("/schedule", params={"name": "nightly-report"}).text
    assert "The clocks go forward by 1 h before this run." in page
    assert ">23 h<" in page
    assert "It is due at 2031-03-26 02:00:00 Europe/Paris" in page
    assert "deadline" in page
    assert client.get("/schedule", params={"name": "nightly-repor"}).status_code == 404
    assert "Did you mean" in client.get("/schedule", params={"name": "nightly-repor"}).text


def test_a_pattern_is_explained_before_it_counts(open_board: OpenBoard, shop: Story) -> None:
    client = open_shop(open_board, shop)
    page = client.get("/schedule", params={"name": "sync-crm", "pattern": "0 3 * * 1-5"}).text
    assert "Monday to Friday" in page
    assert "Change the pattern" in page
    wrong = client.get("/schedule", params={"name": "sync-crm", "pattern": "0 99 * * *"}).text
    assert "Change the pattern" not in wrong
    assert "99" in wrong
    answer = client.get("/schedules/explain", params={"pattern": "0 9 * * MON", "tz": "Europe/Paris"}).json()
    assert answer["is_valid"]
    assert answer["next"][0] == "Mon 31 Mar 09:00 CEST"
    for pattern in ("", "x", "* * * * * * * * *", "0 0 30 2 *", "9" * 2000):
        answer = client.get("/schedules/explain", params={"pattern": pattern, "tz": "Nowhere/At_All"})
        assert answer.status_code == 200
        assert not answer.json()["is_valid"]


def test_people_change_schedules(open_board: OpenBoard, shop: Story) -> None:
    client = open_shop(open_board, shop, "producer")
    which = {"name": "warm-cache", "tenant": "default", "back": "/schedules"}
    assert send(client, "/schedule/run", **which).headers["location"] == "/schedules"
    assert "warm-cache runs now, as job" in client.get("/schedules").text
    send(client, "/schedule/disable", **which)
    assert "warm-cache is disabled" in client.get("/schedules").text
    send(client, "/schedules/enable", schedule=["default/warm-cache", "default/partner-feed"], back="/schedules")
    assert "2 schedules are enabled." in client.get("/schedules").text
    send(client, "/schedules/disable", schedule=["default/partner-feed"])
    assert send(client, "/schedules/enable").status_code == 422
    assert send(client, "/schedule/change", name="sync-crm", pattern="*/10 * * * *").status_code == 303
    assert "every 10 minutes" in client.get("/schedules").text
    send(client, "/schedule/change", name="sync-crm", pattern="*/5 * * * *")
    assert send(client, "/schedule/change", name="sync-crm", pattern="0 99 * * *").status_code == 422
    assert send(client, "/schedule/run", name="nothing").status_code == 404
    assert send(open_shop(open_board, shop, "reader"), "/schedule/run", **which).status_code == 403


def test_a_producer_changes_only_schedules_of_its_types(open_board: OpenBoard, shop: Story) -> None:
    identity = Identity("shop", "producer", types=("mail.send",))
    client = open_shop(open_board, shop, auth=lambda _: identity)
    assert send(client, "/schedule/run", name="sync-crm").status_code == 403
    fields = {"name": "mine", "pattern": "0 2 * * *", "task": "sync.crm", "queue": "default"}
    assert "may not make jobs of type sync.crm" in send(client, "/schedules/add", **fields).text


def test_a_schedule_is_added(open_board: OpenBoard, shop: Story) -> None:
    client = open_shop(open_board, shop)
    fields = {
        "name": "<b>new</b>",
        "pattern": "0 2 * * *",
        "tz": "Europe/Paris",
        "task": "cache.warm",
        "queue": "default",
    }
    tried = send(client, "/schedules/add", **fields, **{"try": "yes"})
    assert "at 02:00 every day" in tried.text
    assert "&lt;b&gt;new&lt;/b&gt;" in tried.text
    added = send(client, "/schedules/add", **fields, payload='{"all": true}')
    assert added.headers["location"].startswith("/schedule?name=%3Cb%3Enew")
    assert client.get(added.headers["location"]).status_code == 200
    for change in (
        {"task": "cache.warn"}, {"pattern": "0 99 * * *"}, {"payload": "["}, {"payload": "[]"}, {"name": ""},
        {"every": "5m"}, {"tz": "Nowhere"},
    ):  # fmt: skip
        answer = send(client, "/schedules/add", **(fields | {"name": "other"} | change))
        assert answer.status_code == 422, change
        assert 'role="alert"' in answer.text
    assert "Tick the box" in send(client, "/schedules/add", **(fields | {"name": "o", "task": "cache.warn"})).text
    send(client, "/schedule/disable", name="<b>new</b>")


@pytest.mark.parametrize("query", ["", "?view=month", "?from=2031-04-07", "?view=month&from=2031-12-31"])
def test_the_calendar_shows_what_became_of_slots_and_what_is_to_come(
    open_board: OpenBoard, shop: Story, query: str
) -> None:
    page = open_shop(open_board, shop).get(f"/calendar{query}").text
    assert "nightly-report" in page
    assert "Several times a day" in page
    assert ('aria-label="overdue"' in page) == (query in ("", "?view=month"))
    assert 'aria-label="to come"' in page


def test_a_calendar_of_nothing_is_refused(open_board: OpenBoard, shop: Story) -> None:
    client = open_shop(open_board, shop)
    assert client.get("/calendar?view=year").status_code == 422
    for wrong in ("x", "0001-01-01", "9999-12-31"):
        assert client.get("/calendar", params={"from": wrong}).status_code == 422


def test_a_calendar_of_many_schedules_is_a_map(
    open_board: OpenBoard, shop: Story, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("watchbill.dashboard.pages.calendar.MOST_SCHEDULES", 2)
    page = open_shop(open_board, shop).get("/calendar").text
    assert "Slots per hour of 26 Mar" in page


def test_days_of_23_and_25_hours_are_seen() -> None:
    zone = load_zone("Europe/Paris").info
    spring = [datetime(2031, 3, day, 12, tzinfo=zone) for day in (29, 30, 31)]
    assert [run.after for run in list_runs(spring, zone, NOW)] == ["", "23 h", "24 h"]
    assert [bool(run.clock_change) for run in list_runs(spring, zone, NOW)] == [False, True, False]
    autumn = [datetime(2031, 10, day, 12, tzinfo=zone) for day in (25, 26)]
    assert [run.after for run in list_runs(autumn, zone, autumn[0] - timedelta(days=1))] == ["", "25 h"]
    assert explain("0 0 30 2 *", "UTC", "default", datetime(2031, 1, 1, tzinfo=UTC))["runs"] == []
