"""`watchbill groups`, `tokens` and `pins`."""

from __future__ import annotations

import json

import psycopg
import pytest

from tests.acceptance.command import Watchbill


@pytest.fixture
def database(schema_database: str) -> str:
    """With a group of three nodes, of which the first leads, and one that has just joined."""
    with psycopg.connect(schema_database) as connection:
        connection.execute("SELECT watchbill.declare_group('production', total => 90)")
        connection.execute(
            "SELECT watchbill.join_group(watchbill.register(name, '1 hour'), 'production') "
            "FROM unnest('{a,b,c}'::text[]) name"
        )
        connection.commit()
        rebalance = """
            SELECT watchbill.rebalance('production', e.term, n.epoch)
            FROM watchbill.nodes n, watchbill.elect(n.epoch, '{production}') e WHERE n.name = 'a'"""
        connection.execute(rebalance)
        connection.commit()
        connection.execute("SELECT watchbill.join_group(watchbill.register('d', '1 hour'), 'production')")
        connection.commit()
        connection.execute(rebalance)
    return schema_database


def test_groups_lists_members_and_what_the_group_waits_for(watchbill: Watchbill, database: str) -> None:
    answer = watchbill("groups", "--database-url", database)
    assert (answer.returncode, answer.stderr) == (0, "")
    assert answer.stdout.splitlines()[1].split()[:6] == ["production", "90", "90", "22", "0", "a"]
    assert "22 tokens are being handed over" in answer.stdout
    (row,) = json.loads(watchbill.here("groups", "--json", "--database-url", database).stdout)
    assert (row["name"], row["members"], row["moving"]) == ("production", ["a", "b", "c", "d"], 22)


def test_tokens_show_draws_who_owns_what(watchbill: Watchbill, database: str) -> None:
    answer = watchbill("tokens", "show", "--database-url", database)
    assert (answer.returncode, answer.stderr) == (0, "")
    assert watchbill.here("tokens", "--database-url", database).stdout == answer.stdout
    lines = answer.stdout.splitlines()
    assert lines[0] == "production: 90 tokens, 4 members, 0 to 30 each, led by a, version 2"
    assert [line.split()[:3] for line in lines[2:6]] == [
        ["A", "a", "30"], ["B", "b", "30"], ["C", "c", "30"], ["D", "d", "0"],
    ]  # fmt: skip
    assert lines[5].endswith("22 arrive")
    drawn = "".join(line.strip() for line in lines[7:9])
    assert set(drawn) == set("AaBbCc")
    assert lines[-1] == "waits: 22 tokens are being handed over"
    data = json.loads(watchbill.here("tokens", "show", "production", "--json", "--database-url", database).stdout)
    assert sum(owner["tokens"] for owner in data["owners"]) == 90
    assert data["ranges"][0]["first"] == 0


def test_tokens_rebalance_asks_the_leader_and_history_shows_what_moved(watchbill: Watchbill, database: str) -> None:
    answer = watchbill.here("tokens", "rebalance", "--database-url", database)
    assert (answer.returncode, answer.stdout) == (0, "group production: a divides its tokens again\n")
    history = json.loads(watchbill.here("tokens", "history", "--json", "--database-url", database).stdout)
    assert [(row["reason"], row["moved"]) for row in history] == [("nodes joined", 22), ("first assignment", 90)]


def test_pins_are_added_listed_and_cleared(watchbill: Watchbill, database: str) -> None:
    where = ("--database-url", database)
    answer = watchbill.here(
        "pins", "add", "customer-7", '{"gpu": "a100"}', "b%", "--reason", "memory", "--expires", "30d",
        "--created-by", "me", *where,
    )  # fmt: skip
    assert (answer.returncode, answer.stderr) == (0, "")
    assert answer.stdout == 'key customer-7 of group production pinned to {"gpu": "a100"}, then b%\n'
    (pin,) = json.loads(watchbill.here("pins", "list", "--json", *where).stdout)
    assert (pin["key"], pin["patterns"], pin["has_match"]) == ("customer-7", ['{"gpu": "a100"}', "b%"], True)
    watchbill.here("pins", "add", "customer-8", "mars-%", *where)
    shown = watchbill.here("pins", *where).stdout.splitlines()[1:]
    assert [line.split()[0] for line in shown] == ["customer-7", "customer-8"]
    assert watchbill.here("pins", "clear", "--created-by", "me", *where).stdout == "1 pin cleared\n"
    assert json.loads(watchbill.here("pins", "clear", "--all", "--json", *where).stdout)["cleared"] == 1
    assert watchbill.here("pins", "clear", "customer-7", *where).returncode == 1


def test_a_group_is_removed(watchbill: Watchbill, database: str) -> None:
    where = ("--database-url", database)
    refused = watchbill.here("groups", "remove", "production", "--yes", *where)
    assert (refused.returncode, refused.stdout) == (2, "")
    assert "Group 'production' has members: a, b, c, d" in refused.stderr
    with psycopg.connect(database, autocommit=True) as connection:
        connection.execute("SELECT watchbill.declare_group('second'), watchbill.declare_group('third')")
    assert watchbill("groups", "remove", "second", *where).returncode == 1  # it asks, and nobody answers
    assert watchbill.here("groups", "remove", "second", "--yes", *where).stdout == "group second removed\n"
    removed = watchbill.here("groups", "remove", "third", "--yes", "--json", *where).stdout
    assert json.loads(removed) == {"group": "third", "removed": True}
    assert [each["name"] for each in json.loads(watchbill.here("groups", "list", "--json", *where).stdout)] == [
        "production"
    ]
    assert "There is no token group 'x'" in watchbill.here("groups", "remove", "x", "--yes", *where).stderr


def test_wrong_usage_is_explained(watchbill: Watchbill, database: str, schema_database: str) -> None:
    where = ("--database-url", database)
    assert "needs a key, --created-by or --all" in watchbill.here("pins", "clear", *where).stderr
    assert "There is no token group 'x'" in watchbill.here("tokens", "show", "x", *where).stderr
    assert "is not JSON" in watchbill.here("pins", "add", "k", "{gpu", *where).stderr
    for arguments, message in (
        (("k", "a", "--expires", "0s"), "--expires 0s is invalid."),
        (("", "a"), 'Pin {"key": "", "reason": null, "pattern": "a"} is invalid'),
        (("k" * 1001, "a"), "A key of 1001 bytes is invalid: the limit is 1000"),
    ):
        refused = watchbill.here("pins", "add", *arguments, *where)
        assert refused.returncode == 2
        assert message in refused.stderr


def test_a_command_says_how_to_name_one_of_several_groups(watchbill: Watchbill, database: str) -> None:
    with psycopg.connect(database, autocommit=True) as connection:
        connection.execute("SELECT watchbill.declare_group('second')")
    where = ("--database-url", database)
    shown = watchbill.here("tokens", "show", *where)
    assert shown.returncode == 2
    assert "There are 2 token groups: production, second." in shown.stderr
    assert "Name the one you mean: production" in shown.stderr
    for command in (("list",), ("add", "k", "a"), ("clear", "k")):
        assert "Name the one you mean: --group production" in watchbill.here("pins", *command, *where).stderr
