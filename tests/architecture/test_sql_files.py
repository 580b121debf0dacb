"""Rules for every .sql file of the schema, so that they run in any schema, under the migrator, more than once."""

from __future__ import annotations

import re

import pytest

from watchbill.postgres.migration_files import Source, SqlFile, split_statements

SOURCE = Source.of_package("watchbill.store")
FILES = [*SOURCE.migrations, *SOURCE.functions]
_COMMENT = re.compile(r"--[^\n]*|/\*.*?\*/", re.DOTALL)
_TRANSACTION = re.compile(r"(BEGIN|COMMIT|ROLLBACK|START|SAVEPOINT|END|ABORT)\b", re.IGNORECASE)
_BODY = re.compile(r"^BEGIN ATOMIC$.*?^END;$", re.DOTALL | re.MULTILINE)
_MAKES = re.compile(r"CREATE\s+(?!OR\s+REPLACE)(FUNCTION|PROCEDURE|VIEW|TRIGGER)\b", re.IGNORECASE)


def code(file: SqlFile) -> str:
    return _COMMENT.sub("", file.text)


@pytest.mark.parametrize("file", FILES, ids=lambda file: file.name)
def test_no_file_names_the_schema(file: SqlFile) -> None:
    without_settings = re.sub(
        r"'watchbill\.\w+'", "", code(file)
    )  # set_config('watchbill.tenant', ...) is a setting's name
    assert re.findall(r"\bwatchbill\.\w+", without_settings) == []


@pytest.mark.parametrize("file", FILES, ids=lambda file: file.name)
def test_no_file_ends_the_migrators_transaction(file: SqlFile) -> None:
    statements = [_COMMENT.sub("", statement).strip() for statement in split_statements(_BODY.sub(";", file.text))]
    assert [statement for statement in statements if _TRANSACTION.match(statement)] == []


@pytest.mark.parametrize("file", SOURCE.functions, ids=lambda file: file.name)
def test_function_files_contain_only_repeatable_statements(file: SqlFile) -> None:
    assert _MAKES.findall(code(file)) == []
