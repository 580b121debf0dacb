"""Results of calls as arguments of others: `ship.bind(receipt=pay.result)`, `total.bind(parts=group_of_jobs.results)`.

A call that takes such an argument waits for the calls that give it. Its payload is stored without the argument; the
database writes it when the job no longer waits.
"""

from __future__ import annotations

import collections.abc
import dataclasses
import datetime as dt
import decimal
import inspect
import types
import uuid
from collections.abc import Iterator, Mapping, Sequence
from typing import Annotated, Any, Literal, NamedTuple, Protocol, Union, get_args, get_origin, is_typeddict

from watchbill.app.job_options import JobOptions
from watchbill.app.payload import InvalidPayload
from watchbill.model.job import NewJob

_TEXT_OR_NUMBER = frozenset(("text", "number"))
_KINDS: dict[Any, frozenset[str]] = {
    str: frozenset(("text",)),
    bytes: frozenset(("text",)),
    uuid.UUID: frozenset(("text",)),
    bool: frozenset(("boolean",)),
    int: frozenset(("number",)),
    float: frozenset(("number",)),
    type(None): frozenset(("null",)),
    None: frozenset(("null",)),
    # JSON has no such values: pydantic reads them from texts and from numbers.
    decimal.Decimal: _TEXT_OR_NUMBER,
    dt.datetime: _TEXT_OR_NUMBER,
    dt.date: _TEXT_OR_NUMBER,
    dt.time: _TEXT_OR_NUMBER,
    dt.timedelta: _TEXT_OR_NUMBER,
}
_ARRAYS = (list, tuple, set, frozenset, collections.abc.Sequence, collections.abc.Iterable, collections.abc.Collection)
_OBJECTS = (dict, collections.abc.Mapping, collections.abc.MutableMapping)


class BindingTask(Protocol):
    """A Task: all that is asked of it here."""

    type: str
    options: JobOptions

    def find_hint(self, name: str) -> Any: ...
    @property
    def result_free_parameters(self) -> frozenset[str] | None: ...


class GivingCall(Protocol):
    """A Call, whose result another one takes."""

    @property
    def task(self) -> BindingTask: ...
    def new_job(self) -> NewJob: ...


class BoundResult:
    """Stands for the result of a call that has not run, or for a list of such results. Type checkers take it for the
    result itself."""

    __slots__ = ("calls", "is_list")

    def __init__(self, calls: tuple[GivingCall, ...], *, is_list: bool) -> None:
        self.calls, self.is_list = calls, is_list

    def __repr__(self) -> str:
        what = " and ".join(call.task.type for call in self.calls)
        return f"<result of {what}, for an argument of bind()>"


class Binding(NamedTuple):
    """That a parameter of a call takes results."""

    parameter: str
    source: BoundResult


def find_bindings(arguments: Mapping[str, Any]) -> tuple[Binding, ...]:
    """Those of the arguments that are results; a list of results may be written out."""
    return tuple(
        Binding(name, source) for name, value in arguments.items() if (source := _read_source(value)) is not None
    )


def _read_source(value: Any) -> BoundResult | None:
    if isinstance(value, BoundResult):
        return value
    if isinstance(value, list) and value and all(isinstance(each, BoundResult) for each in value):
        return BoundResult(tuple(call for each in value for call in each.calls), is_list=True)
    return None


def check_bindings(task: BindingTask, bindings: Sequence[Binding]) -> None:
    """Raises if a result cannot be what its parameter is annotated as, or if a key is made of such a parameter."""
    named = task.result_free_parameters
    takes_null = task.options.run_if in ("all_finished", "any_failed")
    for name, source in bindings:
        if named is None or name in named:
            raise InvalidPayload(
                f"{task.type}: {name} cannot be the result of another job, because a key of the job is made of it.",
                hint="limits, ordered_by, route_by, unique and fair_by need their values when the job is enqueued.",
            )
        for hint, wanted in _pair_types(task.find_hint(name), source):
            kinds, allowed = _find_kinds(hint), _find_kinds(wanted)
            if kinds is not None and allowed is not None and not kinds & allowed:
                raise InvalidPayload(
                    f"{task.type}: {name} is annotated as {_show(wanted)}, and gets the result of "
                    f"{source.calls[0].task.type}, which is {_show(hint)}."
                )
            if takes_null and allowed is not None and "null" not in allowed:
                raise InvalidPayload(
                    f"{task.type}: {name} is annotated as {_show(wanted)}, and gets None if "
                    f"{source.calls[0].task.type} does not succeed.",
                    hint=f"Annotate it so that None fits, such as {_show(wanted)} | None.",
                )


def _pair_types(wanted: Any, source: BoundResult) -> Iterator[tuple[Any, Any]]:
    """Each type that a result has, and the one that it needs."""
    if not source.is_list:
        yield source.calls[0].task.find_hint("return"), wanted
        return
    kinds = _find_kinds(wanted)
    if kinds is not None and "array" not in kinds:
        yield list, wanted
    items = [item for each in _list_alternatives(wanted) if _is_array(each) for item in get_args(each)[:1]]
    for call in source.calls:
        yield call.task.find_hint("return"), items[0] if len(items) == 1 else Any


def _list_alternatives(hint: Any) -> tuple[Any, ...]:
    if get_origin(hint) is Annotated:
        return _list_alternatives(get_args(hint)[0])
    return get_args(hint) if get_origin(hint) in (Union, types.UnionType) else (hint,)


def _is_array(hint: Any) -> bool:
    return (get_origin(hint) or hint) in _ARRAYS


def _find_kinds(hint: Any) -> frozenset[str] | None:
    """What values of a type can be in JSON; None if that is not known."""
    alternatives = _list_alternatives(hint)
    if alternatives != (hint,):
        kinds = [_find_kinds(each) for each in alternatives]
        known = [each for each in kinds if each is not None]
        return frozenset().union(*known) if len(known) == len(kinds) else None
    if get_origin(hint) is Literal:
        return frozenset().union(*(_KINDS.get(type(value), frozenset(("text", "number"))) for value in get_args(hint)))
    if _is_array(hint):
        return frozenset(("array",))
    if (get_origin(hint) or hint) in _OBJECTS or is_typeddict(hint) or _is_model(hint):
        return frozenset(("object",))
    return _KINDS.get(hint) if hint is None or isinstance(hint, type) else None


def _is_model(hint: Any) -> bool:
    return isinstance(hint, type) and (dataclasses.is_dataclass(hint) or _is_plain_model(hint))


def _is_plain_model(hint: type) -> bool:
    """Whether it is a pydantic model. A RootModel may be anything."""
    bases = {base.__name__ for base in inspect.getmro(hint) if base.__module__.startswith("pydantic.")}
    return "BaseModel" in bases and "RootModel" not in bases


def _show(hint: Any) -> str:
    return inspect.formatannotation(hint)
