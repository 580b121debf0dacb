"""WatchbillTestCase with Django's own test cases."""

from datetime import UTC, datetime
from typing import Any, ClassVar

from django.db import connection, transaction
from django.test import SimpleTestCase, TestCase, TransactionTestCase

from shop.models import Order
from shop.tasks import chain, report, ship, ship_async
from watchbill import NotCommitted
from watchbill.integrations.django import app
from watchbill.integrations.django.application import DatabaseNotAllowed
from watchbill.testing import WatchbillTestCase


class InATestCase(WatchbillTestCase, TestCase):
    """Everything is in one transaction, which is rolled back."""

    setup_order: int

    @classmethod
    def setUpTestData(cls) -> None:
        cls.setup_order = Order.objects.create(item="coffee").pk
        ship.enqueue(cls.setup_order)

    def test_jobs_of_set_up_test_data_are_seen(self) -> None:
        self.watchbill.assert_enqueued(ship, order=self.setup_order)
        self.assertEqual(len(self.watchbill.jobs()), 1)

    def test_enqueued_jobs_are_found(self) -> None:
        ship.enqueue(7)
        self.assertEqual(self.watchbill.assert_enqueued(ship, order=7).queue, "default")
        self.watchbill.assert_not_enqueued(ship, order=8)
        with self.assertRaises(AssertionError):
            self.watchbill.assert_not_enqueued(ship, order=7)

    def test_rolled_back_jobs_are_not_found(self) -> None:
        with self.assertRaises(LookupError), transaction.atomic():
            ship.enqueue(7)
            raise LookupError
        self.watchbill.assert_not_enqueued(ship, order=7)

    def test_the_clock_moves_for_this_test_only(self) -> None:
        later = datetime(2090, 3, 4, tzinfo=UTC)
        self.assertLess(self.watchbill.now(), later)
        self.watchbill.advance(to=later)
        self.assertGreaterEqual(self.watchbill.now(), later)
        self.assertEqual(self.watchbill.declare(app), ["shop.tasks.report"])
        self.watchbill.assert_not_enqueued(report)
        self.watchbill.advance(weeks=1)
        self.watchbill.assert_enqueued(report)

    def test_the_clock_moves_for_this_test_only_again(self) -> None:
        self.test_the_clock_moves_for_this_test_only()

    async def test_async_tests_use_the_twins(self) -> None:
        await ship.aenqueue(7)
        await self.watchbill.aassert_enqueued(ship, order=7)
        await self.watchbill.aassert_not_enqueued(ship, order=8)
        self.assertEqual(len(await self.watchbill.ajobs()), 2)
        before = await self.watchbill.anow()
        self.assertGreater(await self.watchbill.aadvance(hours=1), before)
        self.assertEqual(await self.watchbill.adeclare(app), ["shop.tasks.report"])
        with self.assertRaisesRegex(RuntimeError, "twin with an `a`"):
            self.watchbill.assert_not_enqueued(ship)


class InATransactionTestCase(WatchbillTestCase, TransactionTestCase):
    """Everything is committed, so workers see it."""

    available_apps: ClassVar = [
        "shop",
        "watchbill.integrations.django",
    ]  # with these Django does not tell us to empty the queue

    def test_jobs_run(self) -> None:
        self.assertEqual(self.watchbill.jobs(), [])
        order = Order.objects.create(item="tea")
        job = chain.enqueue(order.pk)
        self.assertEqual({run.outcome for run in self.watchbill.drain(raising=True)}, {"succeeded"})
        job.result(timeout=0)
        order.refresh_from_db()
        self.assertEqual(order.state, "shipped")

    def test_jobs_run_again(self) -> None:
        self.test_jobs_run()

    def test_delayed_jobs_run_when_the_clock_has_moved(self) -> None:
        order = Order.objects.create(item="tea")
        ship.using(delay=3600).enqueue(order.pk)
        self.assertEqual(self.watchbill.drain(), [])
        self.watchbill.advance(hours=1)
        self.assertEqual(len(self.watchbill.drain(raising=True)), 1)

    def test_inline_runs_jobs_after_the_commit(self) -> None:
        order = Order.objects.create(item="tea")
        with self.watchbill.inline():
            with transaction.atomic():
                ship.enqueue(order.pk)
                self.assertEqual(Order.objects.get().state, "placed")
            self.assertEqual(Order.objects.get().state, "shipped")

    async def test_async_tasks_run(self) -> None:
        order = await Order.objects.acreate(item="tea")
        await ship_async.aenqueue(order.pk)
        [run] = await self.watchbill.adrain(raising=True)
        self.assertEqual(run.outcome, "succeeded")

    def test_open_transaction_is_not_drained(self) -> None:
        with transaction.atomic():
            ship.enqueue(1)
            with self.assertRaisesRegex(NotCommitted, "ship"):
                self.watchbill.drain()


class AfterATransactionTestCase(TransactionTestCase):
    def test_the_queue_is_emptied_after_a_test(self) -> None:
        class Tests(WatchbillTestCase, TransactionTestCase):
            available_apps: ClassVar = InATransactionTestCase.available_apps

            def runTest(self) -> None:  # noqa: N802
                ship.enqueue(1)

        result: Any = Tests().run()
        self.assertTrue(result.wasSuccessful(), result.errors)
        self.assertEqual(app.jobs.list(), [])


class WithoutDatabase(SimpleTestCase):
    def test_a_test_that_may_not_use_the_database_is_told(self) -> None:
        class Tests(WatchbillTestCase, SimpleTestCase):
            def runTest(self) -> None: ...  # noqa: N802

        result: Any = Tests().run()
        [(_, traceback)] = result.errors
        self.assertIn(DatabaseNotAllowed.__name__, traceback)
        self.assertIn("databases = {'default'}", traceback)


class OtherDatabase(WatchbillTestCase, TestCase):
    databases: ClassVar = {"default", "other"}

    def test_only_the_database_of_the_jobs_is_used(self) -> None:
        with transaction.atomic(using="other"):
            ship.enqueue(7)
        self.watchbill.assert_enqueued(ship, order=7)
        self.assertTrue(connection.in_atomic_block)
