"""What a schedule says: its options as a program gives them, and the object that SQL takes.

Only what was said is in that object. The database has the defaults, and the hash of a declaration covers what the code
says and nothing else: a new Foliot with a new option makes no declaration look changed.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Mapping, Sequence
from datetime import datetime, timedelta
from typing import Any, TypedDict, cast

import orjson

from foliot.app.rule_checks import check_known, check_name, check_values, wrong
from foliot.app.task import Call, Options, Seconds, Task
from foliot.cron.compiler import Policy
from foliot.model.retry import Retry, seconds
from foliot.model.schedule import Missed, Overlap

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
    retry: Retry
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
    """With what to run: a task, or a SQL command."""

    task: Task[..., Any] | Call[Any] | str
    command: str
    role: str | None


class Changes(Rule, total=False):
    """What `update` may change; None takes an option away."""

    pattern: str | None


_KNOWN = (*Timing.__annotations__, "task", "command", "role", "pattern")


def define(name: str, pattern: str | None, rule: Rule, find: FindTask) -> Definition:
    """The whole of a new schedule."""
    check_name(name)
    given = cast("Changes", dict(rule))
    if pattern is not None:
        given["pattern"] = pattern
    times = [word for word in ("pattern", "every", "at") if given.get(word) is not None]
    if len(times) > 1:
        raise wrong(name, f"{' and '.join(times)} cannot go together", "Give one of them, or none: on demand.")
    if ("task" in given) == ("command" in given):
        raise wrong(name, "it needs a task or a command, one of the two", "Give task=... or command='SELECT ...'.")
    return {"name": name, **redefine(name, given, find)}


def redefine(name: str, changes: Changes, find: FindTask) -> Definition:
    """Of what is to be changed in a schedule, the same."""
    check_known(name, changes, _KNOWN)
    check_values(name, changes)
    apart = ("task", "arguments", "retry")
    definition = {word: _stored(value) for word, value in changes.items() if word not in apart}
    if "retry" in changes:
        definition |= _of_retry(changes["retry"])
    return definition | _of_task(name, changes, find)


def fingerprint(definition: Definition) -> str:
    """The same text for the same rule, in every process and every release."""
    return hashlib.sha256(orjson.dumps(definition, option=orjson.OPT_SORT_KEYS)).hexdigest()[:32]


def _of_task(name: str, changes: Changes, find: FindTask) -> Definition:
    """Type, payload, and the options that the task was made with, so far as the schedule has none of its own."""
    given, arguments = changes.get("task"), dict(changes.get("arguments", {}))
    if given is None:
        if arguments:
            raise wrong(name, "a command takes no arguments", "Write the values into the command.")
        return {}
    if isinstance(given, Call):
        if arguments:
            raise wrong(name, "bind(...) has arguments already", "Leave out arguments=.")
        return _of_known_task(given.task, given.payload, changes)
    task = given if isinstance(given, Task) else find(given)
    if task is None:  # not ours; the database says whether any node knows it
        return {"type": given, "payload": arguments}
    return _of_known_task(task, task.check(arguments), changes)


def _of_known_task(task: Task[..., Any], payload: bytes, changes: Changes) -> Definition:
    options, usual = task.options, Options()
    found: Definition = {"type": task.type, "payload": orjson.loads(payload)}
    if task.version != 1:
        found["version"] = task.version
    for word in ("queue", "priority", "timeout"):
        if word not in changes and (value := getattr(options, word)) != getattr(usual, word):
            found[word] = _stored(value)
    return found if "retry" in changes or options.retry == usual.retry else found | _of_retry(options.retry)


def _of_retry(retry: Retry) -> Definition:
    return {"max_attempts": retry.max_attempts, "retry": retry.policy()}


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
