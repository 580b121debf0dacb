"""examples/approval: small claims are paid at once, others after a person has answered, each once."""

from __future__ import annotations

import json
from pathlib import Path

from tests.examples.commands import Example


def test_claims_wait_for_people_and_are_paid_once(schema_database: str, tmp_path: Path) -> None:
    expenses = Example("approval", schema_database, tmp_path)
    for claim, amount in ((1, 20), (2, 700), (3, 800)):
        expenses.watchbill("jobs", "enqueue", "expenses.expense", json.dumps({"claim": claim, "amount": amount}))
    said = expenses.work_off()
    assert "claim 1: 20 paid" in said
    assert "manager: is 700 for claim 2 all right?" in said
    waiting = expenses.watchbill("jobs", "waiting", "--signal", "approval")
    assert "700" in waiting
    ids = dict(expenses.sql("SELECT (payload->>'claim')::int, id::text FROM watchbill.job"))
    expenses.watchbill("jobs", "signal", ids[2], "approval", '{"verdict": "yes"}')
    expenses.watchbill("jobs", "wake", ids[3])  # the two days are over
    said = expenses.work_off()
    assert "claim 2: 700 paid" in said
    assert "director: is 800 for claim 3 all right?" in said
    expenses.watchbill("jobs", "signal", ids[3], "approval", '{"verdict": "no"}')
    assert "claim 3: refused" in expenses.work_off()
    assert expenses.sql("SELECT claim, amount FROM payments ORDER BY claim") == [(1, 20), (2, 700)]
    assert "pay" in expenses.watchbill("jobs", "steps", ids[2])
