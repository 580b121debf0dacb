"""A soak: one storm after the other, each drawn from a seed of its own, until the time is up.

    python -m tests.chaos --minutes 45 --seed 7

Each storm has its own server (the PostgreSQL versions of this machine take turns), workers, lease and pace of faults.
The first seed is given, the next storm has the next one: `--seed N --minutes 0` repeats the storm of seed N alone. What
breaks a promise is printed with its faults and its directory is kept; the soak goes on and ends with code 1.
"""

from __future__ import annotations

import argparse
import logging
import sys
import time
from collections import Counter
from dataclasses import dataclass, field
from random import Random

from tests.chaos.harness import Chaos, Plan, seed_of_environment
from tests.servers import find_servers


def draw_plan(seed: int) -> Plan:
    """Between a short storm of many faults and a long one of few; about as many workers as two cores can carry."""
    random = Random(seed)
    seconds = random.choice([60, 120, 180])
    return Plan(
        seed,
        seconds=seconds,
        jobs=seconds * random.choice([5, 15, 30]),
        direct=random.randint(1, 3),
        proxied=random.randint(1, 3),
        producers=random.randint(2, 4),
        supervised=random.randint(0, 1),
        pooled=random.randint(0, 1),
        external=random.randint(0, 2),
        lease=random.choice([1, 2, 3]),
        gap=random.choice([(0.05, 0.5), (0.2, 1.5), (1.0, 4.0)]),
        patience=180,
    )


@dataclass
class Soak:
    """What all storms have come to."""

    began: float = field(default_factory=time.monotonic)
    sent: int = 0
    ends: Counter[str] = field(default_factory=Counter)
    faults: Counter[str] = field(default_factory=Counter)
    broken: list[int] = field(default_factory=list)
    storms: int = 0

    def storm(self, plan: Plan) -> None:
        servers = find_servers()
        binaries = servers[plan.seed % len(servers)]
        _say(f"storm {self.storms + 1}: PostgreSQL {binaries.version}, {plan}")
        self.storms += 1
        with Chaos(binaries, plan) as chaos:
            try:
                chaos.run()
                if chaos.violations:
                    self.broken.append(plan.seed)
                _say(chaos.report())
            finally:
                self._count(chaos)

    def _count(self, chaos: Chaos) -> None:
        self.faults.update(deed.split()[1] for deed in chaos.deeds)
        self.sent += len(chaos.history.sent)
        self.ends.update(row["state"] for row in chaos.history.tables["finished_jobs"])
        self.ends.update(f"attempt {row['outcome']}" for row in chaos.history.tables["attempts"])
        self.ends.update(f"node {row['state']}" for row in chaos.history.tables["nodes"])

    def __str__(self) -> str:
        minutes = (time.monotonic() - self.began) / 60
        verdict = f"broken by the seeds {self.broken}" if self.broken else "no promise broken"
        return (
            f"{self.storms} storms in {minutes:.0f} minutes: {verdict}\n{self.sent} jobs sent; {_listed(self.ends)}\n"
            f"{self.faults.total()} faults: {_listed(self.faults)}"
        )


def _listed(counts: Counter[str]) -> str:
    return ", ".join(f"{name} {count}" for name, count in sorted(counts.items()))


def _say(text: str) -> None:
    print(f"{time.strftime('%H:%M:%S')} {text}", flush=True)


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.chaos", description="Storms, until the time is up.")
    parser.add_argument("--minutes", type=float, default=45, help="no storm begins after these (default 45)")
    parser.add_argument("--seed", type=int, help="of the first storm (default: CHAOS_SEED, or by chance)")
    given = parser.parse_args()
    seed = seed_of_environment() if given.seed is None else given.seed
    logging.getLogger("psycopg.pool").setLevel(logging.CRITICAL)  # the producers' connections are meant to break
    soak = Soak()
    while not soak.storms or time.monotonic() < soak.began + 60 * given.minutes:
        soak.storm(draw_plan(seed + soak.storms))
    _say(str(soak))
    return 1 if soak.broken else 0


if __name__ == "__main__":
    sys.exit(main())
