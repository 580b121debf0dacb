"""The install line of the README, run as it is in a copy of the repository."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.environments import make_bare
from watchbill import __version__
from watchbill._version import INSTALL_COMMAND, install_command

ROOT = Path(__file__).parents[2]
README_LINES = re.findall(r"^pip install .*$", (ROOT / "README.md").read_text(), re.MULTILINE)


def test_readme_and_hints_give_the_same_install_line() -> None:
    assert [INSTALL_COMMAND.format(extra="embedded")] == README_LINES
    assert README_LINES[0] in install_command("embedded")


@pytest.mark.timeout(600)
def test_the_install_line_installs_watchbill_from_a_clone(tmp_path: Path) -> None:
    clone = copy_repository(tmp_path / "clone")
    environment = tmp_path / "environment"
    make_bare(Path(sys.executable), environment)
    # `pip` is the one of this process: to install pip takes longer than to install Watchbill.
    places = [environment / "bin", Path(sys.executable).parent, os.environ["PATH"]]
    path = {"PATH": os.pathsep.join(map(str, places)), "PIP_PYTHON": str(environment / "bin" / "python")}
    path |= {"PIP_NO_COMPILE": "1", "PIP_DISABLE_PIP_VERSION_CHECK": "1"}
    variables = {name: value for name, value in os.environ.items() if name not in ("PYTHONPATH", "VIRTUAL_ENV")}

    def run(line: str, directory: Path) -> str:
        done = subprocess.run(
            line, shell=True, cwd=directory, env=variables | path, capture_output=True, text=True, check=False
        )
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout

    run(README_LINES[0], clone)
    shutil.rmtree(clone)  # an installed Watchbill does not need its clone
    assert run("command -v watchbill", tmp_path).strip() == str(environment / "bin" / "watchbill")
    assert run("watchbill version", tmp_path).startswith(f"Watchbill {__version__} (Python 3.")
    found = run("python -c 'from watchbill.postgres.embedded import *; print(find_binaries())'", tmp_path)
    assert "wheel" in found
    assert str(environment) in found


def copy_repository(target: Path) -> Path:
    listed = subprocess.run(["git", "ls-files"], cwd=ROOT, check=True, capture_output=True, text=True)
    for name in listed.stdout.splitlines():
        if (ROOT / name).is_file():
            (target / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(ROOT / name, target / name)
    return target
