"""Options of steps: retries, declared errors, time-outs, versions, `once`, and transactional steps."""

from __future__ import annotations

import asyncio
from typing import Any

import psycopg
import pytest

from tests.worker.conftest import Workbench
from tests.worker.test_steps import SOON, STEPS, run_on
from watchbill import (
    AsyncConnection,
    AsyncSteps,
    Connection,
    JobFailed,
    Permanent,
    Retry,
    RetryAfter,
    StepFailed,
    Steps,
    StepUnknown,
    current_step,
)


class Declined(Exception):
    def __init__(self, card: str) -> None:
        super().__init__(f"{card} was declined")
        self.card = card


async def test_a_step_is_tried_again_in_its_slot_and_stores_its_tries(bench: Workbench) -> None:
    keys: list[str] = []

    @bench.app.step(retry=Retry(max_attempts=3, base=0))
    def call_bank() -> str:
        keys.append(current_step().key)
        if len(keys) < 3:
            raise ConnectionError
        return "paid"

    @bench.app.task
    def pay(steps: Steps) -> str:
        return steps.run(call_bank)

    job = await pay.aenqueue()
    await bench.work_off()
    assert await job.aresult(timeout=60) == "paid"
    assert keys == [f"{job.id}:call_bank"] * 3
    assert bench.sql("SELECT state, tries FROM watchbill.step") == [("done", 3)]
    assert (await job.aget()).attempt == 1


async def test_a_long_pause_between_two_tries_leaves_the_worker(bench: Workbench) -> None:
    tries: list[int] = []

    async def call_bank() -> str:
        tries.append(1)
        if len(tries) == 1:
            raise ConnectionError("503")
        if len(tries) == 2:
            raise RetryAfter("2h")
        return "paid"

    @bench.app.task
    async def pay(steps: AsyncSteps) -> str:
        return await steps.using(retry=Retry(max_attempts=5, base="1h", jitter=0)).run(call_bank)

    job = await pay.aenqueue()
    await bench.work_off()
    assert bench.sql(STEPS) == [("call_bank", "retrying")]
    (reason, *_) = await bench.app.jobs.awhy(job.id)
    assert "step call_bank failed, 1 times until now (ConnectionError: 503); its next try is due" in reason.reason
    await run_on(bench)
    assert bench.sql("SELECT tries, wake_at > now() + interval '110 minutes' FROM watchbill.step") == [(2, True)]
    await run_on(bench)
    assert await job.aresult(timeout=60) == "paid"


@pytest.mark.parametrize("error", [ConnectionError("last"), Permanent("no"), ValueError("not retried")])
async def test_the_last_failure_is_stored_and_the_job_is_dead(bench: Workbench, error: Exception) -> None:
    calls: list[int] = []

    async def fail() -> None:
        calls.append(1)
        raise error

    @bench.app.task(retry=SOON)
    async def pay(steps: AsyncSteps) -> None:
        await steps.using(retry=Retry(max_attempts=2, base=0, not_on=(ValueError,))).run(fail)

    job = await pay.aenqueue()
    await bench.work_off()
    with pytest.raises(JobFailed, match="Step fail has failed"):
        await job.aresult(timeout=60)
    assert len(calls) == (2 if isinstance(error, ConnectionError) else 1)


async def test_a_declared_error_is_a_result(bench: Workbench) -> None:
    calls: list[str] = []

    @bench.app.step(raises=[Declined], retry=5)
    async def charge(card: str) -> None:
        calls.append(card)
        raise Declined(card)

    with pytest.raises(Declined):
        await charge("a plain call runs the function")
    calls.clear()

    @bench.app.task
    async def pay(steps: AsyncSteps) -> str:
        try:
            await steps.run(charge, "visa")
        except Declined as error:
            await steps.sleep("1d")
            return f"{error.card}: {error}"
        return "paid"

    job = await pay.aenqueue()
    await bench.work_off()
    await run_on(bench)
    assert await job.aresult(timeout=60) == "visa: visa was declined"
    assert (calls, bench.sql(STEPS)[0]) == (["visa"], ("charge", "raised"))


async def test_a_time_out_of_a_step_is_a_failure_of_the_step(bench: Workbench) -> None:
    @bench.app.step(timeout=0.01, retry=1)
    async def hang() -> None:
        await asyncio.Event().wait()

    @bench.app.task
    async def wait(steps: AsyncSteps) -> str:
        try:
            await steps.run(hang)
        except StepFailed as error:
            return str(error.error["type"])
        return ""

    job = await wait.aenqueue()
    await bench.work_off()
    assert await job.aresult(timeout=60) == "TimeoutError"
    with pytest.raises(TypeError, match="needs an `async def`"):

        @bench.app.step(timeout=1)
        def block() -> None: ...


async def test_a_result_of_an_older_version_is_upgraded_or_refused(bench: Workbench) -> None:
    async def quote_1() -> int:
        return 7

    @bench.app.step(version=2, name="quote", aliases=["offer"])
    async def quote_2() -> dict[str, int]:
        raise AssertionError

    code: list[Any] = [quote_1]

    @bench.app.task(retry=SOON)
    async def offer(steps: AsyncSteps) -> Any:
        name = "offer" if code[0] is quote_1 else None
        found = await steps.using(name=name).run(code[0])
        await steps.sleep("1d")
        return found

    job = await offer.aenqueue()
    await bench.work_off()
    code[0] = quote_2
    await run_on(bench)
    with pytest.raises(JobFailed, match="by version 1 of its code, and this is version 2"):
        await job.aresult(timeout=60)
    quote_2.upgrade(from_version=1)(lambda old: {"price": old})
    await bench.app.jobs.aretry(job.id)
    await bench.work_off()
    await run_on(bench)
    assert await job.aresult(timeout=60) == {"price": 7}
    assert bench.sql(STEPS) == [("offer", "done"), ("sleep", "done")]
    with pytest.raises(ValueError, match="from_version=2 is invalid"):
        quote_2.upgrade(from_version=2)


async def test_a_step_that_runs_at_most_once_is_not_tried_again(bench: Workbench) -> None:
    calls: list[int] = []

    @bench.app.step(once=True)
    async def send() -> None:
        calls.append(1)
        raise asyncio.CancelledError  # as when the node dies

    @bench.app.task(retry=SOON)
    async def mail(steps: AsyncSteps) -> str:
        try:
            await steps.run(send)
        except StepUnknown:
            await steps.sleep("1d")
            return "unknown"
        return "sent"

    job = await mail.aenqueue()
    async with bench.working():
        await bench.until(lambda: bench.sql("SELECT 1 FROM watchbill.job WHERE state = 'suspended'"))
    assert await bench.app.jobs.awaiting_steps() != []
    await run_on(bench)
    assert await job.aresult(timeout=60) == "unknown"
    assert (len(calls), bench.sql(STEPS)[0]) == (1, ("send", "begun"))
    with pytest.raises(ValueError, match="either retry= or once=True"):
        bench.app.step(once=True, retry=2)


async def test_a_transactional_step_has_its_effect_once_and_only_with_its_result(bench: Workbench) -> None:
    bench.sql("CREATE TABLE entries (what text)")
    failing = [True, True]

    async def book(connection: AsyncConnection, what: str) -> str:
        await connection.execute("INSERT INTO entries VALUES (%s)", [what])
        if failing:
            failing.pop()
            raise ConnectionError
        return what.upper()

    def note(connection: Connection, what: str) -> None:
        connection.execute("INSERT INTO entries VALUES (%s)", [what])

    @bench.app.task(retry=SOON)
    async def order(steps: AsyncSteps) -> str:
        booked = await steps.using(retry=Retry(max_attempts=2, base=0)).run(book, "entry")
        await steps.run(note, "from a def")
        await steps.sleep("1d")
        return booked

    @bench.app.task(retry=SOON)
    def note_only(steps: Steps) -> None:
        steps.run(note, "from a thread")

    failing.pop()
    job, other = await order.aenqueue(), await note_only.aenqueue()
    await bench.work_off()
    await run_on(bench)
    assert await job.aresult(timeout=60) == "ENTRY"
    await other.aresult(timeout=60)
    assert sorted(bench.sql("SELECT what FROM entries")) == [("entry",), ("from a def",), ("from a thread",)]
    assert bench.sql("SELECT tries FROM watchbill.step WHERE name = 'book'") == [(2,)]


async def test_a_run_that_has_lost_its_job_rolls_a_transactional_step_back(bench: Workbench) -> None:
    bench.sql("CREATE TABLE entries (what text)")
    after: list[str] = []

    async def book(connection: AsyncConnection, job: str) -> None:
        await connection.execute("INSERT INTO entries VALUES ('late')")
        bench.sql("UPDATE watchbill.jobs SET fence = fence + 1 WHERE id = %s", job)

    @bench.app.task
    async def order(steps: AsyncSteps) -> None:
        try:
            await steps.run(book, str(job.id))
        except Exception:  # noqa: BLE001
            after.append("compensated")

    job = await order.aenqueue()
    await bench.work_off()
    assert (bench.sql("SELECT * FROM entries"), bench.sql(STEPS), after) == ([], [], [])


async def test_a_lost_reply_to_the_commit_repeats_no_effect(bench: Workbench, monkeypatch: pytest.MonkeyPatch) -> None:
    """The server commits, and the worker sees a broken connection."""
    bench.sql("CREATE TABLE entries (what text)")
    commit = psycopg.AsyncTransaction.__aexit__

    async def lose_the_reply(self: Any, *args: Any) -> Any:
        answer = await commit(self, *args)
        if args[0] is None and losing:
            losing.pop()
            raise psycopg.OperationalError("the connection is lost")
        return answer

    async def book(connection: AsyncConnection) -> str:
        await connection.execute("INSERT INTO entries VALUES ('once')")
        return "booked"

    @bench.app.task(retry=SOON)
    async def order(steps: AsyncSteps) -> str:
        return await steps.run(book)

    losing = [True]
    monkeypatch.setattr(psycopg.AsyncTransaction, "__aexit__", lose_the_reply)
    job = await order.aenqueue()
    await bench.work_off()
    assert await job.aresult(timeout=60) == "booked"
    assert (bench.sql("SELECT * FROM entries"), losing) == ([("once",)], [])
    assert (await job.aget()).attempt == 1


async def test_a_job_that_died_of_a_stored_failure_is_retried_from_that_step(bench: Workbench) -> None:
    calls: list[str] = []

    async def first() -> None:
        calls.append("first")

    async def second() -> str:
        calls.append("second")
        if calls.count("second") == 1:
            raise ConnectionError
        return "mended"

    @bench.app.task
    async def work(steps: AsyncSteps) -> str:
        await steps.run(first)
        return await steps.using(retry=1).run(second)

    job = await work.aenqueue()
    await bench.work_off()
    await bench.app.jobs.aretry(job.id)
    await bench.work_off()
    assert (await job.aget()).state == "dead"
    assert await bench.app.jobs.aretry(job.id, from_step="second") == "dead"
    await bench.work_off()
    assert await job.aresult(timeout=60) == "mended"
    assert calls == ["first", "second", "second"]
