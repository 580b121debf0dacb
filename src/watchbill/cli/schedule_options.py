"""Makes the options of `watchbill schedules add` and `update` from the catalogue of fields, and converts their values.

Durations and instants are options of type text, so that the value `none` can remove them.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from typing import Annotated, Any, Literal, TypeVar

import typer

from watchbill.cli.cron import read_instant
from watchbill.cli.jobs import read_json_object
from watchbill.model.schedule_fields import SCHEDULE_FIELDS, ScheduleField

Command = TypeVar("Command", bound=Callable[..., None])

_FIELDS = {
    (field.flag or "").lstrip("-").replace("-", "_") if field.kind == "retry" else field.name: field
    for field in SCHEDULE_FIELDS
    if field.help
}  # by the name of the command's parameter
_TYPES: dict[str, Any] = {"integer": int, "count": int, "retry": int, "flag": bool, "texts": list[str]}
_METAVARS = {"duration": "DURATION", "instant": "INSTANT", "object": "JSON"}


def takes_schedule_options(*omitted: str) -> Callable[[Command], Command]:
    """Replaces the `**options` of a command by an option for each field of the catalogue."""

    def decorate(command: Command) -> Command:
        signature = inspect.signature(command, eval_str=True)
        own = [each for each in signature.parameters.values() if each.kind is not each.VAR_KEYWORD]
        options = [_make_parameter(name, field) for name, field in _FIELDS.items() if name not in omitted]
        positional = [each for each in own if each.kind is not each.KEYWORD_ONLY]
        parameters = [*positional, *options, *own[len(positional) :]]
        command.__signature__ = signature.replace(parameters=parameters)  # type: ignore[attr-defined]
        command.__annotations__ = {each.name: each.annotation for each in parameters} | {"return": None}
        return command

    return decorate


def _make_parameter(name: str, field: ScheduleField) -> inspect.Parameter:
    kind = Literal[field.choices] if field.choices else _TYPES.get(field.kind, str)
    option = typer.Option(
        *([field.flag] if field.flag else []),
        metavar=field.metavar or "|".join(field.choices or ()) or _METAVARS.get(field.kind),
        min=1 if field.kind in ("count", "retry") else None,
        help=field.help,
    )
    return inspect.Parameter(
        name, inspect.Parameter.KEYWORD_ONLY, default=None, annotation=Annotated[kind | None, option]
    )


def read_rule(params: Mapping[str, Any], tz: str) -> dict[str, Any]:
    """Returns the given options, with the names and values that `app.schedules.add` takes."""
    rule: dict[str, Any] = {}
    for name, value in params.items():
        field = _FIELDS.get(name)
        if field is not None and value is not None and value != []:
            rule[field.name] = None if value in ("none", ["none"]) else _convert_value(field, value, tz)
    return rule


def _convert_value(field: ScheduleField, value: Any, tz: str) -> Any:
    match field.kind:
        case "instant":
            return read_instant(value, tz)
        case "object":
            return read_json_object(value, field.name)
        case "retry":
            from watchbill.model.retry import Retry

            return Retry(max_attempts=value)
    return value
