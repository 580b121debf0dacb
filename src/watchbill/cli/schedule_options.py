"""The options of `watchbill schedules add` and `update`, and what they mean in Python.

Durations and instants come as text, so that `none` can take an option away.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any, Literal

import typer

from watchbill.cli.cron import instant
from watchbill.cli.jobs import Usage, json_object

Pattern = Annotated[str | None, typer.Argument(help="A cron pattern, in quotes: '0 9 * * MON-FRI'.")]
NewPattern = Annotated[str | None, typer.Option(metavar="PATTERN", help="A cron pattern.")]
Every = Annotated[str | None, typer.Option(metavar="DURATION", help="Instead of a pattern: 30s, 5m, 1h30m.")]
At = Annotated[str | None, typer.Option(metavar="INSTANT", help="Instead of a pattern: once, then.")]
Zone = Annotated[str | None, typer.Option("--tz", metavar="ZONE", help="The zone of the pattern: Europe/Paris.")]
Dst = Annotated[
    Literal["default", "skip", "once", "both"] | None, typer.Option(help="What happens when the clocks change.")
]
Task = Annotated[str | None, typer.Option(metavar="TYPE", help="The type of the task to run, such as tasks.hello.")]
Arguments = Annotated[str | None, typer.Option(metavar="JSON", help="The task's arguments, as a JSON object.")]
Command = Annotated[str | None, typer.Option(metavar="SQL", help="Instead of a task: SQL to run.")]
Role = Annotated[str | None, typer.Option(help="Run the SQL as this role.")]
Queue = Annotated[str | None, typer.Option(help="The queue of its jobs.")]
Priority = Annotated[int | None, typer.Option(help="Of its jobs; higher runs first.")]
MaxAttempts = Annotated[int | None, typer.Option(min=1, help="How often a job of it is tried.")]
Timeout = Annotated[str | None, typer.Option(metavar="DURATION", help="How long a job of it may run.")]
Missed = Annotated[
    Literal["skip", "once", "catch_up"] | None, typer.Option(help="What becomes of slots that nobody was there for.")
]
CatchUp = Annotated[int | None, typer.Option(min=1, help="How many slots catch_up makes up for at most.")]
Grace = Annotated[str | None, typer.Option(metavar="DURATION", help="How late a slot may still run.")]
Overlap = Annotated[
    Literal["skip", "queue", "cancel_previous", "allow"] | None,
    typer.Option(help="When the job before has not ended."),
]
Jitter = Annotated[str | None, typer.Option(metavar="DURATION", help="Start each job later by up to so much.")]
Start = Annotated[str | None, typer.Option(metavar="INSTANT", help="No slot before.")]
End = Annotated[str | None, typer.Option(metavar="INSTANT", help="No slot after.")]
MaxRuns = Annotated[int | None, typer.Option(min=1, help="End after so many jobs.")]
Deadline = Annotated[str | None, typer.Option(metavar="DURATION", help="Overdue when not ended so long after a slot.")]
RunOnStart = Annotated[bool | None, typer.Option(help="Also run when the cluster starts.")]
Description = Annotated[str | None, typer.Option(help="For people.")]
Category = Annotated[str | None, typer.Option(help="For lists.")]
Tags = Annotated[list[str] | None, typer.Option("--tag", help="For lists; may be given again.")]
Context = Annotated[str | None, typer.Option(metavar="JSON", help="Reaches the handler in its job's meta.")]

_DURATIONS = ("every", "timeout", "grace", "jitter", "deadline")
_INSTANTS = ("at", "start", "end")
_OBJECTS = ("arguments", "context")


def rule_of(params: Mapping[str, Any], tz: str) -> dict[str, Any]:
    """What was given of the above, under the names and with the values of `app.schedules.add`."""
    rule: dict[str, Any] = {}
    for name, value in params.items():
        if name not in _NAMES or value is None or (name == "tags" and not value):
            continue
        rule[name] = None if value in ("none", ["none"]) else _meant(name, value, tz)
    if (attempts := rule.pop("max_attempts", None)) is not None:
        from watchbill.model.retry import Retry

        rule["retry"] = Retry(max_attempts=attempts)
    return rule


def _meant(name: str, value: Any, tz: str) -> Any:
    if name in _DURATIONS:
        return _duration(name, value)
    if name in _INSTANTS:
        return instant(value, tz)
    return json_object(value, name) if name in _OBJECTS else value


def _duration(name: str, text: str) -> float:
    from pydantic import TypeAdapter, ValidationError

    from watchbill.settings import Duration

    try:
        seconds: float = TypeAdapter(Duration).validate_python(text)
    except ValidationError:
        raise Usage(f"--{name} {text!r} is no duration.", hint="Write 90, 500ms, 30s, 5m, 1h30m or 2d.") from None
    return seconds


_NAMES = frozenset(
    {"pattern", "tz", "dst", "task", "command", "role", "queue", "priority", "max_attempts", "missed", "catch_up"}
    | {"overlap", "max_runs", "run_on_start", "enabled", "description", "category", "tags", *_OBJECTS}
    | {*_DURATIONS, *_INSTANTS}
)
