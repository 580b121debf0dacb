"""`watchbill endpoints`."""

from __future__ import annotations

import json

from tests.acceptance.command import Watchbill


def test_endpoints_are_added_changed_and_removed(watchbill: Watchbill, schema_database: str) -> None:
    def run(*words: str) -> tuple[int, str]:
        answer = watchbill.here("endpoints", *words, "--database-url", schema_database)
        return answer.returncode, answer.stdout.strip() or answer.stderr.strip()

    assert "There are no endpoints" in run()[1]
    added = run("add", "crm", "--base-url", "https://api.example.com/v2", "--bearer", "env:WATCHBILL_SECRET_CRM")
    assert added == (0, "crm added")
    assert run("add", "crm", "--base-url", "https://x.example")[0] == 2
    assert run("update", "crm", "--max", "3", "--header", "X-App: shop", "--timeout", "5s") == (0, "crm changed")
    (listed,) = json.loads(run("list", "--json")[1])
    assert (listed["max"], listed["timeout"], listed["headers"]) == (3, 5.0, {"X-App": "shop"})
    code, shown = run("show", "crm")
    assert code == 0
    assert "bearer env:WATCHBILL_SECRET_CRM" in shown
    assert run("update", "crm", "--rate", "10/1m", "--rate", "2/1s", "--ordered") == (0, "crm changed")
    assert "3, in order" in run("show", "crm")[1]
    assert "2 per 1s and 10 per 1m" in run("show", "crm")[1]
    assert run("update", "crm", "--rate", "none", "--no-ordered") == (0, "crm changed")
    (listed,) = json.loads(run("list", "--json")[1])
    assert (listed["rates"], listed["ordered"]) == ([], False)
    assert run("update", "crm", "--rate", "often")[0] == 2
    assert run("disable", "crm", "--reason", "on holiday") == (0, "crm disabled")
    assert "disabled: on holiday" in run("list")[1]
    assert run("enable", "crm") == (0, "crm enabled")
    assert run("update", "crm")[0] == 2
    assert run("update", "crm", "--bearer", "env:A", "--basic", "u:env:A")[0] == 2
    assert run("update", "crm", "--signature", "not a reference")[0] != 0
    assert run("remove", "crm", "--yes") == (0, "crm removed")
    assert run("show", "crm")[0] == 1
