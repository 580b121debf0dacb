"""The wheel alone, in a fresh environment of each supported Python: it installs, and the README's five minutes work.

Part of `make dist` and `make test-long`; `make test` builds and checks the files in tests/architecture.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from tools import build_distribution

from tests.acceptance.test_five_minutes import new_project, walk_through_readme
from tests.environments import ROOT, find_python

SUPPORTED = [(3, 11), (3, 12), (3, 13)]
NOBODY = 65_534
NO_PROGRAMS = "/nonexistent"  # a PATH without compiler, shell and PostgreSQL


@pytest.mark.long
@pytest.mark.timeout(600)
@pytest.mark.parametrize("version", SUPPORTED, ids=lambda version: f"{version[0]}.{version[1]}")
def test_the_readme_works_from_the_wheel_alone(tmp_path: Path, version: tuple[int, int]) -> None:
    python = find_python(version, version)
    if python is None:
        pytest.skip(f"no Python {version[0]}.{version[1]} with venv on this machine")
    [wheel] = [path for path in build_distribution.build(tmp_path / "dist") if path.suffix == ".whl"]
    subprocess.run([python, "-m", "venv", str(tmp_path / "fresh")], check=True, capture_output=True)
    fresh = str(tmp_path / "fresh" / "bin" / "python")
    constraints = ["--constraint", str(ROOT / "constraints.txt")]
    subprocess.run([fresh, "-m", "pip", "install", "--quiet", *constraints, f"{wheel}[embedded]"], check=True)
    where = "import watchbill; print(watchbill.__file__)"
    loaded = subprocess.run([fresh, "-c", where], check=True, capture_output=True, text=True, cwd=tmp_path).stdout
    assert loaded.startswith(str(tmp_path / "fresh")), "the environment must not see the repository"
    with new_project(fresh) as project:
        walk_through_readme(project)


@contextmanager
def _place_of_nobody() -> Iterator[Path]:
    """Not below the directory of pytest, which only its user may enter."""
    place = Path(tempfile.mkdtemp(prefix="watchbill-nobody-"))
    os.chown(place, NOBODY, NOBODY)
    try:
        yield place
    finally:
        shutil.rmtree(place)


def _make_command(place: Path, name: str, program: Path) -> Path:
    """A command that runs a program as an ordinary user without other programs."""
    command = place / name
    setpriv = shutil.which("setpriv")
    command.write_text(
        f"#!/bin/sh\nexport PATH={NO_PROGRAMS} HOME={place} WATCHBILL_EMBEDDED_BINARIES=wheel\n"
        f'exec {setpriv} --reuid {NOBODY} --regid {NOBODY} --clear-groups {program} "$@"\n'
    )
    command.chmod(0o755)
    return command


@pytest.mark.long
@pytest.mark.timeout(600)
def test_the_readme_works_for_an_ordinary_user_without_a_compiler(tmp_path: Path) -> None:
    """Who has no rights, no compiler and no PostgreSQL: everything comes in wheels."""
    system = next(
        (each for each in ("/usr/bin/python3.13", "/usr/bin/python3.12", "/usr/bin/python3.11") if Path(each).exists()),
        None,
    )
    if os.geteuid() != 0 or shutil.which("setpriv") is None or system is None:
        pytest.skip("only root can become another user, with setpriv and a Python of the system")
    with _place_of_nobody() as place:
        for path in build_distribution.build(tmp_path / "dist"):
            shutil.copy(path, place)
        shutil.copy(ROOT / "constraints.txt", place)
        [wheel] = place.glob("*.whl")
        maker = _make_command(place, "make", Path(system))
        subprocess.run([maker, "-m", "venv", place / "fresh"], check=True, capture_output=True)
        python = _make_command(place, "python", place / "fresh" / "bin" / "python")
        _make_command(place, "watchbill", place / "fresh" / "bin" / "watchbill")
        install = ["-m", "pip", "install", "--quiet", "--no-cache-dir", "--only-binary", ":all:", "--constraint"]
        subprocess.run([python, *install, place / "constraints.txt", f"{wheel}[embedded]"], check=True, cwd=place)
        with new_project(str(python)) as project:
            for path in (project.directory, *project.directory.iterdir()):
                os.chown(path, NOBODY, NOBODY)
            walk_through_readme(project)
            assert (project.directory / ".watchbill").stat().st_uid == NOBODY
