"""Locks and unlocks one name with redis-py for some seconds: `redis_lock.py URL SECONDS` prints how often a second."""

from __future__ import annotations

import sys
import time

import redis


def main(url: str, seconds: float) -> None:
    client = redis.Redis.from_url(url)
    count, began = 0, time.perf_counter()
    while (took := time.perf_counter() - began) < seconds:
        with client.lock("close", timeout=30):
            count += 1
    print(count / took)


if __name__ == "__main__":
    main(sys.argv[1], float(sys.argv[2]))
