"""Virtual environments with other versions of Python and of the frameworks, made once and kept in `.test-env/`.

A machine without such a Python, or without the packages, skips the tests that need one, and says so.
"""

from __future__ import annotations

import fcntl
import hashlib
import os
import shutil
import subprocess
import sys
import tomllib
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
PLACE = ROOT / ".test-env"


def environment(name: str, *requirements: str, at_least: tuple[int, int] = (3, 11)) -> Path:
    """The Python of an environment with Watchbill as it stands here and these requirements."""
    python = find_python(at_least)
    if python is None:
        wanted = ".".join(map(str, at_least))
        pytest.skip(f"no Python {wanted} or newer with venv on this machine, so {name} is not tested")
    ours = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["dependencies"]
    wanted = "\n".join([python, *requirements, *ours])
    made = PLACE / f"{name}-{hashlib.sha256(wanted.encode()).hexdigest()[:10]}"
    PLACE.mkdir(exist_ok=True)
    with (PLACE / f"{name}.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not (made / "ready").exists():
            for older in PLACE.glob(f"{name}-*/"):
                shutil.rmtree(older)
            _make(python, made, name, requirements)
    return made / "bin" / "python"


def _make(python: str, made: Path, name: str, requirements: tuple[str, ...]) -> None:
    """Installs with the pip of this process, since a pip of its own takes longer than the rest of an environment."""
    make_bare(Path(python), made)
    install = [sys.executable, "-m", "pip", "--python", str(made / "bin" / "python"), "install", "--no-compile"]
    options = ["--quiet", "--disable-pip-version-check", "--editable", str(ROOT)]
    done = subprocess.run([*install, *options, *requirements], capture_output=True, text=True)
    if done.returncode != 0:
        why = (done.stderr.strip().splitlines() or ["pip said nothing"])[-1]
        pytest.skip(f"{name} cannot be installed here, so it is not tested: {why}")
    (made / "ready").touch()


def make_bare(python: Path, place: Path) -> None:
    """Makes a virtual environment without pip."""
    subprocess.run([python, "-m", "venv", "--without-pip", place], check=True, capture_output=True)


def find_python(at_least: tuple[int, ...], at_most: tuple[int, ...] = (4,)) -> str | None:
    return next((path for path in _pythons() if _is_usable(path, at_least, at_most)), None)


def _pythons() -> Iterator[str]:
    yield sys.executable
    for minor in range(11, 20):
        if found := shutil.which(f"python3.{minor}"):
            yield found
    for versions in (os.environ.get("PYENV_ROOT", Path.home() / ".pyenv"), Path.home() / ".local/share/uv/python"):
        with suppress(PermissionError):  # a variable of another user's
            yield from map(str, sorted(Path(versions).glob("**/bin/python3.1[0-9]")))


def _is_usable(path: str, at_least: tuple[int, ...], at_most: tuple[int, ...]) -> bool:
    code = f"import sys, venv, ensurepip; sys.exit(not {at_least} <= sys.version_info[:2] <= {at_most})"
    return subprocess.run([path, "-c", code], capture_output=True, check=False).returncode == 0


if __name__ == "__main__":  # for `make test-all`: prints the path of a Python of this version
    version = tuple(map(int, sys.argv[1].split(".")))
    print(find_python(version, version) or sys.exit(f"Python {sys.argv[1]} with venv was not found; please install it"))
