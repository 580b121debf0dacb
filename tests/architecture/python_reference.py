"""docs/reference/python.md, made of signatures and docstrings; `reference_tables.py` writes it."""

from __future__ import annotations

import dataclasses
import inspect
import re
from collections.abc import Callable, Iterator
from functools import cached_property
from typing import Any, NamedTuple, get_overloads

import watchbill
from watchbill.app.alerts import Alerts
from watchbill.app.groups import Group
from watchbill.app.members import Item
from watchbill.app.operations import Cluster, Jobs, Limits, Queues
from watchbill.app.registry import TASK_OPTIONS
from watchbill.app.schedules import Schedules
from watchbill.app.tenants import Tenants
from watchbill.model.job_fields import JOB_OPTIONS
from watchbill.worker.run import Run


class Section(NamedTuple):
    """A class, how its instances are called in the page, and whether users make them; `internal` is for our layers."""

    title: str
    shown: type
    called: str
    internal: frozenset[str] = frozenset()
    made: bool = False


SECTIONS = [
    Section("App", watchbill.App, "app", frozenset(
        {"alive", "ensure_usable", "given", "handlers", "make_node", "queue_names", "use"}), made=True),
    Section("Jobs", Jobs, "app.jobs"),
    Section("Queues", Queues, "app.queues"),
    Section("Limits", Limits, "app.limits"),
    Section("Schedules", Schedules, "app.schedules"),
    Section("Tenants", Tenants, "app.tenants"),
    Section("Alerts", Alerts, "app.alerts"),
    Section("The cluster", Cluster, "app.cluster", frozenset({"group_options"})),
    Section("Token group", Group, "group", frozenset({"coordination", "name", "options", "producer"})),
    Section("Member", watchbill.Member, "member", frozenset({"epoch", "group"})),
    Section("Item", Item, "item", frozenset({"again", "fence", "key", "scope"})),
    Section("Lock", watchbill.Lock, "lock"),
    Section("Leadership", watchbill.Leadership, "leadership"),
    Section("Task", watchbill.Task, "task", frozenset(
        {"check", "decode", "decode_result", "encode_result", "handler", "new_job", "producer"})),
    Section("Tasks", watchbill.Tasks, "tasks", frozenset({"belong_to"}), made=True),
    Section("Call", watchbill.Call, "call", frozenset({"new_job"})),
    Section("Flow", watchbill.Flow, "flow", frozenset({"after", "definition"})),
    Section("Job", watchbill.Job, "job"),
    Section("current_job()", Run, "job", frozenset({"age", "end_transaction"})),
    Section("Steps", watchbill.Steps, "steps"),
    Section("AsyncSteps", watchbill.AsyncSteps, "steps"),
    Section("Retry", watchbill.Retry, "retry", frozenset({"policy"}), made=True),
    Section("Batch", watchbill.Batch, "batch", frozenset({"wait_seconds"}), made=True),
    Section("Unique", watchbill.Unique, "unique", frozenset({"columns"}), made=True),
    Section("Debounce", watchbill.Debounce, "debounce", frozenset({"columns"}), made=True),
    Section("PayloadStore", watchbill.PayloadStore, "store"),
    Section("Client", watchbill.Client, "client", made=True),
]  # fmt: skip


def python_reference() -> str:
    parts = [_section(section) for section in SECTIONS]
    told = {section.shown for section in SECTIONS}
    others = [getattr(watchbill, name) for name in watchbill.__all__ if inspect.isclass(getattr(watchbill, name))]
    errors = [each for each in others if issubclass(each, Exception)]
    records = [each for each in others if is_record(each) and each not in told]
    rest = [each for each in others if each not in {*told, *errors, *records}]
    options = _table((f"`{field.name}`", field.meaning) for field in JOB_OPTIONS.values())
    parts.append(f"## Options of a task\n\n{_TASK_OPTIONS}" + _table((f"`{n}`", m) for n, m in TASK_OPTIONS.items()))
    parts.append(f"## Options of a job\n\n{_OPTIONS}{options}")
    parts.append("## Exceptions\n\n" + _table((f"`{e.__name__}`", _doc(e)) for e in errors))
    parts += [f"## {each.__name__}\n\n{_doc(each)}\n\n{_fields(each)}" for each in records]
    parts.append("## Connections and clients\n\n" + _table((f"`{each.__name__}`", _doc(each)) for each in rest))
    return "\n".join([_functions(), *parts])


def _functions() -> str:
    found = {name: getattr(watchbill, name) for name in watchbill.__all__}
    functions = {name: each for name, each in found.items() if inspect.isfunction(each)}
    return "## Functions\n\n" + _table((f"`{name}{_signature(each)}`", _doc(each)) for name, each in functions.items())


def is_record(cls: type) -> bool:
    return dataclasses.is_dataclass(cls)


_TASK_OPTIONS = """What `@app.task(...)` takes. Durations here and below are seconds, a timedelta, or a text such as
`"30s"`, `"5m"` or `"1h30m"`.

"""
_OPTIONS = "What `task.using(...)` and `app.enqueue(...)` take.\n\n"


def _section(section: Section) -> str:
    how = f"`{section.title}{_signature(section.shown)}`\n\n" if section.made else ""
    rows = list(_members(section))
    text = inspect.cleandoc(section.shown.__doc__ or "")
    return f"## {section.title}\n\n{how}{text}\n" + (f"\n{_table(rows)}" if rows else "")


def _members(section: Section) -> Iterator[tuple[str, str]]:
    names = [name for each in reversed(section.shown.__mro__) for name in vars(each) if _is_ours(each)]
    for name in dict.fromkeys(names):
        member = inspect.getattr_static(section.shown, name)
        if name.startswith("_") or name in section.internal or _is_twin(section.shown, name):
            continue
        if isinstance(member, property | cached_property):
            yield f"`{section.called}.{name}`", _doc(member)
        elif callable(member) or isinstance(member, classmethod | staticmethod):
            function = getattr(member, "__func__", member)
            twin = f", `a{name}`" if hasattr(section.shown, f"a{name}") else ""
            colour = "await " if inspect.iscoroutinefunction(function) else ""
            yield f"`{colour}{section.called}.{name}{_signature(function)}`{twin}", _doc(function)


def _is_ours(cls: type) -> bool:
    return cls.__module__.startswith("watchbill")


def _is_twin(cls: type, name: str) -> bool:
    """`aget` stands beside `get`."""
    member = inspect.getattr_static(cls, name)
    return name.startswith("a") and hasattr(cls, name[1:]) and (callable(member) or isinstance(member, cached_property))


def _signature(function: Callable[..., Any]) -> str:
    keywords = [each for each in get_overloads(function) if "queue" in inspect.signature(each).parameters]
    parameters = list(inspect.signature(keywords[0] if keywords else function).parameters.values())
    words, starred = [], False
    for parameter in (each for each in parameters if each.name != "self"):
        if parameter.kind is parameter.KEYWORD_ONLY and not starred:
            words.append("*")
        starred |= parameter.kind in (parameter.KEYWORD_ONLY, parameter.VAR_POSITIONAL)
        words.append(_parameter(parameter))
    return f"({', '.join(words)})"


def _parameter(parameter: inspect.Parameter) -> str:
    star = {"VAR_POSITIONAL": "*", "VAR_KEYWORD": "**"}.get(parameter.kind.name, "")
    has_default = parameter.default is not parameter.empty
    default = "" if not has_default else "=..." if len(repr(parameter.default)) > 12 else f"={parameter.default!r}"
    return f"{star}{parameter.name}{default.replace('Ellipsis', '...')}"


def _fields(cls: type) -> str:
    kinds = inspect.get_annotations(cls).items()
    return _table((f"`{name}`", f"`{_type(kind)}`".replace("|", "\\|")) for name, kind in kinds)


def _type(annotation: Any) -> str:
    return re.sub(r"ForwardRef\('(.*?)'.*?\)", r"\1", str(getattr(annotation, "__forward_arg__", annotation)))


def _doc(member: object) -> str:
    """The first paragraph, in one line."""
    text = (inspect.getdoc(member) or "").split("\n\n")[0]
    return " ".join(text.split()).replace("|", "\\|")


def _table(rows: Any) -> str:
    lines = [f"| {left} | {right} |\n" for left, right in rows]
    return "".join(["| | |\n|---|---|\n", *lines])


def undocumented() -> list[str]:
    """Rows that say nothing."""
    options = [field.name for field in JOB_OPTIONS.values() if not field.meaning]
    return options + [left for section in SECTIONS for left, right in _members(section) if not right]
