"""examples/approval: small claims are paid at once, others after a person has answered, each once."""

from __future__ import annotations

import json
from pathlib import Path

from tests.examples.commands import Example
from tests.waiting import until


def test_claims_wait_for_people_and_are_paid_once(schema_database: str, tmp_path: Path) -> None:
    expenses = Example("approval", schema_database, tmp_path)
    enqueue(expenses, 1, 20)
    enqueue(expenses, 2, 700)
    said = expenses.work_off("expenses")
    assert "claim 1: 20 paid" in said
    assert "manager: is 700 for claim 2 all right?" in said
    assert "700" in expenses.watchbill("jobs", "waiting", "--signal", "approval")
    claim = find_job(expenses, 2)
    expenses.watchbill("jobs", "signal", claim, "approval", '{"verdict": "yes"}')
    assert "claim 2: 700 paid" in expenses.work_off("expenses")
    assert expenses.sql("SELECT claim, amount FROM payments ORDER BY claim") == [(1, 20), (2, 700)]
    assert "pay" in expenses.watchbill("jobs", "steps", claim)


def test_the_director_is_asked_when_the_manager_is_late(schema_database: str, tmp_path: Path) -> None:
    expenses = Example("approval", schema_database, tmp_path)
    expenses.environment["ANSWER_TIME"] = "1ms"
    enqueue(expenses, 3, 800)
    until(lambda: "director: is 800 for claim 3 all right?" in expenses.work_off("expenses"))
    expenses.watchbill("jobs", "signal", find_job(expenses, 3), "late", '{"verdict": "no"}')
    assert "claim 3: refused" in expenses.work_off("expenses")


def enqueue(expenses: Example, claim: int, amount: int) -> None:
    payload = json.dumps({"claim": claim, "amount": amount})
    expenses.watchbill("jobs", "enqueue", "expenses.expense", payload, "--unchecked")


def find_job(expenses: Example, claim: int) -> str:
    ((job,),) = expenses.sql(f"SELECT id::text FROM watchbill.job WHERE payload->>'claim' = '{claim}'")
    return str(job)
