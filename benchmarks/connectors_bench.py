"""What connectors do: `python -m benchmarks.connectors_bench rate`, `hanging` and `hostile`.

A receiver on loopback, in a process of its own, stands for all servers. A worker process runs with default settings,
but for the slots that docs/howto/webhooks.md asks for.

- rate: deliveries per second of one node, from a backlog.
- hanging: 1,000 endpoints get deliveries at a steady rate. Median and 99th percentile of the time from enqueue to the
  ending, without and with ten endpoints that never answer, in turns; the median of the ratios counts.
- hostile: the longest pause of the event loop while servers answer endlessly, in small pieces, with bombs, slowly or
  with floods of interim answers; and how much the memory of the process grows. No database. "own" is the processor time
  that the loop has used in its longest pause: other programs of the machine do not lengthen it.
"""

from __future__ import annotations

import argparse
import asyncio
import gzip
import os
import random
import resource
import statistics
import subprocess
import sys
import time
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager, suppress

import psycopg
from tests.servers import Server, find_servers

from watchbill import App
from watchbill.connectors import Endpoint, Signature, add_connectors
from watchbill.connectors.exchange import NoAnswer, Request, Sender, TooLarge
from watchbill.connectors.guard import Rules, read_target
from watchbill.store.install import install

ENDPOINTS = 1_000
HANGING = 10
SLOTS = 200
SECRET = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"
LONGEST_SECONDS = 120
app = App(name="bench")  # the worker process imports it; variables say where
add_connectors(app, allow_http=True)
if "RECEIVER" in os.environ:
    for number in range(ENDPOINTS):
        where = "hang" if number < int(os.environ["HANGING"]) else "take"
        address = f"{os.environ['RECEIVER']}/{where}/{number}"
        app.endpoint(Endpoint(f"e{number}", address, Signature("env:WATCHBILL_SECRET_BENCH")))


async def serve(handle: Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]]) -> None:
    """Serves until the process is killed, and prints its port."""
    server = await asyncio.start_server(handle, "127.0.0.1", 0, backlog=1_000)
    print(server.sockets[0].getsockname()[1], flush=True)
    await server.serve_forever()


async def receive(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    """Takes webhooks, and answers at once, or never to `/hang`."""
    with suppress(ConnectionError, asyncio.IncompleteReadError):
        while True:
            head = await reader.readuntil(b"\r\n\r\n")
            fields = dict(line.lower().split(b":", 1) for line in head.split(b"\r\n") if b":" in line)
            await reader.readexactly(int(fields[b"content-length"]))
            if head.startswith(b"POST /hang"):
                await asyncio.Event().wait()
            writer.write(b"HTTP/1.1 204 X\r\n\r\n")
    writer.close()


async def attack(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    """Answers as `HOSTILE` says for the path."""
    with suppress(ConnectionError, asyncio.IncompleteReadError):
        head = (await reader.readuntil(b"\r\n\r\n")).decode()
        before, again = HOSTILE[head.split("/", 2)[1].split(" ")[0].replace("_", " ")]
        writer.write(before)
        while again:
            writer.write(again)
            await writer.drain()
        await asyncio.Event().wait()


@contextmanager
def serving(what: str) -> Iterator[int]:
    command = [sys.executable, "-m", "benchmarks.connectors_bench", what]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    try:
        yield int(process.stdout.readline())
    finally:
        process.kill()
        process.wait()
        process.stdout.close()


@contextmanager
def worker(url: str, port: int, hanging: int) -> Iterator[None]:
    environment = {
        **os.environ, "DATABASE_URL": url, "RECEIVER": f"http://127.0.0.1:{port}", "HANGING": str(hanging),
        "WATCHBILL_SECRET_BENCH": SECRET, "WATCHBILL_CONNECTOR_ALLOW": f"127.0.0.1:{port}",
        "WATCHBILL_CONCURRENCY": str(SLOTS), "WATCHBILL_DRAIN_TIMEOUT": "0",
        "WATCHBILL_LOG_LEVEL": "error",
    }  # fmt: skip
    command = [sys.executable, "-m", "watchbill.cli", "worker", "benchmarks.connectors_bench:app"]
    process = subprocess.Popen(command, env=environment, stdout=subprocess.DEVNULL)
    try:
        yield
    finally:
        process.terminate()
        process.wait()


def wait_until(connection: psycopg.Connection, query: str) -> None:
    end = time.monotonic() + LONGEST_SECONDS
    while connection.execute(query.encode()).fetchone() != (True,):
        if time.monotonic() > end:
            raise TimeoutError(query)
        time.sleep(0.05)


ENQUEUE = """
SELECT watchbill.enqueue('connector.webhook.deliver', jsonb_build_object('endpoint', 'e' || %s::int, 'type', 'bench'))
"""


def measure_rate(url: str, jobs: int) -> None:
    with serving("receive") as port, psycopg.connect(url, autocommit=True) as connection, worker(url, port, 0):
        wait_until(connection, f"SELECT count(*) = {ENDPOINTS} FROM watchbill.connector_endpoints")
        connection.execute("SELECT watchbill.pause(queue => 'webhooks')")
        for number in range(jobs):
            connection.execute(ENQUEUE, (number % 100,))
        began = time.monotonic()
        connection.execute("SELECT watchbill.resume(queue => 'webhooks')")
        wait_until(connection, "SELECT NOT EXISTS (SELECT FROM watchbill.jobs)")
        seconds = time.monotonic() - began
    print(f"{jobs} deliveries to 100 endpoints in {seconds:.1f} s: {jobs / seconds:.0f} per second")


def measure_hanging(url: str, hanging: int, rate: float, seconds: float) -> tuple[float, float]:
    """Returns median and 99th percentile of the deliveries to the other endpoints, in milliseconds."""
    choose = random.Random(7)
    with serving("receive") as port, psycopg.connect(url, autocommit=True) as connection, worker(url, port, hanging):
        wait_until(connection, f"SELECT count(*) = {ENDPOINTS} FROM watchbill.connector_endpoints")
        began = time.monotonic()
        for number in range(int(rate * seconds)):
            connection.execute(ENQUEUE, (choose.randrange(ENDPOINTS),))
            time.sleep(max(0.0, began + (number + 1) / rate - time.monotonic()))
        wait_until(connection, "SELECT count(*) <= 200 FROM watchbill.jobs WHERE NOT failed")
        row = connection.execute("""
            SELECT 1000 * percentile_cont(0.5) WITHIN GROUP (ORDER BY d),
              1000 * percentile_cont(0.99) WITHIN GROUP (ORDER BY d), count(*)
            FROM (
              SELECT extract(epoch FROM finished_at - created_at)::float AS d FROM watchbill.finished_jobs
              WHERE substr(payload->>'endpoint', 2)::int >= %s) x
            """, (HANGING,)).fetchone()  # fmt: skip
    assert row is not None
    print(
        f"{hanging:2} of {ENDPOINTS} hang: {row[2]} to the others, median {row[0]:.1f} ms, p99 {row[1]:.1f} ms",
        flush=True,
    )
    return float(row[0]), float(row[1])


HEAD = b"HTTP/1.1 200 OK\r\n"
HOSTILE = {
    "endless": (HEAD + b"\r\n", b"x" * 65_536),
    "small chunks": (HEAD + b"Transfer-Encoding: chunked\r\n\r\n", b"1\r\na\r\n" * 10_000),
    "interim answers": (b"", b"HTTP/1.1 102 Processing\r\n\r\n" * 2_000),
    "endless header": (HEAD, b"X: " + b"a" * 8_000 + b"\r\n"),
    "gzip bomb": (
        HEAD + b"Content-Encoding: gzip\r\nContent-Length: 99999999\r\n\r\n" + gzip.compress(bytes(10**8)),
        b"",
    ),
    "silence": (b"", b""),
}


async def measure_hostile(port: int, rounds: int) -> None:
    sender = Sender(Rules.read([f"127.0.0.1:{port}"]), allow_http=True)
    for name in HOSTILE:
        target = read_target(f"http://127.0.0.1:{port}/{name.replace(' ', '_')}", allow_http=True)
        pauses = [(0.0, 0.0)]
        watching = asyncio.create_task(note_pauses(pauses))
        before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        for _ in range(rounds):
            with suppress(NoAnswer, TooLarge):
                await sender.send(Request("GET", target, timeout=5), tenant="t", endpoint="e")
        grown = (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) / 1_024
        watching.cancel()
        print(
            f"{name:16} longest pause of the loop {1_000 * max(total for total, _ in pauses):6.1f} ms"
            f" (own {1_000 * max(own for _, own in pauses):5.1f} ms), memory + {grown:.1f} MiB",
            flush=True,
        )
    await sender.aclose()


async def note_pauses(pauses: list[tuple[float, float]]) -> None:
    while True:
        began, used = time.perf_counter(), time.thread_time()
        await asyncio.sleep(0.001)
        pauses.append((time.perf_counter() - began - 0.001, time.thread_time() - used))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("what", choices=("rate", "hanging", "hostile", "receive", "attack"))
    parser.add_argument("--jobs", type=int, default=5_000, help="how many deliveries the backlog has")
    parser.add_argument("--rate", type=float, default=100, help="deliveries per second while endpoints hang")
    parser.add_argument("--seconds", type=float, default=30)
    parser.add_argument("--rounds", type=int, default=3, help="pairs of runs without and with endpoints that hang")
    options = parser.parse_args()
    if options.what in ("receive", "attack"):  # a process that this one starts
        asyncio.run(serve(receive if options.what == "receive" else attack))
    if options.what == "hostile":
        with serving("attack") as port:
            asyncio.run(measure_hostile(port, 3))
        return
    server = Server.start(find_servers()[0])
    try:
        template = server.create_database()
        install(server.url(template))
        if options.what == "rate":
            measure_rate(server.url(server.create_database(template)), options.jobs)
            return
        ratios = []
        for number in range(options.rounds):
            found = {
                hanging: measure_hanging(
                    server.url(server.create_database(template)), hanging, options.rate, options.seconds
                )
                for hanging in ((0, HANGING) if number % 2 == 0 else (HANGING, 0))
            }
            ratios.append([late / early for early, late in zip(found[0], found[HANGING], strict=True)])
        medians = [statistics.median(each) for each in zip(*ratios, strict=True)]
        print(f"with / without, median of {options.rounds}: median {medians[0]:.2f}, p99 {medians[1]:.2f}")
    finally:
        server.stop()


if __name__ == "__main__":
    main()
