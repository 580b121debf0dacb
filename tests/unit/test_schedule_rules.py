"""A schedule in Python: what it may say, how a slip is refused, and what its hash depends on. No database."""

from __future__ import annotations

import subprocess
import sys
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from typing import Any

import orjson
import pytest

from watchbill import App, Retry, Tasks, chain, group
from watchbill.app.payload import InvalidPayload
from watchbill.app.schedule_definition import Changes, InvalidSchedule, redefine
from watchbill.cron import InvalidPattern

NOON = datetime(2030, 1, 1, 12, tzinfo=UTC)


@pytest.fixture
def app() -> App:
    app = App("postgresql://nowhere/x", name="shop")

    five_minutes = timedelta(minutes=5)

    @app.task(type="report", queue="reports", retry=3, timeout=five_minutes, version=2, executor="thread")
    def report(region: str = "eu", total: Decimal = Decimal(0)) -> None: ...

    @app.task(type="hello")
    async def hello() -> None: ...

    return app


def declared(app: App) -> dict[str, Any]:
    """What goes to the database."""
    return {each["name"]: each for each in orjson.loads(app.declared.as_json())}


def test_schedule_takes_its_name_from_the_task(app: App) -> None:
    task = app.schedule("0 9 * * MON-FRI")(app.tasks["hello"])
    assert task is app.tasks["hello"]
    [each] = declared(app).values()
    assert each.keys() == {"name", "pattern", "type", "payload", "hash"}
    assert (each["name"], each["payload"]) == ("hello", {})


def test_schedule_options_override_those_of_the_task(app: App) -> None:
    app.schedule("@daily")(app.tasks["report"])
    app.schedule("@daily", name="other", queue="default", timeout=9, retry=Retry(max_attempts=1))(app.tasks["report"])
    as_task, otherwise = declared(app).values()
    assert (as_task["queue"], as_task["timeout"], as_task["max_attempts"], as_task["version"]) == ("reports", 300, 3, 2)
    assert (otherwise["queue"], otherwise["timeout"], otherwise["max_attempts"]) == ("default", 9, 1)


def test_arguments_are_stored_as_the_task_takes_them(app: App) -> None:
    app.schedule(every=60, arguments={"region": "us", "total": "1.50"})(app.tasks["report"])
    app.declare_schedule("bound", at=NOON, task=app.tasks["report"].bind(total=Decimal("2.5")))
    first, second = declared(app).values()
    assert first["payload"] == {"region": "us", "total": "1.50"}
    assert (second["payload"], second["at"]) == ({"total": "2.5"}, "2030-01-01T12:00:00+00:00")


def test_a_command_needs_no_task(app: App) -> None:
    app.declare_schedule("purge", "@daily", command="DELETE FROM carts", role="janitor", timeout=60, tags=["db"])
    [each] = declared(app).values()
    assert (each["command"], each["role"], each["timeout"], each["tags"]) == (
        "DELETE FROM carts",
        "janitor",
        60,
        ["db"],
    )
    assert "type" not in each


@pytest.mark.parametrize(
    ("pattern", "options", "what", "way_out"),
    [
        ("0 9 * *", {}, "4 fields; a schedule has 5", None),
        ("0 25 * * *", {}, "'25' is not in 0 to 23", None),
        ("0 9 * * *", {"tz": "Europe/Pari"}, "'Europe/Pari' is neither an IANA zone", None),
        ("0 9 * * *", {"dst": "twice"}, "dst='twice' is invalid", "skip, once, both"),
        ("0 9 * * *", {"every": 60}, "pattern and every cannot go together", "one of them"),
        (None, {"every": -1}, "every=-1 is invalid", "1 s to ten years"),
        (None, {"every": "5 parsecs"}, "every='5 parsecs' is invalid", "seconds, a timedelta, or a text such as"),
        (None, {"every": float("nan")}, "every=nan is invalid", "ten years"),
        (None, {"at": datetime(2030, 1, 1)}, "at=datetime.datetime(2030, 1, 1, 0, 0) is invalid", "ZoneInfo"),  # noqa: DTZ001
        ("@daily", {"start": NOON, "end": NOON - timedelta(1)}, "it ends", "Swap them"),
        ("@daily", {"max_runs": 0}, "max_runs=0 is invalid", "from 1 on"),
        ("@daily", {"missed": "all"}, "missed='all' is invalid", "skip, once, catch_up"),
        ("@daily", {"overlap": "wait"}, "overlap='wait' is invalid", "skip, queue, cancel_previous, allow"),
        ("@daily", {"tags": "billing"}, "tags='billing' is invalid", "tags=["),
        ("@daily", {"retry": "3"}, "retry='3' is invalid", "a number of attempts"),
        ("@daily", {"retry": Retry(on=(OSError,))}, "is invalid", "belong to the task"),
        ("@daily", {"timezone": "UTC"}, "no option timezone", "Did you mean tz?"),
        ("@daily", {"xyzzy": 1}, "no option xyzzy", "The options are"),
        ("@daily", {"max_run": 1}, "no option max_run", "Did you mean max_runs?"),
        ("@daily", {"context": {"a": object()}}, "its context cannot be stored as JSON", "plain values"),
        ("@daily", {"context": {1: 2}}, "its context cannot be stored as JSON", "plain values"),
        ("@daily", {"context": [1]}, "context=[1] is invalid", "context={"),
        ("@daily", {"arguments": "x"}, "arguments='x' is invalid", "arguments={"),
        ("@daily", {"description": "a\0b"}, "its description has a NUL character", None),
        ("@daily", {"category": "\ud800"}, "its category cannot be stored as JSON", None),
    ],
)
def test_invalid_schedule_options_are_refused_at_the_declaration(
    app: App, pattern: str | None, options: Any, what: str, way_out: str | None
) -> None:
    with pytest.raises(InvalidSchedule) as refused:
        app.schedule(pattern, name="nightly", **options)(app.tasks["hello"])
    assert refused.value.message.startswith("Schedule 'nightly': ")
    assert what in refused.value.message
    assert (way_out or "") in (refused.value.hint or "")
    assert len(app.declared) == 0


def test_arguments_that_do_not_fit_the_task_are_refused(app: App) -> None:
    with pytest.raises(InvalidPayload, match=r"report: regoin is unknown"):
        app.schedule("@daily", arguments={"regoin": "us"})(app.tasks["report"])
    with pytest.raises(InvalidPayload, match=r"report: total: .* not 'much'"):
        app.schedule("@daily", arguments={"total": "much"})(app.tasks["report"])


def test_schedule_without_required_arguments_is_refused(app: App) -> None:
    @app.task
    def needs(what: str) -> None: ...

    with pytest.raises(InvalidPayload, match=r"what is missing"):
        app.schedule("@daily")(needs)


@pytest.mark.parametrize("name", ["", " ", "a\nb", "x" * 201, 7])
def test_invalid_schedule_names_are_refused(app: App, name: Any) -> None:
    with pytest.raises(InvalidSchedule, match="is not a valid name for a schedule"):
        app.declare_schedule(name, "@daily", task="hello")


def test_schedule_needs_either_a_task_or_a_command(app: App) -> None:
    with pytest.raises(InvalidSchedule, match="a task or a command"):
        app.declare_schedule("x", "@daily")
    with pytest.raises(InvalidSchedule, match="a task and a command cannot go together"):
        app.declare_schedule("x", "@daily", task="hello", command="SELECT 1")
    with pytest.raises(InvalidSchedule, match="no task to take arguments"):
        app.declare_schedule("x", "@daily", command="SELECT 1", arguments={"a": 1})
    with pytest.raises(InvalidSchedule, match="has arguments already"):
        app.declare_schedule("x", "@daily", task=app.tasks["report"].bind(), arguments={"region": "us"})


def test_task_none_declares_an_event_schedule(app: App) -> None:
    app.declare_schedule("tick", every=1, task=None)
    assert declared(app)["tick"].keys() == {"name", "every", "hash"}


def test_unknown_task_name_is_refused(app: App) -> None:
    with pytest.raises(InvalidSchedule, match="there is no task 'helo' here"):
        app.declare_schedule("x", "@daily", task="helo")


@pytest.mark.parametrize("task", [print, 7, ["hello"]], ids=str)
def test_value_that_is_not_a_task_is_refused(app: App, task: Any) -> None:
    with pytest.raises(InvalidSchedule, match=r"task=.* is not a task\.\nGive a task \(what @app\.task made"):
        app.declare_schedule("x", "@daily", task=task)


def test_update_clears_options_that_exclude_the_new_one(app: App) -> None:
    def change(**changes: Any) -> dict[str, Any]:
        return redefine("x", Changes(**changes), app.tasks.get)  # type: ignore[typeddict-item]

    assert change(every=60) == {"pattern": None, "every": 60, "at": None}
    assert change(command="SELECT 1") == {"type": None, "payload": None, "command": "SELECT 1"}
    assert change(tz="Europe/Paris", end=None) == {"tz": "Europe/Paris", "end": None}
    with_task = change(task="report", priority=3)
    assert (with_task["command"], with_task["role"], with_task["queue"], with_task["priority"]) == (
        None,
        None,
        "reports",
        3,
    )
    assert change(task="hello")["queue"] is None, "the queue of another task does not stay behind"


@pytest.mark.parametrize(
    "options", [{"delay": 60}, {"run_at": NOON}, {"idempotency_key": "k"}, {"tenant": "acme"}], ids=str
)
def test_options_for_a_single_job_are_refused(app: App, options: Any) -> None:
    [word] = options
    with pytest.raises(InvalidSchedule, match=f"report has the option {word}, which a schedule cannot use"):
        app.declare_schedule("x", "@daily", task=app.tasks["report"].using(**options).bind())


def test_flow_is_stored_without_ids_and_hashes_the_same(app: App) -> None:
    def declare() -> Any:
        other = App("postgresql://nowhere/x")
        report, hello = app.tasks["report"], app.tasks["hello"]
        flow = chain(report.bind("eu"), group(hello.bind(), hello.using(delay=5).bind()), report.bind("us"))
        other.declare_schedule("flow", "@daily", task=flow)
        return declared(other)["flow"]

    first, second = declare(), declare()
    assert first == second, "no id, no time"
    assert first["type"] == "watchbill.flow"
    assert [job.get("depends_on") for job in first["payload"]["jobs"]] == [None, [0], [0], [1, 2]]
    assert first["payload"]["jobs"][0]["queue"] == "reports"
    assert first["payload"]["ends"] == [3]
    with pytest.raises(InvalidSchedule, match="hello has the option idempotency_key, which a schedule cannot use"):
        app.declare_schedule("x", "@daily", task=chain(app.tasks["hello"].using(idempotency_key="k").bind()))
    with pytest.raises(InvalidSchedule, match="has arguments already"):
        app.declare_schedule("x", "@daily", task=chain(app.tasks["hello"].bind()), arguments={"n": 1})


def test_schedule_name_may_repeat_for_another_tenant(app: App) -> None:
    app.schedule("@daily", name="x")(app.tasks["hello"])
    app.schedule("@daily", name="x", tenant="acme")(app.tasks["hello"])
    assert [each.get("tenant") for each in orjson.loads(app.declared.as_json())] == [None, "acme"]


def test_wrong_decorator_order_error_shows_the_right_one(app: App) -> None:
    def wrong() -> None: ...

    with pytest.raises(TypeError, match=r"must stand above @app\.task"):
        app.schedule("@daily")(wrong)  # type: ignore[type-var]


def test_second_schedule_with_the_same_name_is_refused(app: App) -> None:
    app.schedule("@daily")(app.tasks["hello"])
    with pytest.raises(ValueError, match=r"two schedules are named 'hello'.*name="):
        app.schedule("@hourly")(app.tasks["hello"])


def test_an_app_takes_the_schedules_of_what_it_includes(app: App) -> None:
    library = Tasks()

    @library.schedule("@daily", tz="Europe/Paris")
    @library.task(type="clean")
    def clean() -> None: ...

    app.include(library)
    assert declared(app)["clean"]["tz"] == "Europe/Paris"


def test_hash_depends_only_on_the_declared_options(app: App) -> None:
    hashes = []
    for options in [{}, {}, {"tz": "Europe/Paris"}, {"description": "x"}, {"arguments": {"region": "us"}}]:
        other = App("postgresql://nowhere/x")
        other.tasks.update(app.tasks)
        other.declare_schedule("x", "@daily", task="report", **options)  # type: ignore[arg-type]
        hashes.append(declared(other)["x"]["hash"])
    assert hashes[0] == hashes[1]
    assert len(set(hashes)) == 4


def test_the_hash_is_the_same_in_every_process() -> None:
    program = (
        "from watchbill import App; a = App(); "
        "a.declare_schedule('x', '@daily', command='SELECT 1', tags={'a', 'b', 'c'}, context={'b': 1, 'a': 2}); "
        "print(next(iter(a.declared)).hash)"
    )
    said = {
        subprocess.run(
            [sys.executable, "-c", program], capture_output=True, text=True, check=True, env={"PYTHONHASHSEED": seed}
        ).stdout
        for seed in ("1", "2", "3")
    }
    assert len(said) == 1


def test_forward_annotation_is_resolved_later(app: App) -> None:
    @app.schedule("@daily", arguments={"n": 1})
    @app.task(type="forward")
    def forward(n: Defined) -> None: ...  # type: ignore[name-defined]  # noqa: F821

    forward.function.__globals__["Defined"] = int
    try:
        assert declared(app)["forward"]["payload"] == {"n": 1}
    finally:
        del forward.function.__globals__["Defined"]


def test_a_task_without_parameters_is_scheduled_without_loading_validation() -> None:
    program = (
        "import sys; from watchbill import App; a = App()\n"
        "@a.schedule('@daily')\n@a.task(type='x')\ndef x(n: int = 1): ...\n"
        "assert len(a.declared) == 1; print(sys.modules.keys() & {'pydantic', 'psycopg'})"
    )
    assert subprocess.run([sys.executable, "-c", program], capture_output=True, text=True).stdout == "set()\n"


def test_zone_of_the_app_holds_for_schedules_that_name_none() -> None:
    app, tasks = App(tz="Europe/Paris"), Tasks()

    @tasks.schedule("@daily", name="included")
    @tasks.schedule("@daily", tz="Asia/Tokyo", name="included elsewhere")
    @tasks.task(type="of tasks")
    def of_tasks() -> None: ...

    @app.schedule("0 9 * * *", name="own")
    @app.schedule("0 9 * * *", tz="UTC", name="own in UTC")
    @app.task(type="own")
    def own() -> None: ...

    app.include(tasks)
    assert {name: definition["tz"] for name, definition in declared(app).items()} == {
        "included": "Europe/Paris",
        "included elsewhere": "Asia/Tokyo",
        "own": "Europe/Paris",
        "own in UTC": "UTC",
    }
    meanings = {declaration.name: declaration.meaning for declaration in app.declared}
    assert meanings["own"] == "at 09:00 every day, Paris time"
    assert "tz" not in declared(schedule_daily(App()))["x"]


def schedule_daily(app: App) -> App:
    app.declare_schedule("x", "@daily", command="SELECT 1")
    return app


def test_zone_that_is_reset_becomes_that_of_the_app() -> None:
    reset: Any = {"tz": None}
    assert redefine("x", reset, lambda _: None, "Europe/Paris") == {"tz": "Europe/Paris"}
    assert redefine("x", reset, lambda _: None) == {"tz": None}
    assert redefine("x", {"priority": 1}, lambda _: None, "Europe/Paris") == {"priority": 1}


def test_unknown_zone_of_an_app_is_refused() -> None:
    with pytest.raises(InvalidPattern, match="'Europe/Pari' is neither an IANA zone"):
        App(tz="Europe/Pari")
