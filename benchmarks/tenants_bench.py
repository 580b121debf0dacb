"""What row security and quotas cost: `python -m benchmarks.tenants_bench [--jobs N] [--repeat N]`.

Each variant has a database of its own on one server, with the roles of `watchbill db roles create`. A producer enqueues
single jobs, as Python's clients (`plain`) and as SQL (`enqueue`) do. A worker claims and settles a backlog in batches
of 1,000 (`drain`). The variants take turns, 50 single jobs or one batch at a time.

The figures are the CPU time of the server's process, because the clock says little on a machine that does other things.
Of the turns the lower quartile counts: other work on the machine makes a turn dearer, never cheaper. A ratio is the
time without row security and quotas, by that of the variant: 0.9 means that a busy core stores 0.9 times as many jobs.
"""

from __future__ import annotations

import argparse
import json
import random
import statistics
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import psycopg
from tests.role_logins import Logins, make_logins
from tests.servers import Server, find_servers

from watchbill.model.ids import new_id
from watchbill.store.install import install
from watchbill.store.queries import queries
from watchbill.store.roles import grant_role
from watchbill.store.tenants import enable_tenants

TENANT = "acme"
TURN = 50  # jobs of a variant before the next one's turn
BATCH = 1000  # jobs of a claim
PLAIN = queries("watchbill")["enqueue_plain"].encode()
ENQUEUE = b"SELECT * FROM watchbill.enqueue('t', %s::jsonb, tenant => set_config('watchbill.tenant', %s, true))"
QUOTA = "SELECT watchbill.set_tenant(%s, '{\"unfinished\": 100000000}')"


@dataclass(frozen=True)
class Variant:
    """How an installation is set up, and the ratios that are wanted."""

    about: str
    protected: bool = False
    bound: bool = False
    quota_of: str | None = None
    single: float | None = None
    drain: float | None = None


VARIANTS = {
    "off": Variant("neither row security nor quotas"),
    "on": Variant("row security, a producer that names its tenant", protected=True, single=0.9, drain=0.95),
    "bound": Variant("row security, a producer that is bound to its tenant", protected=True, bound=True, single=0.9),
    "quota elsewhere": Variant("a quota of another tenant", quota_of="other", single=0.98),
    "quota": Variant("a quota of this tenant", quota_of=TENANT),
}


class Session:
    """A connection whose server process is measured."""

    def __init__(self, url: str) -> None:
        self.connection = psycopg.connect(url, autocommit=True, prepare_threshold=1)

    def cpu(self) -> float:
        """Microseconds."""
        return int(Path(f"/proc/{self.connection.info.backend_pid}/schedstat").read_text().split()[0]) / 1000

    def cost(self, work: Callable[[], None]) -> float:
        before = self.cpu()
        work()
        return self.cpu() - before


@dataclass
class Site:
    """The database of a variant, with a producer and a worker."""

    logins: Logins
    producer: Session
    worker: Session
    epoch: int
    costs: dict[str, list[float]] = field(default_factory=dict)

    def enqueue_plain(self, count: int) -> None:
        for number in range(count):
            self.producer.connection.execute(
                PLAIN,
                ("t", json.dumps({"n": number}), "default", 0, True, TENANT, 9, None, 1, new_id(), None, None),
            )

    def enqueue(self, count: int) -> None:
        for number in range(count):
            self.producer.connection.execute(ENQUEUE, (json.dumps({"n": number}), TENANT))

    def drain(self) -> int:
        """Claims and settles a batch; the number of its jobs."""
        connection = self.worker.connection
        rows = connection.execute(
            "SELECT id, fence FROM watchbill.claim(%s, '{default}', %s, 20)", (self.epoch, BATCH), binary=True
        ).fetchall()
        connection.execute(
            "SELECT * FROM watchbill.settle("
            "%s, %s::uuid[], %s::bigint[], ages => %s::float8[], closed => %s::bigint[])",
            (
                self.epoch,
                [job for job, _ in rows],
                [fence for _, fence in rows],
                [0.001] * len(rows),
                list({fence for _, fence in rows}),
            ),
        )
        return len(rows)

    def count_quotas(self) -> None:
        """As a node does every few seconds."""
        self.worker.connection.execute("SELECT watchbill.refresh_quotas(at_once => true)")

    def fill(self, jobs: int) -> None:
        """A backlog, as a superuser makes it."""
        with psycopg.connect(self.logins.owner_url, autocommit=True) as connection:
            connection.execute(
                "SELECT count(*) FROM watchbill.enqueue_many(("
                "SELECT jsonb_agg(jsonb_build_object('type', 't', 'tenant', %s::text)) FROM generate_series(1, %s)))",
                (TENANT, jobs),
            )
            connection.execute("VACUUM ANALYZE watchbill.jobs")

    def empty(self) -> None:
        with psycopg.connect(self.logins.owner_url, autocommit=True) as connection:
            connection.execute("TRUNCATE watchbill.jobs, watchbill.quota_changes")
            connection.execute("VACUUM ANALYZE watchbill.jobs")


@contextmanager
def a_site(server: Server, template: str, variant: Variant) -> Iterator[Site]:
    name = server.create_database(template)
    url = server.url(name)
    with make_logins(server, url) as logins:
        if variant.protected:
            enable_tenants(url, "watchbill")
        if variant.bound:
            grant_role(url, "watchbill", f"{logins.database}_producer", None, [TENANT])
        with psycopg.connect(url, autocommit=True) as connection:
            if variant.quota_of:
                connection.execute(QUOTA.encode(), (variant.quota_of,))
        worker = Session(logins.url("worker"))
        [(epoch,)] = worker.connection.execute("SELECT watchbill.register('bench', lease => '1 hour')").fetchall()
        site = Site(logins, Session(logins.url("producer")), worker, epoch)
        try:
            yield site
        finally:
            site.producer.connection.close()
            site.worker.connection.close()


def _shuffle(sites: dict[str, Site], turn: int) -> list[Site]:
    """In another order each turn: what ran before a variant decides what it finds in the caches of the processor."""
    return random.Random(turn).sample([*sites.values()], len(sites))


def measure_singles(sites: dict[str, Site], jobs: int, kind: str) -> None:
    for site in sites.values():
        getattr(site, kind)(100)  # plans and caches
    for turn in range(jobs // TURN):
        for site in _shuffle(sites, turn):
            if turn % 50 == 0:
                site.count_quotas()
            cost = site.producer.cost(lambda site=site: getattr(site, kind)(TURN))  # type: ignore[misc]
            site.costs.setdefault(kind, []).append(cost / TURN)
    for site in sites.values():
        site.empty()


def measure_drain(sites: dict[str, Site], jobs: int) -> None:
    for site in sites.values():
        site.fill(jobs + 2 * BATCH)
        site.drain()
    for turn in range(jobs // BATCH):
        for site in _shuffle(sites, turn):

            def work(site: Site = site) -> None:
                if site.drain() != BATCH:
                    raise RuntimeError("a claim took fewer jobs than there are")

            site.costs.setdefault("drain", []).append(site.worker.cost(work) / BATCH)
    for site in sites.values():
        site.empty()


def _lower_quartile(values: list[float]) -> float:
    return statistics.quantiles(values, n=4)[0]


def report(sites: dict[str, Site]) -> None:
    print("CPU time of the server per job in us, and the ratio to `off`; lower quartiles of the turns")
    print(f"{'':16} {'plain':>14} {'enqueue':>14} {'drain':>14}   {'wanted: single, drain':>22}")
    for name, site in sites.items():
        cells = []
        for kind in ("enqueue_plain", "enqueue", "drain"):
            cost, usual = _lower_quartile(site.costs[kind]), _lower_quartile(sites["off"].costs[kind])
            cells.append(f"{cost:8.1f} {usual / cost:5.2f}")
        variant = VARIANTS[name]
        print(f"{name:16} {' '.join(cells)}   {variant.single or '':>16} {variant.drain or '':>5}")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--jobs", type=int, default=20_000, help="single enqueues, and jobs to drain, of each variant")
    parser.add_argument("--repeat", type=int, default=3)
    parser.add_argument("--variants", default=",".join(VARIANTS), help="comma-separated; `off` is always one of them")
    parser.add_argument("--server", type=int, help="the major version of the PostgreSQL to use")
    options = parser.parse_args()
    found = [binaries for binaries in find_servers() if options.server in (None, binaries.major)]
    server = Server.start(found[0])
    try:
        template = server.create_database()
        install(server.url(template))
        with ExitStack() as stack:
            sites: dict[str, Any] = {
                name: stack.enter_context(a_site(server, template, VARIANTS[name]))
                for name in dict.fromkeys(["off", *options.variants.split(",")])
            }
            for _ in range(options.repeat):
                measure_singles(sites, options.jobs, "enqueue_plain")
                measure_singles(sites, options.jobs, "enqueue")
                measure_drain(sites, options.jobs)
            print(f"PostgreSQL {found[0].major}")
            report(sites)
    finally:
        server.stop()


if __name__ == "__main__":
    main()
