"""Declarations of limits, rates, order and queues: what becomes of them, and which mistakes are found at import."""

from __future__ import annotations

from typing import Any

import pytest

from watchbill import App, Batch, Debounce, Limit, Queue, Rate, Tasks, Unique


def sync(account: int) -> None: ...


def other(account: int) -> None: ...


def declare(app: App | Tasks, function: Any = sync, **options: Any) -> Any:
    return app.task(type=function.__name__, **options)(function)


def test_the_limits_of_a_task_become_keys_and_rules() -> None:
    app = App()
    task = declare(
        app,
        limits=[
            Limit(1, name="account", by="{account}"),
            Limit(10, name="crm-api"),
            Rate(100, per="1d", name="crm-api", evenly=True),
            Rate(10, per="1m", name="crm-api"),
            Limit(3),
            Limit(2, by="{tenant}"),
        ],
    )
    assert task.flow.limit_keys == ("account:{account}", "crm-api", "task:sync", "sync:{tenant}")
    assert app.flow_rules.limits == [
        {"name": "account", "max": 1},
        {
            "name": "crm-api",
            "max": 10,
            "rates": [{"count": 10, "per": 60.0}, {"count": 100, "per": 86_400.0, "evenly": True}],
        },
        {"name": "sync", "max": 2},
        {"name": "task:sync", "max": 3},
    ]


def test_a_rate_has_no_burst_and_the_error_names_both_forms() -> None:
    with pytest.raises(TypeError, match="has no option burst any more") as caught:
        Rate(10, per="1m", burst=2)  # type: ignore[call-arg]
    for form in ('Rate(10, per="1m")', 'Rate(10, per="1m", evenly=True)'):
        assert form in str(caught.value)


def test_tasks_share_a_limit_by_its_name() -> None:
    app = App()
    declare(app, limits=[Limit(10, name="crm-api")])
    declare(app, other, limits=[Limit(10, name="crm-api"), Rate(5, per=1, name="crm-api")])
    assert app.flow_rules.limits == [{"name": "crm-api", "max": 10, "rates": [{"count": 5, "per": 1.0}]}]


@pytest.mark.parametrize(
    "second", [Limit(5, name="crm-api"), Limit(10, name="crm-api", when_full="discard"), Rate(9, per=1, name="crm-api")]
)
def test_two_declarations_that_disagree_are_an_error_that_names_both(second: Any) -> None:
    app = App()
    declare(app, limits=[Limit(10, name="crm-api"), Rate(5, per=1, name="crm-api")])
    with pytest.raises(ValueError, match="declared twice, and differently") as caught:
        declare(app, other, limits=[second])
    for name in ("sync", "other"):
        assert f"of {name} ({__file__}:" in str(caught.value)


def test_a_limit_is_for_every_value_or_for_none() -> None:
    app = App()
    declare(app, limits=[Limit(1, name="account", by="{account}")])
    with pytest.raises(ValueError, match="is declared with by= and without"):
        declare(app, other, limits=[Limit(1, name="account")])


@pytest.mark.parametrize(
    ("limits", "message"),
    [
        ([Limit(1), Limit(2)], "limit 'task:sync' is declared twice, and differently"),
        ([Limit(1, by="{account}"), Limit(2, by="{tenant}")], "limit 'sync' is declared twice, and differently"),
        ([Limit(1, name="a", by="{account}"), Rate(5, per=1, name="a")], "is declared with by= and without"),
        ([Rate(5, per="1m"), Rate(6, per=60)], "limit 'task:sync' is declared twice, and differently"),
        ([Rate(5, per="1m"), Rate(5, per=60, evenly=True)], "limit 'task:sync' is declared twice, and differently"),
    ],
)
def test_the_limits_of_one_task_may_not_disagree_either(limits: list[Any], message: str) -> None:
    app = App()
    with pytest.raises(ValueError, match=message):
        declare(app, limits=limits)
    assert app.flow_rules.limits == []


def test_functions_make_keys_from_the_arguments() -> None:
    app = App()
    task = declare(
        app,
        limits=[Limit(1, name="shard", by=lambda account: f"{{{account % 4}}}"), Limit(2, name="all")],
        ordered_by=lambda account: str(account),
    )
    job = task.bind(7).new_job()
    assert (job.limit_keys, job.ordered_by) == (("shard:{{3}}", "all"), "7")


@pytest.mark.parametrize("by", [lambda account, region: f"{account} {region}", lambda **given: str(sorted(given))])
def test_a_function_gets_the_defaults_of_arguments_that_a_call_leaves_out(by: Any) -> None:
    def call(account: int, region: str = "eu") -> None: ...

    task = declare(App(), call, limits=[Limit(1, name="a", by=by)], ordered_by=by, unique=Unique(by=by))
    short, full = task.bind(7).new_job(), task.bind(7, region="eu").new_job()
    assert (short.limit_keys, short.ordered_by, short.unique_by) == (full.limit_keys, full.ordered_by, full.unique_by)


def test_all_arguments_of_a_unique_job_include_defaults() -> None:
    def call(account: int, region: str = "eu") -> None: ...

    task = declare(App(), call, unique=Unique())
    assert task.bind(7).payload == task.bind(7, region="eu").payload == b'{"account":7,"region":"eu"}'
    assert task.using(unique=None).bind(7).payload == b'{"account":7}'


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"limits": [Limit(1, by="{acount}")]}, r"there is no parameter acount. Did you mean \{account\}\?"),
        ({"ordered_by": "{order}"}, r"ordered_by='\{order\}' is invalid: there is no parameter order"),
        ({"limits": [Limit(1, by="{account!r}")]}, "must be the name of a parameter, and nothing else"),
        ({"limits": [Limit(1, by="{account")]}, r"Limit\(by='\{account'\) is invalid: .* for braces"),
        ({"limits": [Limit(1, by=lambda acount: acount)]}, "the function takes acount, and the task has no such"),
        ({"limits": [Limit(1, by=str)]}, "does not say which arguments it takes"),
        ({"ordered_by": lambda order: order}, "the function takes order, and the task has no such parameter"),
        ({"unique": Unique(by="{acount}")}, r"Unique\(by='\{acount\}'\) is invalid: there is no parameter acount"),
        ({"unique": Debounce(by=lambda doc: doc, wait=1)}, "the function takes doc, and the task has no such"),
        ({"route_by": "{acount}", "group": "g"}, r"route_by='\{acount\}' is invalid: there is no parameter acount"),
        ({"limits": Limit(1)}, "give a list of Limit and Rate"),
        ({"limits": ["crm-api"]}, "give a list of Limit and Rate"),
        ({"ordered_by": 5}, "give a format"),
        ({"ordered_by": "{account}", "when_dead": "stop"}, "must be continue or pause"),
        ({"when_dead": "pause"}, "when_dead needs ordered_by"),
        ({"ordered_by": "{account}", "priority": 5}, "ordered_by and priority cannot be combined"),
        ({"ordered_by": "{account}", "unique": Debounce(wait=5)}, "ordered_by and unique=Debounce"),
    ],
)
def test_a_mistake_in_flow_control_is_found_at_declaration(options: dict[str, Any], message: str) -> None:
    with pytest.raises((TypeError, ValueError), match=message):
        declare(App(), **options)


def test_a_format_does_not_guess_which_tenant_is_meant() -> None:
    """A parameter `tenant` and the tenant of the job may differ, and a limit of the wrong one would be silent."""

    def bill(tenant: str) -> None: ...

    with pytest.raises(ValueError, match="is the tenant of the job, and the task has a parameter tenant as well"):
        declare(App(), bill, limits=[Limit(1, by="{tenant}")])
    task = declare(App(), bill, limits=[Limit(1, by=lambda tenant: tenant)])
    assert task.bind("acme").new_job().limit_keys == ("bill:acme",)


def test_an_ordered_task_has_no_batches() -> None:
    def work(items: list[int]) -> None: ...

    with pytest.raises(ValueError, match="ordered_by and batch cannot be combined: the jobs of a key"):
        declare(App(), work, ordered_by="{items}", batch=Batch(size=5))
    task = declare(App(), work, batch=Batch(size=5))
    with pytest.raises(ValueError, match="task work: ordered_by and batch cannot be combined: the jobs of a key"):
        task.using(ordered_by="{items}")


@pytest.mark.parametrize(
    ("options", "name"), [({"priority": 5}, "priority"), ({"unique": Debounce(wait=5)}, "unique=Debounce")]
)
def test_what_excludes_order_cannot_be_chosen_for_one_job_either(options: dict[str, Any], name: str) -> None:
    task = declare(App(), ordered_by="{account}")
    with pytest.raises(ValueError, match=f"ordered_by and {name}"):
        task.using(**options)
    assert task.using(**options, ordered_by=None).bind(7).new_job().ordered_by is None


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: Limit(-1), r"Limit\(count=-1\) is invalid"),
        (lambda: Limit(True), r"Limit\(count=True\) is invalid"),
        (lambda: Limit(1, name="a:b"), "no colon or brace"),
        (lambda: Limit(1, name="a" * 2000), r"^Limit\(name='a{20}'...\) is invalid: a name has 1 to 100 characters"),
        (lambda: Limit(1, when_full="drop"), "it must be wait, discard or replace"),  # type: ignore[arg-type]
        (lambda: Limit(10**12), "it must be a whole number from 0 to 1,000,000,000"),
        (lambda: Limit(1, by=5), r"Limit\(by=5\) is invalid: give a format"),  # type: ignore[arg-type]
        (lambda: Limit(1, by=""), r"Limit\(by=''\) is invalid: give a format"),
        (lambda: Rate(5, per=60, by=5), r"Rate\(by=5\) is invalid: give a format"),  # type: ignore[arg-type]
        (lambda: Rate(0, per=60), "it must be a whole number from 1 to 1,000,000,000"),
        (lambda: Rate(5, per=60, evenly="yes"), "it must be True or False"),  # type: ignore[arg-type]
        (lambda: Rate(5, per="soon"), "'soon' is not a duration"),
        (lambda: Rate(5, per=0), "it must be more than 0"),
        (lambda: Queue("", limit=5), "a queue has 1 to 100 characters"),
        (lambda: Queue("a", limit=-5), "it must be a whole number from 0 on"),
        (lambda: Queue("a", shares={"x": 2}), "needs fair_by"),
        (lambda: Queue("a", fair_by="{tenant}", shares=["x"]), r"Queue\(shares=\['x'\]\) is invalid: give a dict"),  # type: ignore[arg-type]
        (lambda: Queue("a", fair_by="{tenant}", shares={"x": 0}), "a share is a whole number from 1 to 1000"),
    ],
)
def test_an_impossible_limit_or_queue_is_refused(make: Any, message: str) -> None:
    with pytest.raises((TypeError, ValueError), match=message):
        make()


def test_queues_are_declared_once_and_included_with_their_tasks() -> None:
    app, tasks = App(), Tasks()
    tasks.queue(Queue("sync", limit=20, fair_by="{account}", shares={"7": 3}))
    declare(tasks, queue="sync", ordered_by="{account}", when_dead="pause")
    app.include(tasks)
    app.queue(Queue("sync", limit=20, fair_by="{account}", shares={"7": 3}))
    assert app.flow_rules.queue_definitions == [{"name": "sync", "max": 20, "fair_by": "{account}", "shares": {"7": 3}}]
    assert app.flow_rules.limits == [{"name": "order:sync", "when_dead": "pause"}]
    assert app.queue_names() == {"default", "sync"}
    with pytest.raises(ValueError, match="queue 'sync' is declared twice, and differently"):
        app.queue(Queue("sync", limit=5))
    with pytest.raises(TypeError, match="give a Queue"):
        app.queue("sync")  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="for braces"):
        app.queue(Queue("mail", fair_by="{tenant"))
