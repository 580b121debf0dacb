"""How open pages are kept up to date: one reading for many viewers, none without viewers, no backlog for slow ones."""

from __future__ import annotations

import asyncio
import json
import re
from collections.abc import Callable
from typing import Any

import psycopg
import pytest
from starlette.testclient import TestClient

from tests.dashboard.conftest import BASE, OpenBoard, as_role
from watchbill.dashboard import live
from watchbill.dashboard.database import Database
from watchbill.dashboard.problems import Problem
from watchbill.dashboard.watcher import MOST_TOPICS, Watcher, find_fragments

PERIOD_SECONDS = 0.01


def write_page(*fragments: str) -> str:
    clock = '<span class="live" id="live" data-at="x"><span class="word">as of</span> 14:40:53</span>'
    return f"<html>{clock}<main>{''.join(fragments)}</main></html>"


class Source:
    """A page whose text changes with each reading."""

    def __init__(self, *texts: str) -> None:
        self.texts, self.readings = texts, 0
        self.read_once = asyncio.Event()

    async def read(self) -> str:
        text = self.texts[min(self.readings, len(self.texts) - 1)]
        self.readings += 1
        self.read_once.set()
        if text == "broken":
            raise Problem(503, "the database does not answer")
        return write_page(f'<p id="a" data-live>{text}</p>')


async def wait_for_text(viewer: Any, text: str) -> list[str]:
    """The texts of fragment a that this viewer got, until this one."""
    got: list[str] = []
    while not got or got[-1] != text:
        for *_, changed in viewer.take_news():
            got += [re.sub(r"<[^>]+>", "", fragment.html) for fragment in changed.values()]
        if not got or got[-1] != text:
            await viewer.woken.wait()
            viewer.woken.clear()
    return got


def run(test: Callable[[Watcher], Any]) -> None:
    async def inside() -> None:
        async with asyncio.timeout(10):
            await test(Watcher())

    asyncio.run(inside())


def test_fragments_are_found_whole() -> None:
    page = find_fragments(
        write_page(
            '<section class="a" id="one" data-live><section><p>1 &lt;section></p></section></section>',
            '<dl data-x="a > b" id="two" class="x" data-live="list"><dd>2</dd></dl>',
            '<p id="three">data-live</p><p data-live>no id</p>',
        )
    )
    assert page.clock == "14:40:53"
    assert list(page.fragments) == ["one", "two"]
    assert page.fragments["one"].html.endswith("</p></section></section>")
    assert page.fragments["two"].html == '<dl data-x="a > b" id="two" class="x" data-live="list"><dd>2</dd></dl>'


def test_fifty_viewers_share_one_reading() -> None:
    async def test(watcher: Watcher) -> None:
        source = Source("1", "2", "3")

        async def look() -> None:
            async with watcher.watching([("/", "key", source.read, PERIOD_SECONDS)]) as viewer:
                await wait_for_text(viewer, "3")

        await asyncio.gather(*(look() for _ in range(50)))
        assert source.readings < 20

    run(test)


def test_a_page_without_viewers_is_not_read() -> None:
    async def test(watcher: Watcher) -> None:
        source = Source("1")
        async with watcher.watching([("/", "key", source.read, PERIOD_SECONDS)]) as viewer:
            await wait_for_text(viewer, "1")
        await watcher.rest()
        readings = source.readings
        source.read_once.clear()
        async with watcher.watching([("/", "other", Source("1", "2", "3").read, PERIOD_SECONDS)]) as viewer:
            await wait_for_text(viewer, "3")
        assert source.readings == readings

    run(test)


def test_a_slow_viewer_gets_the_latest_state_only() -> None:
    async def test(watcher: Watcher) -> None:
        source = Source("1", "2", "3", "4", "5")
        wanted = [("/", "key", source.read, PERIOD_SECONDS)]
        async with watcher.watching(wanted) as slow, watcher.watching(wanted) as fast:
            await wait_for_text(fast, "5")
            assert await wait_for_text(slow, "5") == ["5"]

    run(test)


def test_what_has_not_changed_is_not_sent_again() -> None:
    async def test(watcher: Watcher) -> None:
        async with watcher.watching([("/", "key", Source("1", "1", "1", "2").read, PERIOD_SECONDS)]) as viewer:
            assert await wait_for_text(viewer, "2") == ["1", "2"]

    run(test)


def test_a_page_that_breaks_is_read_again() -> None:
    async def test(watcher: Watcher) -> None:
        async with watcher.watching(
            [("/", "key", Source("1", "broken", "broken", "2").read, PERIOD_SECONDS)]
        ) as viewer:
            assert await wait_for_text(viewer, "2") == ["1", "2"]

    run(test)


def test_there_is_a_limit_of_pages() -> None:
    with pytest.raises(Problem, match="watched already"):
        Watcher().check_room([*range(MOST_TOPICS + 1)])


# -- The stream


def stream(
    client: TestClient, path: str, *, events: int, headers: dict[str, str] | None = None
) -> list[tuple[str, Any]]:
    """The first events of a stream, which the client leaves then."""

    async def read() -> list[tuple[str, Any]]:
        chunks: asyncio.Queue[str] = asyncio.Queue()
        gone = asyncio.Event()

        async def receive() -> dict[str, Any]:
            await gone.wait()
            return {"type": "http.disconnect"}

        async def send(message: Any) -> None:
            await chunks.put(message.get("body", b"").decode())

        where, _, query = path.partition("?")
        scope = {
            "type": "http", "method": "GET", "scheme": "http", "path": where, "query_string": query.encode(),
            "headers": [(b"host", BASE.removeprefix("http://").encode())]
            + [(name.encode(), value.encode()) for name, value in (headers or {}).items()],
        }  # fmt: skip
        text = ""
        found: list[tuple[str, str]] = []
        task: asyncio.Task[None] = asyncio.create_task(client.app(scope, receive, send))  # type: ignore[arg-type]
        async with asyncio.timeout(20):
            while len(found) < events:
                text += await chunks.get()
                found = re.findall(r"event: (\w+)\ndata: (.*)\n\n", text)
        gone.set()
        await task
        await client.app.aclose()  # type: ignore[attr-defined]
        return [(name, json.loads(data)) for name, data in found]

    return asyncio.run(read())


def test_a_stream_sends_the_parts_of_a_page_and_then_what_changes(open_board: OpenBoard, schema_database: str) -> None:
    found = stream(open_board(auth=as_role("operator")), "/live?page=/", events=6)
    ids = [data["id"] for name, data in found if name == "fragment"]
    assert "queues" in ids
    assert all(data["page"] == "/" for _, data in found)


def test_each_viewer_gets_the_form_token_of_its_own_session(open_board: OpenBoard, schema_database: str) -> None:
    with psycopg.connect(schema_database, autocommit=True) as connection:
        connection.execute("SELECT watchbill.pause('mail')")
    client = open_board(auth=as_role("operator"))
    html = "".join(data.get("html", "") for _, data in stream(client, "/live?page=/", events=8))
    tokens = set(re.findall(r'name="form_token" value="([^"]*)"', html))
    board = client.app.board  # type: ignore[attr-defined]
    assert tokens == {board.sessions.make_form_token(as_role("operator")(None), None)}


def test_buttons_are_those_of_the_viewers_role(open_board: OpenBoard, schema_database: str) -> None:
    with psycopg.connect(schema_database, autocommit=True) as connection:
        connection.execute("SELECT watchbill.pause('mail')")
    html = "".join(
        data.get("html", "") for _, data in stream(open_board(auth=as_role("reader")), "/live?page=/", events=8)
    )
    assert "mail" in html
    assert "<button" not in html


@pytest.mark.parametrize(
    "page", ["", "/live?page=/", "/static/x/live.js", "/login", "/nothing", "//evil", "/api/v1/jobs"]
)
def test_only_pages_can_be_watched(open_board: OpenBoard, page: str) -> None:
    assert open_board().get("/live", params={"page": page}).status_code == 404
    assert open_board().get("/live").status_code == 422


def test_strangers_cannot_watch(open_board: OpenBoard) -> None:
    answer = open_board(auth=lambda _: None).get("/live?page=/")
    assert answer.status_code == 401


def test_the_scripts_are_small() -> None:
    from watchbill.dashboard.static_files import load_files

    scripts = {name: content for name, content in load_files(None).contents.items() if name.endswith(".js")}
    assert sorted(scripts) == [
        f"{name}.js" for name in ("charts", "filter", "graph", "keys", "live", "select", "theme")
    ]
    assert sum(map(len, scripts.values())) < 30_000
    assert not [
        name
        for name, content in scripts.items()
        if re.search(rb"\beval\(|new Function|\.innerHTML = (?!html;)", content)
    ]


def test_a_reading_has_little_time() -> None:
    database = Database(lambda: "", "watchbill")
    assert database.with_limit(live.READ_SECONDS).most_seconds == live.READ_SECONDS
    assert database.most_seconds is None
