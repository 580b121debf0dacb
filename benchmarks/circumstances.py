"""Under which circumstances the figures were made: machine, versions, durability, state of the sources."""

from __future__ import annotations

import os
import platform
import subprocess
from datetime import UTC, datetime
from typing import Any

import psycopg

from benchmarks.places import ADMIN_DSN, ENV, ROOT

SETTINGS = ("fsync", "synchronous_commit", "full_page_writes", "shared_buffers", "max_wal_size")


def circumstances() -> dict[str, Any]:
    return {
        "at": datetime.now(UTC).isoformat(timespec="seconds"),
        "cores": os.cpu_count(),
        "python": platform.python_version(),
        "commit": _git("rev-parse", "--short", "HEAD") + ("+" if _git("status", "--porcelain", "src") else ""),
        "postgresql": _server(),
        "peers": _versions(),
    }


def _git(*words: str) -> str:
    return subprocess.run(["git", *words], cwd=ROOT, check=False, capture_output=True, text=True).stdout.strip()


def _server() -> dict[str, str]:
    with psycopg.connect(ADMIN_DSN) as connection:
        rows = connection.execute("SELECT name, current_setting(name) FROM unnest(%s::text[]) name", (list(SETTINGS),))
        return {"version": connection.info.parameter_status("server_version") or "", **dict(rows.fetchall())}


def _versions() -> list[str]:
    """As the installer wrote them down."""
    lines = [line for file in ("versions-python.txt", "versions-node.txt") for line in _lines(file)]
    named = ("celery", "pgqueuer", "procrastinate", "taskiq", "graphile-worker", "pg-boss", "asyncpg", "redis")
    return [line for line in lines if line.startswith(named)]


def _lines(file: str) -> list[str]:
    path = ENV / file
    return [line.strip("├─└ ") for line in path.read_text().splitlines()] if path.exists() else []
