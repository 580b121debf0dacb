"""assert_resumes: programs like those of docs/howto/steps.md go on after a crash at each write; others are found."""

from __future__ import annotations

import asyncio
from collections import Counter
from typing import Any

import pytest

from watchbill import (
    App,
    AsyncConnection,
    AsyncSteps,
    Connection,
    Retry,
    SignalTimeout,
    StepFailed,
    Steps,
    current_step,
)
from watchbill.testing import Watchbill

CALLS: Counter[str] = Counter()


@pytest.fixture(autouse=True)
def _nothing_was_called() -> None:
    CALLS.clear()


class CardDeclined(Exception):
    pass


def count() -> None:
    CALLS[current_step().key] += 1


def double(number: int) -> int:
    count()
    return number * 2


async def adouble(number: int) -> int:
    count()
    return number * 2


def test_steps_a_sleep_and_a_transaction(watchbill: Watchbill) -> None:
    app = App()

    async def book(connection: AsyncConnection, number: int) -> str:
        await connection.execute("CREATE TEMP TABLE IF NOT EXISTS entries (number int)")
        return f"booked {number}"

    @app.task(type="fulfil")
    async def fulfil(steps: AsyncSteps, order: int) -> str:
        payment = await steps.run(adouble, order)
        booked = await steps.run(book, payment)
        steps.publish(booked=True)
        await steps.sleep("3d")
        await steps.run(double, order)
        return f"{booked} {steps.uuid().version} {await steps.now() == await steps.now()}"

    # Two calls, a transaction, what is published, a sleep that begins and ends, and the time twice.
    assert watchbill.assert_resumes(fulfil.bind(7)) == 2 * 8


def test_a_signal_a_time_out_and_a_declared_error(watchbill: Watchbill) -> None:
    app = App()

    @app.step(raises=[CardDeclined])
    def charge(order: int) -> None:
        count()
        raise CardDeclined(order)

    @app.task(type="expense")
    def expense(steps: Steps, order: int) -> list[Any]:
        try:
            steps.run(charge, order)
        except CardDeclined as error:
            declined = error.args
        answer = steps.receive("approval").payload
        try:
            steps.receive("never", timeout="2d")
        except SignalTimeout:
            late = True
        return [declined, answer, late]

    assert watchbill.assert_resumes(expense.bind(7), signals={"approval": "yes"}) == 2 * 4
    with pytest.raises(AssertionError, match="nothing is due: give what its steps wait for"):
        watchbill.assert_resumes(expense.bind(7))


def test_branches_items_and_failures_that_are_tried_again(watchbill: Watchbill) -> None:
    app = App()

    @app.step(retry=Retry(max_attempts=3, base="1h", jitter=0))
    async def unsteady(number: int) -> int:
        count()
        if CALLS[current_step().key] < 3:
            raise ConnectionError("down")
        return number

    async def branch(steps: AsyncSteps, number: int) -> int:
        await steps.sleep(f"{number}h")
        return await steps.run(unsteady, number)

    @app.task(type="enrich")
    async def enrich(steps: AsyncSteps) -> list[Any]:
        a, b = await asyncio.gather(steps.run(adouble, 1), steps.run(adouble, 2))
        facts = await steps.map(adouble, [a, b], key=str, at_once=2)
        return [facts, await steps.gather(branch(steps, 1), branch(steps, 2))]

    assert watchbill.assert_resumes(enrich.bind()) > 2 * 8


def test_other_jobs_and_undo(watchbill: Watchbill) -> None:
    app = App()

    @app.task(type="render")
    def render(page: int) -> str:
        return f"page {page}"

    def forget(number: int) -> None:
        count()

    @app.task(type="report", retry=Retry(max_attempts=1))
    def report(steps: Steps, pages: int) -> None:
        steps.using(undo=forget).run(double, 1)
        found = steps.call_many([render.bind(page) for page in range(pages)])
        steps.enqueue(render.bind(len(found)))
        steps.using(undo=forget).run(double, 2)
        raise ValueError("no money")

    assert watchbill.assert_resumes(report.bind(2)) == 2 * 8
    assert all(steps in (1, 2) for steps in CALLS.values())  # before a crash and after it


@pytest.mark.parametrize("anyio_backend", ["asyncio"])
@pytest.mark.anyio
async def test_a_restart_on_the_loop_of_the_test(watchbill: Watchbill) -> None:
    app = App()

    @app.task(type="follow")
    async def follow(steps: AsyncSteps, page: int) -> int:
        await steps.run(adouble, page)
        if page < 2:
            await steps.restart(page=page + 1)
        return page

    assert await watchbill.aassert_resumes(follow.bind(0)) == 2 * 5


def test_a_transactional_step_is_committed_or_called_again(watchbill: Watchbill) -> None:
    app = App()

    def insert(connection: Connection, number: int) -> int:
        connection.execute("CREATE TABLE IF NOT EXISTS public.resumed (number int)")
        connection.execute("INSERT INTO public.resumed VALUES (%s)", [number])
        row = connection.execute("SELECT count(*) FROM public.resumed").fetchone()
        return int(row[0]) if row else 0

    @app.task(type="write")
    def write(steps: Steps) -> None:
        steps.run(insert, 1)
        steps.run(insert, 2)

    assert watchbill.assert_resumes(write.bind()) == 2 * 2


CHANCE: list[int] = []


@pytest.mark.parametrize("wrong", ["chance", "effect", "swallowed"])
def test_a_handler_that_does_not_resume_is_found(watchbill: Watchbill, wrong: str) -> None:
    app = App()
    CHANCE.clear()

    @app.task(type="wrong", retry=Retry(max_attempts=1))
    def handle(steps: Steps) -> int:
        steps.run(double, 1)
        CHANCE.append(1)
        if wrong == "chance":
            steps.run(double, len(CHANCE))  # other arguments in another run
        elif wrong == "swallowed":
            try:
                steps.run(double, 2)
            except BaseException:  # noqa: BLE001
                return 0
        return len(CHANCE) if wrong == "effect" else 1

    with pytest.raises(AssertionError, match=r"wrong does not resume: after a crash (before|after) step double"):
        watchbill.assert_resumes(handle.bind())


def test_a_task_without_steps_is_refused(watchbill: Watchbill) -> None:
    app = App()

    @app.task(type="plain")
    def plain() -> None:
        pass

    with pytest.raises(AssertionError, match="plain has stored no step"):
        watchbill.assert_resumes(plain.bind())


def test_a_failure_that_the_handler_catches_goes_the_same_way(watchbill: Watchbill) -> None:
    app = App()

    def fail(number: int) -> None:
        count()
        raise ConnectionError(f"down {number}")

    @app.task(type="catch")
    async def catch(steps: AsyncSteps) -> list[str]:
        seen = []
        for number in range(2):
            try:
                await steps.run(fail, number)
            except StepFailed as error:
                seen.append(str(error))
        await steps.sleep("1h")
        return [*seen, str(await steps.run(adouble, 1))]

    watchbill.assert_resumes(catch.bind())
