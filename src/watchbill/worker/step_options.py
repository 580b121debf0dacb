"""Options of steps: what `@app.step` attaches to a function, and what `steps.using` says for one call."""

from __future__ import annotations

import inspect
import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import update_wrapper
from typing import Any, Generic, ParamSpec, TypeVar

from watchbill.model.durations import Duration, seconds
from watchbill.model.retry import Retry, as_retry

P = ParamSpec("P")
R = TypeVar("R")
Upgrade = TypeVar("Upgrade", bound=Callable[[Any], Any])


@dataclass(frozen=True, slots=True)
class StepOptions:
    """How a step is called. `name` and `key` belong to one call."""

    name: str | None = None
    key: str | None = None
    retry: Retry | None = None  # None: the job retries
    timeout: float | None = None  # seconds of each try
    raises: tuple[type[Exception], ...] = ()
    version: int = 1
    aliases: tuple[str, ...] = ()
    once: bool = False
    undo: Callable[..., Any] | None = None  # called with the result if the job dies or is canceled

    def change(self, **changes: Any) -> StepOptions:
        """Returns these options with those that are not None."""
        given = {name: value for name, value in changes.items() if value is not None}
        if "retry" in given:
            given["retry"] = as_retry(given["retry"])
        if "timeout" in given:
            given["timeout"] = _read_timeout(given["timeout"])
        changed = replace(self, **given)
        if changed.once and changed.retry is not None:
            raise ValueError("a step has either retry= or once=True: what begins at most once is not tried again")
        return changed


def _read_timeout(given: Duration) -> float:
    timeout = seconds(given)
    if timeout <= 0:
        raise ValueError(f"timeout={given!r} of a step is invalid: it must be more than 0")
    return timeout


class Step(Generic[P, R]):
    """A function with options for the step that runs it. A plain call runs the function."""

    def __init__(self, function: Callable[P, R], options: StepOptions) -> None:
        update_wrapper(self, function)
        self.function, self.options = function, options
        self.upgrades: dict[int, Callable[[Any], Any]] = {}
        check_timeout(function, options)

    def __call__(self, *args: P.args, **kwargs: P.kwargs) -> R:
        return self.function(*args, **kwargs)

    def upgrade(self, *, from_version: int) -> Callable[[Upgrade], Upgrade]:
        """Makes a function the one that turns a result of this version, as JSON, into one of the next version."""
        if not 1 <= from_version < self.options.version:
            raise ValueError(
                f"from_version={from_version} is invalid: the step has version {self.options.version}, so it must be "
                "less than that, and at least 1"
            )

        def register(function: Upgrade) -> Upgrade:
            self.upgrades[from_version] = function
            return function

        return register


def check_timeout(function: Callable[..., Any], options: StepOptions) -> None:
    if options.timeout is not None and not inspect.iscoroutinefunction(inspect.unwrap(function)):
        raise TypeError(
            f"step {getattr(function, '__name__', function)}: timeout= needs an `async def`, because nothing can stop "
            "a `def` while it runs"
        )


def make_options(
    *,
    name: str | None,
    retry: int | Retry | None,
    timeout: Duration | None,
    raises: Sequence[type[Exception]],
    version: int,
    aliases: Sequence[str],
    once: bool,
    undo: Callable[..., Any] | None,
) -> StepOptions:
    if isinstance(aliases, str) or version < 1:
        what = f"aliases={aliases!r}" if isinstance(aliases, str) else f"version={version!r}"
        raise ValueError(f"@app.step({what}) is invalid: aliases is a list of names, and version counts from 1")
    if not all(isinstance(each, type) for each in raises):
        raise TypeError(f"@app.step(raises={raises!r}) is invalid: give a list of exception classes")
    options = StepOptions(raises=tuple(raises), version=version, aliases=tuple(aliases), once=once, undo=undo)
    return options.change(name=name, retry=retry, timeout=timeout)


def compute_pause(retry: Retry, tries: int) -> float:
    """Returns the seconds between this try of a step and the next one, as the SQL function _backoff_seconds() does
    between attempts of a job."""
    base = seconds(retry.base)
    match retry.backoff:
        case "exponential":
            pause = base * retry.factor ** min(tries - 1, 100)
        case "linear":
            pause = base * tries
        case "fixed":
            pause = base
        case _:
            pause = seconds(retry.delays[min(tries, len(retry.delays)) - 1])
    return min(pause, seconds(retry.cap)) * (1 - retry.jitter * random.random())  # noqa: S311
