"""The retry policy: how often a job is tried, and the delays in between. It is stored with the job, and SQL computes
each delay."""

from __future__ import annotations

from dataclasses import dataclass, fields
from typing import Any, Literal

from watchbill.model.durations import Duration, seconds
from watchbill.model.option_names import suggest_options

TEN_YEARS_SECONDS = 315_360_000


def delay_seconds(value: Duration) -> float:
    """Returns a delay in seconds. Raises ValueError unless it is between 0 and ten years."""
    delay = seconds(value)
    if not 0 <= delay <= TEN_YEARS_SECONDS:
        raise ValueError(
            f"delay {value!r} is invalid: it must be between 0 and {TEN_YEARS_SECONDS:,} seconds (ten years)"
        )
    return delay


@suggest_options
@dataclass(frozen=True)
class Retry:
    """`max_attempts` counts every attempt, the first included. The wait before attempt n+1 is

    exponential: base * factor ** (n-1); linear: base * n; fixed: base; list: the n-th of `delays`, then the last.

    The wait is never more than `cap`, and is shortened by a random fraction of at most `jitter`.

    With the defaults the last of ten attempts comes 12 to 15 hours after the first, so a job outlives a night's outage.

    `on`: only these exceptions are retried; `not_on`: these are not. An exception that is not retried makes the job
    dead at once. A time-out counts as TimeoutError."""

    max_attempts: int = 10
    backoff: Literal["exponential", "linear", "fixed", "list"] = "exponential"
    base: Duration = 10.0
    factor: float = 3.0
    cap: Duration = 21_600.0
    jitter: float = 0.2
    delays: tuple[Duration, ...] = ()
    on: tuple[type[BaseException], ...] = ()
    not_on: tuple[type[BaseException], ...] = ()

    def __post_init__(self) -> None:
        if type(self.max_attempts) is not int:  # isinstance() would accept True, because a bool is an int too
            raise ValueError(f"Retry(max_attempts={self.max_attempts!r}) is invalid: it must be a whole number")
        self._check_range("max_attempts", self.max_attempts, 1, 32767)
        self._check_duration("base", self.base)
        self._check_duration("cap", self.cap)
        self._check_range("factor", self.factor, 1, 100)
        self._check_range("jitter", self.jitter, 0, 1)
        if self.backoff not in ("exponential", "linear", "fixed", "list"):
            raise ValueError(
                f"Retry(backoff={self.backoff!r}) is invalid: it must be exponential, linear, fixed or list"
            )
        if (self.backoff == "list") != bool(self.delays):
            raise ValueError(
                "Retry(delays=...) goes together with backoff='list': give both, with 1 to 1000 delays, or neither"
            )
        if len(self.delays) > 1000:
            raise ValueError(f"Retry(delays=...) has {len(self.delays):,} delays; it may have at most 1000")
        for delay in self.delays:
            self._check_duration("delays", delay)
        self._check_exceptions("on", self.on)
        self._check_exceptions("not_on", self.not_on)

    @staticmethod
    def _check_range(name: str, value: float, least: float, most: float) -> None:
        if not least <= value <= most:
            raise ValueError(f"Retry({name}={value!r}) is invalid: {name} must be between {least:,} and {most:,}")

    @classmethod
    def _check_duration(cls, name: str, given: Duration) -> None:
        try:
            found = seconds(given)
        except ValueError as error:
            raise ValueError(f"Retry({name}={given!r}) is invalid: {error}") from None
        cls._check_range(name, found, 0, TEN_YEARS_SECONDS)

    @staticmethod
    def _check_exceptions(name: str, given: Any) -> None:
        if not isinstance(given, tuple) or not all(isinstance(e, type) and issubclass(e, BaseException) for e in given):
            raise ValueError(
                f"Retry({name}={given!r}) is invalid: give a tuple of exception classes, such as (ConnectionError,)"
            )

    def explain_refusal(self, error: BaseException) -> str | None:
        """Returns why this exception is not retried, or None if it is retried."""
        name = type(error).__name__
        if isinstance(error, self.not_on):
            return f"{name} is in not_on of the task's Retry"
        if self.on and not isinstance(error, self.on):
            return f"{name} is not in on of the task's Retry"
        return None

    def policy(self) -> dict[str, Any] | None:
        """The policy as the argument of the SQL function `_policy_id`; None for the default policy."""
        if all(getattr(self, name) == default for name, default in _DEFAULT_POLICY.items()):
            return None
        return {
            "kind": self.backoff,
            "base": seconds(self.base),
            "factor": self.factor,
            "cap": seconds(self.cap),
            "jitter": self.jitter,
            **({"delays": [seconds(delay) for delay in self.delays]} if self.delays else {}),
        }


def as_retry(value: int | Retry) -> Retry:
    """Returns a Retry. A number stands for the default policy with so many attempts."""
    return value if isinstance(value, Retry) else Retry(max_attempts=value)


_POLICY_FIELDS = ("backoff", "base", "factor", "cap", "jitter")
_DEFAULT_POLICY = {field.name: field.default for field in fields(Retry) if field.name in _POLICY_FIELDS}
