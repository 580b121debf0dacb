"""The backend for django.tasks."""

import unittest
from datetime import timedelta
from typing import Any

import django
from django.db import connection, transaction
from django.test import TestCase, TransactionTestCase, override_settings
from django.utils import timezone

from watchbill import Retry
from watchbill.integrations.django import app

if django.VERSION < (6, 0):
    raise unittest.SkipTest("django.tasks came with Django 6")

from django.tasks import default_task_backend, task, task_backends
from django.tasks.base import TaskResultStatus
from django.tasks.exceptions import InvalidTask, TaskResultDoesNotExist, TaskResultMismatch
from django.tasks.signals import task_enqueued, task_finished, task_started

from shop.models import Order
from shop.tasks_of_django import add, aflaky, calls, count_orders, flaky, give_up, not_json, once, skip

READY, RUNNING, FAILED, SUCCESSFUL = TaskResultStatus.values


def run_all() -> None:
    """By a real node, until nothing is left; no attempt waits for another."""
    with app.node() as node:
        while connected("SELECT count(*) FROM watchbill.jobs")[0][0]:
            connected("UPDATE watchbill.jobs SET run_at = now() WHERE fence = 0 AND run_at > now()")
    assert node is not None


def connected(statement: str) -> list[Any]:
    with connection.cursor() as cursor:
        cursor.execute(statement)
        return cursor.fetchall() if cursor.description else []


class Enqueue(TestCase):
    """In the test's open transaction."""

    def test_a_result_can_be_read_before_the_commit(self) -> None:
        result = add.enqueue(1, b=2)
        found = add.get_result(result.id)
        for each in (result, found):
            assert (each.status, each.args, each.kwargs, each.attempts) == (READY, [1], {"b": 2}, 0)
            assert (each.started_at, each.finished_at, each.errors, each.backend) == (None, None, [], "default")
            assert each.task.func is add.func
        with self.assertRaisesRegex(ValueError, "not finished"):
            _ = found.return_value
        with self.assertRaises(TaskResultMismatch):
            flaky.get_result(result.id)

    def test_rolled_back_task_has_no_result(self) -> None:
        with self.assertRaises(LookupError), transaction.atomic():
            result = add.enqueue(1)
            raise LookupError
        with self.assertRaises(TaskResultDoesNotExist):
            result.refresh()

    def test_unknown_result_id_raises_does_not_exist(self) -> None:
        for wrong in ("", "not an id", "019000000000700080000000000000ff"):
            with self.assertRaises(TaskResultDoesNotExist):
                default_task_backend.get_result(wrong)
        with self.assertRaises(TaskResultDoesNotExist):
            default_task_backend.get_result(str(app.enqueue("nobody.knows").id))

    def test_priority_queue_and_run_after_are_stored(self) -> None:
        later = timezone.now() + timedelta(hours=1)
        result = count_orders.using(priority=-100, run_after=later).enqueue("tea")
        found = count_orders.get_result(result.id)
        assert (found.task.priority, found.task.queue_name, found.task.run_after) == (-100, "mail", later)
        assert connected("SELECT priority, queue, run_at FROM watchbill.jobs") == [(-100, "mail", later)]

    def test_invalid_tasks_and_arguments_are_refused(self) -> None:
        for wrong in (
            {"priority": 101},
            {"queue_name": "unheard_of"},
            {"run_after": timezone.now().replace(tzinfo=None)},
        ):
            with self.assertRaises(InvalidTask):
                add.using(**wrong)
        with self.assertRaisesRegex(TypeError, "using.. has no prority"):
            add.using(prority=1)
        with self.assertRaisesRegex(TypeError, "Send its primary key"):
            add.enqueue(Order(item="tea"))
        with self.assertRaisesRegex(TypeError, "must be JSON"):
            add.enqueue(a=timezone.now())
        with self.assertRaisesRegex(TypeError, r"add: got an unexpected keyword argument 'too'. It takes \(a"):
            add.enqueue(1, too="x")
        with self.assertRaises(InvalidTask):
            task(lambda: None)
        assert connected("SELECT count(*) FROM watchbill.jobs") == [(0,)]

    def test_using_accepts_watchbill_options(self) -> None:
        chosen = add.using(retry=Retry(max_attempts=3), timeout=9, tenant="blue", idempotency_key="k")
        first, second = chosen.enqueue(1), chosen.enqueue(1)
        assert first.id == second.id
        row = "SELECT max_attempts, timeout, tenant FROM watchbill.jobs"
        assert connected(row) == [(3, 9.0, "blue")]

    def test_backend_options_apply_to_jobs(self) -> None:
        once.enqueue()
        assert connected("SELECT max_attempts, timeout FROM watchbill.jobs") == [(1, 5.0)]

    def test_unknown_backend_option_is_refused(self) -> None:
        wrong = {"BACKEND": "watchbill.integrations.django.backend.WatchbillBackend", "OPTIONS": {"retires": 3}}
        with (
            override_settings(TASKS={"default": wrong}),
            self.assertRaisesRegex(Exception, "retires; it may have retry"),
        ):
            _ = task_backends["default"].alias

    async def test_async_enqueue_and_refresh_work(self) -> None:
        result = await add.aenqueue(1)
        assert (await add.aget_result(result.id)).status == READY
        await result.arefresh()

    def test_enqueue_sends_the_task_enqueued_signal(self) -> None:
        told: list[Any] = []

        def tell(sender: Any, task_result: Any, **_: Any) -> None:
            told.append((sender, task_result.id))

        task_enqueued.connect(tell)
        self.addCleanup(task_enqueued.disconnect, tell)
        result = add.enqueue(1)
        assert told == [(type(task_backends["default"]), result.id)]


class Run(TransactionTestCase):
    """By a node."""

    def setUp(self) -> None:
        self.told: list[tuple[str, str, Any]] = []
        calls.clear()
        for name, signal in (("started", task_started), ("finished", task_finished)):

            def tell(sender: Any, task_result: Any, name: str = name, **_: Any) -> None:
                self.told.append((name, str(task_result.status), task_result.id))

            signal.connect(tell, weak=False, dispatch_uid=name)
            self.addCleanup(signal.disconnect, dispatch_uid=name)

    def test_successful_task_has_its_return_value_and_times(self) -> None:
        result = add.enqueue(1, b=2)
        run_all()
        result.refresh()
        assert (result.status, result.return_value, result.attempts, result.errors) == (SUCCESSFUL, 3, 1, [])
        assert result.enqueued_at <= result.started_at <= result.finished_at
        assert result.started_at == result.last_attempted_at
        assert self.told == [("started", RUNNING, result.id), ("finished", SUCCESSFUL, result.id)]

    def test_async_task_runs(self) -> None:
        Order.objects.create(item="tea")
        result = count_orders.enqueue("tea", "milk")
        run_all()
        result.refresh()
        assert result.return_value == {"items": ["tea", "milk"], "orders": 1}

    def test_result_lists_every_failed_attempt(self) -> None:
        result = flaky.enqueue(2)
        run_all()
        result.refresh()
        assert (result.status, result.return_value, result.attempts) == (SUCCESSFUL, [3, 2], 3)
        assert [error.exception_class for error in result.errors] == [ZeroDivisionError] * 2
        assert "attempt 2" in result.errors[1].traceback
        assert [call[0] for call in calls] == [1, 2, 3]
        assert {call[1] for call in calls} == {RUNNING}
        assert {call[2] for call in calls} == {call[3] for call in calls} == {result.id}
        assert [name for name, *_ in self.told] == ["started", "started", "started", "finished"]

    def test_async_task_is_retried(self) -> None:
        result = aflaky.enqueue()
        run_all()
        result.refresh()
        assert result.return_value == 2

    def test_failed_task_has_its_error(self) -> None:
        for each, error in ((give_up, "Permanent"), (once, "LookupError"), (skip, None)):
            with self.subTest(each.name):
                self.told.clear()
                result = each.enqueue()
                run_all()
                result.refresh()
                assert result.status == (FAILED if error else SUCCESSFUL)
                assert [found.exception_class.__name__ for found in result.errors] == ([error] if error else [])
                assert self.told == [("started", RUNNING, result.id), ("finished", result.status, result.id)]
                if error:
                    with self.assertRaisesRegex(ValueError, "failed"):
                        _ = result.return_value

    def test_result_that_is_not_json_fails_the_task(self) -> None:
        result = not_json.using(retry=Retry(max_attempts=1)).enqueue()
        run_all()
        result.refresh()
        assert result.errors[0].exception_class is TypeError

    def test_canceled_task_is_failed_with_the_reason(self) -> None:
        result = add.enqueue(1)
        app.jobs.cancel(result.id, reason="changed my mind")
        result.refresh()
        assert (result.status, result.attempts) == (FAILED, 0)
        assert "changed my mind" in result.errors[0].traceback
        assert result.errors[0].exception_class.__name__ == "JobCanceled"
