"""The wheel alone, in a fresh environment of each supported Python: it installs, and the README's five minutes work.

Part of `make dist` and `make test-long`; `make test` builds and checks the files in tests/architecture.
"""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest
from tools import build_distribution

from tests.acceptance.test_five_minutes import new_project, walk_through_readme
from tests.environments import ROOT, find_python

SUPPORTED = [(3, 11), (3, 12), (3, 13)]


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
