"""What a worker does for Django around a task: connections, child processes, queues."""

import os
import time
from unittest.mock import patch

from django.db import connection
from django.test import TransactionTestCase

from shop import tasks
from shop.models import Order
from watchbill.integrations.django import app


def sessions() -> int:
    """Other sessions on this database that Django has opened: ours say who they are."""
    with connection.cursor() as cursor:
        cursor.execute(
            "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND pid <> pg_backend_pid()"
            " AND application_name NOT LIKE 'watchbill%'"
        )
        return int(cursor.fetchone()[0])


class Worker(TransactionTestCase):
    def no_session_is_left(self) -> None:
        """The server takes a moment to notice that one was closed."""
        deadline = time.monotonic() + 30
        while sessions():
            assert time.monotonic() < deadline
            time.sleep(0.01)

    def setUp(self) -> None:
        self.order = Order.objects.create(item="tea")

    def test_a_sync_task_closes_its_connection(self) -> None:
        tasks.backends_seen.clear()
        with app.node(concurrency=1):
            for _ in range(2):
                self.assertEqual(tasks.ship.enqueue(self.order.pk).result(timeout=30), "tea")
            self.no_session_is_left()
        self.assertEqual(len(set(tasks.backends_seen)), 2)

    def test_an_async_task_closes_its_connection(self) -> None:
        with app.node():
            jobs = [tasks.ship_async.enqueue(self.order.pk) for _ in range(5)]
            for job in jobs:
                self.assertEqual(job.result(timeout=30), 1)
            self.no_session_is_left()

    def test_a_child_process_has_django_set_up(self) -> None:
        here = {"SITE_DATABASE": connection.settings_dict["NAME"]}  # a child has Django's settings, not this test's
        with patch.dict(os.environ, here), app.node():
            self.assertNotEqual(tasks.ship_in_process.enqueue(self.order.pk).result(timeout=60), os.getpid())
        self.order.refresh_from_db()
        self.assertEqual(self.order.state, "shipped")

    def test_schedules_in_tasks_py_are_declared(self) -> None:
        with app.node():
            assert [each.name for each in app.schedules.list()] == ["shop.tasks.report"]
        assert app.name == "project"

    def test_a_task_completes_in_its_own_transaction(self) -> None:
        with app.node():
            self.assertEqual(tasks.ship_and_complete.enqueue(self.order.pk).result(timeout=30), "done")
        self.order.refresh_from_db()
        self.assertEqual(self.order.state, "shipped")
