"""Every page in a real browser: both themes, three widths, no violation of axe, no word in the console."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import pytest
from axe_playwright_python.sync_playwright import Axe  # type: ignore[import-untyped]

from tests.browser.conftest import WIDTHS, Site, Visitor

VisitOne = Callable[..., Visitor]
PAGES = (
    "/",
    "/jobs",
    "/jobs?q=state:nonsense",
    "/jobs?q=payload.user.id:42",
    "/job/{mail}",
    "/job/{running}",
    "/job/{hostile}",
    "/copy?id={mail}",
    "/failures?group={refused}",
    "/schedules",
    "/schedule?name=nightly-report",
    "/schedules/add",
    "/calendar",
    "/calendar?view=month",
)
OTHERS = (
    "/job/{refund}",
    "/queues",
    "/queue?name=mail",
    "/types",
    "/type?name=mail.send",
    "/types/try?name=mail.send",
    "/limits",
    "/limit?name=crm",
    "/tenants",
    "/tenant?name=acme",
    "/nodes",
    "/node?name=w1",
    "/cluster?key=customer:42",
    "/operations",
    "/operation?id=1",
    "/alerts",
    "/alerts?show=rules",
    "/alerts?show=silences",
    "/alerts?show=routes",
    "/audit",
    "/system",
    "/keys",
)
LOOKS = [*zip(WIDTHS, ("dark", "light", "light"), strict=True)]


def fill(path: str, site: Site) -> str:
    return path.format(**(site.story.jobs | site.story.groups))


# Layout depends on the width and contrast on the theme, so each of them once is enough.
@pytest.mark.parametrize(("width", "theme"), LOOKS)
def test_no_page_has_a_violation_or_scrolls_sideways(visit: VisitOne, site: Site, width: int, theme: str) -> None:
    check_pages(visit(width=width, theme=theme), site, PAGES, width)


# Pages that are made of the same parts need less: each in one of the looks, and in all with the long tests.
@pytest.mark.parametrize("turn", range(len(LOOKS)))
def test_no_other_page_has_a_violation_or_scrolls_sideways(visit: VisitOne, site: Site, turn: int) -> None:
    width, theme = LOOKS[turn]
    check_pages(visit(width=width, theme=theme, role="admin"), site, OTHERS[turn :: len(LOOKS)], width)


@pytest.mark.long
@pytest.mark.parametrize("theme", ["light", "dark"])
@pytest.mark.parametrize("width", WIDTHS)
def test_no_page_has_a_violation_in_any_look(visit: VisitOne, site: Site, width: int, theme: str) -> None:
    check_pages(visit(width=width, theme=theme, role="admin"), site, PAGES + OTHERS, width)


def check_pages(visitor: Visitor, site: Site, paths: Sequence[str], width: int) -> None:
    found: list[Any] = []
    for path in paths:
        page = visitor.open(fill(path, site))
        if "nonsense" in path:
            visitor.said.clear()  # the browser notes the status 422
        for violation in Axe().run(page).response["violations"] if width != WIDTHS[1] else ():
            found += [(path, violation["id"], node["html"][:150]) for node in violation["nodes"][:3]]
        overflow = page.evaluate("document.documentElement.scrollWidth - innerWidth")
        found += [(path, "sideways", overflow)] if overflow > 0 else []
    assert found == []
