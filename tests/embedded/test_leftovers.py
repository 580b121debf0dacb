"""Data of deleted projects in root's state directory: what was temporary goes, the rest is named."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from watchbill.postgres.checks.environment import check_leftovers
from watchbill.postgres.embedded import home, supervisor
from watchbill.postgres.embedded.home import delete_leftovers_of_temporary_projects

pytestmark = pytest.mark.skipif(os.geteuid() != 0, reason="only root has a state directory")


def keep_data(state: Path, name: str, project: Path) -> Path:
    """As `Home.make` would for a project that the server's user cannot enter."""
    directory = state / name
    (directory / "data").mkdir(parents=True)
    for lock in supervisor.LOCKS:
        supervisor.make_lock(directory / lock)
    home.write_path(directory / "project", project)
    return directory


def test_only_data_of_deleted_temporary_projects_is_deleted(state: Path, bare_project: Path) -> None:
    gone = keep_data(state, "1", Path("/tmp/watchbill-that-never-was"))
    there = keep_data(state, "2", bare_project)
    unmounted = keep_data(state, "3", Path("/mnt/watchbill-that-never-was"))
    (state / "binaries").mkdir()
    delete_leftovers_of_temporary_projects()
    assert not gone.exists()
    assert all(directory.exists() for directory in (there, unmounted, state / "binaries"))
    found = check_leftovers()
    assert (found.state, found.hint) == ("note", f"rm -r {unmounted}")


def test_data_in_use_is_not_deleted(state: Path) -> None:
    held = keep_data(state, "1", Path("/tmp/watchbill-that-never-was"))
    hold = supervisor.add_holder(held)
    delete_leftovers_of_temporary_projects()
    assert held.exists()
    os.close(hold)
    with supervisor.lock_for_change(held):
        delete_leftovers_of_temporary_projects()
        assert held.exists()
    delete_leftovers_of_temporary_projects()
    assert not held.exists()
    assert check_leftovers().state == "ok"
