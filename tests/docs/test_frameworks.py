"""docs/howto/fastapi.md and sqlalchemy.md: their files are written down as they stand there, and used."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import psycopg

from tests.docs.programs import blocks, environment, run_program


def write_files(page: str, directory: Path) -> None:
    """What is said again of a file is added to it."""
    for text in blocks(page):
        file = re.match(r"# (\S+\.py)\n", text)
        assert file, f"a block does not say which file it is:\n{text}"
        path = directory / file[1]
        path.parent.mkdir(exist_ok=True)
        with path.open("a") as written:
            written.write(text)


def execute(url: str, statement: str) -> None:
    with psycopg.connect(url, autocommit=True) as connection:
        connection.execute(statement.encode())


_SERVE = """
import asyncio
from uuid import UUID

import customers, main, with_node
from sqlalchemy.ext.asyncio import AsyncSession
from tasks import greet


async def serve() -> None:
    async with main.api.router.lifespan_context(main.api):
        made = await main.enqueue_greeting("ada")
        print((await main.show_job(UUID(made["job"]), main.app))["state"])
    async with customers.api.router.lifespan_context(customers.api):
        async with AsyncSession(customers.api.state.engine) as session:
            await customers.add_customer("ada", session)
    async with with_node.api.router.lifespan_context(with_node.api):
        print(await (await greet.aenqueue("bob")).aresult(timeout=30))


asyncio.run(serve())
"""


def test_fastapi_guide_program_runs(schema_database: str, tmp_path: Path) -> None:
    write_files("howto/fastapi.md", tmp_path)
    execute(schema_database, "CREATE TABLE customers (name text)")
    said = run_program(_SERVE, tmp_path, {"DATABASE_URL": schema_database})
    assert said.splitlines() == ["queued", "hello bob"]


def test_fastapi_guide_example_test_passes(database: str, tmp_path: Path) -> None:
    write_files("howto/fastapi.md", tmp_path)
    command = [
        sys.executable,
        "-m",
        "pytest",
        "-q",
        "-p",
        "no:randomly",
        "--watchbill-database-url",
        database,
        "test_api.py",
    ]
    done = subprocess.run(command, cwd=tmp_path, env=environment({}), capture_output=True, text=True)
    assert "2 passed" in done.stdout, done.stdout


_CHARGE = """
from app import app, charge, engine, place_order

assert place_order("tea") == 1
with app.node():
    assert charge.using(delay=0).enqueue(1).result(timeout=30) is None
app.close()
engine.dispose()
"""


def test_sqlalchemy_guide_files_work_with_alembic(schema_database: str, tmp_path: Path) -> None:
    write_files("howto/sqlalchemy.md", tmp_path)
    execute(schema_database, "CREATE TABLE orders (id int GENERATED ALWAYS AS IDENTITY, item text, paid bool)")
    here = {"DATABASE_URL": schema_database.replace("postgresql:", "postgresql+psycopg:")}
    run_program(_CHARGE, tmp_path, here)
    (tmp_path / "alembic.ini").write_text("[alembic]\nscript_location = migrations\n")
    (tmp_path / "migrations" / "versions").mkdir()
    command = [sys.executable, "-m", "alembic", "check"]
    done = subprocess.run(command, cwd=tmp_path, env=environment(here), capture_output=True, text=True)
    said = done.stdout + done.stderr
    assert re.findall(r"'remove_table', Table\('(\w+)'", said) == ["orders"], said
