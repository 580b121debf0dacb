"""docs/howto/steps.md: its program runs, and its changes of code do what the page says."""

from __future__ import annotations

import ast
from pathlib import Path

from tests.docs.programs import blocks, run_program

PAGE = "howto/steps.md"
_CHANGED = """

import watchbill
from watchbill import App, AsyncSteps

app = App()
calls = []


def one(n: int = 1) -> int:
    calls.append("one")
    return n


def two() -> int:
    calls.append("two")
    return 2


def three() -> int:
    calls.append("three")
    return 3


@app.task(type="work")
async def before(steps: AsyncSteps) -> list[int]:
    await steps.run(one)
    await steps.run(two)
    await steps.sleep("1h")
    return []


async def added(steps: AsyncSteps) -> list[int]:
    return [await steps.run(three), await steps.run(one), await steps.run(two)]


async def removed(steps: AsyncSteps) -> list[int]:
    return [await steps.run(two)]


async def swapped(steps: AsyncSteps) -> list[int]:
    return [await steps.run(two), await steps.run(one)]


async def other_arguments(steps: AsyncSteps) -> list[int]:
    return [await steps.run(one, 5)]


async def renamed(steps: AsyncSteps) -> list[int]:
    return [await steps.using(name="one").run(three)]


async def retyped(steps: AsyncSteps) -> list[int]:
    def one() -> list[str]:
        return []

    return [len(await steps.run(one))]


for after in (added, removed, swapped, other_arguments, renamed, retyped):
    job = before.enqueue()
    with app.node():
        while job.get().state != "suspended":
            pass
    calls.clear()
    old, before.function = before.function, after
    app.jobs.wake(job.id)
    try:
        with app.node():
            print(after.__name__, job.result(timeout=60), calls)
    except watchbill.JobFailed as failed:
        print(after.__name__, failed.error["type"], calls)
    before.function = old
"""


def test_the_program_continues_after_its_sleep(schema_database: str, tmp_path: Path) -> None:
    orders, program, *fragments = blocks(PAGE)
    (tmp_path / "orders.py").write_text(orders)
    lines = run_program(program, tmp_path, {"DATABASE_URL": schema_database}).splitlines()
    key = lines[0].removeprefix("charge ")
    assert key.endswith(":charge")
    assert lines[1:] == [
        "ship 7 payment-7",
        "[('charge', 'done', 'payment-7'), ('ship', 'done', None), ('sleep', 'waiting', None)]",
        "ask 7",
        "payment-7",
    ]
    for fragment in fragments:
        compile(fragment, PAGE, "exec", flags=ast.PyCF_ALLOW_TOP_LEVEL_AWAIT)


def test_changes_of_the_code_do_what_the_page_says(schema_database: str, tmp_path: Path) -> None:
    printed = run_program(_CHANGED, tmp_path, {"DATABASE_URL": schema_database})
    assert printed.splitlines() == [
        "added [3, 1, 2] ['three']",
        "removed [2] []",
        "swapped [2, 1] []",
        "other_arguments StepMismatch []",
        "renamed [1] []",
        "retyped StepMismatch []",
    ]
