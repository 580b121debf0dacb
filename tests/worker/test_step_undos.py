"""Sagas: what undoes the steps of a job that has died or was canceled."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from tests.worker.conftest import Workbench
from tests.worker.test_steps import SOON, run_on
from watchbill import AsyncConnection, AsyncSteps, JobCanceled, JobFailed, Retry, Steps

STORED = "SELECT name, state FROM watchbill.step ORDER BY seq"


class Trip:
    """Steps that note what happened, and their undos."""

    def __init__(self, bench: Workbench, *, failures: int = 0) -> None:
        self.calls: list[str] = []
        self.failures = failures

        @bench.app.step(retry=Retry(max_attempts=3, base=0))
        async def cancel_flight(booking: str) -> None:
            self.calls.append(f"cancel {booking}")
            if self.failures:
                self.failures -= 1
                raise ConnectionError("airline down")

        async def cancel_hotel(booking: str) -> None:
            self.calls.append(f"cancel {booking}")

        @bench.app.step(undo=cancel_flight)
        async def book_flight(trip: int) -> str:
            self.calls.append("flight")
            return f"flight {trip}"

        async def book_hotel(trip: int) -> str:
            self.calls.append("hotel")
            return f"hotel {trip}"

        self.book_flight, self.cancel_flight = book_flight, cancel_flight
        self.book_hotel, self.cancel_hotel = book_hotel, cancel_hotel

    async def book(self, steps: AsyncSteps, trip: int) -> None:
        await steps.run(self.book_flight, trip)
        await steps.using(undo=self.cancel_hotel).run(self.book_hotel, trip)


async def test_a_job_that_dies_undoes_its_steps_in_reverse_order(bench: Workbench) -> None:
    trip, caught = Trip(bench), []

    @bench.app.task(retry=2)
    async def travel(steps: AsyncSteps) -> None:
        await trip.book(steps, 7)
        try:
            raise ValueError("no money")
        finally:
            caught.append("end")

    job = await travel.using(retry=Retry(max_attempts=2, base=0)).aenqueue()
    await bench.work_off()
    with pytest.raises(JobFailed, match="no money"):
        await job.aresult(timeout=60)
    assert trip.calls == ["flight", "hotel", "cancel hotel 7", "cancel flight 7"]
    assert bench.sql(STORED) == [
        ("book_flight", "done"), ("book_hotel", "done"), ("undo/book_hotel", "done"), ("undo/book_flight", "done"),
        ("undo/", "done"),
    ]  # fmt: skip
    record = await job.aget()
    assert (record.state, record.attempt, len(caught)) == ("dead", 2, 3)


async def test_a_canceled_job_is_left_at_its_next_step_and_undone(bench: Workbench) -> None:
    trip = Trip(bench)

    @bench.app.task(retry=SOON)
    async def travel(steps: AsyncSteps) -> str:
        await trip.book(steps, 7)
        try:
            await steps.receive("approval")
        except Exception:  # noqa: BLE001  (must not catch what leaves the handler)
            return "caught"
        return "approved"

    job = await travel.aenqueue()
    await bench.work_off()
    assert await bench.app.jobs.acancel(job.id, reason="rain") == "queued"
    await bench.work_off()
    assert trip.calls == ["flight", "hotel", "cancel hotel 7", "cancel flight 7"]
    record = await job.aget()
    assert (record.state, record.error) == ("canceled", {"kind": "canceled", "message": "rain"})


async def test_a_running_job_that_is_canceled_is_undone(bench: Workbench) -> None:
    trip, reached = Trip(bench), asyncio.Event()

    async def charge() -> None:
        reached.set()
        await asyncio.sleep(3600)

    @bench.app.task(retry=SOON)
    async def travel(steps: AsyncSteps) -> None:
        await trip.book(steps, 7)
        await steps.run(charge)

    job = await travel.aenqueue()
    async with bench.working():
        await reached.wait()
        assert await bench.app.jobs.acancel(job.id) == "running"
        with pytest.raises(JobCanceled):
            await job.aresult(timeout=60)
    assert trip.calls[2:] == ["cancel hotel 7", "cancel flight 7"]
    assert (await job.aget()).state == "canceled"


async def test_an_undo_is_tried_again_and_its_failure_stops_no_other(bench: Workbench) -> None:
    trip = Trip(bench, failures=2)

    @bench.app.task(retry=1)
    async def travel(steps: AsyncSteps) -> None:
        await steps.run(trip.book_flight, 1)
        await steps.run(trip.book_flight, 2)
        trip.failures = 4
        raise ValueError("no money")

    job = await travel.aenqueue()
    await bench.work_off()
    with pytest.raises(JobFailed, match=r"no money; these steps were not undone: book_flight#2 .*airline down"):
        await job.aresult(timeout=60)
    assert trip.calls[2:] == ["cancel flight 2"] * 3 + ["cancel flight 1"] * 2


async def test_a_long_pause_between_tries_of_an_undo_leaves_the_worker(bench: Workbench) -> None:
    trip = Trip(bench, failures=1)

    @bench.app.task(retry=1)
    async def travel(steps: AsyncSteps) -> None:
        undo = bench.app.step(retry=Retry(max_attempts=2, base=60, jitter=0))(trip.cancel_flight.function)
        await steps.using(undo=undo).run(trip.book_hotel, 1)
        raise ValueError("no money")

    job = await travel.aenqueue()
    await bench.work_off()
    assert (await job.aget()).state == "suspended"
    assert await bench.app.jobs.acancel(job.id) == "suspended"  # it is being undone already
    await run_on(bench)
    assert trip.calls == ["hotel", "cancel hotel 1", "cancel hotel 1"]
    assert (await job.aget()).state == "dead"


async def test_branches_that_are_stored_are_undone_although_others_are_not(bench: Workbench) -> None:
    trip = Trip(bench)

    async def asleep(steps: AsyncSteps) -> None:
        await steps.sleep("1h")

    async def booked(steps: AsyncSteps) -> None:
        await steps.run(trip.book_flight, 1)
        await asyncio.gather(steps.run(trip.book_flight, 2), steps.run(trip.book_flight, 3))
        await steps.receive("approval")

    @bench.app.task
    async def travel(steps: AsyncSteps) -> None:
        await steps.gather(asleep(steps), booked(steps))

    job = await travel.aenqueue()
    await bench.work_off()
    await bench.app.jobs.acancel(job.id)
    await bench.work_off()
    assert sorted(trip.calls) == sorted(f"{what}flight {n}" if what else "flight" for n in (1, 2, 3) for what in
                                        ("", "cancel "))  # fmt: skip
    assert (await job.aget()).state == "canceled"


async def test_a_def_undoes_in_a_transaction_what_it_has_written(bench: Workbench) -> None:
    bench.sql("CREATE TABLE entries (name text)")

    async def delete(connection: AsyncConnection, name: str) -> None:
        await connection.execute("DELETE FROM entries WHERE name = %s", [name])

    async def insert(connection: AsyncConnection, name: str) -> str:
        await connection.execute("INSERT INTO entries VALUES (%s)", [name])
        return name

    notes: list[Any] = []

    def note(name: str) -> str:
        return name

    def forget(name: str) -> None:
        notes.append(name)

    @bench.app.task(retry=1)
    async def write(steps: AsyncSteps) -> None:
        await steps.using(undo=delete).run(insert, "a")
        assert bench.sql("SELECT * FROM entries") == [("a",)]
        raise ValueError

    @bench.app.task(retry=1)
    def noted(steps: Steps) -> None:
        steps.using(undo=forget).run(note, "b")
        raise ValueError

    await write.aenqueue()
    await noted.aenqueue()
    await bench.work_off()
    assert (bench.sql("SELECT * FROM entries"), notes) == ([], ["b"])


async def test_a_retry_of_an_undone_job_does_everything_again(bench: Workbench) -> None:
    trip = Trip(bench)
    money: list[int] = []

    @bench.app.task(retry=1)
    async def travel(steps: AsyncSteps) -> str:
        await trip.book(steps, 7)
        if not money:
            raise ValueError("no money")
        return "booked"

    job = await travel.aenqueue()
    await bench.work_off()
    money.append(1)
    await bench.app.jobs.aretry(job.id)
    await bench.work_off()
    assert await job.aresult(timeout=60) == "booked"
    assert trip.calls == ["flight", "hotel", "cancel hotel 7", "cancel flight 7", "flight", "hotel"]


def test_an_undo_belongs_to_a_step_that_runs_a_function(bench: Workbench) -> None:
    @bench.app.task(retry=1)
    def wait(steps: Steps) -> None:
        steps.using(undo=print).sleep("1h")

    job = wait.enqueue()
    asyncio.run(bench.work_off())
    with pytest.raises(JobFailed, match="belongs to steps"):
        job.result(timeout=60)
