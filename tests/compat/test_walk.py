"""The walk itself: it must not lose statements, and must notice a list that does not match."""

from __future__ import annotations

from pathlib import Path
from types import ModuleType

import pytest

from tests.compat.walk import (
    HERE,
    VARIABLE,
    Block,
    Document,
    NotRun,
    Statement,
    covered_headings,
    covers,
    cut_blocks,
    cut_headings,
    cut_tables,
    find_seeds,
    shows,
    split_sql,
)

TEXT = """# Title

## First

Words.

```sql
SELECT ';' AS a; -- not; here
CREATE FUNCTION f() RETURNS int AS $body$ BEGIN RETURN 1; END; $body$ LANGUAGE plpgsql;
-- only a comment; nothing to run
```

### Below

| Option | Default |
|---|---|
| `limit` | 10 |

```
plain
```

## Second

Nothing to run.
"""


def document(*not_run: NotRun, count: int = 3) -> Document:
    found = Document("999", "none.txt", count, ["First", "First / Below"], list(not_run))
    found.text = TEXT
    return found


def test_seeds_are_found_by_the_variable_or_in_a_folder_beside_the_repository(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv(VARIABLE, raising=False)
    seeds, repository = tmp_path / "anything" / "seeds", tmp_path / "clone"
    seeds.mkdir(parents=True)
    repository.mkdir()
    assert find_seeds(repository) is None, "a folder without documents is not theirs"
    (seeds / "000_5c24.txt").touch()
    assert find_seeds(repository) == seeds
    monkeypatch.setenv(VARIABLE, str(tmp_path))
    assert find_seeds(repository) == tmp_path
    monkeypatch.setenv(VARIABLE, str(tmp_path / "missing"))
    assert find_seeds(repository) is None


def test_blocks_carry_their_heading_path() -> None:
    assert [(b.heading, b.number, b.language) for b in cut_blocks(TEXT)] == [
        ("First", 1, "sql"),
        ("First / Below", 2, "text"),
    ]
    assert cut_headings(TEXT) == ["First", "First / Below", "Second"]


@pytest.mark.parametrize(
    ("script", "statements"),
    [
        ("SELECT 1; SELECT 2", ["SELECT 1", "SELECT 2"]),
        ("SELECT ';', \";\"; SELECT 2;", ["SELECT ';', \";\"", "SELECT 2"]),
        ("DO $$ BEGIN a; END $$; SELECT 1", ["DO $$ BEGIN a; END $$", "SELECT 1"]),
        ("DO $a$ x; $$ y; $$ $a$;", ["DO $a$ x; $$ y; $$ $a$"]),
        ("SELECT $1; SELECT 2", ["SELECT $1", "SELECT 2"]),
        ("-- a; b\nSELECT 1; /* c; d */", ["-- a; b\nSELECT 1"]),
        ("SELECT 'it''s;'; SELECT 2", ["SELECT 'it''s;'", "SELECT 2"]),
        (" ;; -- nothing", []),
    ],
)
def test_scripts_are_split_outside_quotes_and_comments(script: str, statements: list[str]) -> None:
    assert split_sql(script) == statements


def test_words_and_digest_name_a_statement() -> None:
    [statement] = Block("First", 1, "sql", "-- why\nSELECT  1\n  FROM t;").statements()

    assert statement.words == "SELECT 1 FROM t"
    assert len(statement.digest) == 8


def test_a_walk_runs_all_that_is_not_listed() -> None:
    walked = document()
    first = walked.statements[0]
    listed = document(NotRun(1, "SELECT ';'", first.digest, "faulty", "it is an example"))

    assert len(walked.walk(lambda s: s.text)) == 3
    assert first not in listed.walk(lambda s: s.text)


def test_a_statement_that_fails_stops_the_walk_and_says_where() -> None:
    def refuse(statement: Statement) -> None:
        raise ValueError("no")

    with pytest.raises(ValueError, match="no") as caught:
        document().walk(refuse)

    assert "block 1, statement 1 (First)" in "".join(caught.value.__notes__)


def test_a_statement_that_is_neither_run_nor_listed_is_found() -> None:
    with pytest.raises(AssertionError, match=r"neither run nor listed.*statement 2"):
        document().check_complete(document().statements[:1])


def test_a_listed_statement_that_the_document_does_not_have_is_found() -> None:
    stale = document(NotRun(1, "SELECT", "00000000", "faulty", "it was changed"))

    with pytest.raises(AssertionError, match="not in the document"):
        stale.walk(lambda s: None)


def test_a_document_with_another_number_of_statements_is_found() -> None:
    with pytest.raises(AssertionError, match="has 3 statements, not 4"):
        document(count=4).walk(lambda s: None)


def test_a_listed_statement_needs_a_reason() -> None:
    with pytest.raises(AssertionError, match="say why"):
        document(NotRun(1, "SELECT", "00000000", "faulty", "")).check_reasons()


def test_covers_collects_the_headings_of_a_module() -> None:
    module = ModuleType("example")

    @covers("First")
    @covers("First / Below")
    def test_something() -> None: ...

    module.__dict__["test_something"] = test_something
    assert covered_headings(module) == {"First", "First / Below"}
    document().check_headings(module)

    module.__dict__["test_more"] = covers("Second")(lambda: None)
    with pytest.raises(AssertionError, match="Second"):
        document().check_headings(module)


def test_every_parameter_is_shown_or_listed() -> None:
    module = ModuleType("example")

    @shows("f.a")
    def test_something() -> None: ...

    module.__dict__["test_something"] = test_something
    found = document()
    found.without_effect = {"f.b": "it only was a hint"}
    found.check_parameters({"f.a", "f.b"}, module)
    with pytest.raises(AssertionError, match=r"f\.c: show its effect or list it"):
        found.check_parameters({"f.a", "f.b", "f.c"}, module)
    with pytest.raises(AssertionError, match="no facade has these parameters"):
        found.check_parameters({"f.a"}, module)


def test_tables_are_read_by_the_names_of_their_columns() -> None:
    assert list(cut_tables(TEXT, "First / Below")) == [[{"Option": "limit", "Default": "10"}]]


def test_every_list_has_reasons_and_a_document() -> None:
    for path in sorted(HERE.glob("*.toml")):
        listed = Document.load(path.stem)
        listed.check_reasons()
        assert listed.file.startswith(path.stem)
