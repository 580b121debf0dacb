"""The types of values in requests and answers: what they accept, and how JSON writes them.

Instants are RFC 3339 in UTC, durations are seconds. `seq`, `fence` and `epoch` have 64 bits, so they are strings:
JavaScript keeps 53. The models of answers are made from the records that the operations of `client/` return.
"""

from __future__ import annotations

import re
import types
from datetime import UTC, datetime, timedelta
from functools import reduce
from operator import or_
from typing import Annotated, Any, Literal, Union, get_args, get_origin, get_type_hints

from pydantic import (
    AfterValidator,
    AwareDatetime,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    PlainSerializer,
    WithJsonSchema,
    create_model,
)

WIDE_NAMES = frozenset({"seq", "fence", "epoch"})
MOST_SECONDS = 315_360_000.0  # ten years
MOST_ITEMS = 200  # of one page
_DIGITS = re.compile(r"-?[0-9]{1,19}")
_INSTANT = re.compile(r"\d{4}-\d\d-\d\d[Tt]\d\d:\d\d:\d\d(\.\d+)?([Zz]|[+-]\d\d:\d\d)")


def _read_wide(given: object) -> object:
    if isinstance(given, str) and _DIGITS.fullmatch(given):
        given = int(given)
    elif not isinstance(given, int) or isinstance(given, bool):
        raise ValueError('write the number as a string, such as "42"')
    if not -(2**63) <= given < 2**63:
        raise ValueError("it has more than 64 bits")
    return given


def _read_instant(given: object) -> object:
    if not isinstance(given, str):
        return given
    if not _INSTANT.fullmatch(given):
        raise ValueError("write a time with its offset, such as 2030-01-01T09:00:00Z")
    return datetime.fromisoformat(given.upper())


def _check_instant(given: datetime) -> datetime:
    try:
        return given.astimezone(UTC)
    except OverflowError:
        raise ValueError("the years are 1 to 9999") from None


def _write_instant(given: datetime) -> str:
    return given.astimezone(UTC).isoformat().replace("+00:00", "Z")


def _check_text(given: str) -> str:
    if "\0" in given:
        raise ValueError("PostgreSQL's texts have no NUL character")
    return given


def _read_flag(given: object) -> object:
    if isinstance(given, str) and given not in ("true", "false"):
        raise ValueError("write true or false")
    return given


def _read_number(given: object) -> object:
    if isinstance(given, str) and not _DIGITS.fullmatch(given):
        raise ValueError("write a whole number")
    return given


Wide = Annotated[
    int,
    BeforeValidator(_read_wide),
    PlainSerializer(str, return_type=str, when_used="json"),
    WithJsonSchema({"type": "string", "pattern": "^-?[0-9]{1,19}$"}),
]
Instant = Annotated[
    AwareDatetime,
    BeforeValidator(_read_instant),
    AfterValidator(_check_instant),
    PlainSerializer(_write_instant, return_type=str, when_used="json"),
    WithJsonSchema({"type": "string", "format": "date-time"}),
]
Seconds = Annotated[float, Field(ge=0, le=MOST_SECONDS, allow_inf_nan=False)]
Elapsed = Annotated[
    timedelta,
    PlainSerializer(lambda given: given.total_seconds(), return_type=float, when_used="json"),
    WithJsonSchema({"type": "number"}),
]
_NO_NUL = {"pattern": "^[^\\u0000]*$"}
Text = Annotated[str, AfterValidator(_check_text), Field(max_length=10_000, json_schema_extra=_NO_NUL)]
Name = Annotated[str, AfterValidator(_check_text), Field(min_length=1, max_length=200, json_schema_extra=_NO_NUL)]
Flag = Annotated[bool, BeforeValidator(_read_flag)]  # in a query
Number = Annotated[int, BeforeValidator(_read_number)]  # in a query
Limit = Annotated[Number, Field(ge=1, le=MOST_ITEMS, description="How many items, at most.")]


class Body(BaseModel):
    """What a request sends. Unknown names are refused, because they are probably misspelt."""

    model_config = ConfigDict(extra="forbid", strict=True)


class Empty(Body):
    """Nothing: an empty object, or no body."""


class Query(BaseModel):
    model_config = ConfigDict(extra="forbid")


class Answer(BaseModel):
    model_config = ConfigDict(from_attributes=True)


class ProblemAnswer(Answer):
    """What went wrong, as RFC 9457 says it."""

    type: str
    title: str
    status: int
    detail: str
    hint: str | None = None
    code: str | None = Field(None, description="The SQLSTATE of Watchbill, such as WB008.")
    errors: list[dict[str, Any]] | None = Field(None, description="Places in the request: pointer and detail.")


class Done(Answer):
    """Whether the request has changed anything."""

    changed: bool


def read_number(given: str) -> int | None:
    """A number in a path, of those that the database can have; None for anything else."""
    return int(given) if _DIGITS.fullmatch(given) and 0 <= int(given) < 2**63 else None


def describe(record: type, name: str, *, leave_out: tuple[str, ...] = (), **fields: Any) -> type[Answer]:
    """The model of an answer that shows a record: its fields without those to leave out, and with `fields` in place of
    or beside its own."""
    hints = {**get_type_hints(record), **fields}
    chosen: dict[str, Any] = {
        field: (hint if field in fields else _adapt(hint, is_wide=field in WIDE_NAMES), ...)
        for field, hint in hints.items()
        if field not in leave_out
    }
    return create_model(name, __base__=Answer, __doc__=record.__doc__, **chosen)


def shape(name: str, about: str, **fields: Any) -> type[Answer]:
    """The model of an answer that is put together from other models."""
    chosen: dict[str, Any] = {field: (hint, ...) for field, hint in fields.items()}
    return create_model(name, __base__=Answer, __doc__=about, **chosen)


def list_of(item: Any, name: str, about: str = "", **fields: Any) -> type[Answer]:
    return shape(name, about, items=list[item], **fields)


def _adapt(hint: Any, *, is_wide: bool = False) -> Any:
    """The type as the API shows it."""
    if get_origin(hint) in (Union, types.UnionType):
        return reduce(or_, [_adapt(each, is_wide=is_wide) for each in get_args(hint)])
    if get_origin(hint) is list:
        return list[_adapt(get_args(hint)[0])]  # type: ignore[misc]
    if get_origin(hint) is Literal:
        return str  # the database may know more words than this version
    if hint is int and is_wide:
        return Wide
    return {datetime: Instant, timedelta: Elapsed}.get(hint, hint)
