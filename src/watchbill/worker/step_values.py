"""Results of steps as JSON, and the digest of their arguments."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from datetime import datetime
from functools import lru_cache
from hashlib import blake2b
from typing import Any, get_type_hints

import orjson

from watchbill.model.steps import Signal, StepMismatch, StepNotStored


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
