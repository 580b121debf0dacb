"""How often a job is tried, and how long it waits between. The policy travels with the job; SQL computes the delay."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import timedelta
from typing import Any, Literal

TEN_YEARS = 315_360_000.0


def seconds(value: float | timedelta) -> float:
    """Seconds, or a timedelta, as seconds."""
    return value.total_seconds() if isinstance(value, timedelta) else float(value)


def waiting_time(value: float | timedelta) -> float:
    """The same for what a handler asks for: a number that is one, and neither negative nor absurd."""
    delay = seconds(value)
    if not 0 <= delay <= TEN_YEARS:
        raise ValueError(f"a delay of {value!r}: must be within 0 and {TEN_YEARS:g} seconds, which are ten years")
    return delay


@dataclass(frozen=True)
class Retry:
    """`max_attempts` counts every attempt, the first included. The wait before attempt n+1 is

    exponential: base * factor ** (n-1); linear: base * n; fixed: base; list: the n-th of `delays`, then the last;

    never more than `cap`, of which a share of up to `jitter` is left to chance.
    """

    max_attempts: int = 5
    backoff: Literal["exponential", "linear", "fixed", "list"] = "exponential"
    base: float | timedelta = 1.0
    factor: float = 2.0
    cap: float | timedelta = 3600.0
    jitter: float = 1.0
    delays: tuple[float | timedelta, ...] = ()

    def __post_init__(self) -> None:
        if type(self.max_attempts) is not int:  # nor a bool
            raise ValueError(f"Retry(max_attempts={self.max_attempts!r}): must be a whole number")
        self._check("max_attempts", self.max_attempts, 1, 32767)
        self._check("base", seconds(self.base), 0, TEN_YEARS)
        self._check("cap", seconds(self.cap), 0, TEN_YEARS)
        self._check("factor", self.factor, 1, 100)
        self._check("jitter", self.jitter, 0, 1)
        if self.backoff not in ("exponential", "linear", "fixed", "list"):
            raise ValueError(f"Retry(backoff={self.backoff!r}): must be exponential, linear, fixed or list")
        if (self.backoff == "list") != bool(self.delays):
            raise ValueError("Retry(delays=...): give 1 to 1000 delays together with backoff='list', and only then")
        if len(self.delays) > 1000:
            raise ValueError(f"Retry(delays=...): {len(self.delays)} delays, 1000 is the most")
        for delay in self.delays:
            self._check("delays", seconds(delay), 0, TEN_YEARS)

    @staticmethod
    def _check(name: str, value: float, least: float, most: float) -> None:
        if not least <= value <= most:
            raise ValueError(f"Retry({name}={value!r}): must be within {least:g} and {most:g}")

    def policy(self) -> dict[str, Any] | None:
        """What the SQL function `policy` takes; None for the default one."""
        if (self.backoff, self.base, self.factor, self.cap, self.jitter) == ("exponential", 1.0, 2.0, 3600.0, 1.0):
            return None
        return {
            "kind": self.backoff,
            "base": seconds(self.base),
            "factor": self.factor,
            "cap": seconds(self.cap),
            "jitter": self.jitter,
            **({"delays": [seconds(delay) for delay in self.delays]} if self.delays else {}),
        }
