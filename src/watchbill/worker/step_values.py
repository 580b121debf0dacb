"""Results of steps as JSON, and the digest of their arguments."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from datetime import datetime
from functools import lru_cache
from hashlib import blake2b
from typing import Any, get_type_hints

import orjson

from watchbill.model.steps import Signal, StepFailed, StepMismatch, StepNotStored
from watchbill.worker.checkpoints import StoredStep
from watchbill.worker.outcomes import describe_error
from watchbill.worker.step_calls import Call


@lru_cache(maxsize=1000)
def _make_adapter(function: Callable[..., Any]) -> Any:
    """Returns the pydantic adapter for the return type of a step's function."""
    from pydantic import ConfigDict, TypeAdapter

    hint = get_type_hints(inspect.unwrap(function), include_extras=True).get("return", Any)
    try:
        return TypeAdapter(hint, config=ConfigDict(ser_json_inf_nan="constants"))
    except Exception:  # noqa: BLE001  (types with a configuration of their own refuse a second one)
        return TypeAdapter(hint)


def encode_result(function: Callable[..., Any], name: str, value: Any, limit: int) -> bytes | None:
    if value is None:
        return None
    try:
        raw: bytes = _make_adapter(function).dump_json(value)
        orjson.loads(raw)  # refuses NaN, which PostgreSQL refuses too
    except Exception as error:
        raise StepNotStored(f"Step {name}: the result cannot be stored as JSON: {error}") from error
    if len(raw) > limit:
        raise StepNotStored(
            f"Step {name}: the result has {len(raw):,} bytes, the limit is {limit:,} (max_result).",
            hint="Store it elsewhere, and return where it is.",
        )
    return raw


def decode_result(function: Callable[..., Any], name: str, raw: bytes | None) -> Any:
    """Returns the value as the function's return type says. The first run calls this too, so that the handler gets the
    same value in each run."""
    if raw is None:
        return None
    try:
        return _make_adapter(function).validate_json(raw)
    except ValueError as error:
        raise StepMismatch(
            f"Step {name}: what is stored does not match the return type of {function.__qualname__}: {error}",
            hint="Deploy code whose return type takes it, and retry the job: it continues with this step.",
        ) from None


def compute_digest(args: tuple[Any, ...], kwargs: dict[str, Any]) -> int | None:
    """Returns 64 bits that tell these arguments from others, or None if they are not JSON."""
    try:
        raw = orjson.dumps([args, kwargs], option=orjson.OPT_SORT_KEYS)
    except TypeError:
        return None
    return int.from_bytes(blake2b(raw, digest_size=8).digest(), "big", signed=True)


def read_signal(raw: bytes) -> Signal:
    """Returns the signal that receive() has stored as the result of a step."""
    found = orjson.loads(raw)
    return Signal(
        found["name"], found["payload"], found["key"], found["sent_by"], datetime.fromisoformat(found["sent_at"])
    )


def encode_ask(ask: Any) -> bytes | None:
    """Returns as JSON what people who answer have to know."""
    if ask is None:
        return None
    try:
        return orjson.dumps(ask)
    except TypeError as error:
        raise TypeError(f"steps.receive(ask=...) is invalid: it must be JSON: {error}") from None


def describe_declared(error: Exception) -> dict[str, Any]:
    """Returns as JSON an error that a step declares in `raises`, so that a later run can raise it again."""
    attributes = {name: value for name, value in vars(error).items() if _is_json(value)}
    arguments = [each if _is_json(each) else str(each) for each in error.args]
    return describe_error(error, "retryable") | {"args": arguments, "attributes": attributes}


def _is_json(value: Any) -> bool:
    try:
        orjson.loads(orjson.dumps(value))
    except (TypeError, ValueError):
        return False
    return True


def decode_declared(call: Call, raw: bytes) -> Exception:
    """Returns the declared error that is stored. The first run raises this too, so that each run gets the same."""
    found = orjson.loads(raw)
    kinds = list(call.options.raises)
    while kinds:
        kind = kinds.pop()
        if (kind.__module__, kind.__qualname__) == (found.get("module"), found.get("type")):
            error = kind.__new__(kind)
            error.args = tuple(found["args"])
            error.__dict__.update(found["attributes"])
            return error
        kinds += kind.__subclasses__()
    return StepFailed(call.name, found, is_stored=True)


def explain_version(call: Call, stored: StoredStep) -> str | None:
    """Returns why a stored result does not fit to the version of the code, or None if it does."""
    if stored.version == call.options.version or call.kind != "run":
        return None
    missing = [version for version in range(stored.version, call.options.version) if version not in call.upgrades]
    if stored.version < call.options.version and not missing:
        return None
    return f"by version {stored.version} of its code, and this is version {call.options.version}"
