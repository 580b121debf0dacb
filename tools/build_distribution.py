"""Builds wheel and sdist twice, checks that both builds are equal, and checks what is in them.

`build_distribution.py DIRECTORY`, or `make dist`. The time stamps in the archives are that of the last commit, so that
anybody who builds the same commit gets the same bytes.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
from hashlib import sha256
from pathlib import Path

ROOT = Path(__file__).parents[1]
LAST_COMMIT_TIME = [shutil.which("git") or "git", "log", "-1", "--format=%ct"]


def build(directory: Path) -> list[Path]:
    """Builds from the working tree, with the tools of this environment. Returns the sdist and the wheel."""
    moment = subprocess.run(LAST_COMMIT_TIME, cwd=ROOT, check=True, capture_output=True, text=True)
    variables = os.environ | {"SOURCE_DATE_EPOCH": moment.stdout.strip()}
    command = [sys.executable, "-m", "build", "--no-isolation", "--outdir", str(directory), str(ROOT)]
    done = subprocess.run(command, env=variables, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        raise SystemExit(f"The build failed:\n{done.stdout}{done.stderr}")
    return sorted(directory.iterdir(), key=lambda path: path.suffix)


def differences(first: list[Path], second: list[Path]) -> list[str]:
    """Names of files whose bytes differ between the two builds."""
    digests = [{path.name: sha256(path.read_bytes()).hexdigest() for path in paths} for paths in (first, second)]
    return sorted(name for name in digests[0] | digests[1] if digests[0].get(name) != digests[1].get(name))


def check(paths: list[Path]) -> None:
    """Raises SystemExit if an index would refuse the files, or if the wheel has what it should not have."""
    wheels = [str(path) for path in paths if path.suffix == ".whl"]
    for command in (
        [sys.executable, "-m", "twine", "check", "--strict", *map(str, paths)],
        [sys.executable, "-m", "check_wheel_contents", *wheels],
    ):
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        if done.returncode != 0:
            raise SystemExit(f"{command[2]} found:\n{done.stdout}{done.stderr}")


def main(target: Path) -> None:
    with tempfile.TemporaryDirectory() as place:
        builds = [build(Path(place) / name) for name in ("first", "second")]
        if changed := differences(*builds):
            raise SystemExit(f"Two builds of the same commit differ in {', '.join(changed)}.")
        check(builds[0])
        target.mkdir(exist_ok=True)
        for path in builds[0]:
            shutil.copy2(path, target / path.name)
            content = path.read_bytes()
            print(f"{target / path.name}  {len(content):,} bytes  sha256 {sha256(content).hexdigest()}")


if __name__ == "__main__":
    main(Path(sys.argv[1]))
