"""What a schedule says: its options as a program gives them, and the object that SQL takes.

Only what was said is in that object. The database has the defaults, and the hash of a declaration covers what the code
says and nothing else: a new Watchbill with a new option makes no declaration look changed.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Mapping, Sequence
from datetime import datetime, timedelta
from typing import Any, TypedDict, cast

import orjson

from watchbill.app.flows import Flow
from watchbill.app.rule_checks import check_known, check_name, check_storable, check_values, wrong
from watchbill.app.task import Call, Options, Seconds, Task
from watchbill.cron.compiler import Policy
from watchbill.model.retry import Retry, seconds
from watchbill.model.schedule import FLOW, Missed, Overlap, ScheduleRecord

Definition = dict[str, Any]
FindTask = Callable[[str], Task[..., Any] | None]


class Timing(TypedDict, total=False):
    """When, and how its jobs are made: what every way to write a schedule takes by name. Durations are seconds."""

    every: Seconds | None
    at: datetime | None
    tz: str
    dst: Policy
    arguments: Mapping[str, Any]
    queue: str
    priority: int
    retry: Retry | None
    timeout: Seconds | None
    missed: Missed
    catch_up: int | None
    overlap: Overlap
    grace: Seconds | None
    jitter: Seconds
    start: datetime | None
    end: datetime | None
    max_runs: int | None
    deadline: Seconds | None
    run_on_start: bool
    enabled: bool
    description: str | None
    category: str | None
    tags: Sequence[str]
    context: Mapping[str, Any] | None


class Rule(Timing, total=False):
    """With what to run: a task, a chain, a SQL command, or nothing (`task=None`): then each slot is only an event."""

    task: Task[..., Any] | Call[Any] | Flow[Any] | str | None
    command: str | None
    role: str | None
    created_by: str


class Changes(Rule, total=False):
    """What `update` may change; None puts an option's default back."""

    pattern: str | None


_KNOWN = (*Timing.__annotations__, "task", "command", "role", "created_by", "pattern")
_WHEN = ("pattern", "every", "at")
_APART = ("task", "arguments", "retry")
_WITHIN_A_FLOW = ("delay", "depends_on", "run_if")
_OF_ONE_JOB = (
    "run_at", "tenant", "idempotency_key", "idempotency_window", "strict", "connection", "id", *_WITHIN_A_FLOW
)  # fmt: skip


def define(name: str, pattern: str | None, rule: Rule, find: FindTask, tenant: str = "default") -> Definition:
    """The whole of a new schedule."""
    check_name(name)
    given = cast("Changes", dict(rule))
    if pattern is not None:
        given["pattern"] = pattern
    check_known(name, given, _KNOWN)
    _refuse_several(name, given)
    if ("task" in given) == ("command" in given):
        hint = "Give task=... or command='SELECT ...'; task=None makes it an event and nothing else."
        raise wrong(name, "it needs a task or a command, one of the two", hint)
    found = _plain(name, given) | _of_task(name, given, find)
    found["tenant"] = None if tenant == "default" else tenant
    check_storable(name, found)
    return {"name": name, **{word: value for word, value in found.items() if value is not None}}


def redefine(name: str, changes: Changes, find: FindTask) -> Definition:
    """What is to be changed in a schedule. A task brings its options along, so far as no others are given.

    What excludes each other is exchanged: a new pattern takes the place of an interval, a command that of a task.
    """
    check_known(name, changes, _KNOWN)
    _refuse_several(name, changes)
    definition: Definition = {}
    if any(changes.get(word) is not None for word in _WHEN):
        definition |= dict.fromkeys(_WHEN)
    if changes.get("task") is not None:
        definition |= dict.fromkeys(("command", "role"))
    elif changes.get("command") is not None:
        definition |= dict.fromkeys(("type", "payload"))
    definition |= _plain(name, changes)
    if "task" in changes:
        definition |= _of_task(name, changes, find)
    check_storable(name, definition)
    return definition


def payload_of(found: ScheduleRecord, find: FindTask, arguments: Mapping[str, Any]) -> Definition:
    """Other arguments for a schedule whose task stays; one that is not known here is not asked whether they fit."""
    if found.type is None:
        raise wrong(found.name, "it runs no task, so it takes no arguments")
    if found.type == FLOW:
        raise wrong(found.name, "it starts a chain, whose steps have theirs", "Give it another: task=chain(...).")
    task = find(found.type)
    return dict(arguments) if task is None else orjson.loads(task.check(dict(arguments)))


def fingerprint(definition: Definition) -> str:
    """The same text for the same rule, in every process and every release."""
    return hashlib.sha256(orjson.dumps(definition, option=orjson.OPT_SORT_KEYS)).hexdigest()[:32]


def _refuse_several(name: str, given: Changes) -> None:
    times = [word for word in _WHEN if given.get(word) is not None]
    if len(times) > 1:
        raise wrong(name, f"{' and '.join(times)} cannot go together", "Give one of them, or none: on demand.")
    if given.get("task") is not None and given.get("command") is not None:
        raise wrong(name, "a task and a command cannot go together", "Make two schedules of it.")


def _plain(name: str, given: Changes) -> Definition:
    check_values(name, given)
    found = {word: _stored(value) for word, value in given.items() if word not in _APART}
    return found | _of_retry(given["retry"]) if "retry" in given else found


def _of_task(name: str, given: Changes, find: FindTask) -> Definition:
    task, arguments = given.get("task"), dict(given.get("arguments") or {})
    if task is None:
        if arguments:
            raise wrong(name, "there is no task to take arguments", "Write the values into the command.")
        return {"type": None, "payload": None} if "task" in given else {}
    if isinstance(task, Call | Flow):
        if arguments:
            raise wrong(name, "bind(...) has arguments already", "Leave out arguments=.")
        return _of_flow(name, task) if isinstance(task, Flow) else _of_known_task(name, task.task, task.payload, given)
    if not isinstance(task, Task | str):
        hint = "Give a task (what @app.task made of a function), task.bind(...), chain(...), or the type of a task."
        raise wrong(name, f"task={task!r} is none", hint)
    known = task if isinstance(task, Task) else find(task)
    if known is None:  # not ours; the database says whether any node knows it
        return {"type": task, "payload": arguments}
    return _of_known_task(name, known, known.check(arguments), given)


def _of_flow(name: str, flow: Flow[Any]) -> Definition:
    """A job that starts the others. Each of them has the options of its own task."""
    for call in flow.calls:
        _refuse_of_one_job(name, call.task, but=_WITHIN_A_FLOW)
    ends = [place for place, call in enumerate(flow.calls) if any(call is end for end in flow.ends)]
    return {"type": FLOW, "payload": {"jobs": flow.definition(), "ends": ends}}


def _refuse_of_one_job(name: str, task: Task[..., Any], but: tuple[str, ...] = ()) -> None:
    usual = Options()
    for word in _OF_ONE_JOB:
        if word not in but and getattr(task.options, word) != getattr(usual, word):
            hint = "The tenant is an option of the schedule." if word == "tenant" else "Leave it out of using(...)."
            raise wrong(name, f"{word} is said of {task.type}, and means nothing for a schedule", hint)


def _of_known_task(name: str, task: Task[..., Any], payload: bytes, given: Changes) -> Definition:
    """Type, payload, and the options that the task was made with; None where they are the usual ones."""
    options, usual = task.options, Options()
    _refuse_of_one_job(name, task)
    found: Definition = {"type": task.type, "payload": orjson.loads(payload)}
    found["version"] = None if task.version == 1 else task.version
    for word in ("queue", "priority", "timeout"):
        if word not in given:
            value = getattr(options, word)
            found[word] = None if value == getattr(usual, word) else _stored(value)
    if "retry" not in given:
        found |= _of_retry(options.retry if options.retry != usual.retry else None)
    return found


def _of_retry(retry: Retry | None) -> Definition:
    return {
        "max_attempts": None if retry is None else retry.max_attempts,
        "retry": None if retry is None else retry.policy(),
    }


def _stored(value: Any) -> Any:
    """As JSON has it: durations in seconds, instants with their offset."""
    match value:
        case datetime():
            return value.isoformat()
        case timedelta():
            return seconds(value)
        case Mapping():
            return dict(value)
        case list() | tuple():
            return list(value)
        case set() | frozenset():
            return sorted(value)  # in one order, or each process would have another hash
    return value
