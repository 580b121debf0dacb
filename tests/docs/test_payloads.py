"""docs/howto/payloads.md: its settings and its programs, with the paths of a test."""

from __future__ import annotations

import tomllib
from pathlib import Path

import psycopg
from cryptography.fernet import Fernet

from tests.docs.programs import blocks, run_program
from watchbill.payloads import PayloadStore
from watchbill.settings import Settings

PAGE = "howto/payloads.md"
_AT_THE_END = """
app = App(payload_store=Compressed(Path("payloads")))
task = app.task(type="summarize")(summarize.function)
with app.node():
    assert task.enqueue([{"amount": 1}] * 100_000).result(timeout=30) == 100_000
print(*[path.stat().st_size < 10_000 for path in Path("payloads").glob("*/*")])
"""


def test_payload_guide_settings_are_valid(tmp_path: Path) -> None:
    [text] = blocks(PAGE, "toml")
    assert Settings.load(project=tmp_path, environ={}, **tomllib.loads(text)).payload_store_above == 50_000


def test_payload_guide_programs_run(schema_database: str, tmp_path: Path) -> None:
    plain, own, _ = blocks(PAGE)
    store = tmp_path / "store"
    variables = {"DATABASE_URL": schema_database, "WATCHBILL_PAYLOAD_STORE": str(store)}
    own = own.replace("/tmp/payloads", str(tmp_path / "payloads"))
    assert run_program(plain + own + _AT_THE_END, tmp_path, variables) == "True\n"
    assert len(list(store.glob("*/*"))) == 1


_ENCRYPTED = """
@app.task(type="greet")
def greet(name: str) -> str:
    return f"hello {name}"


with app.node():
    assert greet.enqueue("Ann of the payload").result(timeout=30) == "hello Ann of the payload"
"""


def test_payload_guide_encrypts_each_payload(schema_database: str, tmp_path: Path) -> None:
    """With two keys, of which the second has encrypted what was there before."""
    keys = [Fernet.generate_key().decode() for _ in range(2)]
    program = blocks(PAGE)[2].replace("/var/lib/shop/payloads", str(tmp_path / "payloads")) + _ENCRYPTED
    for given in (keys[1], " ".join(keys)):
        run_program(program, tmp_path, {"DATABASE_URL": schema_database, "PAYLOAD_KEYS": given})
    stored = [path.read_bytes() for path in (tmp_path / "payloads").glob("*/*")]
    assert [b"Ann" in data for data in stored] == [False, False]
    with psycopg.connect(schema_database) as connection:
        assert connection.execute("SELECT count(*) FROM watchbill.job WHERE payload::text LIKE '%Ann%'").fetchone() == (
            0,
        )


def test_payload_guide_store_implements_payload_store(tmp_path: Path) -> None:
    scope: dict[str, object] = {}
    exec("from watchbill import App\n" + blocks(PAGE)[1].rpartition("app =")[0], scope)
    made = scope["Compressed"]
    assert isinstance(made, type)
    assert isinstance(made(tmp_path), PayloadStore)
