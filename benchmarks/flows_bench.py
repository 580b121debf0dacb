"""What it costs that one job waits for ten thousand: `python -m benchmarks.flows_bench`.

Three figures, each on a database of its own, with the server that the tests use, by one node with default settings:

- plain: 10,000 jobs that do nothing, and a last one of lower priority, from the first claim until the end of all of
  them is stored
- wide: the same 10,000, and a last one that waits for all of them
- chain: from the end of one step to the start of the next, on an idle node

The rates by the clock are those of this machine as it is now; the ratio of neighbouring runs says more than either.
"""

from __future__ import annotations

import argparse
import asyncio
import statistics
import time
from collections.abc import Awaitable, Callable
from itertools import pairwise

from tests.servers import Server, find_servers

from watchbill import App, chain, group
from watchbill.store.install import install

STEPS = 200


async def fan_in(url: str, jobs: int, *, wide: bool) -> float:
    """Seconds until all have ended."""
    app = App(url)

    @app.task(type="part")
    async def part(number: int) -> None: ...

    @app.task(type="end")
    async def end() -> None: ...

    parts = [part.bind(number) for number in range(jobs)]
    if wide:
        await chain(group(*parts), end.bind()).aenqueue()
    else:
        await app.aenqueue_many([*parts, end.using(priority=-1).bind()])
    return await _run(app, jobs + 1)


async def steps(url: str) -> float:
    """Milliseconds from one step of a chain to the next, the median."""
    app, seen = App(url), list[float]()

    @app.task(type="step")
    async def step(number: int) -> None:
        seen.append(time.perf_counter())

    await chain(*(step.bind(number) for number in range(STEPS))).aenqueue()
    await _run(app, STEPS)
    return 1000 * statistics.median(later - earlier for earlier, later in pairwise(seen))


async def _run(app: App, jobs: int) -> float:
    node = app.make_node()
    running = asyncio.create_task(node.run())
    await node.wait_until_ready()
    began = time.perf_counter()
    while node.finished < jobs or not node.worker.settler.is_idle:  # noqa: ASYNC110  (an event per job would be measured)
        await asyncio.sleep(0.001)
    took = time.perf_counter() - began
    node.stop()
    await running
    await app.aclose()
    return took


def on_a_database(server: Server, template: str, measure: Callable[[str], Awaitable[float]]) -> float:
    name = server.create_database(template)
    try:
        return asyncio.run(_measured(measure, server.url(name)))
    finally:
        server.drop_database(name)


async def _measured(measure: Callable[[str], Awaitable[float]], url: str) -> float:
    return await measure(url)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--jobs", type=int, default=10_000)
    parser.add_argument("--repeat", type=int, default=5)
    options = parser.parse_args()
    server = Server.start(find_servers()[0])
    try:
        template = server.create_database()
        install(server.url(template))
        ratios = []
        for _ in range(options.repeat):
            plain = on_a_database(server, template, lambda url: fan_in(url, options.jobs, wide=False))
            wide = on_a_database(server, template, lambda url: fan_in(url, options.jobs, wide=True))
            ratios.append(plain / wide)
            print(f"plain {options.jobs / plain:8,.0f}/s   wide {options.jobs / wide:8,.0f}/s   ratio {ratios[-1]:.2f}")
        print(f"ratio, median of {options.repeat}: {statistics.median(ratios):.2f}")
        print(f"from step to step of a chain: {on_a_database(server, template, steps):.1f} ms")
    finally:
        server.stop()


if __name__ == "__main__":
    main()
