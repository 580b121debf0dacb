"""Jobs in Django's transactions, on every version."""

from typing import Any

from asgiref.sync import sync_to_async
from django.core.checks import run_checks
from django.db import connection, transaction
from django.test import TestCase, TransactionTestCase, override_settings

from shop.models import Order
from shop.tasks import chain, ship, ship_async
from watchbill.integrations.django import app
from watchbill.store.refusals import NotInstalled


def jobs(own: Any = connection) -> list[str]:
    with own.cursor() as cursor:
        cursor.execute("SELECT type FROM watchbill.jobs ORDER BY seq")
        return [row[0] for row in cursor.fetchall()]


def committed() -> list[str]:
    """As another connection sees them."""
    with app.client.connection() as other:
        return [row[0] for row in other.execute("SELECT type FROM watchbill.jobs ORDER BY seq").fetchall()]


class InATestCase(TestCase):
    """TestCase rolls back; each test must find the queue empty."""

    def test_a_job_is_in_the_open_transaction(self) -> None:
        self.assertEqual(jobs(), [])
        job = ship.enqueue(1)
        self.assertTrue(job.created)
        self.assertEqual(jobs(), ["shop.tasks.ship"])
        self.assertEqual(committed(), [])

    def test_django_test_case_rolls_back_jobs_of_the_previous_test(self) -> None:
        self.test_a_job_is_in_the_open_transaction()

    def test_a_rolled_back_block_has_enqueued_nothing(self) -> None:
        with self.assertRaises(LookupError), transaction.atomic():
            ship.enqueue(1)
            raise LookupError
        ship.enqueue(2)
        self.assertEqual(jobs(), ["shop.tasks.ship"])

    def test_enqueue_many_joins_the_open_transaction(self) -> None:
        app.enqueue_many([ship.bind(n) for n in range(3)])
        self.assertEqual(len(jobs()), 3)
        self.assertEqual(committed(), [])

    async def test_async_enqueue_works_in_a_test_case(self) -> None:
        await ship_async.aenqueue(1)
        await app.aenqueue_many([ship_async.bind(2)])
        self.assertEqual(await sync_to_async(jobs)(), ["shop.tasks.ship_async"] * 2)
        self.assertEqual(await sync_to_async(committed)(), [])

    def test_enqueue_by_type_joins_the_open_transaction(self) -> None:
        app.enqueue("shop.tasks.ship", {"order": 1})
        self.assertEqual(jobs(), ["shop.tasks.ship"])

    def test_job_enqueued_event_fires_after_the_commit(self) -> None:
        told: list[Any] = []
        app.on("job_enqueued")(lambda job: told.append(job.id))
        with self.captureOnCommitCallbacks() as callbacks:
            job = ship.enqueue(1)
        self.assertEqual((told, len(callbacks)), ([], 1))
        callbacks[0]()
        self.assertEqual(told, [job.id])
        with self.captureOnCommitCallbacks(execute=True):
            several = app.enqueue_many([ship.bind(2), ship.bind(3)])
            self.assertEqual(told, [job.id])
        self.assertEqual(told, [job.id, *(each.id for each in several)])

    def test_system_check_reports_an_invalid_setting(self) -> None:
        for setting, words in (
            ({"DATABASE": "nowhere"}, "which DATABASES does not have"),
            ({"CONCURENCY": 3}, "Unknown setting concurency in WATCHBILL['CONCURENCY']"),
            ({"concurrency": 3}, "has the invalid name 'concurrency'"),
            ({"LEASE": "soon"}, "in WATCHBILL['LEASE']"),
        ):
            with override_settings(WATCHBILL=setting):
                [found] = [each for each in run_checks() if each.id == "watchbill.E001"]
                self.assertIn(words, found.msg)
        self.assertEqual([each for each in run_checks() if each.id.startswith("watchbill")], [])

    def test_missing_schema_error_names_the_migrate_command(self) -> None:
        elsewhere = override_settings(WATCHBILL={"SCHEMA": "elsewhere"})
        with elsewhere, self.assertRaisesRegex(NotInstalled, "manage.py migrate"), transaction.atomic():
            ship.enqueue(1)


class ForReal(TransactionTestCase):
    """Committed, and run by a node in this process."""

    def test_transaction_test_case_starts_without_jobs(self) -> None:
        self.assertEqual(committed(), [])
        ship.enqueue(1)
        self.assertEqual(committed(), ["shop.tasks.ship"])

    def test_transaction_test_case_starts_without_jobs_again(self) -> None:
        self.test_transaction_test_case_starts_without_jobs()

    def test_worker_runs_committed_jobs_and_no_rolled_back_ones(self) -> None:
        with transaction.atomic():
            order = Order.objects.create(item="tea")
            job = ship.enqueue(order.pk)
            self.assertEqual(committed(), [])
        with self.assertRaises(LookupError), transaction.atomic():
            ship.enqueue(0)
            raise LookupError
        with app.node():
            self.assertEqual(job.result(timeout=30), "tea")
        order.refresh_from_db()
        self.assertEqual(order.state, "shipped")
        self.assertEqual(committed(), [])

    def test_task_may_enqueue_in_its_own_transaction(self) -> None:
        order = Order.objects.create(item="tea")
        job = chain.enqueue(order.pk)
        with app.node():
            job.result(timeout=30)
        with app.client.connection() as other:  # the node may have run it already
            shipped = other.execute("SELECT type FROM watchbill.job WHERE id <> %s", (job.id,)).fetchall()
        self.assertEqual(shipped, [("shop.tasks.ship",)])
