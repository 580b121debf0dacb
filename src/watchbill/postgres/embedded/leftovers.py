"""Data that root's projects have in the state directory, and that nothing leads to any more.

A project that is not there may be on a disk that is not mounted, so its data stays, and `watchbill doctor` names it. Only
what was a project in a temporary directory is deleted: such a place does not come back.
"""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

from watchbill.postgres.embedded import home, supervisor

_AT_MOST = 10  # in one go: nobody shall wait for it


def find_leftovers() -> Iterator[tuple[Path, Path]]:
    """(directory with the data, the project that it was made for)."""
    if os.geteuid() != 0 or not home.STATE.is_dir():
        return
    for directory in sorted(home.STATE.iterdir()):
        with suppress(OSError):
            project = home.read_path(directory / "project")
            if not project.exists():
                yield directory, project


def delete_temporary() -> None:
    """Those of projects in temporary directories, unless somebody holds a server there."""
    temporary = [directory for directory, project in find_leftovers() if _is_temporary(project)]
    for directory in temporary[:_AT_MOST]:
        with suppress(OSError, TimeoutError), supervisor.change(directory, patience=0):
            if supervisor.is_forsaken(directory):
                shutil.rmtree(directory)


def _is_temporary(project: Path) -> bool:
    places = {Path(tempfile.gettempdir()), Path("/tmp"), Path("/var/tmp"), Path("/dev/shm")}  # noqa: S108
    return any(project.is_relative_to(place) for place in places)
