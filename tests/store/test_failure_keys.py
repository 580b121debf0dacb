"""The number of a group of failures: what makes two messages the same failure, and where the number is stored."""

from __future__ import annotations

import random
import string
from collections.abc import Callable
from hashlib import md5
from uuid import UUID

from tests.store.harness import Db, End

WORDS = ("order", "user", "can't", "don't", "timeout", "refused", "of", "on", "worker", "in", "é", "failed:", "utf")
HEX = "0123456789abcdef"


def _number(r: random.Random) -> str:
    return r.choice([str(r.randrange(10**9)), f"{r.uniform(0, 1e6):.3f}", f"-{r.randrange(99)}", f"{r.random():e}"])


def _quoted(r: random.Random) -> str:
    inside = "".join(r.choices(string.ascii_letters + string.digits + " .,:/-@", k=r.randrange(30)))
    left, right = r.choice([("'", "'"), ('"', '"'), ("`", "`"), ("“", "”"), ("«", "»")])
    return f"{left}{inside}{right}"


def _hex(r: random.Random) -> str:
    return r.choice(["", "0x"]) + "".join(r.choices(HEX, k=r.randrange(8, 41)))


# What may stand in one place of a message without making it another failure.
VALUES: dict[str, Callable[[random.Random], str]] = {
    "number": _number,
    "id": lambda r: r.choice([str.upper, str.lower])(str(UUID(int=r.getrandbits(128)))),
    "hex": _hex,
    "quoted": _quoted,
    "mail": lambda r: f"{r.choice(['ann', 'bob.w', 'x+1'])}@{r.choice(['a.example', 'mail.b-c.example'])}",
    "ip": lambda r: ".".join(str(r.randrange(256)) for _ in range(4)),
    "time": lambda r: f"{r.randrange(10, 24)}:{r.randrange(10, 60)}:{r.randrange(10, 60)}.{r.randrange(10**6)}",
}


def _template(r: random.Random) -> list[str]:
    """Words, and names of VALUES in braces."""
    return [r.choice([r.choice(WORDS), f"{{{r.choice(list(VALUES))}}}"]) for _ in range(r.randrange(1, 12))]


def _fill(template: list[str], r: random.Random) -> str:
    return " ".join(VALUES[part[1:-1]](r) if part.startswith("{") else part for part in template)


def keys(db: Db, messages: list[str], type: str = "t", exception: str = "E") -> list[int]:
    rows = db.execute(
        "SELECT watchbill.failure_key(%s, %s, m.text) AS key FROM unnest(%s::text[]) WITH ORDINALITY m(text, n)"
        " ORDER BY m.n",
        (type, exception, messages),
    )
    return [row.key for row in rows]


def test_values_in_a_message_do_not_make_another_failure(db: Db) -> None:
    r = random.Random(26)
    templates = [_template(r) for _ in range(1500)]
    first, second = ([_fill(template, r) for template in templates] for _ in range(2))
    pairs = list(zip(templates, first, second, keys(db, first), keys(db, second), strict=True))
    assert [pair for pair in pairs if pair[3] != pair[4]] == []
    drawn = " ".join(part for template in templates for part in template)
    assert all(drawn.count(f"{{{name}}}") > 300 for name in VALUES)


def test_other_words_make_another_failure(db: Db) -> None:
    r = random.Random(27)
    templates = {tuple("{}" if part.startswith("{") else part for part in _template(r)) for _ in range(1000)}
    messages = [" ".join("17" if part == "{}" else part for part in template) for template in templates]
    assert len(set(keys(db, messages))) == len(templates) > 700


def test_only_the_first_line_counts(db: Db) -> None:
    same = ["no disk", "no disk\nat line 7", "\n  no disk\r\nmore", "no disk"]
    assert len(set(keys(db, same))) == 1
    assert len(set(keys(db, ["no disk", "no disk left"]))) == 2


def test_characters_after_500_do_not_count_and_a_long_id_moves_no_cut(db: Db) -> None:
    text = "x" * 490
    assert len(set(keys(db, [f"{text} 1 {'y' * 20}", f"{text} {'1' * 400} {'y' * 90}"]))) == 1
    assert len(set(keys(db, [f"{text} 1 yz", f"{text} 1 yy"]))) == 2
    assert len(set(keys(db, ["a" * 10_000_000, "a" * 600]))) == 1


def test_type_and_exception_make_another_failure(db: Db) -> None:
    found = [keys(db, ["boom"], of, exception)[0] for of, exception in (("a", "E"), ("a", "F"), ("b", "E"), ("", "aE"))]
    assert len(set(found)) == 4
    (row,) = db.execute(
        "SELECT watchbill.failure_key(NULL, NULL, NULL) AS none, watchbill.failure_key('', '', '') AS empty"
    )
    assert row.none == row.empty


def test_the_key_is_the_same_in_every_database(db: Db) -> None:
    """A stored key must keep its meaning: after an upgrade, in a restored copy, on another server."""
    first_bytes = md5(b"mail\x1fTimeout\x1forder ? of ? failed").digest()[:8]
    assert keys(db, ['order 17 of "ann" failed'], "mail", "Timeout") == [int.from_bytes(first_bytes, signed=True)]


def test_a_run_that_fails_stores_its_key_and_when_it_was_due(db: Db) -> None:
    epoch = db.node()
    job = db.enqueue(type="mail", max_attempts=2)
    due = db.now
    db.tick(5)
    error = {"type": "Timeout", "message": "order 17", "kind": "error"}
    db.run(epoch, "failed", error=error)
    db.make_ready()
    retried = db.look(job).run_at
    db.tick(5)
    db.run(epoch, "failed", error=error | {"message": "order 18"})
    first, second = db.attempts(job)
    assert (first.due_at, second.due_at) == (due, retried)
    assert first.failure == second.failure == keys(db, ["order 19"], "mail", "Timeout")[0]
    assert [row.failure for row in db.rows("finished_jobs")] == [first.failure]


def test_a_lost_run_stores_its_key_and_when_it_was_due(db: Db) -> None:
    epoch = db.node()
    job, due = db.enqueue(), db.now
    db.claim(epoch)
    assert db.lose(epoch) == {job: "failed"}
    (attempt,) = db.attempts(job)
    assert attempt.due_at == due
    assert attempt.failure == keys(db, ["the node that ran it was lost"], "task", "lost")[0]


def test_runs_that_do_not_fail_store_no_key(db: Db) -> None:
    epoch = db.node()
    for outcome in ("succeeded", "skipped", "snoozed"):
        db.enqueue()
        db.run(epoch, outcome)
    db.enqueue()
    held = db.claim_one(epoch)
    db.value("cancel", id=held.id)
    db.settle(epoch, End(held, "canceled"))
    assert {row.failure for row in db.rows("attempts")} == {None}
    assert {row.failure for row in db.rows("finished_jobs")} == {None}


def test_dead_groups_join_messages_that_differ_in_values(db: Db) -> None:
    epoch = db.node()
    jobs = []
    for number in (17, 18, 19):
        jobs.append(db.enqueue())
        error = {"type": "Timeout", "message": f'order {number} of "{number}"', "kind": "permanent"}
        db.run(epoch, "failed", error=error)
        db.tick(1)
    db.enqueue()
    db.run(epoch, "failed", error={"type": "KeyError", "message": "order 17", "kind": "permanent"})
    first, second = db.call("dead_groups")
    assert (first.count, first.example, first.message, first.exception) == (3, jobs[2], 'order 19 of "19"', "Timeout")
    assert (second.count, second.exception) == (1, "KeyError")
    assert first.failure == keys(db, ['order 1 of ""'], "task", "Timeout")[0] != second.failure


def test_dead_groups_join_jobs_that_died_before_keys_were_stored(db: Db) -> None:
    epoch = db.node()
    for number in (1, 2):
        db.enqueue()
        db.run(epoch, "failed", error={"type": "Timeout", "message": f"order {number}", "kind": "permanent"})
        if number == 1:
            db.change("UPDATE {schema}.finished_jobs SET failure = NULL")
    assert [group.count for group in db.call("dead_groups")] == [2]
