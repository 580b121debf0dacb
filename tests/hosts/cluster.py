"""Three hosts with Patroni and etcd, and one with HAProxy and PgBouncer, from the files in deploy/patroni."""

from __future__ import annotations

import shutil
import sys
from pathlib import Path
from string import Template

from tests.chaos.server import EFFECTS, OBSERVER
from tests.chaos.workers import ROOT
from tests.hosts.network import NETWORK, Host, Network
from tests.servers import find_servers
from watchbill.postgres.connect import Connection

DEPLOY = ROOT / "deploy" / "patroni"
PASSWORD = "in-the-namespaces-only"
NUMBERS = {"db1": 11, "db2": 12, "db3": 13, "proxy": 21, "work1": 31, "work2": 32, "send": 41}
DATABASES = ("db1", "db2", "db3")
_USER = f"postgres:{PASSWORD}"


class Cluster:
    def __init__(self, network: Network, directory: Path) -> None:
        self._network, self._directory = network, directory
        self._bin = str(find_servers()[-1].directory)  # the system's, if there is one

    @property
    def urls(self) -> dict[str, str]:
        """The ways to the primary."""
        hosts = ",".join(self._network[name].address for name in DATABASES)
        proxy = self._network["proxy"].address
        return {
            "haproxy": f"postgresql://{_USER}@{proxy}:5000/watchbill",
            "hosts": f"postgresql://{_USER}@{hosts}/watchbill",
            "pgbouncer": f"postgresql://{_USER}@{proxy}:6432/watchbill",
        }

    def start(self) -> None:
        for name in DATABASES:
            data = self._directory / name
            data.mkdir()
            shutil.chown(data, "postgres", "postgres")
            self.start_host(name)
        proxy = self._network["proxy"]
        data = self._directory / "proxy"
        data.mkdir()
        shutil.chown(data, "postgres", "postgres")
        (data / "userlist.txt").write_text(f'"postgres" "{PASSWORD}"\n')
        proxy.start("haproxy", "haproxy", "-db", "-f", self._fill("haproxy.cfg", proxy))
        proxy.start("pgbouncer", "pgbouncer", self._fill("pgbouncer.ini", proxy), as_server=True)

    def start_host(self, name: str) -> None:
        """Starts etcd and Patroni on a database host, for the first time or after a crash."""
        host = self._network[name]
        host.start("etcd", "etcd", "--config-file", self._fill("etcd.conf", host), as_server=True)
        patroni = str(Path(sys.executable).parent / "patroni")
        host.start("patroni", patroni, self._fill("patroni.yml", host), as_server=True)

    def _fill(self, file: str, host: Host) -> str:
        """Writes a file of deploy/patroni with the addresses and paths of this host."""
        values = {name.upper(): self._network[name].address for name in DATABASES} | {
            "NAME": host.name, "ADDRESS": host.address, "DATA": str(self._directory / host.name), "BIN": self._bin,
            "NETWORK": NETWORK, "PASSWORD": PASSWORD, "HAPROXY": self._network["proxy"].address,
        }  # fmt: skip
        filled = self._directory / host.name / file
        filled.write_text(Template((DEPLOY / file).read_text()).substitute(values))
        shutil.chown(filled, "postgres", "postgres")
        return str(filled)

    def patronictl(self, *words: str) -> None:
        host = self._network["db1"] if self._network["db1"].processes else self._network["db2"]
        host.start("patronictl", str(Path(sys.executable).parent / "patronictl"), "-c",
                   str(self._directory / host.name / "patroni.yml"), *words, as_server=True)  # fmt: skip


def prepare_database(url: str) -> None:
    """Makes the tables of the chaos tests; the schema was migrated before."""
    with Connection.connect(url, autocommit=True) as connection:
        connection.execute(EFFECTS)
        connection.execute(OBSERVER.read_bytes())
