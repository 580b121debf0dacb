"""What a worker needs to know of a task in order to run it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Literal

Kind = Literal["async", "thread", "process"]


class BadPayload(ValueError):
    """The payload does not fit the task's signature; no attempt can change that."""


@dataclass(frozen=True, slots=True)
class Handler:
    """A task as the worker sees it."""

    type: str
    function: Callable[..., Any]
    kind: Kind
    version: int
    decode: Callable[[bytes, int], dict[str, Any]]  # JSON and its version -> keyword arguments; raises BadPayload
    encode_result: Callable[[Any], bytes | None]
    transactional: bool = False
    reference: str = ""  # module:name, by which a child process finds it


Handlers = Mapping[str, Handler]
