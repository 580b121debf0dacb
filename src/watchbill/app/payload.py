"""A task's signature and the JSON object that carries its arguments.

The payload has one key per parameter. It is validated against the annotations when it is enqueued and again when it is
run. A value that JSON or PostgreSQL cannot store is refused at enqueue, with the path to it.
"""

from __future__ import annotations

import collections.abc
import copy
import inspect
import re
from collections.abc import Callable, Collection
from datetime import date, datetime, time, timedelta
from decimal import Decimal
from functools import cached_property
from types import NoneType, UnionType
from typing import Any, Literal, Never, NoReturn, NotRequired, Required, Union, get_args, get_origin, get_type_hints
from uuid import UUID

from watchbill.app.json_round_trip import find_lost, find_unstorable, is_restored_exactly, shorten
from watchbill.errors import WatchbillError
from watchbill.worker.handlers import BadPayload

_find_suspect_text = re.compile(rb"NaN|Infinity|\\u0000|\d{19}").search  # what JSON or PostgreSQL may not store
_SUSPECT_WORDS = (b"NaN", b"Infinity", b"\\u0000")
_DIGITS_TO_ZEROS = bytes.maketrans(b"123456789", b"000000000")
_LARGE_BYTES = 1_000_000

_PLAIN_TYPES = {
    str, int, float, bool, NoneType, UUID, Decimal, datetime, date, time, timedelta, object, list, dict, set, tuple,
}  # fmt: skip
_PLAIN_CONTAINERS = {list, dict, set, frozenset, tuple, Union, UnionType}


def _is_suspect(raw: bytes) -> bool:
    """Whether this JSON may have a value that cannot be stored. A large one is searched in other ways than with the
    pattern, which would take a second for 100 MB and keep all other threads waiting, the heartbeat's among them."""
    if len(raw) < _LARGE_BYTES:
        return _find_suspect_text(raw) is not None
    return any(word in raw for word in _SUSPECT_WORDS) or b"0" * 19 in raw.translate(_DIGITS_TO_ZEROS)


class InvalidPayload(WatchbillError):
    """The arguments do not match the task's parameters, or cannot be stored."""

    exit_code = 2


class InvalidResult(WatchbillError):
    """A job's result is not what its task declares."""


class Signature:
    """The parameters and the return type of a task. Cheap to make; pydantic is loaded at first use."""

    def __init__(
        self, function: Callable[..., Any], name: str, skip: int = 0, dependencies: Collection[str] = ()
    ) -> None:
        """Leaves out the first `skip` parameters, and those that the worker fills."""
        self._function, self._name, self._dependencies = function, name, dependencies
        whole = inspect.signature(function)
        parameters = [each for each in list(whole.parameters.values())[skip:] if each.name not in dependencies]
        for parameter in parameters:
            if parameter.kind in (parameter.POSITIONAL_ONLY, parameter.VAR_POSITIONAL):
                raise TypeError(
                    f"task {name}: parameter {parameter.name!r} ({parameter.kind.description}) cannot be in a payload, "
                    "which is one JSON object with a key per parameter: every parameter needs a name"
                )
        self._signature = whole.replace(parameters=parameters)
        self._names = [p.name for p in parameters if p.kind is p.POSITIONAL_OR_KEYWORD]
        self.names = [p.name for p in parameters if p.kind is not p.VAR_KEYWORD]  # also the keyword-only parameters
        self.takes_any_name = any(p.kind is p.VAR_KEYWORD for p in parameters)

    def check_types(self) -> None:
        """Refuses a type that pydantic cannot validate. One that is declared further down is checked at first use."""
        try:
            hints = self._hints
        except NameError:
            return
        for name, hint in hints.items():
            if (name in self._signature.parameters or name == "return") and not _is_plain(hint):
                self._check_type(name, hint)

    def _check_type(self, name: str, hint: Any) -> None:
        from pydantic import TypeAdapter
        from pydantic.errors import PydanticUserError

        try:
            TypeAdapter(hint)
        except NameError:  # the annotation names a type that is declared further down
            return
        except PydanticUserError:
            shown = hint.__qualname__ if type(hint) is type else str(hint)
            what = f"it returns {shown}" if name == "return" else f"parameter {name!r} has the type {shown}"
            raise TypeError(
                f"task {self._name}: {what}, which cannot be turned into JSON and back; use a type that pydantic "
                "knows: text, numbers, datetimes, dataclasses, models, and lists or dictionaries of them"
            ) from None

    def encode(self, args: tuple[Any, ...], kwargs: dict[str, Any], needed: Collection[str] = ()) -> bytes:
        """Validates the arguments of a call and returns the payload. It contains the arguments in `needed` even if
        the caller leaves them out and they have defaults."""
        names = self._names
        if (
            len(args) > len(names)
            or self.takes_any_name
            or (kwargs and not kwargs.keys().isdisjoint(names[: len(args)]))
        ):
            arguments = self._bind(args, kwargs)
        else:
            arguments = dict(zip(names, args))  # noqa: B905  (saying `strict` takes half as long again)
            if kwargs:
                arguments |= kwargs
        if needed:
            arguments = self._defaults_of(needed) | arguments
        return self._encode(arguments)

    def _defaults_of(self, names: Collection[str]) -> dict[str, Any]:
        found = [self._signature.parameters[name] for name in names if name in self._signature.parameters]
        return {each.name: each.default for each in found if each.default is not each.empty}

    def name_arguments(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> dict[str, Any]:
        """The arguments of a call by their names."""
        return dict(self._bind(args, kwargs))

    def without(self, names: Collection[str]) -> Signature:
        """The same signature without some of its parameters."""
        other = copy.copy(self)
        for name in ("_adapter", "_validate", "_validate_json", "_to_json", "_is_restored_exactly"):
            other.__dict__.pop(name, None)
        kept = [each for name, each in self._signature.parameters.items() if name not in names]
        other.__dict__ |= {
            "_hints": self._hints,
            "_signature": self._signature.replace(parameters=kept),
            "_names": [name for name in self._names if name not in names],
            "names": [name for name in self.names if name not in names],
        }
        return other

    def find_hint(self, name: str) -> Any:
        return self._hints.get(name, Any)

    def _bind(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> dict[str, Any]:
        """Binds the arguments as Python does; `encode` has a faster way for most calls."""
        self._refuse_dependencies(kwargs)
        try:
            arguments = self._signature.bind(*args, **kwargs).arguments
        except TypeError as error:
            raise InvalidPayload(f"{self._name}: {error}.", hint=f"It takes {self._signature}.") from None
        for parameter in self._signature.parameters.values():
            if parameter.kind is parameter.VAR_KEYWORD:
                arguments.update(arguments.pop(parameter.name, {}))
        return arguments

    def check(self, payload: dict[str, Any], needed: Collection[str] = ()) -> bytes:
        """Validates arguments that are JSON already, and returns the payload."""
        self._refuse_dependencies(payload)
        payload = self._defaults_of(needed) | payload
        if not payload and all(p.default is not p.empty for p in self._signature.parameters.values()):
            return b"{}"  # nothing to validate, so pydantic need not be loaded
        return self._encode(payload)

    def decode(self, payload: bytes) -> dict[str, Any]:
        """Validates a payload and returns the keyword arguments for the handler."""
        try:
            return self._validate_json(payload)
        except ValueError as error:
            raise BadPayload(f"{self._name}: the payload does not match the parameters: {_explain(error)}") from None

    def describe(self) -> dict[str, Any]:
        """The JSON schema of the payload. Raises ValueError if a parameter has a type that JSON schema cannot say."""
        schema: dict[str, Any] = self._adapter.json_schema()
        return schema

    def encode_result(self, value: Any) -> bytes:
        raw: bytes = self._result_adapter.dump_json(value)
        if _is_suspect(raw):
            _refuse_unstorable(self._result_adapter.dump_python(value, mode="json"), "result", self._name)
        return raw

    def decode_result(self, value: Any) -> Any:
        try:
            return self._result_adapter.validate_python(value)
        except ValueError as error:
            hint = f"The task is declared as {self._signature}; the worker stored what its own code returned."
            raise InvalidResult(
                f"{self._name}: the result does not match the return type: {_explain(error, 'result')}.", hint=hint
            ) from None

    def _encode(self, arguments: dict[str, Any]) -> bytes:
        """Validates named arguments and returns the payload. One function, because a bulk calls it for each job."""
        try:
            valid = self._validate(arguments)
        except ValueError as error:
            self._refuse_dependencies(arguments)
            raise InvalidPayload(f"{self._name}: {_explain(error)}.", hint=f"It takes {self._signature}.") from None
        try:
            raw = self._to_json(valid)
        except (ValueError, RecursionError) as error:
            raise InvalidPayload(
                f"{self._name}: {self._name_unstorable(valid)} cannot be stored as JSON: {error}."
            ) from None
        if _is_suspect(raw):
            _refuse_unstorable(self._adapter.dump_python(valid, mode="json"), "", self._name)
        if not self._is_restored_exactly:
            self._refuse_lost(valid, raw)
        return raw

    def _refuse_dependencies(self, arguments: Collection[str]) -> None:
        """Raises if the caller gives an argument that the worker makes for the handler (`Depends`)."""
        for name in self._dependencies:
            if name in arguments:
                raise InvalidPayload(
                    f"{self._name}: {name} is a dependency, which the worker makes; it cannot be enqueued.",
                    hint=f"Leave it out. It takes {self._signature}.",
                )

    def _name_unstorable(self, arguments: dict[str, Any]) -> str:
        for name, value in arguments.items():
            try:
                self._adapter.dump_json({name: value})
            except (ValueError, RecursionError):
                return f"{name}={shorten(value)}"
        return "the payload"

    def _refuse_lost(self, arguments: dict[str, Any], raw: bytes) -> None:
        try:
            restored = self._adapter.validator.validate_json(raw)
        except ValueError as error:
            raise InvalidPayload(f"{self._name}: the payload could not be read again: {_explain(error)}.") from None
        for where, what in find_lost(arguments, restored, ""):
            raise InvalidPayload(
                f"{self._name}: {where} would not reach the worker unchanged: {what}.",
                hint=f"Annotate it with its type, or send something else. It takes {self._signature}.",
            )

    @cached_property
    def _validate(self) -> Callable[[dict[str, Any]], dict[str, Any]]:
        """The adapter's own method does the same and takes a third longer."""
        validate: Callable[[dict[str, Any]], dict[str, Any]] = self._adapter.validator.validate_python
        return validate

    @cached_property
    def _validate_json(self) -> Callable[[bytes], dict[str, Any]]:
        validate: Callable[[bytes], dict[str, Any]] = self._adapter.validator.validate_json
        return validate

    @cached_property
    def _to_json(self) -> Callable[[dict[str, Any]], bytes]:
        to_json: Callable[[dict[str, Any]], bytes] = self._adapter.serializer.to_json
        return to_json

    @cached_property
    def _is_restored_exactly(self) -> bool:
        return is_restored_exactly(self._adapter.core_schema)

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


class BatchSignature(Signature):
    """The parameters of a task that runs batches: its function takes a list, and a payload has one item of it, under
    the same name. If the function returns a list, a job's result is one item of that."""

    def __init__(
        self, function: Callable[..., Any], name: str, skip: int = 0, dependencies: Collection[str] = ()
    ) -> None:
        super().__init__(function, name, skip, dependencies)
        parameters = list(self._signature.parameters.values())
        if len(parameters) != 1 or parameters[0].kind is inspect.Parameter.VAR_KEYWORD:
            raise TypeError(
                f"task {name}: with batch=, its function takes one parameter, the list of items, beside a connection "
                f"and dependencies; this one takes {self._signature}"
            )
        self._item = parameters[0].name
        if parameters[0].default is not inspect.Parameter.empty:
            raise TypeError(f"task {name}: with batch=, {self._item} has no default, since every job has an item")

    @cached_property
    def _hints(self) -> dict[str, Any]:
        hints = get_type_hints(self._function, include_extras=True)
        if self._item in hints:
            hints[self._item] = self._find_item_type(hints[self._item])
        if "return" in hints and (get_origin(hints["return"]) or hints["return"]) is list:
            hints["return"] = next(iter(get_args(hints["return"])), Any)
        shown = self._signature.parameters[self._item].replace(annotation=hints.get(self._item, Any))
        returned = hints.get("return", inspect.Signature.empty)
        self._signature = self._signature.replace(
            parameters=[shown], return_annotation=None if returned is NoneType else returned
        )
        return hints

    def _find_item_type(self, hint: Any) -> Any:
        if hint is Any:
            return Any
        if (get_origin(hint) or hint) not in (list, collections.abc.Sequence, collections.abc.Iterable):
            raise TypeError(
                f"task {self._name}: with batch=, {self._item} must be annotated as a list, such as "
                f"{self._item}: list[int]; it is {hint}"
            )
        return next(iter(get_args(hint)), Any)


def _is_plain(hint: Any) -> bool:
    """Whether pydantic knows the type for certain, so that it need not be loaded to find out."""
    origin = get_origin(hint)
    if origin in _PLAIN_CONTAINERS:
        return all(argument is ... or _is_plain(argument) for argument in get_args(hint))
    if origin is Literal:
        return True
    return hint in _PLAIN_TYPES if isinstance(hint, type) else hint in (Any, Never, NoReturn)


def encode_unchecked(type: str, payload: dict[str, Any]) -> bytes:
    """Encodes the payload of a job whose task is not in this process. It is checked only for what JSON cannot store."""
    import orjson

    try:
        _refuse_unstorable(payload, "", type)
        return orjson.dumps(payload)
    except RecursionError:
        raise InvalidPayload(f"{type}: the payload cannot be stored as JSON: it is nested too deeply.") from None
    except TypeError as error:
        raise InvalidPayload(f"{type}: the payload cannot be stored as JSON: {error}.") from None


def _explain(error: ValueError, name_of_whole: str = "payload") -> str:
    """The errors that pydantic found, in one line; an error of the whole value is named `name_of_whole`."""
    from pydantic import ValidationError

    if not isinstance(error, ValidationError):
        return str(error)
    found = error.errors(include_url=False)
    lines = [_describe_error(".".join(map(str, each["loc"])) or name_of_whole, each) for each in found[:3]]
    return "; ".join(lines) + ("" if len(found) <= 3 else f"; and {len(found) - 3} more")


def _describe_error(where: str, error: Any) -> str:
    if error["type"] == "missing":
        return f"{where} is missing"
    if error["type"] == "extra_forbidden":
        return f"{where} is unknown"
    message = error["msg"]
    return f"{where}: {message[:1].lower()}{message[1:]}, not {shorten(error['input'])}"


def _refuse_unstorable(value: Any, path: str, task: str) -> None:
    for where, what in find_unstorable(value, path):
        raise InvalidPayload(f"{task}: {where} cannot be stored: {what}.")
