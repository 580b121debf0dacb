"""A task that cannot work is refused where it is declared, and the message says what would be right."""

from __future__ import annotations

import socket
import threading
import warnings
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Literal

import pytest

from watchbill import App, Connection, ThreadTimeoutWarning


@dataclass
class Item:
    name: str


def takes_socket(to: str, by: socket.socket) -> None: ...
def takes_list_of_locks(locks: list[threading.Event]) -> None: ...
def returns_socket() -> socket.socket: ...  # type: ignore[empty-body]
def takes_known(a: Item, b: list[Item] | None, c: Literal["x"], d: Callable[[], None] | None = None) -> None: ...
def takes_later_type(later: Later) -> None: ...


class Later:
    """Declared after the function that takes it; pydantic cannot validate it."""


def work() -> None: ...
async def work_on_loop() -> None: ...


@pytest.mark.parametrize(
    ("function", "what"),
    [
        (takes_socket, "parameter 'by' has the type socket"),
        (takes_list_of_locks, r"parameter 'locks' has the type list\[threading.Event\]"),
        (returns_socket, "it returns socket"),
        (takes_later_type, "parameter 'later' has the type Later"),
    ],
)
def test_type_that_is_not_json_is_refused_at_the_declaration(function: Callable[..., Any], what: str) -> None:
    app = App()
    with pytest.raises(TypeError, match=rf"task tests\.\S+: {what}, which cannot be turned into JSON and back; use a"):
        app.task(function)
    assert app.tasks == {}


def test_types_that_pydantic_knows_are_accepted() -> None:
    app = App()
    app.task(takes_known)
    assert len(app.tasks) == 1


def test_type_that_is_declared_later_is_checked_at_first_use() -> None:
    def takes_unknown(it: NotYet) -> None: ...  # type: ignore[name-defined]  # noqa: F821

    app = App()
    app.task(takes_unknown)
    assert len(app.tasks) == 1


@pytest.mark.parametrize(
    ("options", "suggestion"),
    [
        ({"name": "mail.send"}, "Did you mean type?"),
        ({"max_retries": 3}, "Did you mean retry?"),
        ({"time_limit": 3}, "Did you mean timeout?"),
        ({"quue": "mail"}, "Did you mean queue?"),
        ({"xyzzy": 1}, "The options are"),
        ({"delay": 5}, "The options are"),
    ],
)
def test_unknown_option_of_a_task_is_refused_with_a_suggestion(options: Any, suggestion: str) -> None:
    with pytest.raises(TypeError) as refused:
        App().task(**options)(work)
    [name] = options
    assert str(refused.value).startswith(f"@app.task() has no option {name}. ")
    assert suggestion in str(refused.value)
    listed = (
        "The options are type, queue, priority, retry, timeout, expires, unique, version, aliases, executor, "
        "limits, ordered_by, when_dead, route_by, group, runs_on, max_per_node, logs, batch."
    )
    assert str(refused.value).endswith(listed)


@pytest.mark.parametrize(
    ("name", "suggestion"),
    [("countdown", "delay"), ("eta", "run_at"), ("priorty", "priority"), ("key", "idempotency_key")],
)
def test_unknown_option_of_a_job_is_refused_with_a_suggestion(name: str, suggestion: str) -> None:
    task = App().task(work)
    unknown: Any = {name: 1}
    with pytest.raises(TypeError, match=rf"has no option {name}. Did you mean {suggestion}\? The options are queue, "):
        task.using(**unknown)


def test_type_given_without_its_name_is_refused() -> None:
    with pytest.raises(TypeError, match=r"by name: @app.task\(type='mail.send'\)"):
        App().task("mail.send")  # type: ignore[call-overload]


def test_time_out_of_a_thread_warns_at_the_declaration() -> None:
    with pytest.warns(ThreadTimeoutWarning, match='executor="process"') as caught:
        App().task(timeout="5m")(work)
    [warning] = caught
    assert (warning.filename, warning.lineno) == (__file__, work.__code__.co_firstlineno)


def test_transactional_task_cannot_run_in_another_process() -> None:
    def charge(connection: Connection, order: int) -> None: ...

    with pytest.raises(TypeError, match="charge: a connection cannot be given to another process"):
        App().task(executor="process")(charge)


@pytest.mark.parametrize("executor", ["thread", "process"])
def test_chosen_executor_ends_the_warning(executor: Literal["thread", "process"]) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        App().task(timeout=5, executor=executor)(work)
        App().task(timeout=5)(work_on_loop)
        App().task(work).using(timeout=5)


@pytest.mark.parametrize(
    ("options", "what"),
    [
        ({"queue": ""}, r"@app.task\(queue=''\) is invalid: give a text of 1 to 100 characters"),
        ({"queue": "q" * 101}, "is invalid: give a text of 1 to 100 characters"),
        ({"priority": 40_000}, r"priority=40000 is invalid: give a number between -32,768 and 32,767"),
        ({"timeout": 0}, r"@app.task\(timeout=0.0\) is invalid: give more than 0 s and at most 365 days"),
        ({"timeout": "400d"}, "is invalid: give more than 0 s and at most 365 days"),
    ],
)
def test_option_that_the_database_would_refuse_is_refused_at_the_declaration(options: Any, what: str) -> None:
    with pytest.raises(ValueError, match=what):
        App().task(**options)(work_on_loop)
