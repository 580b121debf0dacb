"""Answers whether this process works, from threads of their own: a hung event loop does not keep it from answering.

`/health/live`: the event loop has turned within `stuck_after`. `/health/ready`: the node is registered, its lease
holds, its event loop is not late, and it does not drain. `/metrics`: what this process has done, for Prometheus.
"""

from __future__ import annotations

import asyncio
import errno
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from itertools import chain
from typing import Any, Protocol

from watchbill._version import __version__
from watchbill.cluster.lease import Lease
from watchbill.errors import WatchbillError
from watchbill.model.clock import boot_seconds
from watchbill.telemetry.prometheus import CONTENT_TYPE, Family, write_metrics
from watchbill.worker.config import Capacity
from watchbill.worker.tally import ENDED_JOBS, OUTCOMES, Tally

LATE_LOOP_SECONDS = 5.0  # a node whose event loop has not turned for so long is not ready
MOST_NAMES = 100  # pairs of queue and type that have series of their own
OTHER = "(other)"
TURN_SECONDS = 0.5  # the event loop says so often that it turns
REQUEST_SECONDS = 5.0  # a client has this long to send its request


class ObservedSlots(Protocol):
    """The part of the worker's slots that health and metrics read, from other threads."""

    waiting: int
    finished: int

    @property
    def runs(self) -> set[Any]: ...


class Vitals:
    """What this process says about itself."""

    def __init__(
        self,
        slots: ObservedSlots,
        lease: Lease,
        tally: Tally,
        registered: Any,
        draining: Any,
        *,
        stuck_after: float,
        capacity: Capacity,
    ) -> None:
        self._slots, self._lease, self._tally = slots, lease, tally
        self._registered, self._draining = registered, draining
        self._stuck_after, self._capacity = stuck_after, capacity
        self._last_turn = time.monotonic()

    async def note_turns(self) -> None:
        """Runs on the event loop, and so notes that it turns. It does so also while the database does not answer."""
        while True:
            self._last_turn = time.monotonic()
            await asyncio.sleep(TURN_SECONDS)

    @property
    def _loop_lag(self) -> float:
        return max(0.0, time.monotonic() - self._last_turn - TURN_SECONDS)

    def find_death(self) -> str | None:
        """Returns why this process should be replaced; None if it lives."""
        lag = self._loop_lag
        return f"the event loop has not turned for {lag:.1f} s" if lag >= self._stuck_after else None

    def find_hindrance(self) -> str | None:
        """Returns why this node should get no work; None if it is ready."""
        if self._draining.is_set():
            return "the node drains"
        if not self._registered.is_set():
            return "the node is not registered yet"
        if boot_seconds() > self._lease.deadline:
            return "no heartbeat was acknowledged in time"
        lag = self._loop_lag
        return f"the event loop has not turned for {lag:.1f} s" if lag >= LATE_LOOP_SECONDS else None

    def measure(self) -> Iterator[Family]:
        by_name: dict[tuple[str, str], list[float]] = {}
        for (queue, type_, _), numbers in self._tally.total().items():
            pair = (queue, type_) if len(by_name) < MOST_NAMES or (queue, type_) in by_name else (OTHER, OTHER)
            known = by_name.get(pair)
            by_name[pair] = [*numbers] if known is None else [a + b for a, b in zip(known, numbers, strict=True)]
        named = [({"queue": queue, "type": type_}, numbers) for (queue, type_), numbers in sorted(by_name.items())]
        yield Family(
            "watchbill_attempts_total", "counter", "Runs that have ended in this process, by outcome.",
            [(labels | {"outcome": word}, numbers[n]) for labels, numbers in named for n, word in enumerate(OUTCOMES)],
        )  # fmt: skip
        yield Family(
            "watchbill_ended_jobs_total", "counter", "Jobs that a run in this process has left dead or canceled.",
            [
                (labels | {"state": word}, numbers[len(OUTCOMES) + n])
                for labels, numbers in named
                for n, word in enumerate(ENDED_JOBS)
            ],
        )  # fmt: skip
        kinds: dict[str, int] = dict.fromkeys(self._capacity.by_kind, 0)
        for run in list(self._slots.runs):
            kinds[run.handler.kind] += 1
        yield Family(
            "watchbill_running", "gauge", "Handlers that run now.",
            [({"kind": kind}, number) for kind, number in kinds.items()],
        )  # fmt: skip
        yield Family(
            "watchbill_slots_by_kind", "gauge", "How many handlers of a kind may run at once.",
            [({"kind": kind}, number) for kind, number in self._capacity.by_kind.items()],
        )  # fmt: skip
        is_ready, sent = self.find_hindrance() is None, self._lease.sent
        single: Mapping[str, tuple[float, str]] = {
            "watchbill_waiting": (self._slots.waiting, "Claimed jobs that wait for a handler slot."),
            "watchbill_slots": (self._capacity.total, "How many handlers may run at once."),
            "watchbill_loop_lag_seconds": (self._loop_lag, "How long ago the event loop turned last."),
            "watchbill_ready": (is_ready, "1 if the node is ready, as /health/ready says."),
        }
        for name, (value, meaning) in single.items():
            yield Family(name, "gauge", meaning, [({}, value)])
        if sent is not None:
            age = max(0.0, boot_seconds() - sent)
            yield Family("watchbill_beat_age_seconds", "gauge", "Age of the last heartbeat.", [({}, age)])
        yield Family("watchbill_build_info", "gauge", "The version.", [({"version": __version__}, 1)])


Page = Callable[[], tuple[int, str, str]]  # returns the status, the type of the content, and the text


def make_pages(vitals: Vitals, measure: Callable[[], Iterator[Family]]) -> dict[str, Page]:
    """What a worker serves. `measure` yields more metrics than those of `vitals`."""
    return {
        "/health/live": lambda: make_answer(vitals.find_death()),
        "/health/ready": lambda: make_answer(vitals.find_hindrance()),
        "/metrics": lambda: (200, CONTENT_TYPE, write_metrics(chain(vitals.measure(), measure()))),
    }


def make_answer(problem: str | None) -> tuple[int, str, str]:
    return (200, "text/plain", "ok\n") if problem is None else (503, "text/plain; charset=utf-8", f"{problem}\n")


class HealthServer:
    """Serves pages at an address, from threads. `start()` raises if the address cannot be used."""

    def __init__(self, host: str, port: int, pages: Mapping[str, Page]) -> None:
        self._host, self._port, self._pages = host, port, pages
        self._server: ThreadingHTTPServer | None = None

    def start(self) -> None:
        class Handler(_Handler):
            pages = self._pages

        try:
            self._server = ThreadingHTTPServer((self._host, self._port), Handler)
        except OSError as error:
            reason = "another program uses it" if error.errno == errno.EADDRINUSE else str(error)
            raise WatchbillError(
                f"health_port {self._port} on {self._host} cannot be used: {reason}.",
                hint="Choose another health_port, or another health_host.",
            ) from error
        self._server.daemon_threads = True
        serve = partial(self._server.serve_forever, poll_interval=0.1)
        threading.Thread(target=serve, name="watchbill-health", daemon=True).start()

    @property
    def address(self) -> tuple[str, int]:
        assert self._server is not None, "the server was not started"
        host, port = self._server.server_address[:2]
        return str(host), int(port)

    def stop(self) -> None:
        if self._server is not None:
            self._server.shutdown()
            self._server.server_close()


class _Handler(BaseHTTPRequestHandler):
    timeout = REQUEST_SECONDS
    server_version, sys_version = "watchbill", ""
    pages: Mapping[str, Page]

    def do_GET(self) -> None:
        page = self.pages.get(self.path.partition("?")[0])
        status, content_type, text = (
            page() if page else (404, "text/plain", f"The pages are {', '.join(self.pages)}.\n")
        )
        body = text.encode()
        self.send_response(status)
        self.send_header("Content-Type", content_type)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *args: Any) -> None:
        """Logs nothing: a probe comes every few seconds."""
