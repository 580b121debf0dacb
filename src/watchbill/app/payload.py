"""A task's signature and the JSON object that carries its arguments.

The payload has one key per parameter. It is validated against the annotations when it is enqueued and again when it is
run; what JSON and PostgreSQL cannot hold is refused at enqueue, with the path to the value.
"""

from __future__ import annotations

import inspect
import math
import re
from collections.abc import Callable, Iterator
from functools import cached_property
from typing import Any, NotRequired, Required, get_type_hints

from watchbill.app.survival import lost, nothing_is_lost
from watchbill.errors import WatchbillError
from watchbill.worker.handlers import BadPayload

_SUSPECT = re.compile(rb"NaN|Infinity|\\u0000|\d{19}")
_LIMITS = (-(2**63), 2**63 - 1)


class InvalidPayload(WatchbillError):
    """The arguments do not fit the task, or cannot be stored."""

    exit_code = 2


class InvalidResult(WatchbillError):
    """A job's result is not what its task declares."""


class Signature:
    """What a task takes and returns. Built cheaply at decoration; pydantic comes in at first use."""

    def __init__(self, function: Callable[..., Any], name: str, skip: int = 0) -> None:
        self._function, self._name = function, name
        whole = inspect.signature(function)
        parameters = list(whole.parameters.values())[skip:]
        for parameter in parameters:
            if parameter.kind in (parameter.POSITIONAL_ONLY, parameter.VAR_POSITIONAL):
                raise TypeError(
                    f"task {name}: parameter {parameter.name!r} ({parameter.kind.description}) cannot be in a payload: "
                    "that is one JSON object with a key per parameter, so every parameter needs a name"
                )
        self._signature = whole.replace(parameters=parameters)
        self._names = [p.name for p in parameters if p.kind is p.POSITIONAL_OR_KEYWORD]
        self._open = any(p.kind is p.VAR_KEYWORD for p in parameters)

    def encode(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> bytes:
        """The payload of a call."""
        if len(args) > len(self._names) or not kwargs.keys().isdisjoint(self._names[: len(args)]) or self._open:
            return self._to_json(self._validated(self._bound(args, kwargs)))
        return self._to_json(self._validated(dict(zip(self._names, args, strict=False)) | kwargs))

    def _bound(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> dict[str, Any]:
        """As Python itself would bind them; `encode` has a short cut for the calls that need no such care."""
        try:
            arguments = self._signature.bind(*args, **kwargs).arguments
        except TypeError as error:
            raise InvalidPayload(f"{self._name}: {error}.", hint=f"It takes {self._signature}.") from None
        for parameter in self._signature.parameters.values():
            if parameter.kind is parameter.VAR_KEYWORD:
                arguments.update(arguments.pop(parameter.name, {}))
        return arguments

    def check(self, payload: dict[str, Any]) -> bytes:
        """The payload of a call whose arguments are JSON already."""
        if not payload and all(p.default is not p.empty for p in self._signature.parameters.values()):
            return b"{}"  # nothing to validate, so pydantic may stay away
        return self._to_json(self._validated(payload))

    def decode(self, payload: bytes) -> dict[str, Any]:
        """Keyword arguments for the handler."""
        try:
            arguments: dict[str, Any] = self._adapter.validate_json(payload)
        except ValueError as error:
            raise BadPayload(f"{self._name}: the payload does not fit: {_explain(error)}") from None
        return arguments

    def encode_result(self, value: Any) -> bytes:
        raw: bytes = self._result_adapter.dump_json(value)
        if _SUSPECT.search(raw):
            _refuse_unstorable(self._result_adapter.dump_python(value, mode="json"), "result", self._name)
        return raw

    def decode_result(self, value: Any) -> Any:
        try:
            return self._result_adapter.validate_python(value)
        except ValueError as error:
            hint = f"It is declared as {self._signature}; what the worker's code returned was stored as it is."
            raise InvalidResult(
                f"{self._name}: the result does not fit: {_explain(error, 'result')}.", hint=hint
            ) from None

    def _validated(self, arguments: dict[str, Any]) -> dict[str, Any]:
        try:
            valid: dict[str, Any] = self._adapter.validator.validate_python(
                arguments
            )  # without the adapter's own layer: a third
        except ValueError as error:
            raise InvalidPayload(f"{self._name}: {_explain(error)}.", hint=f"It takes {self._signature}.") from None
        return valid

    def _to_json(self, arguments: dict[str, Any]) -> bytes:
        try:
            raw: bytes = self._adapter.serializer.to_json(arguments)
        except (ValueError, RecursionError) as error:
            raise InvalidPayload(
                f"{self._name}: {_which(arguments, self._adapter)} cannot be stored as JSON: {error}."
            ) from None
        if _SUSPECT.search(raw):
            _refuse_unstorable(self._adapter.dump_python(arguments, mode="json"), "", self._name)
        if not self._is_safe:
            self._refuse_lost(arguments, raw)
        return raw

    def _refuse_lost(self, arguments: dict[str, Any], raw: bytes) -> None:
        try:
            back = self._adapter.validator.validate_json(raw)
        except ValueError as error:
            raise InvalidPayload(f"{self._name}: what arrives would not fit: {_explain(error)}.") from None
        for where, what in lost(arguments, back, ""):
            raise InvalidPayload(
                f"{self._name}: {where} does not survive the way to the worker: {what}.",
                hint=f"Annotate it with its type, or send something else. It takes {self._signature}.",
            )

    @cached_property
    def _is_safe(self) -> bool:
        return nothing_is_lost(self._adapter.core_schema)

    @cached_property
    def _hints(self) -> dict[str, Any]:
        return get_type_hints(self._function, include_extras=True)

    @cached_property
    def _adapter(self) -> Any:
        from pydantic import ConfigDict, TypeAdapter
        from typing_extensions import TypedDict

        named = {p.name: p for p in self._signature.parameters.values() if p.kind is not p.VAR_KEYWORD}
        shape = {
            name: (Required if p.default is p.empty else NotRequired)[self._hints.get(name, Any)]
            for name, p in named.items()
        }
        make: Any = TypedDict  # type checkers know it as a special form only
        model = make("Payload", shape)
        extra = "allow" if len(named) < len(self._signature.parameters) else "forbid"
        model.__pydantic_config__ = ConfigDict(extra=extra, ser_json_inf_nan="constants", title=self._name)  # type: ignore[typeddict-item]
        return TypeAdapter(model)

    @cached_property
    def _result_adapter(self) -> Any:
        from pydantic import ConfigDict, TypeAdapter

        hint = self._hints.get("return", Any)
        try:
            return TypeAdapter(hint, config=ConfigDict(ser_json_inf_nan="constants"))
        except Exception:  # noqa: BLE001  (types with a configuration of their own refuse a second one)
            return TypeAdapter(hint)


def encode_unknown(type: str, payload: dict[str, Any]) -> bytes:
    """The payload of a job whose task is not known here: nothing says what it takes, but it must survive."""
    import orjson

    _refuse_unstorable(payload, "", type)
    try:
        return orjson.dumps(payload)
    except TypeError as error:
        raise InvalidPayload(f"{type}: the payload cannot be stored as JSON: {error}.") from None


def _explain(error: ValueError, whole: str = "payload") -> str:
    """pydantic's finding in one line: where, what, and the value."""
    from pydantic import ValidationError

    if not isinstance(error, ValidationError):
        return str(error)
    found = error.errors(include_url=False)
    lines = [_said(".".join(map(str, each["loc"])) or whole, each) for each in found[:3]]
    return "; ".join(lines) + ("" if len(found) <= 3 else f"; and {len(found) - 3} more")


def _said(where: str, error: Any) -> str:
    if error["type"] == "missing":
        return f"{where} is missing"
    if error["type"] == "extra_forbidden":
        return f"{where} is unknown"
    said = error["msg"]
    return f"{where}: {said[:1].lower()}{said[1:]}, not {_short(error['input'])}"


def _short(value: object) -> str:
    try:
        text = repr(value)
    except RecursionError:
        text = f"a {type(value).__name__} too deep to be shown"
    return text if len(text) <= 80 else f"{text[:77]}..."


def _which(arguments: dict[str, Any], adapter: Any) -> str:
    """The argument that does not survive."""
    for name, value in arguments.items():
        try:
            adapter.dump_json({name: value})
        except (ValueError, RecursionError):
            return f"{name}={_short(value)}"
    return "the payload"


def _refuse_unstorable(value: Any, path: str, task: str) -> None:
    for where, what in unstorable(value, path):
        raise InvalidPayload(f"{task}: {where} cannot be stored: {what}.")


def unstorable(value: Any, path: str) -> Iterator[tuple[str, str]]:
    match value:
        case dict():
            for key, each in value.items():
                if "\0" in str(key):
                    yield f"{path}.{key!r}".lstrip("."), "a NUL character in a key"
                yield from unstorable(each, f"{path}.{key}".lstrip("."))
        case list() | tuple():
            for index, each in enumerate(value):
                yield from unstorable(each, f"{path}[{index}]")
        case float() if not math.isfinite(value):
            yield path, f"JSON has no {value}"
        case bool():
            return
        case int() if not _LIMITS[0] <= value <= _LIMITS[1]:
            yield path, f"{_short(value)} needs more than 64 bits; send it as text"
        case str() if "\0" in value:
            yield path, "PostgreSQL's JSON has no NUL character"
        case str() if any("\ud800" <= letter <= "\udfff" for letter in value):
            yield path, "half of a surrogate pair is no character"
