"""The fixture `watchbill` of our pytest plugin beside pytest-django's."""

import pytest
from django.db import connection
from django.test import TestCase, TransactionTestCase
from shop.models import Order
from shop.tasks import chain, ship, ship_async

from watchbill import NotCommitted
from watchbill.integrations.django import app
from watchbill.testing import Watchbill


@pytest.mark.django_db(transaction=True)
def test_jobs_run_in_the_tests_database(watchbill: Watchbill) -> None:
    assert watchbill.database_url.startswith("postgresql:///test_")
    order = Order.objects.create(item="tea")
    job = ship.enqueue(order.pk)
    watchbill.assert_enqueued(ship, order=order.pk)
    [run] = watchbill.drain(raising=True)
    assert (run.outcome, job.result(timeout=0)) == ("succeeded", "tea")
    order.refresh_from_db()
    assert order.state == "shipped"


@pytest.mark.django_db(transaction=True)
def test_each_test_begins_with_an_empty_queue(watchbill: Watchbill) -> None:
    assert watchbill.jobs() == []
    order = Order.objects.create(item="tea")
    chain.enqueue(order.pk)
    ship_async.enqueue(order.pk)
    assert {run.outcome for run in watchbill.drain(raising=True)} == {"succeeded"}


@pytest.mark.django_db(transaction=True)
def test_the_clock_can_be_moved(watchbill: Watchbill) -> None:
    order = Order.objects.create(item="tea")
    ship.using(delay=3600).enqueue(order.pk)
    assert watchbill.drain() == []
    watchbill.advance(hours=1)
    assert len(watchbill.drain()) == 1


@pytest.mark.django_db
def test_fixture_sees_uncommitted_jobs_but_refuses_to_drain_them(watchbill: Watchbill) -> None:
    """Nothing is committed, but what the test has enqueued is seen."""
    assert connection.in_atomic_block
    ship.enqueue(7)
    watchbill.assert_enqueued(ship, order=7)
    watchbill.assert_not_enqueued(ship, order=8)
    assert [job.type for job in watchbill.jobs()] == ["shop.tasks.ship"]
    with pytest.raises(NotCommitted, match=r"(?s)ship\(order=7\).*django_db\(transaction=True\)"):
        watchbill.drain()


class InATestCase(TestCase):
    watchbill: Watchbill

    @pytest.fixture(autouse=True)
    def _queue(self, watchbill: Watchbill) -> None:
        self.watchbill = watchbill

    def test_fixture_works_in_a_django_test_case(self) -> None:
        ship.enqueue(7)
        self.watchbill.assert_enqueued(ship, order=7)


class InATransactionTestCase(TransactionTestCase):
    watchbill: Watchbill

    @pytest.fixture(autouse=True)
    def _queue(self, watchbill: Watchbill) -> None:
        self.watchbill = watchbill

    def test_inline_runs_an_enqueued_task(self) -> None:
        order = Order.objects.create(item="tea")
        with self.watchbill.inline():
            ship.enqueue(order.pk)
        order.refresh_from_db()
        self.assertEqual(order.state, "shipped")

    def test_inline_runs_every_task_of_enqueue_many(self) -> None:
        orders = [Order.objects.create(item=item) for item in ("tea", "milk")]
        with self.watchbill.inline():
            app.enqueue_many([ship.bind(order.pk) for order in orders])
        self.assertEqual(Order.objects.filter(state="shipped").count(), 2)


def test_enqueue_without_database_access_is_refused_by_django(watchbill: Watchbill) -> None:
    with pytest.raises(RuntimeError, match="Database access not allowed"):
        ship.enqueue(7)
    assert app.producer.current_connection is None
