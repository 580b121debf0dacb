"""The package as others get it: what an import loads, which names are public."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import watchbill

ROOT = Path(__file__).parents[2]


def loaded_by(statement: str) -> set[str]:
    program = f"import sys; {statement}; print(*sys.modules)"
    answer = subprocess.run([sys.executable, "-c", program], check=True, capture_output=True, text=True)
    return set(answer.stdout.split())


def test_import_watchbill_loads_no_heavy_library() -> None:
    assert loaded_by("import watchbill") & {"psycopg", "pydantic", "orjson", "typer", "rich"} == set()


def test_declaring_tasks_loads_no_heavy_library() -> None:
    """A program that only declares tasks, as every web process does when it starts, waits for no driver."""
    declare = (
        "import watchbill; app = watchbill.App(); app.task(type='t')(lambda: None); watchbill.Retry, watchbill.Tasks"
    )
    annotated = "f = lambda x: x; f.__annotations__ = {'x': int}; app.task(type='u')(f)"
    loaded = loaded_by(f"{declare}; {annotated}; watchbill.current_job")
    assert loaded & {"psycopg", "pydantic", "typer", "rich", "watchbill.settings"} == set()


def test_app_loads_only_what_a_program_needs_that_enqueues() -> None:
    """What an App looks at jobs with, or changes a cluster with, is loaded when it is used."""
    loaded = loaded_by("from watchbill import App")
    own = {name for name in loaded if name.startswith("watchbill.")}
    late = {"app.operations", "app.alerts", "app.tenants", "app.groups", "app.schedules", "client.job_operations"}
    assert own & {f"watchbill.{name}" for name in late} == set()
    assert len(own) <= 60
    assert loaded & {"psycopg", "psycopg_pool", "pydantic", "typer", "http", "email", "multiprocessing"} == set()


def test_import_cron_needs_neither_driver_nor_validation() -> None:
    assert loaded_by("import watchbill.cron") & {"psycopg", "pydantic", "orjson", "typer", "rich"} == set()


def test_migration_modules_do_not_load_pydantic() -> None:
    assert "pydantic" not in loaded_by("import watchbill.postgres.migrate, watchbill.postgres.address")


def test_every_public_name_can_be_imported() -> None:
    assert sorted(watchbill.__all__) == list(watchbill.__all__)
    assert [name for name in watchbill.__all__ if not hasattr(watchbill, name)] == []
