"""Hosts as network namespaces on one bridge, which is in a namespace of its own. No packet leaves them.

Every address is a permanent neighbor of every other one, so that a host that is cut off is silent: no error message
tells anyone that it is gone.
"""

from __future__ import annotations

import os
import signal
import subprocess
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Self

from tests.chaos.workers import ROOT, environment

PREFIX = "wbhost-"
NETWORK = "10.231.0.0/24"
_BRIDGE = f"{PREFIX}net"
# PostgreSQL refuses to run as root. The other user may not be able to read our Python, so it keeps this one right.
_AS_SERVER = [
    "setpriv", "--reuid=postgres", "--regid=postgres", "--clear-groups",
    "--inh-caps=+dac_read_search", "--ambient-caps=+dac_read_search",
]  # fmt: skip


def run(*command: str) -> str:
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        raise RuntimeError(f"{' '.join(command)}: {done.stderr.strip()}")
    return done.stdout


@dataclass
class Process:
    name: str
    popen: subprocess.Popen[bytes]
    log: Path

    @property
    def is_alive(self) -> bool:
        return self.popen.poll() is None

    def text(self) -> str:
        return self.log.read_text(errors="replace")


@dataclass
class Host:
    """One namespace, with the processes that were started in it."""

    name: str
    number: int
    directory: Path
    processes: list[Process] = field(default_factory=list)

    @property
    def namespace(self) -> str:
        return PREFIX + self.name

    @property
    def address(self) -> str:
        return f"10.231.0.{self.number}"

    @property
    def hardware_address(self) -> str:
        return f"02:00:00:00:00:{self.number:02x}"

    @property
    def port(self) -> str:
        """The other end of its cable, in the bridge."""
        return f"port{self.number}"

    def start(
        self, name: str, *command: str, as_server: bool = False, variables: Mapping[str, str] | None = None
    ) -> Process:
        log = self.directory / f"{self.name}-{name}.log"
        with log.open("ab") as output:
            popen = subprocess.Popen(
                ["ip", "netns", "exec", self.namespace, *(_AS_SERVER if as_server else []), *command],
                cwd=ROOT, env=environment(**(variables or {})), stdin=subprocess.DEVNULL, stdout=output, stderr=output,
                start_new_session=True,
            )  # fmt: skip
        self.processes.append(Process(name, popen, log))
        return self.processes[-1]

    def signal_all(self, number: signal.Signals) -> None:
        """Sends a signal to every process of this host, whoever started it."""
        for pid in _list_processes(self.namespace):
            try:
                os.kill(pid, number)
            except ProcessLookupError:
                continue

    def crash(self) -> None:
        """Kills everything on it, until nothing is left."""
        while _list_processes(self.namespace):
            self.signal_all(signal.SIGKILL)
            time.sleep(0.01)
        for process in self.processes:
            process.popen.wait()
        self.processes.clear()

    def cut(self) -> None:
        run("bridge", "-n", _BRIDGE, "link", "set", "dev", self.port, "state", "0")

    def mend(self) -> None:
        run("bridge", "-n", _BRIDGE, "link", "set", "dev", self.port, "state", "3")


class Network:
    """`with Network(directory, {"db1": 11, ...}) as network: network["db1"].start(...)`"""

    def __init__(self, directory: Path, numbers: dict[str, int]) -> None:
        self.hosts = {name: Host(name, number, directory) for name, number in numbers.items()}

    def __getitem__(self, name: str) -> Host:
        return self.hosts[name]

    def __enter__(self) -> Self:
        remove_leftovers()
        try:
            self._make()
        except BaseException:
            remove_leftovers()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        remove_leftovers()
        for host in self.hosts.values():
            for process in host.processes:
                process.popen.wait()

    def _make(self) -> None:
        run("ip", "netns", "add", _BRIDGE)
        run("ip", "-n", _BRIDGE, "link", "add", "bridge", "type", "bridge")
        run("ip", "-n", _BRIDGE, "link", "set", "bridge", "up")
        for host in self.hosts.values():
            run("ip", "netns", "add", host.namespace)
            ends = ["type", "veth", "peer", "name", host.port, "netns", _BRIDGE]
            run("ip", "-n", host.namespace, "link", "add", "cable", "address", host.hardware_address, *ends)
            run("ip", "-n", _BRIDGE, "link", "set", host.port, "master", "bridge", "up")
            run("ip", "-n", host.namespace, "addr", "add", f"{host.address}/24", "dev", "cable")
            run("ip", "-n", host.namespace, "link", "set", "lo", "up")
            run("ip", "-n", host.namespace, "link", "set", "cable", "up")
        for host in self.hosts.values():
            for other in self.hosts.values():
                if other is not host:
                    neighbor = [other.address, "lladdr", other.hardware_address, "dev", "cable", "nud", "permanent"]
                    run("ip", "-n", host.namespace, "neigh", "replace", *neighbor)


def remove_leftovers() -> None:
    """Ends all processes in the namespaces of such a network and removes these, also after a run that was killed."""
    names = [line.split()[0] for line in run("ip", "netns", "list").splitlines() if line.startswith(PREFIX)]
    for name in names:
        while pids := _list_processes(name):
            for pid in pids:
                try:
                    os.kill(pid, signal.SIGKILL)
                except ProcessLookupError:
                    continue
            time.sleep(0.01)
        run("ip", "netns", "del", name)


def _list_processes(namespace: str) -> list[int]:
    """Without zombies: their parent may be this process, which waits for them later."""
    pids = [int(pid) for pid in run("ip", "netns", "pids", namespace).split()]
    return [pid for pid in pids if not _is_zombie(pid)]


def _is_zombie(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] == "Z"
    except OSError:
        return True
