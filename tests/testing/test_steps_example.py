"""examples/steps: each task ends as it should, and resumes after a crash before and after each of its writes."""

from __future__ import annotations

import importlib.util
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from tests.docs.programs import blocks
from watchbill.testing import Watchbill

FLOWS = Path(__file__).parents[2] / "examples" / "steps" / "flows.py"


@pytest.fixture(scope="module")
def flows() -> ModuleType:
    return load(FLOWS)


def load(file: Path) -> ModuleType:
    spec = importlib.util.spec_from_file_location(file.stem, file)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


ENDS = [
    ("fulfil", (7,), {}, "payment 7"),
    ("enrich", (1,), {"paid": 5}, [["fact 1", "fact 2", "fact 3"], "fact 1", 5]),
    ("report", (["a", "b"],), {}, "<<a><b>>"),
    ("agent", ("a goal",), {}, "turn 2"),
    ("export", ("orders",), {}, "rows.csv"),
    ("close_month", (), {"auditor": "fine"}, "fine"),
]


@pytest.mark.parametrize(("name", "arguments", "signals", "result"), ENDS, ids=[end[0] for end in ENDS])
def test_a_task_of_the_example_ends_and_resumes(
    watchbill: Watchbill, flows: ModuleType, name: str, arguments: Any, signals: dict[str, Any], result: Any
) -> None:
    task = getattr(flows, name)
    assert watchbill.assert_resumes(task.bind(*arguments), signals=signals) > 0
    (first, *_) = watchbill.jobs(task)
    assert (first.state, first.result) == ("succeeded", result)


def test_an_expense_waits_for_an_approval_or_late_for_an_override(watchbill: Watchbill, flows: ModuleType) -> None:
    verdict = {"verdict": "yes"}
    assert watchbill.assert_resumes(flows.expense.bind(3), signals={"approval": verdict}) == 2
    job = flows.expense.enqueue(4)
    watchbill.drain()
    watchbill.advance(days=2)
    watchbill.drain()
    assert job.get().state == "suspended"
    assert job.signal("override", verdict) == "woken"
    watchbill.drain()
    assert job.result(timeout=0).startswith("yes by ")


def test_a_trip_that_cannot_be_paid_is_undone(
    watchbill: Watchbill, flows: ModuleType, capsys: pytest.CaptureFixture[str]
) -> None:
    job = flows.travel.enqueue(5)
    watchbill.drain()
    assert job.get().state == "dead"
    said = [line for line in capsys.readouterr().out.splitlines() if ":" in line]
    assert said == [
        "book_flight: flight 5", "book_hotel: hotel 5", "undo/book_hotel: cancel hotel 5",
        "undo/book_flight: cancel flight 5",
    ]  # fmt: skip
    assert watchbill.assert_resumes(flows.travel.bind(6)) >= 2 * 6


def test_the_recipes_are_those_of_the_example() -> None:
    recipes = blocks("howto/step_recipes.md")
    assert len(recipes) == 5
    assert [text for text in recipes if text.strip() not in FLOWS.read_text()] == []


def test_the_transfer_of_the_page_on_temporal_is_refunded_wherever_it_crashes(
    watchbill: Watchbill, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (text,) = blocks("howto/coming_from_temporal.md")
    (tmp_path / "transfers.py").write_text(text)
    transfer = load(tmp_path / "transfers.py").transfer
    job = transfer.enqueue("a", "b", 7)
    watchbill.drain()
    assert job.result(timeout=0) == ["withdrawn 7 from a", "deposited 7 to b"]
    refunded = transfer.enqueue("a", "closed", 7)
    watchbill.drain(fast_retries=True)
    assert "the account is closed" in refunded.get().error["message"]
    assert capsys.readouterr().out == "refund: withdrawn 7 from a\n"
    assert watchbill.assert_resumes(transfer.bind("a", "closed", 7)) >= 2 * 3
