"""Workers over HTTP: fences, waits, foreign keys, and a worker in JavaScript that is frozen, replaced and killed."""

from __future__ import annotations

import json
import os
import shutil
import signal
import socket
import subprocess
import threading
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import psycopg
import pytest
import uvicorn
from starlette.testclient import TestClient

from tests.dashboard.api.test_jobs import API, enqueue, open_api
from tests.dashboard.conftest import OpenBoard, as_role
from tests.waiting import until
from watchbill import App
from watchbill.client import key_operations
from watchbill.dashboard import Dashboard, Identity

WORKER = Path(__file__).parents[3] / "examples" / "http_worker" / "worker.mjs"
NODE: dict[str, Any] = {"name": "w1", "lease": 30, "types": {"mail.send": 1}, "queues": ["default"]}


@pytest.fixture
def client(open_board: OpenBoard) -> TestClient:
    return open_api(open_board, as_role("worker"))


@pytest.fixture
def admin(open_board: OpenBoard) -> TestClient:
    return open_api(open_board, as_role("admin"))


def ask(client: TestClient, method: str, path: str, body: Any = None, status: int = 200) -> Any:
    answer = client.request(method, f"{API}/nodes{path}", json=body)
    assert answer.status_code == status, answer.text
    return answer.json()


def test_a_job_is_claimed_settled_and_refused_under_another_fence(client: TestClient, admin: TestClient) -> None:
    node = ask(client, "POST", "", NODE, 201)
    at = f"/{node['epoch']}"
    assert (node["lease"], node["beat_every"]) == (30, 10)
    done, failed, late = (enqueue(admin, payload={"n": n})["id"] for n in range(3))
    jobs = {job["id"]: job for job in ask(client, "POST", f"{at}/claim", {"max": 10, "held": []})["items"]}
    assert jobs.keys() == {done, failed, late}
    assert jobs[done]["fence"].isdecimal()
    assert jobs[done]["payload"] == {"n": 0}
    running = [{"id": done, "fence": jobs[done]["fence"], "age": 1.5, "progress": {"percent": 50}}]
    assert ask(client, "POST", f"{at}/heartbeat", {"running": running}) == {"stop": []}
    assert admin.get(f"{API}/jobs/{done}").json()["progress"] == {"percent": 50}
    answer = ask(
        client, "POST", f"{at}/settle",
        {"items": [
            {"id": done, "fence": jobs[done]["fence"], "result": {"sent": True}, "age": 2},
            {"id": failed, "fence": jobs[failed]["fence"], "outcome": "failed", "delay": 60,
             "error": {"type": "Refused", "message": "no"}},
            {"id": late, "fence": str(int(jobs[late]["fence"]) + 1000)},
        ]},
    )  # fmt: skip
    assert answer["refused"] == [late]
    assert [(row["id"], row["state"]) for row in answer["items"]] == [(failed, "failed")]
    shown = admin.get(f"{API}/jobs/{done}").json()
    assert (shown["state"], shown["result"]) == ("succeeded", {"sent": True})
    assert admin.get(f"{API}/jobs/{failed}").json()["error"]["message"] == "no"


def test_what_the_worker_does_not_know_is_given_back(client: TestClient, admin: TestClient) -> None:
    at = f"/{ask(client, 'POST', '', NODE, 201)['epoch']}"
    job = enqueue(admin)["id"]
    first = ask(client, "POST", f"{at}/claim", {"held": []})["items"][0]
    assert ask(client, "POST", f"{at}/claim", {"held": [first["fence"]]})["items"] == []
    again = ask(client, "POST", f"{at}/claim", {"held": []})["items"][0]
    assert (again["id"], again["fence"] == first["fence"]) == (job, False)


def test_a_job_is_asked_to_stop_and_a_node_leaves(client: TestClient, admin: TestClient) -> None:
    at = f"/{ask(client, 'POST', '', NODE, 201)['epoch']}"
    one, other = enqueue(admin)["id"], enqueue(admin)["id"]
    ask(client, "POST", f"{at}/claim", {"max": 2})
    assert admin.post(f"{API}/jobs/{one}/cancel").json() == {"state": "running"}
    assert ask(client, "POST", f"{at}/heartbeat", {}) == {"stop": [one]}
    assert ask(client, "DELETE", at) == {"released": 1}  # the other one is canceled
    assert admin.get(f"{API}/jobs/{other}").json()["state"] == "queued"
    for path in ("heartbeat", "claim"):
        assert ask(client, "POST", f"{at}/{path}", {}, 410)["code"] == "WB001"


def test_names_drains_and_keys_are_kept_apart(
    client: TestClient, admin: TestClient, open_board: OpenBoard, schema_database: str
) -> None:
    stranger = open_api(open_board, lambda _: Identity("eve", "worker"))
    node = ask(client, "POST", "", NODE, 201)
    assert ask(client, "POST", "", NODE, 409)["code"] == "WB002"
    ask(stranger, "POST", "", NODE | {"take_over": True}, 403)
    for method, path in (("POST", "/heartbeat"), ("POST", "/claim"), ("DELETE", "")):
        ask(stranger, method, f"/{node['epoch']}{path}", None if method == "DELETE" else {}, 403)
    ask(client, "POST", "/12345/claim", {}, 404)
    assert admin.post(f"{API}/nodes/{node['epoch']}/drain").json() == {"changed": True}
    assert ask(client, "POST", f"/{node['epoch']}/claim", {}, 409)["code"] == "WB006"
    new = ask(client, "POST", "", NODE | {"take_over": True}, 201)
    assert int(new["epoch"]) > int(node["epoch"])
    assert ask(client, "POST", f"/{node['epoch']}/heartbeat", {}, 410)["code"] == "WB001"


def test_a_claim_waits_and_producers_wake_it(client: TestClient, admin: TestClient, schema_database: str) -> None:
    at = f"/{ask(client, 'POST', '', NODE, 201)['epoch']}"
    found: list[Any] = []
    waiting = threading.Thread(target=lambda: found.extend(ask(client, "POST", f"{at}/claim", {"wait": 20})["items"]))
    waiting.start()
    with psycopg.connect(schema_database, autocommit=True) as connection:
        until(lambda: connection.execute("SELECT watchbill._has_sleeping_worker()").fetchall() == [(True,)])
        job = enqueue(admin)["id"]
        waiting.join(60)
        assert [each["id"] for each in found] == [job]
        until(lambda: connection.execute("SELECT watchbill._has_sleeping_worker()").fetchall() == [(False,)])


def test_what_is_wrong_with_an_outcome_is_named(client: TestClient) -> None:
    at = f"/{ask(client, 'POST', '', NODE, 201)['epoch']}"
    bodies: list[Any] = [{}, {"items": []}, {"items": [{"id": "x", "fence": "1"}]}, {"max": 0}]
    for body in bodies:
        ask(client, "POST", f"{at}/settle", body, 422)
    wrong = {"items": [{"id": "01a2c0de-0000-7000-8000-000000000000", "fence": "1", "result": "\0"}]}
    assert ask(client, "POST", f"{at}/settle", wrong, 422)["errors"][0]["pointer"] == "/items/0/result"
    for fence in (1.5, "1.5", "9" * 19, True, None):
        body = {"items": [{"id": "01a2c0de-0000-7000-8000-000000000000", "fence": fence}]}
        assert ask(client, "POST", f"{at}/settle", body, 422)["errors"][0]["pointer"] == "/items/0/fence"


# -- A worker in JavaScript


@contextmanager
def serve(board: Dashboard) -> Iterator[str]:
    """Serves a dashboard from a thread, on a free port."""
    listening = socket.create_server(("127.0.0.1", 0))
    server = uvicorn.Server(uvicorn.Config(board, log_level="error", ws="none", timeout_graceful_shutdown=1))
    thread = threading.Thread(target=server.run, args=([listening],))
    thread.start()
    try:
        yield f"http://127.0.0.1:{listening.getsockname()[1]}"
    finally:
        server.should_exit = True
        thread.join(60)
        listening.close()


class Worker:
    """A process of the example, and the lines that it prints."""

    def __init__(self, address: str, key: str, name: str) -> None:
        node = shutil.which("node")
        assert node is not None
        self.lines: list[str] = []
        self.process = subprocess.Popen(
            [node, str(WORKER), address, name],
            env={"WATCHBILL_API_KEY": key, "LEASE": "1", "PATH": os.environ["PATH"]},
            stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
        )  # fmt: skip
        self._reader = threading.Thread(target=self._read)
        self._reader.start()

    def _read(self) -> None:
        assert self.process.stdout is not None
        for line in self.process.stdout:
            self.lines.append(line.strip())

    def has(self, beginning: str) -> bool:
        return any(line.startswith(beginning) for line in self.lines)

    def end(self) -> None:
        self.process.kill()
        self.process.wait(60)
        self._reader.join(60)
        assert self.process.stdout is not None
        self.process.stdout.close()


@pytest.fixture
def serving(schema_database: str) -> Iterator[tuple[str, str, App]]:
    """The address of a served dashboard, the key of a worker, and an App to enqueue with."""
    app = App(schema_database, name="shop")
    key = app.producer.run(key_operations.add_key("js", "worker")).key
    with serve(Dashboard(app, auth=None, hosts=())) as address:
        yield address, key, app
    app.close()


def test_events_are_sent_until_the_client_leaves(serving: tuple[str, str, App]) -> None:
    address, key, app = serving
    job = app.enqueue("mail.send", {"n": 1})
    request = urllib.request.Request(f"{address}{API}/events", headers={"Authorization": f"Bearer {key}"})
    with urllib.request.urlopen(request, timeout=60) as answer:
        assert answer.headers["content-type"].startswith("text/event-stream")
        assert answer.headers["x-accel-buffering"] == "no"
        assert answer.readline() == b"retry: 3000\n"
        app.jobs.cancel(job.id)
        while not (line := answer.readline()).startswith(b"event: job_ended"):
            pass
        about = json.loads(answer.readline().removeprefix(b"data: "))
    assert line
    assert (about["id"], about["state"], about["type"]) == (str(job.id), "canceled", "mail.send")


@pytest.mark.skipif(shutil.which("node") is None, reason="needs node")
def test_a_worker_in_javascript_is_frozen_replaced_and_refused(serving: tuple[str, str, App]) -> None:
    address, key, app = serving
    first = second = None
    try:
        first = Worker(address, key, "w")
        greeting = app.enqueue("hello.greet", {"name": "Ann"})
        until(lambda: first.has(f"succeeded {greeting.id}"))
        assert greeting.get().result == {"text": "Hello, Ann!"}
        long = app.enqueue("hello.sleep", {"seconds": 1})
        until(lambda: first.has(f"started {long.id}"))
        first.process.send_signal(signal.SIGSTOP)
        second = Worker(address, key, "w")  # takes over the name, and so the job
        until(lambda: second.has(f"succeeded {long.id}"))
        state, runs = long.get().state, long.get().run
        first.process.send_signal(signal.SIGCONT)
        until(lambda: first.has(f"refused {long.id}") or first.has("lost:"))
        assert (state, runs) == (long.get().state, long.get().run) == ("succeeded", 2)
        assert not first.has(f"succeeded {long.id}")
        first.end()
        second.process.send_signal(signal.SIGTERM)
        assert second.process.wait(60) == 0
    finally:
        for worker in (first, second):
            if worker is not None:
                worker.end()
