"""`watchbill limits` and what `watchbill queues` says of limits and fairness."""

from __future__ import annotations

import json
from datetime import datetime

import psycopg
import pytest

from tests.acceptance.command import Watchbill


@pytest.fixture
def declared(schema_database: str) -> str:
    with psycopg.connect(schema_database, autocommit=True) as connection:
        connection.execute("SET search_path = watchbill")
        connection.execute("SELECT set_limit('crm-api', max => 10)")
        limits = '[{"name": "account", "max": 1}]'
        queues = '[{"name": "sync", "max": 20, "fair_by": "{account}"}]'
        connection.execute("SELECT ensure_limits('shop', %s::jsonb, %s::jsonb)", (limits, queues))
    return schema_database


def run(watchbill: Watchbill, url: str, *words: str) -> tuple[int, str]:
    answer = watchbill.here(*words, "--database-url", url)
    return answer.returncode, answer.stdout.strip() or answer.stderr.strip()


def test_limits_are_listed_and_changed(watchbill: Watchbill, declared: str) -> None:
    listed = json.loads(run(watchbill, declared, "limits", "--json")[1])
    assert [(each["name"], each["max"], each["owner"], each["changed"]) for each in listed] == [
        ("account", 1, "shop", False),
        ("crm-api", 10, None, True),
        ("queue:sync", 20, "shop", False),
    ]
    options = ("--max", "3", "--rate", "100/1d", "--rate", "10/1m")
    assert run(watchbill, declared, "limits", "set", "account", *options) == (
        0, "account: at most 3 at once; 10 per 1m and 100 per 1d; changed by an operator",
    )  # fmt: skip
    assert "10 per 1m and 100 per 1d" in run(watchbill, declared, "limits", "list")[1]
    assert run(watchbill, declared, "limits", "set", "once", "--rate", "2/1m", "--evenly") == (
        0, "once: 2 per 1m, evenly; changed by an operator",
    )  # fmt: skip
    (once,) = (each for each in json.loads(run(watchbill, declared, "limits", "--json")[1]) if each["name"] == "once")
    assert once["rates"] == [{"count": 2, "per": 60.0, "evenly": True}]
    assert run(watchbill, declared, "limits", "set", "account", "--rate", "none") == (
        0, "account: at most 3 at once; changed by an operator",
    )  # fmt: skip
    assert run(watchbill, declared, "limits", "clear", "account", "--yes") == (0, "account cleared")
    assert run(watchbill, declared, "limits", "clear", "account", "--yes") == (
        1, "account is as shop has declared it; only a limit that no running node declares is removed",
    )  # fmt: skip
    with psycopg.connect(declared, autocommit=True) as connection:
        connection.execute("SELECT watchbill.register('here', '1 hour', app => 'shop')")
    assert run(watchbill, declared, "limits", "clear", "account", "--yes") == (0, "account cleared")
    assert run(watchbill, declared, "limits", "clear", "account", "--yes") == (1, "there is no limit account")
    assert run(watchbill, declared, "limits", "clear", "crm-api", "--yes") == (0, "crm-api cleared")


def test_a_limit_that_is_made_by_mistake_is_noticed(watchbill: Watchbill, declared: str) -> None:
    """A misspelt name, or a task without a limit: the command would have no effect, and look as if it had."""
    made = watchbill.here("limits", "set", "crm-ap", "--max", "3", "--database-url", declared)
    assert made.stdout.strip() == "crm-ap: at most 3 at once; changed by an operator"
    for words in ("crm-ap is new: no code declares it. Did you mean crm-api?", "jobs that are enqueued with this"):
        assert words in made.stderr
    queue = watchbill.here("limits", "set", "queue:mail", "--max", "3", "--database-url", declared)
    assert queue.stderr.strip() == "queue:mail is new: no code declares it."
    again = watchbill.here("limits", "set", "crm-ap", "--max", "4", "--database-url", declared)
    assert again.stderr == ""


def test_clear_says_what_there_is_to_undo(watchbill: Watchbill, declared: str) -> None:
    with psycopg.connect(declared, autocommit=True) as connection:
        connection.execute("SET search_path = watchbill")
        connection.execute("SELECT set_limit('order:post', when_dead => 'pause')")
        connection.execute("SELECT enqueue('post', '{\"a\": 7}', ordered_by => '{a}', max_attempts => 1)")
        connection.execute("SELECT register('here', '1 hour', types => '{\"post\": 1}')")
        connection.execute("""
            SELECT settle(epoch, ARRAY[c.id], ARRAY[c.fence], '{failed}') FROM nodes, claim(epoch, '{default}') c""")
    assert run(watchbill, declared, "limits", "show", "order:post")[1].endswith(" dead")
    code, said = run(watchbill, declared, "limits", "clear", "order:post:7", "--dry-run")
    assert (code, said.startswith("order:post:7: the dead job "), said.endswith(" keeps it")) == (0, True, True)
    assert run(watchbill, declared, "limits", "clear", "order:post:7", "--yes") == (0, "order:post:7 cleared")
    nothing = (1, "no dead job keeps order:post:7")
    assert run(watchbill, declared, "limits", "clear", "order:post:7", "--yes") == nothing
    for name in ("acount", "queue:sink"):
        assert run(watchbill, declared, "limits", "clear", name, "--yes") == (1, f"there is no limit {name}")


def test_a_limit_shows_its_keys_and_holders(watchbill: Watchbill, declared: str) -> None:
    with psycopg.connect(declared, autocommit=True) as connection:
        connection.execute("SET search_path = watchbill")
        connection.execute("SELECT enqueue('sync', queue => 'sync')")
        connection.execute("SELECT register('here', '1 hour')")
        connection.execute("""
            INSERT INTO holds
            SELECT 'key:account:7', c.id FROM nodes, claim(epoch, '{sync}') c""")
    code, shown = run(watchbill, declared, "limits", "show", "account")
    assert code == 0
    for words in ("account: at most 1 at once", "\naccount:7", "here"):
        assert words in shown
    found = json.loads(run(watchbill, declared, "limits", "show", "account", "--json")[1])
    assert (found["keys"][0]["holders"], found["holders"][0]["node"]) == (1, "here")
    assert run(watchbill, declared, "limits", "show", "acount") == (1, "there is no limit acount")


def test_a_limit_with_a_rate_names_the_next_start(watchbill: Watchbill, declared: str) -> None:
    """Also while no job waits for it."""
    with psycopg.connect(declared, autocommit=True) as connection:
        connection.execute("SET search_path = watchbill")
        connection.execute("""SELECT set_limit('mail', rates => '[{"count": 1, "per": "1 hour"}]')""")
        connection.execute("SELECT register('here', '1 hour')")
        connection.execute("SELECT enqueue('sync', limit_keys => '{mail}')")
        connection.execute("SELECT count(*) FROM nodes, claim(epoch, '{default}')")
        ((at,),) = connection.execute("SELECT at + interval '1 hour' FROM claims").fetchall()
    found = json.loads(run(watchbill, declared, "limits", "show", "mail", "--json")[1])
    assert datetime.fromisoformat(found["keys"][0]["next_at"]) == at
    shown = run(watchbill, declared, "limits", "show", "mail")[1].splitlines()
    assert shown[0] == "mail: 1 per 1h; changed by an operator"
    assert shown[1].split()[-2:] == ["next", "start"]


def test_a_dead_job_that_keeps_an_ordered_key_is_shown_as_dead(watchbill: Watchbill, declared: str) -> None:
    with psycopg.connect(declared, autocommit=True) as connection:
        connection.execute("SET search_path = watchbill")
        connection.execute("SELECT set_limit('order:sync', when_dead => 'pause')")
        connection.execute("SELECT enqueue('sync', ordered_by => 'x', max_attempts => 1)")
        connection.execute("SELECT register('here', '1 hour')")
        connection.execute("SELECT fail(c.id, c.fence, '{}') FROM nodes, claim(epoch) c")
    (listed,) = (
        limit for limit in json.loads(run(watchbill, declared, "limits", "--json")[1]) if limit["name"] == "order:sync"
    )
    assert (listed["holders"], listed["kept"]) == (1, 1)
    lines = run(watchbill, declared, "limits", "show", "order:sync")[1].splitlines()
    assert lines[1].split()[:3] == ["key", "running", "kept"]
    assert lines[2].split()[:3] == ["order:sync:x", "0", "1"]
    assert lines[-1].split()[-1] == "dead"


def test_wrong_limits_are_refused_with_a_hint(watchbill: Watchbill, declared: str) -> None:
    code, said = run(watchbill, declared, "limits", "set", "account")
    assert (code, "There is nothing to change" in said, "--max, --rate" in said) == (2, True, True)
    for rate in ("5", "5/soon", "0/1m", "ten/1m", "5/2000d"):
        code, said = run(watchbill, declared, "limits", "set", "account", "--rate", rate)
        assert (code, f"--rate {rate} is invalid" in said, "such as 10/1m" in said) == (2, True, True)
    code, said = run(watchbill, declared, "limits", "set", "account", "--max", "5", "--evenly")
    assert (code, "Give --rate" in said) == (2, True)
    assert run(watchbill, declared, "limits", "clear", "account", "--dry-run") == (0, "account: at most 1 at once")


def test_queues_show_their_limit_and_fairness(watchbill: Watchbill, declared: str) -> None:
    run(watchbill, declared, "limits", "set", "queue:nope", "--max", "3")
    assert run(watchbill, declared, "limits", "clear", "queue:nope", "--yes") == (0, "queue:nope cleared")
    said = run(watchbill, declared, "queues")[1]
    assert "nope" not in said
    assert "queue sync: at most 20 at once, 0 run; fair by {account}" in said
    found = json.loads(run(watchbill, declared, "queues", "--json")[1])
    assert (found["rules"][0]["name"], found["rules"][0]["max"]) == ("sync", 20)
