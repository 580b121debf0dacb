"""Takes out each epoch, fence and state check of the functions, one at a time: some test must fail for each."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.conftest import BINARIES
from tests.servers import Server
from tests.store.conftest import template
from tests.store.mutants import EQUIVALENT, Mutant
from tests.store.mutants import MUTANTS as MUTANTS_OF_THE_QUEUE
from tests.store.mutants_cluster import MUTANTS_OF_THE_CLUSTER
from tests.store.mutants_dependencies import MUTANTS_OF_DEPENDENCIES
from tests.store.mutants_flow import MUTANTS_OF_FLOW_CONTROL
from tests.store.mutants_locks import MUTANTS_OF_LOCKS
from tests.store.mutants_tenants import MUTANTS_OF_TENANTS
from watchbill.postgres.embedded import Binaries
from watchbill.postgres.migrate import Source, apply_functions

MUTANTS = [
    *MUTANTS_OF_THE_QUEUE,
    *MUTANTS_OF_DEPENDENCIES,
    *MUTANTS_OF_FLOW_CONTROL,
    *MUTANTS_OF_LOCKS,
    *MUTANTS_OF_THE_CLUSTER,
    *MUTANTS_OF_TENANTS,
]

SOURCE = Source.of_package("watchbill.store")
HERE = Path(__file__).parent


def test_every_mutant_changes_exactly_its_file() -> None:
    for mutant in [*MUTANTS, *(mutant for mutant, _ in EQUIVALENT)]:
        changed = mutant.apply(SOURCE)
        differing = [file.name for file, was in zip(changed.functions, SOURCE.functions, strict=True) if file != was]
        assert differing == [mutant.file], mutant.name
        assert all((HERE / f"test_{name}.py").exists() for name in mutant.tests.split()), mutant.name


def test_mutants_are_unique() -> None:
    assert len({mutant.name for mutant in MUTANTS}) == len(MUTANTS)
    assert len({(mutant.file, mutant.original, mutant.replacement) for mutant in MUTANTS}) == len(MUTANTS)


@pytest.mark.long
@pytest.mark.timeout(600)
@pytest.mark.parametrize("mutant", MUTANTS, ids=lambda mutant: mutant.name)
def test_every_mutant_fails_some_test(start_server: Callable[[Binaries], Server], mutant: Mutant) -> None:
    """On one server: a check that is missing is missing on all."""
    killer = hunt(start_server(BINARIES[0]), mutant)
    assert killer is not None, f"no test notices: {mutant.name}"


def hunt(server: Server, mutant: Mutant) -> str | None:
    """Runs the tests that should notice it; the first that fails."""
    name = server.create_database(template(server))
    try:
        apply_functions(server.url(name), "watchbill", mutant.apply(SOURCE))
        files = [str(HERE / f"test_{name}.py") for name in mutant.tests.split()]
        command = [
            sys.executable,
            "-m",
            "pytest",
            "-x",
            "-q",
            "-p",
            "no:randomly",
            "-p",
            "no:cacheprovider",
            "--timeout=25",
        ]
        only = ["-k", f"{server.binaries.origin}-{server.binaries.major}"]
        environment = {**os.environ, "WATCHBILL_TEST_SERVER": server.embedded.url, "WATCHBILL_TEST_TEMPLATE": name}
        done = subprocess.run(
            [*command, *only, *files], env=environment, capture_output=True, text=True, cwd=HERE.parents[1]
        )
        assert done.returncode in (0, 1), done.stdout + done.stderr
        failed = [line.split()[1] for line in done.stdout.splitlines() if line.startswith(("FAILED", "ERROR"))]
        return failed[0].split("::")[-1] if failed else None
    finally:
        server.drop_database(name)
