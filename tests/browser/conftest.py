"""One dashboard and one browser for the tests of a module: Debian's chromium, driven by Playwright.

Without chromium these tests are skipped, and the last lines of the output say how many. CI must have it.
"""

from __future__ import annotations

import os
import shutil
import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass, field
from typing import Any

import pytest
import uvicorn
from playwright.sync_api import Browser, BrowserContext, Page, sync_playwright

from tests.browser.story import Story, tell
from tests.conftest import _migrated
from tests.servers import Server
from tests.store.harness import Db
from tests.waiting import until
from watchbill import App
from watchbill.dashboard import Dashboard, Identity
from watchbill.dashboard.visit import Look

_NAMES = ("chromium", "chromium-browser", "google-chrome")
CHROMIUM = next(filter(None, map(shutil.which, _NAMES)), None)
WIDTHS = (390, 820, 1440)
HEIGHTS = {390: 844, 820: 1180, 1440: 900}


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if "tests/browser/" in item.nodeid and CHROMIUM is None and not os.environ.get("CI"):
            item.add_marker(pytest.mark.skip(reason="there is no chromium: apt-get install chromium"))


@dataclass
class Site:
    """The dashboard that is served, and what is in its database."""

    url: str
    story: Story
    database: str
    dashboard: Dashboard


@pytest.fixture(scope="module")  # the tests of a module share what they do to the story
def site(request: pytest.FixtureRequest, start_server: Callable[..., Server]) -> Iterator[Site]:
    from tests.conftest import BINARIES

    server = start_server(BINARIES[0])
    if "schema" not in server.templates:
        server.templates["schema"] = _migrated(server)
    url = server.url(server.create_database(server.templates["schema"]))
    with closing(Db(url)) as db:
        yield from _serve_story(db, url)


def _serve_story(db: Db, url: str) -> Iterator[Site]:
    story = tell(db)
    dashboard = Dashboard(
        App(url, name="shop"),
        auth=_identify,
        redact=["payload.token"],
        hosts=(),
        look=Look(name="shop-prod"),
    )
    with serve(dashboard) as address:
        yield Site(address, story, url, dashboard)


def _identify(request: Any) -> Identity:
    """The cookie `role` says who asks, so that a test can be anybody."""
    return Identity("ann", request.cookies.get("role", "operator"))


@contextmanager
def serve(application: Any) -> Iterator[str]:
    """Serves an ASGI application in a thread, and yields its address."""
    listener = socket.socket()
    listener.bind(("127.0.0.1", 0))
    config = uvicorn.Config(application, log_level="warning", access_log=False, timeout_graceful_shutdown=1)
    server = uvicorn.Server(config)
    thread = threading.Thread(target=server.run, kwargs={"sockets": [listener]}, daemon=True)
    thread.start()
    until(lambda: server.started or not thread.is_alive())
    try:
        yield f"http://127.0.0.1:{listener.getsockname()[1]}"
    finally:
        server.should_exit = True
        thread.join(timeout=60)
        listener.close()


@pytest.fixture(scope="module")  # while it is there, this thread has an event loop, which other modules must not meet
def browser() -> Iterator[Browser]:
    assert CHROMIUM is not None, "CI has no chromium, so the browser tests cannot run: apt-get install chromium"
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=CHROMIUM)
        yield browser
        browser.close()


@dataclass
class Visitor:
    """A page of the browser, and what its console said."""

    page: Page
    site: Site
    said: list[str] = field(default_factory=list)

    def open(self, path: str) -> Page:
        self.page.goto(f"{self.site.url}{path}", wait_until="domcontentloaded")
        return self.page


@pytest.fixture
def visit(browser: Browser, site: Site) -> Iterator[Callable[..., Visitor]]:
    """`visit(width=390, theme="dark", scripts=False, role="reader")` opens an empty page. After the test, nothing
    may have been said on the console."""
    contexts: list[BrowserContext] = []
    visitors: list[Visitor] = []

    def open_one(*, width: int = 1440, theme: Any = "light", scripts: bool = True, role: str = "operator") -> Visitor:
        context = browser.new_context(
            viewport={"width": width, "height": HEIGHTS.get(width, 900)},
            color_scheme=theme,
            java_script_enabled=scripts,
            reduced_motion="reduce",
            timezone_id="Europe/Paris",
            permissions=["clipboard-read", "clipboard-write"],
        )
        context.set_default_timeout(60_000)
        context.add_cookies([{"name": "role", "value": role, "url": site.url}])
        contexts.append(context)
        page = context.new_page()
        visitor = Visitor(page, site)
        page.on("console", lambda message: visitor.said.append(f"{message.type}: {message.text}"))
        page.on("pageerror", lambda error: visitor.said.append(f"error: {error}"))
        visitors.append(visitor)
        return visitor

    yield open_one
    for context in contexts:
        context.close()
    assert [line for visitor in visitors for line in visitor.said] == []
