"""What tokens cost beside jobs: `python -m benchmarks.tokens_bench`.

- A million tokens over a thousand nodes, which are rows only: the first assignment, and then a join and a leave. Each
  is one call of `rebalance`, and with a join the hand-over of every owner (`pass_tokens`).
- `owns`, in a process that owns half of 10,000 tokens.
- A claim of a node that owns 10,000 lanes without a job, beside a claim from an empty plain queue, and beside one that
  finds jobs of other nodes between all its lanes.

Times are by the clock, and of the server's process (utime and stime of its backend), which count on a machine that does
other things as well. Each line ends with what the project wants.
"""

from __future__ import annotations

import argparse
import os
import statistics
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import psycopg
from tests.servers import Server, find_servers

from watchbill.cluster.lease import Lease
from watchbill.cluster.ownership import Ownership
from watchbill.store.install import install

GROUP = "production"
TICKS_PER_SECOND = os.sysconf("SC_CLK_TCK")
QUEUES = {
    "plain": "from an empty plain queue",
    "routed": "of a node with 10,000 empty lanes (wanted: 1 ms)",
    "interleaved": "of such a node, with a job of another node between each two of its lanes",
}
REGISTER = "SELECT watchbill.register(name => %s, lease => interval '1 hour', queues => %s)"
CLAIM = "SELECT count(*) FROM watchbill.claim(epoch => %s, max => 100, queues => %s)"


class Took(NamedTuple):
    clock: float  # seconds
    processor: float  # of the server's process

    def __str__(self) -> str:
        return f"{self.clock:.2f} s by the clock, {self.processor:.2f} s of processor time"


class Session:
    """A session, and the process that serves it."""

    def __init__(self, url: str) -> None:
        self._connection = psycopg.connect(url, autocommit=True)
        self._stat = Path(f"/proc/{self._connection.info.backend_pid}/stat")

    def ask(self, query: str, *params: Any) -> Any:
        cursor = self._connection.execute(query.encode(), params)
        rows = cursor.fetchall() if cursor.description else []
        return rows[0][0] if rows else None

    def measure(self, call: Callable[[], Any]) -> Took:
        began, used = time.perf_counter(), self._processor_seconds()
        call()
        return Took(time.perf_counter() - began, self._processor_seconds() - used)

    def _processor_seconds(self) -> float:
        user, system = map(int, self._stat.read_text().rpartition(")")[2].split()[11:13])
        return (user + system) / TICKS_PER_SECOND

    def register(self, name: str, queues: list[str] | None = None) -> int:
        return int(self.ask(REGISTER, name, queues or []))

    def join(self, name: str) -> int:
        epoch = self.register(name)
        self.ask("SELECT watchbill.join_group(%s, %s)", epoch, GROUP)
        return epoch

    def lead(self, epoch: int) -> int:
        return int(self.ask("SELECT term FROM watchbill.elect(%s, ARRAY[%s])", epoch, GROUP))

    def close(self) -> None:
        self._connection.close()


def measure_rebalances(url: str, tokens: int, nodes: int) -> None:
    session = Session(url)
    session.ask("SELECT watchbill.declare_group(%s, %s)", GROUP, tokens)
    epochs = [session.join(f"node-{number}") for number in range(nodes)]
    leader = epochs[0]
    term = session.lead(leader)

    def rebalance() -> int:
        return int(session.ask("SELECT watchbill.rebalance(%s, %s, %s)", GROUP, term, leader))

    def join() -> None:
        """The new member gets its share: the leader plans, and each owner passes its part on."""
        rebalance()
        session.ask(
            """SELECT count(watchbill.pass_tokens(o.epoch, %s))
            FROM (SELECT DISTINCT epoch FROM watchbill.tokens WHERE next IS NOT NULL) o""",
            GROUP,
        )

    print(f"{tokens:,} tokens over {nodes:,} nodes, first assignment: {session.measure(rebalance)} (wanted: 5 s)")
    session.ask("VACUUM ANALYZE watchbill.tokens")
    joined = session.join("one-more")
    print(f"a join, with its hand-over: {session.measure(join)} (wanted: 1 s)")
    owned = session.ask("SELECT count(*) FROM watchbill.tokens WHERE epoch = %s", joined)
    assert owned == tokens // (nodes + 1), owned
    session.ask("SELECT watchbill.leave(%s)", joined)
    print(f"a leave: {session.measure(rebalance)} (wanted: 1 s)")
    assert session.ask("SELECT count(*) FROM watchbill.tokens WHERE epoch = %s OR next IS NOT NULL", joined) == 0
    session.close()


def measure_owns(calls: int = 200_000, repeat: int = 5) -> None:
    lease = Lease()
    lease.begin(1, time.clock_gettime(time.CLOCK_BOOTTIME), 3600.0)
    ownership = Ownership(GROUP, lease)
    ownership.update(
        epoch=1, asked=time.clock_gettime(time.CLOCK_BOOTTIME), handover_timeout=3600.0, total=10_000, hash="md5",
        version=1, tokens=range(0, 10_000, 2), pins_version=0, pins={},
    )  # fmt: skip
    keys = [f"customer-{number}" for number in range(calls)]
    best = []
    for _ in range(repeat):
        began = time.process_time()
        for key in keys:
            ownership.owns(key)
        best.append((time.process_time() - began) / calls)
    print(f"owns: {min(best) * 1e6:.2f} us of processor time, best of {repeat} (wanted: 2 us)")


def measure_empty_lanes(url: str, lanes: int = 10_000, claims: int = 100, repeat: int = 5) -> None:
    """Of each kind of queue one that has no job for the node that claims. In the last one every second lane has a job,
    of a token that another node owns: no share of the tokens is worse."""
    session = Session(url)
    epoch, other = (session.register(name, list(QUEUES)) for name in ("first", "other"))
    for queue, total in (("routed", lanes), ("interleaved", 2 * lanes)):
        session.ask("SELECT watchbill.declare_group(%s, %s)", queue, total)
        session.ask("SELECT watchbill.route_queue(%s, %s)", queue, queue)
    query = """INSERT INTO watchbill.tokens (token_group, token, epoch, fence)
        SELECT %s, n, CASE WHEN n %% %s = 0 THEN %s ELSE %s END, 1 FROM generate_series(0, %s - 1) n"""
    session.ask(query, "routed", 1, epoch, other, lanes)
    session.ask(query, "interleaved", 2, epoch, other, 2 * lanes)
    session.ask(
        """SELECT count(watchbill.enqueue('work', queue => 'interleaved', route_by => n::text))
        FROM generate_series(1, %s) n""",
        lanes,
    )
    session.ask(
        """UPDATE watchbill.jobs j SET lane = 2 * x.n
        FROM (SELECT id, row_number() OVER () AS n FROM watchbill.jobs) x WHERE x.id = j.id"""
    )
    session.ask("VACUUM ANALYZE")
    costs: dict[str, list[float]] = {queue: [] for queue in QUEUES}
    for _ in range(repeat):
        for queue in QUEUES:

            def claim(queue: str = queue) -> None:
                for _ in range(claims):
                    assert session.ask(CLAIM, epoch, [queue]) == 0

            costs[queue].append(session.measure(claim).processor / claims)
    for queue, about in QUEUES.items():
        print(f"a claim {about}: {1000 * statistics.median(costs[queue]):.2f} ms of processor time")
    session.close()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--tokens", type=int, default=1_000_000)
    parser.add_argument("--nodes", type=int, default=1_000)
    options = parser.parse_args()
    measure_owns()
    server = Server.start(find_servers()[0])
    try:
        template = server.create_database()
        install(server.url(template))
        measure_empty_lanes(server.url(server.create_database(template)))
        measure_rebalances(server.url(server.create_database(template)), options.tokens, options.nodes)
    finally:
        server.stop()


if __name__ == "__main__":
    main()
