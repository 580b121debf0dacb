"""The definition of a schedule: turns the options that a program gives into the object that SQL takes.

That object has only what was given. The database has the defaults, and the hash of a declaration covers only what the
code says: when a new version of Watchbill adds an option, no declaration looks changed.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Mapping, Sequence
from datetime import datetime
from difflib import get_close_matches
from typing import Any, TypedDict, cast

import orjson

from watchbill.app.flows import Flow, chain
from watchbill.app.job_options import JobOptions
from watchbill.app.task import Call, Task
from watchbill.cron import Cron, InvalidPattern
from watchbill.cron.compiler import Policy
from watchbill.errors import WatchbillError
from watchbill.model.durations import DURATION_WORDS, Duration, seconds
from watchbill.model.job_fields import JOB_OPTIONS
from watchbill.model.retry import TEN_YEARS_SECONDS, Retry, as_retry
from watchbill.model.schedule import FLOW, Missed, Overlap, ScheduleRecord
from watchbill.model.schedule_fields import SCHEDULE_OPTIONS, ScheduleField

_SYNONYMS = {
    "timezone": "tz", "zone": "tz", "cron": "pattern", "schedule": "pattern", "interval": "every", "seconds": "every",
    "args": "arguments", "kwargs": "arguments", "payload": "arguments", "retries": "retry", "sql": "command",
}  # fmt: skip


class InvalidSchedule(WatchbillError, ValueError):
    """A schedule is invalid: the message says which one, and why."""

    exit_code = 2


def invalid(name: str, what: str, hint: str | None = None) -> InvalidSchedule:
    return InvalidSchedule(f"Schedule {name!r}: {what}.", hint=hint)


def check_name(name: object) -> None:
    if not isinstance(name, str) or not name.strip() or len(name) > 200 or not name.isprintable():
        raise InvalidSchedule(f"{name!r} is not a valid name for a schedule: give 1 to 200 printable characters.")


def check_known(name: str, given: Mapping[str, Any]) -> None:
    for word in given:
        if word not in SCHEDULE_OPTIONS:
            near = _SYNONYMS.get(word) or next(iter(get_close_matches(word, SCHEDULE_OPTIONS, n=1)), None)
            hint = f"Did you mean {near}?" if near else f"The options are {', '.join(sorted(SCHEDULE_OPTIONS))}."
            raise invalid(name, f"there is no option {word}", hint)


def check_values(name: str, given: Mapping[str, Any]) -> None:
    """Checks each option that is set, and then those that depend on each other."""
    for word, value in given.items():
        if value is not None:
            _check_value(name, SCHEDULE_OPTIONS[word], value)
    start, end = given.get("start"), given.get("end")
    if start is not None and end is not None and end < start:
        raise invalid(name, f"it ends ({end}) before it starts ({start})", "Swap them, or leave end out.")
    _check_when(name, given)


def _check_value(name: str, field: ScheduleField, value: Any) -> None:
    """Checks one option by its kind; a kind that is not listed here is checked elsewhere."""
    match field.kind:
        case "choice":
            fits, hint = value in field.choices, f"Give one of {', '.join(field.choices)}."
        case "duration":
            fits = _is_duration(value, field.least)
            hint = f"Give {DURATION_WORDS}; from {field.least:g} s to ten years."
        case "count":
            fits, hint = type(value) is int and value >= 1, "Give a whole number from 1 on, or leave it out."
        case "instant":
            fits = isinstance(value, datetime) and value.tzinfo is not None
            hint = "Give a time with its zone: datetime(2030, 1, 1, 9, tzinfo=ZoneInfo('Europe/Paris'))."
        case "text":
            fits, hint = isinstance(value, str), "Give a text."
        case "texts":
            fits = not isinstance(value, str) and all(isinstance(each, str) for each in value)
            hint = f"Give a list of texts: {field.name}=['billing', 'eu']."
        case "object":
            fits, hint = isinstance(value, Mapping), f"Give a dict: {field.name}={{'name': value}}."
        case "retry":
            fits = type(value) is int or (isinstance(value, Retry) and not value.on and not value.not_on)
            hint = "Give a number of attempts, or a Retry without on and not_on, which belong to the task."
        case _:
            return
    if not fits:
        raise invalid(name, f"{field.name}={value!r} is invalid", hint)


def _is_duration(value: Any, least: float) -> bool:
    try:
        return least <= seconds(value) <= TEN_YEARS_SECONDS
    except ValueError:
        return False


def check_storable(name: str, definition: Mapping[str, Any]) -> None:
    """Checks that JSON and PostgreSQL can store a definition. The task has checked its arguments before."""
    for word, value in definition.items():
        try:
            raw = orjson.dumps(value)
        except TypeError as error:
            raise invalid(name, f"its {word} cannot be stored as JSON: {error}", "Give plain values.") from None
        if b"\\u0000" in raw:
            raise invalid(name, f"its {word} has a NUL character, which PostgreSQL cannot store")


def _check_when(name: str, given: Mapping[str, Any]) -> None:
    """Checks the pattern in its zone. A zone or policy that is changed alone is checked with `* * * * *`."""
    if not {"pattern", "tz", "dst"} & given.keys():
        return
    try:
        Cron(given.get("pattern") or "* * * * *", given.get("tz") or "UTC", given.get("dst") or "default")
    except InvalidPattern as error:
        raise InvalidSchedule(f"Schedule {name!r}: {error.message}", hint=error.hint) from None


Definition = dict[str, Any]
FindTask = Callable[[str], Task[..., Any] | None]


class Timing(TypedDict, total=False):
    """When it fires, and how its jobs are made: what `@app.schedule` takes by name. Durations are seconds."""

    every: Duration | None
    at: datetime | None
    tz: str
    dst: Policy
    arguments: Mapping[str, Any]
    queue: str
    priority: int
    retry: int | Retry | None
    timeout: Duration | None
    expires: Duration | None
    missed: Missed
    catch_up: int | None
    overlap: Overlap
    grace: Duration | None
    jitter: Duration
    start: datetime | None
    end: datetime | None
    max_runs: int | None
    deadline: Duration | None
    run_on_start: bool
    enabled: bool
    description: str | None
    category: str | None
    tags: Sequence[str]
    context: Mapping[str, Any] | None


class Rule(Timing, total=False):
    """Also what to run: a task, a chain, a SQL command, or nothing (`task=None`): then each slot is only an event."""

    task: Task[..., Any] | Call[Any] | Flow[Any] | str | None
    command: str | None
    role: str | None
    created_by: str


class Changes(Rule, total=False):
    """What `update` may change; None resets an option to its default."""

    pattern: str | None


_WHEN = ("pattern", "every", "at")
_CONVERTED = ("task", "arguments", "retry")  # into columns of other names
_OF_FLOW_CONTROL = ("limit_keys", "ordered_by", "route_by", "group", "runs_on", "unique")
_WITHIN_A_FLOW = ("delay", "depends_on", "run_if", *_OF_FLOW_CONTROL)
_OF_ONE_JOB = JOB_OPTIONS.keys() - SCHEDULE_OPTIONS.keys()


def define(
    name: str, pattern: str | None, rule: Rule, find: FindTask, tenant: str = "default", tz: str | None = None
) -> Definition:
    """The definition of a new schedule; `tz` is the App's zone, for a schedule that names none."""
    check_name(name)
    given = cast("Changes", {"tz": tz} if tz is not None else {})
    given |= cast("Changes", dict(rule))
    if pattern is not None:
        given["pattern"] = pattern
    check_known(name, given)
    _refuse_conflicting_options(name, given)
    if ("task" in given) == ("command" in given):
        hint = "Give task=... or command='SELECT ...'; task=None makes it an event and nothing else."
        raise invalid(name, "it needs a task or a command, one of the two", hint)
    found = _convert_plain(name, given) | _convert_task(name, given, find)
    found["tenant"] = None if tenant == "default" else tenant
    check_storable(name, found)
    return {"name": name, **{word: value for word, value in found.items() if value is not None}}


def redefine(name: str, changes: Changes, find: FindTask, tz: str | None = None) -> Definition:
    """The changes to a schedule. A new task also sets the task's own options, unless others are given. `tz` is the
    App's zone, to which a zone is reset.

    Options that exclude each other are replaced: a new pattern removes an interval, a command removes a task.
    """
    check_known(name, changes)
    _refuse_conflicting_options(name, changes)
    if "tz" in changes and changes["tz"] is None:
        changes = cast("Changes", changes | {"tz": tz})
    definition: Definition = {}
    if any(changes.get(word) is not None for word in _WHEN):
        definition |= dict.fromkeys(_WHEN)
    if changes.get("task") is not None:
        definition |= dict.fromkeys(("command", "role"))
    elif changes.get("command") is not None:
        definition |= dict.fromkeys(("type", "payload"))
    definition |= _convert_plain(name, changes)
    if "task" in changes:
        definition |= _convert_task(name, changes, find)
    check_storable(name, definition)
    return definition


def check_arguments(found: ScheduleRecord, find: FindTask, arguments: Mapping[str, Any]) -> Definition:
    """New arguments for a schedule whose task stays. They are checked if this process knows the task."""
    if found.type is None:
        raise invalid(found.name, "it runs no task, so it takes no arguments")
    if found.type == FLOW:
        raise invalid(
            found.name,
            "it starts a chain, whose steps have their own arguments",
            "Give another chain: task=chain(...).",
        )
    task = find(found.type)
    return dict(arguments) if task is None else orjson.loads(task.check(dict(arguments)))


def fingerprint(definition: Definition) -> str:
    """The same text for the same definition, in every process and every release."""
    return hashlib.sha256(orjson.dumps(definition, option=orjson.OPT_SORT_KEYS)).hexdigest()[:32]


def _refuse_conflicting_options(name: str, given: Changes) -> None:
    times = [word for word in _WHEN if given.get(word) is not None]
    if len(times) > 1:
        raise invalid(name, f"{' and '.join(times)} cannot go together", "Give one of them, or none: on demand.")
    if given.get("task") is not None and given.get("command") is not None:
        raise invalid(name, "a task and a command cannot go together", "Make two schedules.")


def _convert_plain(name: str, given: Changes) -> Definition:
    check_values(name, given)
    found = {word: _to_json(word, value) for word, value in given.items() if word not in _CONVERTED}
    return found | _convert_retry(given["retry"]) if "retry" in given else found


def _convert_task(name: str, given: Changes, find: FindTask) -> Definition:
    task, arguments = given.get("task"), dict(given.get("arguments") or {})
    if task is None:
        if arguments:
            raise invalid(name, "there is no task to take arguments", "Write the values into the command.")
        return {"type": None, "payload": None} if "task" in given else {}
    if isinstance(task, Call | Flow):
        if arguments:
            raise invalid(name, "bind(...) has arguments already", "Leave out arguments=.")
        return (
            _convert_flow(name, task)
            if isinstance(task, Flow)
            else _convert_known_task(name, task.task, task.payload, given)
        )
    if not isinstance(task, Task | str):
        hint = "Give a task (what @app.task made of a function), task.bind(...), chain(...), or the type of a task."
        raise invalid(name, f"task={task!r} is not a task", hint)
    known = task if isinstance(task, Task) else find(task)
    if known is None:  # the database knows whether any node has it
        return {"type": task, "payload": arguments}
    return _convert_known_task(name, known, known.check(arguments), given)


def _convert_flow(name: str, flow: Flow[Any]) -> Definition:
    """The schedule makes a job that starts the others. Each of these has the options of its own task."""
    for call in flow.calls:
        _refuse_options_of_one_job(name, call.task, but=_WITHIN_A_FLOW)
    ends = [place for place, call in enumerate(flow.calls) if any(call is last for last in flow.last_calls)]
    return {"type": FLOW, "payload": {"jobs": flow.definition(), "ends": ends}}


def _refuse_options_of_one_job(name: str, task: Task[..., Any], but: tuple[str, ...] = ()) -> None:
    usual = JobOptions()
    for word in sorted(_OF_ONE_JOB):
        if word not in but and getattr(task.options, word) != getattr(usual, word):
            hint = "The tenant is an option of the schedule." if word == "tenant" else "Leave it out of using(...)."
            raise invalid(name, f"{task.type} has the option {word}, which a schedule cannot use", hint)


def _convert_known_task(name: str, task: Task[..., Any], payload: bytes, given: Changes) -> Definition:
    """Type, payload, and the options that the task was declared with; None where they are the defaults.

    A task with limits, an ordered or unique key, or a place to run is started as a chain of one step: the step is
    enqueued like any other job, so these options mean the same for it.
    """
    options, usual = task.options, JobOptions()
    if any(getattr(options, word) is not None for word in _OF_FLOW_CONTROL):
        words = ("queue", "priority", "timeout", "retry", "expires")
        changes: Any = {word: value for word, value in given.items() if word in words and value is not None}
        return _convert_flow(name, chain(Call(task.using(**changes), payload)))
    _refuse_options_of_one_job(name, task)
    found: Definition = {"type": task.type, "payload": orjson.loads(payload)}
    found["version"] = None if task.version == 1 else task.version
    if isinstance(options.expires, datetime):
        raise invalid(name, f"{task.type} expires at a time", "Give a duration, which counts from each slot.")
    for word in ("queue", "priority", "timeout", "expires"):
        if word not in given:
            value = getattr(options, word)
            found[word] = None if value == getattr(usual, word) else _to_json(word, value)
    if "retry" not in given:
        found |= _convert_retry(options.retry if options.retry != usual.retry else None)
    return found


def _convert_retry(given: int | Retry | None) -> Definition:
    retry = None if given is None else as_retry(given)
    return {
        "max_attempts": None if retry is None else retry.max_attempts,
        "retry": None if retry is None else retry.policy(),
    }


def _to_json(word: str, value: Any) -> Any:
    """Converts an option for JSON: durations to seconds, instants to text with their offset."""
    if value is not None and SCHEDULE_OPTIONS[word].kind == "duration":
        return seconds(value)
    match value:
        case datetime():
            return value.isoformat()
        case Mapping():
            return dict(value)
        case list() | tuple():
            return list(value)
        case set() | frozenset():
            return sorted(value)  # in one order, so that every process computes the same hash
    return value
