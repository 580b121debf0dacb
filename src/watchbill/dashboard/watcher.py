"""Keeps open pages up to date. One Watcher per process reads each page once per period, however many people look at
it, and not at all while none does.

A topic is a page in the eyes of those who see the same: role, tenant, zone. It is read by the handler of the page, with
little time for each statement. What changed since a viewer's last event is sent to that viewer; a slow viewer gets the
latest state, never a backlog.
"""

from __future__ import annotations

import asyncio
import hashlib
import logging
import re
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import NamedTuple

from watchbill.dashboard.problems import Problem

MOST_TOPICS = 500
LEAST_REST_SECONDS = 0.2  # between two readings, however long a reading takes
_log = logging.getLogger(__name__)

# Text in a page is escaped, so a tag cannot come from a value.
_LIVE = re.compile(
    r'<([a-z]+)\b(?:[^<>"]|"[^"]*")*?\bid="([^"]+)"(?:[^<>"]|"[^"]*")*?\bdata-live\b(?:[^<>"]|"[^"]*")*>'
)
_CLOCK = re.compile(r'\bid="live"(?:[^<>"]|"[^"]*")*>(?:<span[^>]*>[^<]*</span>)?\s*([^<]*?)\s*<')


class Fragment(NamedTuple):
    html: str
    digest: str


class Page(NamedTuple):
    """What was read of a page: its time as it shows it, and its live elements by id."""

    clock: str
    fragments: dict[str, Fragment]


Read = Callable[[], Awaitable[str]]


@dataclass(eq=False)
class Topic:
    read: Read
    period: float
    page: Page | None = None
    reading: int = 0
    viewers: set[Viewer] = field(default_factory=set)


@dataclass(eq=False)
class Viewer:
    """One stream. `names` are the pages for which it asked, in the order of its topics."""

    names: Sequence[str]
    topics: Sequence[Topic]
    woken: asyncio.Event = field(default_factory=asyncio.Event)
    _seen: dict[str, int] = field(default_factory=dict)
    _sent: dict[tuple[str, str], str] = field(default_factory=dict)

    def take_news(self) -> Iterator[tuple[str, Topic, Page, dict[str, Fragment]]]:
        """The pages that were read since the last call, and which of their fragments this viewer does not have."""
        for name, topic in zip(self.names, self.topics, strict=True):
            if topic.page is None or self._seen.get(name) == topic.reading:
                continue
            self._seen[name] = topic.reading
            changed = {
                element: fragment
                for element, fragment in topic.page.fragments.items()
                if self._sent.get((name, element)) != fragment.digest
            }
            self._sent |= {(name, element): fragment.digest for element, fragment in changed.items()}
            yield name, topic, topic.page, changed


class Watcher:
    def __init__(self) -> None:
        self._topics: dict[object, Topic] = {}
        self._tasks: set[asyncio.Task[None]] = set()

    @asynccontextmanager
    async def watching(self, wanted: Sequence[tuple[str, object, Read, float]]) -> AsyncIterator[Viewer]:
        """A viewer of these pages: the name, the topic's key, how to read it, and its period in seconds."""
        topics = [self._find_topic(key, read, period) for _, key, read, period in wanted]
        viewer = Viewer([name for name, *_ in wanted], topics)
        for topic in topics:
            topic.viewers.add(viewer)
        viewer.woken.set()
        try:
            yield viewer
        finally:
            for topic in topics:
                topic.viewers.discard(viewer)

    async def rest(self) -> None:
        """Returns when no page is read any more."""
        await asyncio.gather(*self._tasks)

    def check_room(self, keys: Sequence[object]) -> None:
        """Raises if so many pages are watched that these would be too many."""
        if len(self._topics.keys() | set(keys)) > MOST_TOPICS:
            raise Problem(503, f"{MOST_TOPICS} pages are watched already.", hint="Reload the page to see its news.")

    def _find_topic(self, key: object, read: Read, period: float) -> Topic:
        found = self._topics.get(key)
        if found is None:
            found = self._topics[key] = Topic(read, period)
            task = asyncio.create_task(self._keep_reading(key, found))
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)
        return found

    async def _keep_reading(self, key: object, topic: Topic) -> None:
        await asyncio.sleep(0)  # lets the first viewer join
        clock = asyncio.get_running_loop().time
        try:
            while topic.viewers:
                began = clock()
                try:
                    topic.page = find_fragments(await topic.read())
                except Exception as error:  # noqa: BLE001  whatever a page raises: the next reading may succeed
                    _log.debug("A page that is watched could not be read, so its viewers wait: %s", error)
                else:
                    topic.reading += 1
                    for viewer in topic.viewers:
                        viewer.woken.set()
                await asyncio.sleep(max(topic.period - (clock() - began), LEAST_REST_SECONDS))
        finally:
            self._topics.pop(key, None)


def find_fragments(html: str) -> Page:
    """The elements with `id` and `data-live`, which are never inside each other."""
    found: dict[str, Fragment] = {}
    position = 0
    while match := _LIVE.search(html, position):
        position = _find_end(html, match)
        text = html[match.start() : position]
        found[match[2]] = Fragment(text, hashlib.blake2b(text.encode("utf-8", "replace"), digest_size=12).hexdigest())
    clock = _CLOCK.search(html)
    return Page(clock[1] if clock else "", found)


def _find_end(html: str, start: re.Match[str]) -> int:
    depth = 0
    for tag in re.compile(rf"<(/?){start[1]}\b[^>]*>").finditer(html, start.start()):
        depth += -1 if tag[1] else 1
        if depth == 0:
            return tag.end()
    raise ValueError(f"the element {start[2]!r} of the page has no end")
