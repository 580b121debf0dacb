"""Storms over token groups, one after the other, each drawn from a seed of its own, until the time is up.

    python -m tests.cluster.storm --minutes 10 --seed 7

`--seed N --minutes 0` repeats the storm of seed N alone, as far as the machine's own pace lets it. What breaks a
promise is printed with its faults, and its directory is kept; the command goes on and ends with code 1.
"""

from __future__ import annotations

import argparse
import logging
import sys
import time
from random import Random

from tests.cluster.storm.world import Plan, Storm
from tests.servers import find_servers


def draw_plan(seed: int, most: int = 20) -> Plan:
    """Between few processes with many faults and many with few; items, routed jobs, or both."""
    random = Random(seed)
    size = random.choice([3, 3, 5, 8, most])
    has_workers = random.random() < 0.5
    has_members = not has_workers or random.random() < 0.5
    share = size // (has_workers + has_members) or 1
    return Plan(
        seed,
        rounds=random.choice([6, 9, 12]),
        members=share * has_members,
        workers=share * has_workers,
        most=max(share + 2, 4),
        lease=random.choice([1.0, 2.0, 3.0]),
        burst=random.choice([(1, 4), (3, 10), (8, 20)]),
        gap=random.choice([(0.0, 0.2), (0.05, 0.8), (0.5, 1.5)]),
    )


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.cluster.storm", description="Storms, until the time is up.")
    parser.add_argument("--minutes", type=float, default=10, help="no storm begins after these (default 10)")
    parser.add_argument("--seed", type=int, default=1, help="of the first storm (default 1)")
    parser.add_argument("--most", type=int, default=20, help="processes in the largest storms (default 20)")
    given = parser.parse_args()
    logging.getLogger("psycopg.pool").setLevel(logging.CRITICAL)  # the producer's connections are meant to break
    began, seed, broken = time.monotonic(), given.seed, []
    servers = find_servers()
    while seed == given.seed or time.monotonic() < began + 60 * given.minutes:
        plan = draw_plan(seed, given.most)
        binaries = servers[seed % len(servers)]
        print(f"{time.strftime('%H:%M:%S')} PostgreSQL {binaries.version}, {plan}", flush=True)
        with Storm(binaries, plan) as storm:
            storm.run()
            print(storm.report(), flush=True)
            if storm.violations:
                broken.append(seed)
        seed += 1
    verdict = f"broken by the seeds {broken}" if broken else "no promise broken"
    print(f"{seed - given.seed} storms in {(time.monotonic() - began) / 60:.0f} minutes: {verdict}")
    return 1 if broken else 0


if __name__ == "__main__":
    sys.exit(main())
