"""Answers for the processes of a supervisor: whether they live and are ready, and their metrics, joined."""

from __future__ import annotations

import http.client
from collections.abc import Iterator
from http import HTTPStatus

from watchbill.telemetry.prometheus import CONTENT_TYPE, merge_metrics
from watchbill.worker.health import HealthServer, make_answer

ASK_SECONDS = 2.0


class ProcessesHealth:
    """Asks the processes at the ports after its own. A process that does not listen is starting, or the supervisor
    starts it again: it is not ready, but the whole need not be replaced for it."""

    def __init__(self, host: str, port: int, count: int) -> None:
        # A process that listens everywhere listens here too.
        self._host = "127.0.0.1" if host == "0.0.0.0" else "::1" if host == "::" else host  # noqa: S104
        self._ports = {number: port + number for number in range(1, count + 1)}
        pages = {"/health/live": self._show_live, "/health/ready": self._show_ready, "/metrics": self._show_metrics}
        self._server = HealthServer(host, port, pages)

    def start(self) -> None:
        self._server.start()

    def stop(self) -> None:
        self._server.stop()

    def _show_live(self) -> tuple[int, str, str]:
        dead = [
            f"process {n}: {text.strip()}" for n, status, text in self._ask("/health/live") if status not in (0, 200)
        ]
        return make_answer("; ".join(dead) or None)

    def _show_ready(self) -> tuple[int, str, str]:
        """Ready if at least one process is: the others may be started again at this moment."""
        answers = list(self._ask("/health/ready"))
        if any(status == HTTPStatus.OK for _, status, _ in answers):
            return make_answer(None)
        return make_answer("; ".join(f"process {number}: {text.strip()}" for number, _, text in answers))

    def _show_metrics(self) -> tuple[int, str, str]:
        texts = {str(number): text for number, status, text in self._ask("/metrics") if status == HTTPStatus.OK}
        return 200, CONTENT_TYPE, merge_metrics(texts, "process")

    def _ask(self, page: str) -> Iterator[tuple[int, int, str]]:
        """Yields number, status and text of each process; status 0 if it does not listen, 503 if it gives no answer."""
        for number, port in self._ports.items():
            connection = http.client.HTTPConnection(self._host, port, timeout=ASK_SECONDS)
            try:
                connection.request("GET", page)
                reply = connection.getresponse()
                yield number, reply.status, reply.read().decode()
            except ConnectionRefusedError:
                yield number, 0, "does not listen"
            except (OSError, http.client.HTTPException) as error:
                yield number, HTTPStatus.SERVICE_UNAVAILABLE, f"gives no answer ({error})"
            finally:
                connection.close()
