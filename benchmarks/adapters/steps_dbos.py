"""Steps of DBOS, for `benchmarks/steps_bench.py`: runs in an environment of its own, without Watchbill."""

from __future__ import annotations

import asyncio
import sys
import time

from dbos import DBOS


@DBOS.step()
async def work(number: int) -> dict[str, int]:
    return {"number": number}


@DBOS.workflow()
async def run_steps(until: float) -> int:
    number = 0
    while time.time() < until:
        await work(number)
        number += 1
    return number


async def measure(workflows: int, seconds: float) -> float:
    began = time.perf_counter()
    until = time.time() + seconds
    counts = await asyncio.gather(*(run_steps(until) for _ in range(workflows)))
    total: int = sum(counts)
    return total / (time.perf_counter() - began)


def main() -> None:
    url, workflows, seconds = sys.argv[1], int(sys.argv[2]), float(sys.argv[3])
    DBOS(config={"name": "bench", "system_database_url": url, "run_admin_server": False, "log_level": "ERROR"})
    DBOS.launch()

    async def both() -> float:
        await measure(workflows, seconds / 5)  # connections and statements are prepared
        return await measure(workflows, seconds)

    print(asyncio.run(both()), flush=True)
    DBOS.destroy()


if __name__ == "__main__":
    main()
