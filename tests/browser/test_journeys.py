"""What people come for: each journey begins on the overview and takes three clicks or keys to what they look for."""

from __future__ import annotations

import re
from collections.abc import Callable
from uuid import UUID

import pytest
from playwright.sync_api import Dialog, Page, expect

from tests.browser.conftest import Site, Visitor
from tests.browser.story import HOSTILE, NOW
from tests.store.harness import End

VisitOne = Callable[..., Visitor]
PATIENCE_MILLISECONDS = 60_000


@pytest.fixture(autouse=True)
def _paused_again(site: Site) -> None:
    """The story begins with the queue mail paused."""
    site.story.db.now = NOW
    site.story.db.configure(**{"watchbill.actor": "ann"})
    site.story.db.call("pause", queue="mail", reason="provider down")
    expect.set_options(timeout=PATIENCE_MILLISECONDS)


def test_an_alert_woke_me(visit: VisitOne) -> None:
    page = visit().open("/")
    expect(page.locator("#notices")).to_contain_text("mail is paused by ann")
    page.get_by_role("button", name="Resume mail").click()
    expect(page.get_by_role("status").first).to_contain_text("Queue mail is resumed.")
    expect(page.locator("#notices")).not_to_contain_text("mail is paused")


def test_did_the_job_of_customer_42_run(visit: VisitOne) -> None:
    page = visit().open("/")
    page.locator("#rail").get_by_role("link", name="Jobs").click()
    page.get_by_label("Filter", exact=True).fill("payload.user.id:42 type:mail.send")
    page.keyboard.press("Enter")
    expect(page.locator("tbody[data-row]").first).to_contain_text('"id": 42')
    page.locator("tbody[data-row]", has_text="a.meyer@example.com").first.get_by_role("link").first.click()
    expect(page.locator("#why")).to_contain_text("Queue mail is paused by ann")


def test_what_did_the_deploy_break(visit: VisitOne) -> None:
    page = visit().open("/")
    page.locator("#rail").get_by_role("link", name="Failures").click()
    row = page.get_by_role("row", name="ConnectionError")
    expect(row).to_contain_text("after deploy v41")
    row.get_by_role("link", name="Open").click()
    page.get_by_role("button", name="Probe 10").click()
    expect(page.get_by_role("heading", level=1)).to_contain_text("Retry")
    page.get_by_role("button", name=re.compile(r"Retry \d+ jobs?")).click()
    expect(page.get_by_role("status").first).to_contain_text("queued again.")
    expect(page.locator("#opened")).to_contain_text("ann: retry")


def test_did_last_nights_report_run(visit: VisitOne) -> None:
    page = visit().open("/")
    page.locator("#rail").get_by_role("link", name="Schedules").click()
    expect(page.get_by_role("row", name="nightly-report")).to_contain_text("overdue since 03:00")
    page.get_by_role("link", name="nightly-report").click()
    expect(page.locator("#why")).to_contain_text("has not ended")
    page.get_by_label("Pattern, explained while you type").fill("0 3 * * 1-5")
    expect(page.locator("#meaning")).to_contain_text("Monday to Friday")
    page.get_by_label("Pattern, explained while you type").fill("0 99")
    expect(page.locator("#meaning")).to_have_class(re.compile("dead"))


def test_i_want_to_try_a_task(visit: VisitOne, site: Site) -> None:
    page = visit().open(f"/job/{site.story.jobs['mail']}")
    page.get_by_role("link", name="Copy and change").click()
    payload = page.get_by_label("Payload, a JSON object")
    payload.fill(payload.input_value().replace("a.meyer", "b.meyer"))
    page.get_by_role("button", name="Enqueue the copy").click()
    expect(page.get_by_role("status").first).to_contain_text("This is a new job")
    expect(page.locator("#payload")).to_contain_text("b.meyer@example.com")
    copy = site.story.db.look(UUID(page.url.rpartition("/")[2]))
    assert copy.payload["token"] == "secret-4711"


def test_why_is_this_slow(visit: VisitOne) -> None:
    page = visit().open("/")
    page.locator("#queues").get_by_role("link", name="mail", exact=True).click()
    expect(page.locator("#why")).to_contain_text("Queue mail is paused by ann")
    expect(page.locator("#causes")).to_contain_text("What its")
    expect(page.locator("#times")).to_contain_text("wait: from due to start")
    expect(page.locator("#nodes")).to_contain_text("w1")


def test_is_the_fleet_right(visit: VisitOne) -> None:
    page = visit().open("/")
    page.keyboard.press("g")
    page.keyboard.press("n")
    expect(page.locator("#list").get_by_role("row", name="w3")).to_contain_text("draining")
    expect(page.locator("#list").get_by_role("row", name="w4")).to_contain_text("lost")
    expect(page.locator("#timeline")).to_contain_text("lost, others took its jobs")
    page.locator("#list").get_by_role("link", name="w1").click()
    page.get_by_text("Drain…").click()
    expect(page.get_by_role("button", name="Drain the node")).to_be_visible()


def test_who_did_that(visit: VisitOne) -> None:
    page = visit().open("/")
    page.locator("#rail").get_by_role("link", name="Audit").click()
    page.get_by_label("What").fill("drain")
    page.keyboard.press("Enter")
    row = page.locator("#list").get_by_role("row", name="node w3")
    expect(row).to_contain_text("ann")
    row.get_by_role("link", name="node w3").click()
    expect(page.locator("#audit")).to_contain_text("drain")


def test_i_want_to_try_a_task_that_i_know_by_name(visit: VisitOne, site: Site) -> None:
    page = visit().open("/")
    page.locator("#rail").get_by_role("link", name="Types").click()
    page.get_by_role("row", name="search.index").get_by_role("link", name="Try it").click()
    page.get_by_label("Payload, a JSON object").fill('{"kind": "cart"}')
    page.get_by_role("button", name="Enqueue it").click()
    expect(page.get_by_role("status").first).to_contain_text("This is the new job.")
    expect(page.locator("#payload")).to_contain_text("cart")


def test_a_person_answers_a_step(visit: VisitOne, site: Site) -> None:
    page = visit(scripts=False).open(f"/job/{site.story.jobs['refund']}")
    page.get_by_label("no", exact=True).check()
    page.get_by_label("Note, sent with the verdict").fill("too late")
    page.get_by_role("button", name="Send approval").click()
    expect(page.get_by_role("status").first).to_contain_text("The job has your answer, and goes on.")


def test_everything_can_be_done_with_keys(visit: VisitOne) -> None:
    page = visit().open("/")
    page.keyboard.press("g")
    page.keyboard.press("j")
    expect(page).to_have_url(re.compile("/jobs$"))
    expect(page.locator("#live")).to_contain_text("live")
    page.keyboard.press("/")
    page.keyboard.type("type:mail.send")
    page.keyboard.press("Enter")
    expect(page).to_have_url(re.compile("q=type"))
    expect(page.locator("#live")).to_contain_text("live")  # the scripts have begun
    for key in ("j", "x", "j", "x"):
        page.keyboard.press(key)
    expect(page.locator("[data-selected]")).to_have_text("2")
    page.get_by_role("button", name="Priority").focus()
    page.keyboard.press("Enter")
    expect(page.get_by_role("heading", level=1)).to_contain_text("Change the priority of 2 jobs?")
    page.keyboard.type("7")  # the field has the focus
    page.keyboard.press("Enter")
    expect(page.get_by_role("status").first).to_contain_text("2 jobs changed.")
    expect(page.locator("#live")).to_contain_text("live")
    page.keyboard.press("Control+k")
    page.keyboard.type("sched")
    page.keyboard.press("Enter")
    expect(page).to_have_url(re.compile("/schedules$"))


def test_everything_can_be_done_without_scripts(visit: VisitOne, site: Site) -> None:
    page = visit(scripts=False, width=820).open("/")
    page.get_by_title("Theme: system").click()
    expect(page.locator("html")).to_have_attribute("data-theme", "dark")
    page.goto(f"{site.url}/jobs?q=type:search.index")
    page.locator("tbody[data-row] input").nth(0).check()
    page.get_by_role("button", name="Cancel").click()
    expect(page.get_by_role("heading", level=1)).to_contain_text("Cancel 1 job?")
    page.get_by_role("link", name="Leave them").click()
    expect(page).to_have_url(re.compile("type%3Asearch|type:search"))
    page.goto(f"{site.url}/job/{site.story.jobs['scheduled']}")
    page.get_by_text("Run at…").click()
    page.get_by_label("When, in UTC").fill("45m")
    page.get_by_role("button", name="Set the time").click()
    expect(page.get_by_role("status").first).to_contain_text("The job is due at 2031-03-25 15:25:53 UTC.")
    page.goto(f"{site.url}/schedule?name=sync-crm")
    page.get_by_label("Pattern, explained while you type").fill("0 3 * * 1-5")
    page.get_by_role("button", name="Try it").click()
    expect(page.locator("#meaning")).to_contain_text("Monday to Friday")


@pytest.mark.parametrize("width", [390, 1440])
def test_hostile_values_stay_text(visit: VisitOne, site: Site, width: int) -> None:
    visitor = visit(width=width)
    said: list[str] = []

    def note_dialog(dialog: Dialog) -> None:
        said.append(dialog.message)
        dialog.dismiss()

    visitor.page.on("dialog", note_dialog)
    html = "<img src=x onerror=alert(1)>"
    hostile = site.story.jobs["hostile"]
    for path in (
        f"/job/{hostile}", f"/copy?id={hostile}", f"/find?q={html}", f"/jobs?q=key:{html}", f"/jobs?q=%22{html}",
        f"/schedule?name={html}", f"/schedules/add?name={html}&pattern={html}", f"/failures?group={html}",
        f"/schedules?show={html}&after={html}", f"/calendar?from={html}", f"/jobs?without={html}&rows={html}",
        f"/nothing/{html}", "/job/__proto__", f"/job/{html}",
    ):  # fmt: skip
        page = visitor.open(path)
        assert page.locator("main img, main script, [onerror]").count() == 0, path
    assert said == []
    visitor.said[:] = [line for line in visitor.said if "Failed to load resource" not in line]  # 404 and 422
    page = visitor.open(f"/job/{site.story.jobs['hostile']}")
    expect(page.locator("#top")).to_contain_text(HOSTILE.partition("\u202e")[0])
    expect(page.locator("#payload")).to_contain_text("\\u202e")


def test_an_end_shows_on_an_open_page(visit: VisitOne, site: Site) -> None:
    db = site.story.db
    job = db.enqueue("orders.charge", queue="orders", tenant="acme", payload={"n": 1})
    (node,) = [row.epoch for row in db.rows("nodes") if row.name == "w1"]
    held = next(each for each in db.claim(node, 100, queues=["orders"]) if each.id == job)
    page = visit().open(f"/job/{job}")
    expect(page.locator("#top .tag")).to_contain_text("running")
    db.settle(node, End(held, result={"ok": True}))
    expect(page.locator("#top .tag")).to_contain_text("succeeded")
    expect(page.locator("#why")).to_contain_text("It is succeeded")


def test_news_leave_alone_what_a_person_does(visit: VisitOne, site: Site) -> None:
    page = visit().open("/jobs")
    expect(page.locator("#live")).to_contain_text("live")
    field, box = page.get_by_label("Filter", exact=True), page.locator("tbody[data-row] input").nth(1)
    box.check()
    field.fill("half a fil")
    before = page.locator("tbody[data-row]").first.get_attribute("data-row")
    site.story.db.enqueue("search.index", tenant="acme")
    box.uncheck()
    field.focus()
    page.mouse.move(5, 5)
    expect(page.get_by_role("button", name=re.compile(r"\d+ new"))).to_be_visible()
    expect(field).to_have_value("half a fil")
    assert page.locator("tbody[data-row]").first.get_attribute("data-row") == before
    page.get_by_role("button", name=re.compile(r"\d+ new")).click()
    expect(page.locator("tbody[data-row]").first).not_to_have_attribute("data-row", str(before))


def test_seven_tabs_load(visit: VisitOne, site: Site) -> None:
    first = visit().open("/jobs")
    pages: list[Page] = [first]
    for _ in range(6):
        page = first.context.new_page()
        page.goto(f"{site.url}/jobs", wait_until="domcontentloaded")
        pages.append(page)
    for page in pages:
        page.bring_to_front()
        expect(page.get_by_role("heading", level=1)).to_have_text("Jobs")
    expect(pages[-1].locator("#live")).to_contain_text("live")
