"""app.jobs, app.queues and app.schedules are part of the transaction that Django has open."""

from typing import Any

from django.db import transaction
from django.test import TestCase, TransactionTestCase

from shop.tasks import ship
from watchbill import NoSuchJob, NotCommitted
from watchbill.integrations.django import app


class InATestCase(TestCase):
    def test_enqueued_jobs_are_listed(self) -> None:
        self.assertEqual(app.jobs.list(), [])
        job = ship.enqueue(1)
        self.assertEqual([each.id for each in app.jobs.list()], [job.id])
        self.assertEqual(app.jobs.get(job.id), job.get())
        self.assertEqual([count.count for count in app.queues.stats()], [1])

    async def test_enqueued_jobs_are_listed_in_async_tests(self) -> None:
        job = await ship.aenqueue(1)
        self.assertEqual([each.id for each in await app.jobs.alist()], [job.id])
        self.assertEqual(await app.jobs.acancel(job.id), "canceled")
        self.assertEqual((await job.aget()).state, "canceled")

    def test_rolled_back_cancel_has_not_happened(self) -> None:
        told: list[Any] = []
        observers = app.events.observers["job_canceled"]
        observers.append(lambda **what: told.append(what["id"]))
        self.addCleanup(observers.pop)
        job = ship.enqueue(1)
        with self.captureOnCommitCallbacks(execute=True):
            with self.assertRaises(LookupError), transaction.atomic():
                self.assertEqual(app.jobs.cancel(job.id), "canceled")
                raise LookupError
            self.assertEqual(job.get().state, "queued")
        self.assertEqual(told, [])
        with self.captureOnCommitCallbacks(execute=True):
            app.jobs.cancel(job.id)
            self.assertEqual(told, [])
        self.assertEqual(told, [job.id])

    def test_schedules_and_pauses_go_with_the_transaction(self) -> None:
        with self.assertRaises(LookupError), transaction.atomic():
            app.schedules.add("s", "0 9 * * *", task=ship, arguments={"order": 1})
            app.queues.pause("default")
            self.assertEqual(len(app.schedules.list()), 1)
            raise LookupError
        self.assertEqual((app.schedules.list(), app.queues.pauses()), ([], []))

    def test_waiting_for_an_uncommitted_job_is_refused(self) -> None:
        with self.assertRaisesRegex(NotCommitted, "no worker sees it yet"):
            ship.enqueue(1).result()


class Committed(TransactionTestCase):
    def test_an_open_transaction_is_joined_and_a_closed_one_is_not(self) -> None:
        with transaction.atomic():
            job = ship.enqueue(1)
            self.assertEqual(job.get().state, "queued")
            with self.assertRaises(NoSuchJob):
                app.producer.run_apart(app.jobs._cancel(job.id, None, False, None))
        self.assertEqual(app.jobs.cancel(job.id), "canceled")
        self.assertEqual(job.get().state, "canceled")

    def test_turned_off_autocommit_counts_as_a_transaction(self) -> None:
        transaction.set_autocommit(False)
        try:
            job = ship.enqueue(1)
            self.assertEqual(app.jobs.cancel(job.id), "canceled")
        finally:
            transaction.rollback()
            transaction.set_autocommit(True)
        self.assertEqual(app.jobs.list(), [])
