"""API keys as bearer tokens and as logins, made and revoked with the command."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest
from starlette.testclient import TestClient

from tests.acceptance.command import Watchbill
from tests.dashboard.conftest import OpenBoard
from watchbill.dashboard import keys

Run = Callable[..., tuple[int, str]]


@pytest.fixture
def run(tmp_path: Path, schema_database: str) -> Run:
    def run_keys(*words: str) -> tuple[int, str]:
        answer = Watchbill(tmp_path).here("keys", *words, "--database-url", schema_database)
        return answer.returncode, answer.stdout.strip() or answer.stderr.strip()

    return run_keys


def is_known(client: TestClient, key: str) -> bool:
    answer = client.post("/logout", headers={"Authorization": f"Bearer {key}"})
    assert answer.status_code in (303, 401)
    return answer.status_code == 303


def test_a_key_opens_the_door_until_it_is_revoked(
    open_board: OpenBoard, run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(keys, "REMEMBERED_SECONDS", 0.0)
    client = open_board(auth=None)
    assert "There are no API keys" in run()[1]
    code, key = run("add", "shop", "--role", "operator", "--rate", "5", "--expires", "90d")
    assert code == 0
    assert is_known(client, key)
    for wrong in (key[:-1] + ("A" if key[-1] != "A" else "B"), "wb_", "wb_short_key", key + "x"):
        assert not is_known(client, wrong)
    (listed,) = json.loads(run("list", "--json")[1])
    assert (listed["name"], listed["role"], listed["state"], listed["rate"]) == ("shop", "operator", "valid", 5.0)
    assert listed["used_at"] is not None
    assert key not in json.dumps(listed)
    assert run("revoke", "shop") == (0, f"{listed['id']} revoked")
    assert not is_known(client, key)
    assert run("revoke", "shop")[0] == 1
    assert run("add", "x", "--role", "reader", "--expires", "soon")[0] == 2
    assert run("add", "x", "--role", "reader", "--tenant", "acme")[0] == 2


def test_a_key_is_remembered_for_a_few_seconds_only(open_board: OpenBoard, run: Run) -> None:
    assert 0 < keys.REMEMBERED_SECONDS < 10
    client = open_board(auth=None)
    key = run("add", "shop", "--role", "reader")[1]
    assert is_known(client, key)
    run("revoke", "shop")
    known = client.app.board.keys._known  # type: ignore[attr-defined]
    assert is_known(client, key)
    known.update({each: (0.0, identity) for each, (_, identity) in known.items()})
    assert not is_known(client, key)


def test_people_log_in_with_a_key_and_are_out_when_it_is_revoked(
    open_board: OpenBoard, run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(keys, "REMEMBERED_SECONDS", 0.0)
    client = open_board(auth=None)
    key = run("add", "ann", "--role", "operator")[1]
    assert client.post("/login", data={"name": "", "password": key[:-1] + "!"}).status_code == 401
    assert client.post("/login", data={"name": "", "password": key}).status_code == 303
    refused = client.post("/logout").json()
    assert refused["title"] == "Not from a form of this session"  # so the session is known
    run("revoke", "ann")
    assert client.post("/logout").status_code == 303  # a stranger's
