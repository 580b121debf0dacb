"""Composite types of the function files: a changed one reaches an installed schema."""

from __future__ import annotations

import re
from dataclasses import replace

import pytest

from tests.store.harness import Db
from watchbill.errors import SchemaError
from watchbill.postgres.migrate import Source, apply_functions

SOURCE = Source.of_package("watchbill.store")
_TYPE = re.compile(r"(?<=_create_type\(')(\w+)(', \$\$)(.*?)(?=\$\$\);)", re.DOTALL)
NAMES = [name for file in SOURCE.functions for name, _, _ in _TYPE.findall(file.text)]
# A type of a column is made by a migration.
FIELDS = """
    SELECT t.typname, string_agg(a.attname, ' ' ORDER BY a.attnum) FROM pg_type t
    JOIN pg_class c ON c.oid = t.typrelid AND c.relkind = 'c' JOIN pg_attribute a ON a.attrelid = c.oid
    WHERE t.typnamespace = 'watchbill'::regnamespace AND NOT EXISTS (
        SELECT FROM pg_attribute x JOIN pg_class y ON y.oid = x.attrelid AND y.relkind IN ('r', 'p')
        WHERE x.atttypid IN (t.oid, t.typarray))
    GROUP BY t.typname"""
OBJECTS = """
    SELECT p.oid::regprocedure::text, p.prorettype::regtype::text, p.proacl::text, p.proconfig::text
    FROM pg_proc p WHERE p.pronamespace = 'watchbill'::regnamespace
    UNION ALL SELECT c.oid::regclass::text, c.relkind::text, c.relacl::text, NULL
    FROM pg_class c WHERE c.relnamespace = 'watchbill'::regnamespace
    UNION ALL SELECT conname, conrelid::regclass::text, NULL, NULL
    FROM pg_constraint WHERE connamespace = 'watchbill'::regnamespace"""


def with_one_more_field(name: str) -> Source:
    """The files of a release in which each type of this name (a regular expression) has one more field."""

    def add(found: re.Match[str]) -> str:
        return f"{found[1]}{found[2]}extra int, {found[3]}" if re.fullmatch(name, found[1]) else found[0]

    return replace(SOURCE, functions=tuple(replace(file, text=_TYPE.sub(add, file.text)) for file in SOURCE.functions))


def test_a_field_that_a_type_gains_or_loses_reaches_an_installed_schema(own_db: Db) -> None:
    db = own_db
    before, objects = dict(db.execute(FIELDS)), set(db.execute(OBJECTS))
    assert before.keys() == set(NAMES)
    apply_functions(db.url, "watchbill", with_one_more_field(".*"))
    assert dict(db.execute(FIELDS)) == {name: f"extra {fields}" for name, fields in before.items()}
    apply_functions(db.url, "watchbill", SOURCE)
    assert dict(db.execute(FIELDS)) == before
    assert set(db.execute(OBJECTS)) == objects
    db.enqueue()
    db.claim_one(db.node())


def test_a_type_takes_those_along_that_contain_it_and_no_function_of_another_type(own_db: Db) -> None:
    db = own_db
    oids = "SELECT oid::regprocedure::text, oid FROM pg_proc WHERE pronamespace = 'watchbill'::regnamespace"
    before = dict(db.execute(oids))
    apply_functions(db.url, "watchbill", with_one_more_field("scan_floor"))
    after = dict(db.execute(oids))
    assert after.keys() == before.keys()
    made_again = {signature.partition("(")[0] for signature, oid in after.items() if before[signature] != oid}
    assert {"watchbill._pick", "watchbill._read_claim_rules", "watchbill._create_type"} & made_again == {
        "watchbill._pick",
        "watchbill._read_claim_rules",
    }
    assert not {"watchbill.settle", "watchbill.enqueue", "watchbill._judge_demands"} & made_again


def test_unchanged_types_and_their_functions_stay(own_db: Db) -> None:
    """A call under way would fail if its function were made again."""
    oids = """SELECT oid FROM pg_proc WHERE pronamespace = 'watchbill'::regnamespace
        UNION ALL SELECT oid FROM pg_type WHERE typnamespace = 'watchbill'::regnamespace ORDER BY 1"""
    before = own_db.execute(oids)
    apply_functions(own_db.url, "watchbill", SOURCE)
    assert own_db.execute(oids) == before


def test_a_changed_type_that_a_function_of_a_user_needs_is_refused(own_db: Db) -> None:
    db = own_db
    db.execute("""CREATE FUNCTION public.mine() RETURNS SETOF watchbill.enqueued_job LANGUAGE sql
        BEGIN ATOMIC SELECT watchbill.enqueue('task'); END""")
    before = dict(db.execute(FIELDS))
    with pytest.raises(SchemaError, match=r"function public.mine\(\) depends on"):
        apply_functions(db.url, "watchbill", with_one_more_field("enqueued_job"))
    assert dict(db.execute(FIELDS)) == before
    db.execute("SELECT public.mine()")
