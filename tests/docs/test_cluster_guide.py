"""docs/howto/cluster.md: its examples run, in their order."""

from __future__ import annotations

import re
from pathlib import Path

import psycopg

PAGE = Path(__file__).parents[2] / "docs" / "howto" / "cluster.md"


def blocks() -> list[str]:
    return re.findall(r"```python\n(.*?)```", PAGE.read_text(), re.DOTALL)


def test_every_example_of_the_page_runs(schema_database: str, monkeypatch: object) -> None:
    with psycopg.connect(schema_database, autocommit=True) as connection:
        connection.execute("CREATE TABLE bills (customer text)")
    own, claim, left, react, intervals, pin, route = blocks()
    names: dict[str, object] = {
        "psycopg": psycopg, "customers": lambda: [f"customer-{number}" for number in range(20)], "work": lambda _: None,
    }  # fmt: skip
    own = own.replace("App()", f"App({schema_database!r})")
    joined = own + "    inside = True\n" + "".join(f"    {line}\n" for line in claim.splitlines())
    exec(joined, names)
    assert len(names["mine"]) == 20  # type: ignore[arg-type]
    exec(left, names)
    assert [item.key for item in names["done"]] == ["customer-7"]  # type: ignore[attr-defined]
    assert names["left"] == []
    exec(react, names)
    exec(intervals, names)
    exec(pin, names)
    exec(route, names)
    assert [each.key for each in names["group"].pins()] == ["customer-7", "customer-8", "customer-9"]  # type: ignore[attr-defined]
    with psycopg.connect(schema_database) as connection:
        assert connection.execute("SELECT customer FROM bills").fetchall() == [("customer-7",)]
