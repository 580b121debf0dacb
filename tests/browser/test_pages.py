"""Every page in a real browser: both themes, three widths, no violation of axe, no word in the console."""

from __future__ import annotations

from collections.abc import Callable
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


def fill(path: str, site: Site) -> str:
    return path.format(**(site.story.jobs | site.story.groups))


# Layout depends on the width and contrast on the theme, so each of them once is enough.
@pytest.mark.parametrize(("width", "theme"), [*zip(WIDTHS, ("dark", "light", "light"), strict=True)])
def test_no_page_has_a_violation_or_scrolls_sideways(visit: VisitOne, site: Site, width: int, theme: str) -> None:
    visitor = visit(width=width, theme=theme)
    found: list[Any] = []
    for path in PAGES:
        page = visitor.open(fill(path, site))
        if "nonsense" in path:
            visitor.said.clear()  # the browser notes the status 422
        for violation in Axe().run(page).response["violations"] if width != WIDTHS[1] else ():
            found += [(path, violation["id"], node["html"][:150]) for node in violation["nodes"][:3]]
        overflow = page.evaluate("document.documentElement.scrollWidth - innerWidth")
        found += [(path, "sideways", overflow)] if overflow > 0 else []
    assert found == []
