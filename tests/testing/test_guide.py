"""Some how-to pages are projects: their files are written as they stand there, and their tests pass."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

pytest_plugins = ["pytester"]

HOWTO = Path(__file__).parents[2] / "docs" / "howto"
BLOCK = re.compile(r"```(\w+)\n(?:# (\w+\.py)\n)?(.*?)```", re.DOTALL)


@pytest.mark.parametrize(("page", "least"), [("testing.md", 11), ("retries.md", 4), ("dependencies.md", 3)])
def test_every_block_of_the_guide_runs(
    pytester: pytest.Pytester, given_database: str, monkeypatch: pytest.MonkeyPatch, page: str, least: int
) -> None:
    monkeypatch.setenv("PYTHONPATH", str(pytester.path))
    for name in ("WATCHBILL_DATABASE_URL", "WATCHBILL_TEST_DATABASE_URL", "PYTEST_XDIST_WORKER"):
        monkeypatch.delenv(name, raising=False)
    (pytester.path / "pytest.ini").write_text(f"[pytest]\nwatchbill_database_url = {given_database}\n")
    tests = 0
    for language, name, text in BLOCK.findall((HOWTO / page).read_text()):
        if language == "toml":
            continue
        if language == "ini":
            ours, replaced = re.subn("postgresql://.*", lambda _: given_database, text)
            assert replaced == 1
            (pytester.path / "pytest.ini").write_text(f"{ours}filterwarnings = error\n")
        else:
            assert name, f"a block does not say which file it is:\n{text}"
            (pytester.path / name).write_text(text)
            tests += len(re.findall(r"^ *(?:async )?def test_", text, re.MULTILINE))
    assert tests >= least
    result = pytester.runpytest_subprocess("-p", "no:hypothesispytest", "-W", "ignore::pytest.PytestDeprecationWarning")
    assert result.parseoutcomes() == {"passed": tests}, result.stdout.str()
