"""What handlers and producers saw, kept where no kill can take it back: a file per process, appended to and synced."""

from __future__ import annotations

import json
import os
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

VARIABLE = "CHAOS_JOURNAL"


class Journal:
    """`write` returns when the line is on the disk."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self._lock = threading.Lock()
        self._file = -1
        self._pid = 0

    @classmethod
    def of_environment(cls) -> Journal:
        return cls(Path(os.environ[VARIABLE]))

    def write(self, what: str, **told: Any) -> None:
        line = json.dumps({"what": what, "at": time.time(), "pid": os.getpid(), **told}, default=str) + "\n"
        with self._lock:
            if self._pid != os.getpid():
                self._pid = os.getpid()
                path = self._directory / f"{self._pid}.jsonl"
                self._file = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC, 0o666)
            os.write(self._file, line.encode())
            os.fsync(self._file)


def read(directory: Path) -> list[dict[str, Any]]:
    """Every record, by time. A line that a kill has cut short was never told to anybody."""
    records = [record for path in directory.glob("*.jsonl") for record in _read_file(path)]
    return sorted(records, key=lambda record: float(record["at"]))


def _read_file(path: Path) -> Iterator[dict[str, Any]]:
    for line in path.read_text().splitlines():
        try:
            yield json.loads(line)
        except json.JSONDecodeError:
            continue
