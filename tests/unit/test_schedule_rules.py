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
from watchbill.app.rule_checks import InvalidSchedule
from watchbill.app.rules import Changes, redefine

NOON = datetime(2030, 1, 1, 12, tzinfo=UTC)


@pytest.fixture
def app() -> App:
    app = App("postgresql://nowhere/x", name="shop")

    @app.task(type="report", queue="reports", retry=Retry(max_attempts=3), timeout=timedelta(minutes=5), version=2)
    def report(region: str = "eu", total: Decimal = Decimal(0)) -> None: ...

    @app.task(type="hello")
    async def hello() -> None: ...

    return app


def declared(app: App) -> dict[str, Any]:
    """What goes to the database."""
    return {each["name"]: each for each in orjson.loads(app.declared.as_json())}


def test_a_schedule_has_the_name_of_its_task_and_says_no_more_than_the_code(app: App) -> None:
    task = app.schedule("0 9 * * MON-FRI")(app.tasks["hello"])
    assert task is app.tasks["hello"]
    [each] = declared(app).values()
    assert each.keys() == {"name", "pattern", "type", "payload", "hash"}
    assert (each["name"], each["payload"]) == ("hello", {})


def test_its_jobs_are_made_as_the_task_says_unless_the_schedule_says_otherwise(app: App) -> None:
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
        ("0 9 * * *", {"dst": "twice"}, "dst='twice' is unknown", "skip, once, both"),
        ("0 9 * * *", {"every": 60}, "pattern and every cannot go together", "one of them"),
        (None, {"every": -1}, "every=-1 is out of range", "1 s to ten years"),
        (None, {"every": "5m"}, "every='5m' is no duration", "seconds, or a timedelta"),
        (None, {"every": float("nan")}, "out of range", "ten years"),
        (None, {"at": datetime(2030, 1, 1)}, "it needs a time zone", "ZoneInfo"),  # noqa: DTZ001
        ("@daily", {"start": NOON, "end": NOON - timedelta(1)}, "it ends", "Exchange them"),
        ("@daily", {"max_runs": 0}, "max_runs=0 is no count", "from 1 on"),
        ("@daily", {"missed": "all"}, "missed='all' is unknown", "skip, once, catch_up"),
        ("@daily", {"overlap": "wait"}, "overlap='wait' is unknown", "skip, queue, cancel_previous, allow"),
        ("@daily", {"tags": "billing"}, "tags='billing' is no list", "tags=["),
        ("@daily", {"retry": 3}, "retry=3 is no Retry", "Retry(max_attempts=3)"),
        ("@daily", {"timezone": "UTC"}, "no option timezone", "Did you mean tz?"),
        ("@daily", {"xyzzy": 1}, "no option xyzzy", "The options are"),
        ("@daily", {"max_run": 1}, "no option max_run", "Did you mean max_runs?"),
        ("@daily", {"context": {"a": object()}}, "its context cannot be stored as JSON", "plain values"),
        ("@daily", {"context": {1: 2}}, "its context cannot be stored as JSON", "plain values"),
        ("@daily", {"context": [1]}, "context=[1] is no dict", "context={"),
        ("@daily", {"arguments": "x"}, "arguments='x' is no dict", "arguments={"),
        ("@daily", {"description": "a\0b"}, "its description has a NUL character", None),
        ("@daily", {"category": "\ud800"}, "its category cannot be stored as JSON", None),
    ],
)
def test_what_cannot_be_is_refused_where_it_is_written(
    app: App, pattern: str | None, options: Any, what: str, way_out: str | None
) -> None:
    with pytest.raises(InvalidSchedule) as refused:
        app.schedule(pattern, name="nightly", **options)(app.tasks["hello"])
    assert refused.value.message.startswith("Schedule 'nightly': ")
    assert what in refused.value.message
    assert (way_out or "") in (refused.value.hint or "")
    assert len(app.declared) == 0


def test_arguments_that_do_not_fit_the_task_are_refused_where_they_are_written(app: App) -> None:
    with pytest.raises(InvalidPayload, match=r"report: regoin is unknown"):
        app.schedule("@daily", arguments={"regoin": "us"})(app.tasks["report"])
    with pytest.raises(InvalidPayload, match=r"report: total: .* not 'much'"):
        app.schedule("@daily", arguments={"total": "much"})(app.tasks["report"])


def test_a_task_that_needs_arguments_is_not_scheduled_without(app: App) -> None:
    @app.task
    def needs(what: str) -> None: ...

    with pytest.raises(InvalidPayload, match=r"what is missing"):
        app.schedule("@daily")(needs)


@pytest.mark.parametrize("name", ["", " ", "a\nb", "x" * 201, 7])
def test_a_name_is_a_line_of_text(app: App, name: Any) -> None:
    with pytest.raises(InvalidSchedule, match="cannot be a schedule's name"):
        app.declare_schedule(name, "@daily", task="hello")


def test_a_task_or_a_command_and_not_both(app: App) -> None:
    with pytest.raises(InvalidSchedule, match="a task or a command"):
        app.declare_schedule("x", "@daily")
    with pytest.raises(InvalidSchedule, match="a task and a command cannot go together"):
        app.declare_schedule("x", "@daily", task="hello", command="SELECT 1")
    with pytest.raises(InvalidSchedule, match="no task to take arguments"):
        app.declare_schedule("x", "@daily", command="SELECT 1", arguments={"a": 1})
    with pytest.raises(InvalidSchedule, match="has arguments already"):
        app.declare_schedule("x", "@daily", task=app.tasks["report"].bind(), arguments={"region": "us"})


def test_a_schedule_of_nothing_is_asked_for_by_name(app: App) -> None:
    app.declare_schedule("tick", every=1, task=None)
    assert declared(app)["tick"].keys() == {"name", "every", "hash"}


def test_a_task_that_is_not_there_is_refused(app: App) -> None:
    with pytest.raises(InvalidSchedule, match="there is no task 'helo' here"):
        app.declare_schedule("x", "@daily", task="helo")


@pytest.mark.parametrize("task", [print, 7, ["hello"]], ids=str)
def test_what_is_no_task_is_refused(app: App, task: Any) -> None:
    with pytest.raises(InvalidSchedule, match=r"task=.* is none\.\nGive a task \(what @app\.task made"):
        app.declare_schedule("x", "@daily", task=task)


def test_what_excludes_each_other_is_exchanged_by_an_update(app: App) -> None:
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
def test_what_is_said_of_one_job_is_refused(app: App, options: Any) -> None:
    [word] = options
    with pytest.raises(InvalidSchedule, match=f"{word} is said of report, and means nothing for a schedule"):
        app.declare_schedule("x", "@daily", task=app.tasks["report"].using(**options).bind())


def test_a_flow_is_stored_by_places_and_hashes_alike(app: App) -> None:
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
    with pytest.raises(InvalidSchedule, match="idempotency_key is said of hello"):
        app.declare_schedule("x", "@daily", task=chain(app.tasks["hello"].using(idempotency_key="k").bind()))
    with pytest.raises(InvalidSchedule, match="has arguments already"):
        app.declare_schedule("x", "@daily", task=chain(app.tasks["hello"].bind()), arguments={"n": 1})


def test_a_name_is_taken_once_per_tenant(app: App) -> None:
    app.schedule("@daily", name="x")(app.tasks["hello"])
    app.schedule("@daily", name="x", tenant="acme")(app.tasks["hello"])
    assert [each.get("tenant") for each in orjson.loads(app.declared.as_json())] == [None, "acme"]


def test_the_order_of_the_decorators_is_said(app: App) -> None:
    def wrong() -> None: ...

    with pytest.raises(TypeError, match=r"stands above @app\.task"):
        app.schedule("@daily")(wrong)  # type: ignore[type-var]


def test_two_schedules_of_one_name_are_refused(app: App) -> None:
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


def test_the_hash_follows_what_the_code_says_and_nothing_else(app: App) -> None:
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


def test_an_annotation_that_is_defined_further_down_is_looked_at_later(app: App) -> None:
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
