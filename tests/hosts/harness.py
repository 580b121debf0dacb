"""A cluster under load, one fault after the other, and what came of it: a row for each fault, and the verdict."""

from __future__ import annotations

import json
import os
import re
import shutil
import signal
import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from tests.chaos import journal
from tests.chaos.flow_tasks import URL
from tests.chaos.journal import VARIABLE
from tests.hosts.cluster import DATABASES, NUMBERS, Cluster
from tests.hosts.network import Network, Process
from tests.servers import _place
from tests.waiting import until

LEASE = "60"
PACE = "0.1"  # seconds between two jobs of a producer
PATIENCE_SECONDS = 180
_WARNING = re.compile(r" (WARNING|ERROR|CRITICAL) ")


@dataclass
class Row:
    """One fault. Times are seconds after it. A new primary takes writes as soon as a standby follows it."""

    fault: str
    primary_at: float
    writes_at: float
    workers: dict[str, float]
    producers: dict[str, float]
    warnings: dict[str, int]
    load: float

    def late(self, times: dict[str, float]) -> str:
        return ", ".join(f"{way} {at - self.writes_at:+.1f}" for way, at in times.items())


@dataclass
class Hosts:
    """`with Hosts() as hosts: hosts.crash(); hosts.end()`; then `hosts.rows` and `hosts.verdict`."""

    rows: list[Row] = field(default_factory=list)
    verdict: dict[str, Any] = field(default_factory=dict)
    exit_codes: dict[str, int] = field(default_factory=dict)

    def __enter__(self) -> Self:
        self.directory = Path(tempfile.mkdtemp(prefix="watchbill-hosts-", dir=_place()))
        self.directory.chmod(0o755)
        for name in ("journal", "watched"):
            (self.directory / name).mkdir()
        self._network = Network(self.directory, NUMBERS).__enter__()
        self.cluster = Cluster(self._network, self.directory)
        self._workers: dict[str, Process] = {}
        self._producers: dict[str, Process] = {}
        self._down: str | None = None
        try:
            self._start()
        except BaseException:
            self.__exit__(*sys.exc_info())
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._network.__exit__(kind, error, trace)
        if error is None:
            shutil.rmtree(self.directory)
        else:
            print(f"The logs are in {self.directory}", file=sys.stderr)

    def _start(self) -> None:
        self.cluster.start()
        urls = self.cluster.urls
        preparing = self._program("send", "prepare", urls["hosts"])
        assert preparing.popen.wait(PATIENCE_SECONDS) == 0, preparing.text()
        each = " ".join(urls["hosts"].replace(self._all_addresses, self._network[name].address) for name in DATABASES)
        self._program("proxy", "watch", each, str(self.directory))
        for way, place in (("haproxy", "work1"), ("hosts", "work2"), ("pgbouncer", "work1")):
            self._workers[way] = self._start_worker(way, place)
        for seed, way in enumerate(urls):
            self._producers[way] = self._program(
                "send", "send", str(seed), PACE, str(self.directory), WATCHBILL_DATABASE_URL=urls[way]
            )
        until(lambda: all(self._starts(way) for way in urls), patience=PATIENCE_SECONDS)

    @property
    def _all_addresses(self) -> str:
        return ",".join(self._network[name].address for name in DATABASES)

    def _start_worker(self, way: str, place: str) -> Process:
        urls = self.cluster.urls
        settings = {"WATCHBILL_LEASE": LEASE, "WATCHBILL_CONCURRENCY": "8", "WATCHBILL_DRAIN_TIMEOUT": "60"}
        if way == "pgbouncer":
            settings["WATCHBILL_LISTEN_URL"] = urls["haproxy"]
        command = [sys.executable, "-m", "watchbill.cli", "worker", "tests.chaos.application:app"]
        known = {VARIABLE: str(self.directory / "journal"), URL: urls[way], "WATCHBILL_DATABASE_URL": urls[way]}
        return self._network[place].start(f"worker-{way}", *command, variables=settings | known)

    def _program(self, place: str, *words: str, **variables: str) -> Process:
        return self._network[place].start(
            words[0], sys.executable, "-m", "tests.hosts.programs", *words, variables=variables
        )

    # -- faults

    def crash(self) -> None:
        """Everything on the host of the primary is killed."""
        self._suffer("crash", lambda host: self._network[host].crash())

    def cut(self) -> None:
        """The network of the primary's host is cut: packets vanish."""
        self._suffer("cut", lambda host: self._network[host].cut())

    def switchover(self) -> None:
        """An operator moves the primary to another host."""
        self._suffer("switchover", lambda host: self.cluster.patronictl("switchover", "--force"), is_broken=False)

    def _suffer(self, name: str, fault: Callable[[str], None], *, is_broken: bool = True) -> None:
        until(self._all_follow, patience=PATIENCE_SECONDS)
        self._fill_backlog()
        old = self._primary
        sizes = {way: worker.log.stat().st_size for way, worker in self._workers.items()}
        began = time.time()
        fault(old)
        until(lambda: self._primary != old, patience=PATIENCE_SECONDS)
        promoted = next(each["at"] for each in self._watched("primary") if each["at"] > began)
        until(lambda: self._writes_since(promoted), patience=PATIENCE_SECONDS)
        writes = next(each["at"] for each in self._watched("writes") if each["at"] > promoted)
        urls = self.cluster.urls
        until(lambda: all(self._starts(way, promoted) for way in urls), patience=PATIENCE_SECONDS)
        until(lambda: all(self._acknowledged(way, promoted) for way in urls), patience=PATIENCE_SECONDS)
        until(lambda: all(self._starts(way, time.time() - 1) for way in urls), patience=PATIENCE_SECONDS)
        if is_broken:
            self._down = old
        text = {way: worker.log.read_bytes()[sizes[way] :].decode() for way, worker in self._workers.items()}
        self.rows.append(
            Row(
                name,
                promoted - began,
                writes - began,
                {way: self._starts(way, promoted)[0] - began for way in urls},
                {way: self._acknowledged(way, promoted)[0] - began for way in urls},
                {way: len(_WARNING.findall(lines)) for way, lines in text.items()},
                os.getloadavg()[0],
            )
        )

    def mend(self) -> None:
        """Brings the host back that was broken last, and waits until all follow the primary again."""
        assert self._down is not None
        host = self._network[self._down]
        if host.processes:
            host.mend()
        else:
            self.cluster.start_host(host.name)
        self._down = None
        until(self._all_follow, patience=PATIENCE_SECONDS)

    def _fill_backlog(self) -> None:
        asked = self.directory / f"backlog-{self._producers['haproxy'].popen.pid}"
        asked.touch()
        until(lambda: not asked.exists(), patience=PATIENCE_SECONDS)

    # -- what was seen

    def _watched(self, what: str) -> list[dict[str, Any]]:
        return [record for record in journal.read(self.directory / "watched") if record["what"] == what]

    @property
    def _primary(self) -> str:
        address = self._watched("primary")[-1]["host"]
        return next(name for name in DATABASES if self._network[name].address == address)

    def _writes_since(self, began: float) -> bool:
        return any(each["at"] > began for each in self._watched("writes"))

    def _all_follow(self) -> bool:
        seen = self._watched("writes")
        return bool(seen) and seen[-1]["standbys"] == 2

    def _starts(self, way: str, since: float = 0.0) -> list[float]:
        return self._times("start", self._workers[way], since)

    def _acknowledged(self, way: str, since: float = 0.0) -> list[float]:
        return self._times("acknowledged", self._producers[way], since)

    def _times(self, what: str, process: Process, since: float) -> list[float]:
        path = self.directory / "journal" / f"{process.popen.pid}.jsonl"
        if not path.exists():
            return []
        records = journal._read_file(path)
        return [each["at"] for each in records if each["what"] == what and each["at"] > since]

    # -- the end

    def end(self) -> None:
        (self.directory / "stop").touch()
        for way, producer in self._producers.items():
            self.exit_codes[f"producer {way}"] = producer.popen.wait(PATIENCE_SECONDS)
        url = self.cluster.urls["hosts"]
        assert self._program("send", "left", url, str(self.directory)).popen.wait(PATIENCE_SECONDS + 60) == 0
        for way, worker in self._workers.items():
            worker.popen.send_signal(signal.SIGTERM)
            self.exit_codes[f"worker {way}"] = worker.popen.wait(PATIENCE_SECONDS)
        judging = self._program("send", "judge", url, str(self.directory))
        assert judging.popen.wait(PATIENCE_SECONDS) == 0, judging.text()
        self.verdict = json.loads((self.directory / "verdict").read_text())

    @property
    def is_good(self) -> bool:
        """Whether nothing was lost or repeated, and every process ended well."""
        counts = [self.verdict[name] for name in ("lost", "twice", "slots_twice", "lost_nodes")]
        return not any([*counts, self.verdict["violations"], *self.exit_codes.values()])

    def report(self) -> str:
        titles = ("fault", "primary", "writes", "workers, after that", "producers, after that", "warnings", "load")
        table = [titles]
        for row in self.rows:
            times = (
                f"{row.primary_at:+.1f} s",
                f"{row.writes_at:+.1f} s",
                row.late(row.workers),
                row.late(row.producers),
            )
            warnings = "/".join(str(count) for count in row.warnings.values())
            table.append((row.fault, *times, warnings, f"{row.load:.1f}"))
        widths = [max(len(row[column]) for row in table) for column in range(len(titles))]
        lines = ["  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)) for row in table]
        counts = {name: value for name, value in self.verdict.items() if name != "violations"}
        lines.append(", ".join(f"{name} {value}" for name, value in counts.items()))
        return "\n".join([*lines, f"violations {len(self.verdict['violations'])}", *self.verdict["violations"][:10]])


def find_missing() -> str | None:
    """Returns what this machine lacks for the test, or None."""
    if os.geteuid() != 0:
        return "root"
    programs = {"ip": "iproute2", "etcd": "etcd-server", "haproxy": "haproxy", "pgbouncer": "pgbouncer"}
    missing = [package for program, package in programs.items() if shutil.which(program) is None]
    if not (Path(sys.executable).parent / "patroni").exists():
        missing.append("Patroni (tests/hosts/requirements.txt)")
    if missing:
        return ", ".join(missing)
    probe = os.system("ip netns add wbhost-probe 2>/dev/null && ip netns del wbhost-probe")
    return "the right to make network namespaces" if probe else None
