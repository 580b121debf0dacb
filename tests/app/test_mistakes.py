"""Mistakes of people who come from another library, or type too fast: each gets a sentence that names what is right."""

from __future__ import annotations

import copy
import pickle
from typing import Any
from uuid import uuid4

import psycopg
import pytest

from watchbill import App, Batch, Job, Limit, Rate, Retry, Unique
from watchbill.errors import WatchbillError


def report() -> None: ...


@pytest.mark.parametrize(
    ("name", "right"),
    [
        ("delay", "report.enqueue(...)"),
        ("apply_async", "report.using(...).enqueue(...)"),
        ("send", "report.enqueue(...)"),
        ("defer", "report.enqueue(...)"),
        ("defer_async", "await report.aenqueue(...)"),
        ("kiq", "await report.aenqueue(...)"),
        ("configure", "report.using(...)"),
        ("s", "report.bind(...)"),
    ],
)
def test_calls_of_other_libraries_name_ours(name: str, right: str) -> None:
    task: Any = App().task(report)
    with pytest.raises(AttributeError) as raised:
        getattr(task, name)(7)
    assert str(raised.value) == f"a task has no {name}(): write {right}"


def test_a_task_is_still_asked_for_attributes_as_any_object() -> None:
    task: Any = App().task(type="report")(report)
    assert not hasattr(task, "delay")
    assert getattr(task, "nothing", 3) == 3
    with pytest.raises(AttributeError, match="'SyncTask' object has no attribute 'nothing'"):
        _ = task.nothing
    assert copy.copy(task).type == "report"


@pytest.mark.parametrize(
    ("make", "said"),
    [
        (lambda: Retry(attempts=3), "Retry() has no option attempts. Did you mean max_attempts?"),  # type: ignore[call-arg]
        (lambda: Retry(max_retries=3), "Retry() has no option max_retries. Did you mean max_attempts?"),  # type: ignore[call-arg]
        (lambda: Retry(3, backof="fixed"), "Retry() has no option backof. Did you mean backoff?"),  # type: ignore[call-arg]
        (lambda: Unique(key="a"), "Unique() has no option key. Did you mean by?"),  # type: ignore[call-arg]
        (lambda: Batch(max_size=3), "Batch() has no option max_size. Did you mean size?"),  # type: ignore[call-arg]
        (lambda: Limit(max=3), "Limit() has no option max. Did you mean count?"),  # type: ignore[call-arg]
        (lambda: Rate(3, period="1m"), "Rate() has no option period. Did you mean per?"),  # type: ignore[call-arg]
    ],
)
def test_a_wrong_parameter_of_an_option_names_the_right_one(make: Any, said: str) -> None:
    with pytest.raises(TypeError) as raised:
        make()
    assert str(raised.value).startswith(f"{said} The options are ")


def test_options_can_still_be_copied_and_pickled() -> None:
    policy = Retry(max_attempts=3, backoff="list", delays=("1m",))
    assert pickle.loads(pickle.dumps(policy)) == copy.copy(policy) == policy


@pytest.mark.parametrize("given", ["text of an id", 7])
def test_depends_on_something_else_than_an_id_says_what_an_id_is(given: Any) -> None:
    with pytest.raises(TypeError) as raised:
        App().task(report).using(depends_on=[given])
    assert f"{given!r} is none of them" in str(raised.value)


def test_depends_on_the_text_of_an_id_says_how_to_read_it() -> None:
    text = str(uuid4())
    with pytest.raises(TypeError) as raised:
        App().task(report).using(depends_on=[text])  # type: ignore[list-item]
    assert str(raised.value) == f"depends_on takes ids of jobs, not their texts: give UUID({text!r})"


def test_what_is_not_an_id_is_refused_before_the_database_is_asked(app: App) -> None:
    job = app.tasks["report"].enqueue()
    assert app.jobs.get(str(job.id)).id == job.id  # type: ignore[arg-type]
    wrong: list[Any] = ["123", 123, None, job]
    for name in ("get", "why", "attempts", "cancel", "retry", "family", "release"):
        for given in wrong:
            with pytest.raises(WatchbillError) as raised:
                getattr(app.jobs, name)(given)
            assert str(raised.value) == f"{given!r} is not the id of a job.\nAn id is a UUID, such as job.id."


def test_a_lambda_needs_a_type_to_be_a_task() -> None:
    app = App()
    with pytest.raises(TypeError) as raised:
        app.task(lambda: None)
    assert str(raised.value) == (
        "a lambda has no name, so it cannot be a task: write a def, or give it one, as in @app.task(type='mail.send')"
    )
    with pytest.raises(TypeError, match="no name"):
        app.task(queue="mail")(lambda: None)
    assert app.task(type="eight")(lambda: 8)() == 8


def test_what_has_no_parameters_to_read_cannot_be_a_task() -> None:
    with pytest.raises(TypeError, match="<class 'int'> cannot be a task: write a def that calls it"):
        App().task(int)


def test_a_result_that_does_not_come_says_why(app: App, schema_database: str) -> None:
    job = app.tasks["report"].enqueue()
    with psycopg.connect(schema_database, autocommit=True) as connection:
        assert why_no_result(job) == f"job {job.id} has not ended within 0 s: no node is alive"
        connection.execute("SELECT watchbill.register('far', types => '{\"hello\": 1}', queues => '{reports}')")
        assert why_no_result(job) == f"job {job.id} has not ended within 0 s: no live node handles its type report"
        # All nodes were killed, so none is left that declares the others lost.
        connection.execute("UPDATE watchbill.beats SET at = at - interval '1 minute'")
        assert ": no node is alive; the last one was far, whose last beat was at " in why_no_result(job)


def why_no_result(job: Job[Any]) -> str:
    with pytest.raises(TimeoutError) as raised:
        job.result(timeout=0)
    return str(raised.value)


@pytest.mark.asyncio
async def test_aresult_says_the_same(schema_database: str) -> None:
    app = App(schema_database)

    @app.task(type="report")
    def report() -> None: ...

    try:
        job = await report.aenqueue()
        with pytest.raises(TimeoutError, match="no node is alive"):
            await job.aresult(timeout=0)
    finally:
        await app.aclose()
