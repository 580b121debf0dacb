"""Which of the picked jobs may start: `_judge_demands` reads no table, so its cases are literals."""

from __future__ import annotations

import json
from typing import Any, NamedTuple
from uuid import UUID

import pytest

from tests.store.harness import Db

ANY_NUMBER = 2_147_483_647


class Job(NamedTuple):
    keys: str  # each letter is a key
    position: int | None = None  # among all jobs that were picked; as listed by default
    once: bool = False  # class 1


class Place(NamedTuple):
    places: int = ANY_NUMBER
    is_locked: bool = True
    head: int | None = None  # of an ordered key, the number of the job
    new_places: int | None = None  # of a rate


def _id(job: int | None) -> str | None:
    return None if job is None else str(UUID(int=job))


def judge(db: Db, jobs: list[Job], keys: dict[str, Place], max: int, free: int) -> tuple[list[str], list[int]]:
    """Of each job whether it may start ("+"), stays ready ("-"), or the key on which it is parked; and the places that
    are left of each key."""
    names = sorted(keys)
    demands = [
        {
            "job": number,
            "position": job.position or number,
            "key": names.index(key) + 1 if key != " " else len(names) + 1,
            "rank": sum(key in earlier.keys for earlier in jobs[:number]),
            "id": _id(number),
            "class": int(job.once),
            "lane": 0,
        }
        for number, job in enumerate(jobs, 1)
        for key in job.keys or " "
    ]
    places = [
        {**keys[name]._asdict(), "key": name, "is_ordered": keys[name].head is not None, "head": _id(keys[name].head)}
        for name in names
    ]
    ((verdicts, left),) = db.session().execute(
        """SELECT to_jsonb(j.verdicts), j.left_places
           FROM watchbill._judge_demands(
             ARRAY(SELECT d FROM jsonb_populate_recordset(NULL::watchbill.key_demand, %s) d),
             ARRAY(SELECT p FROM jsonb_populate_recordset(NULL::watchbill.key_place, %s) p),
             %s, %s) j""",
        (json.dumps(demands), json.dumps(places), max, free),
    )
    assert [verdict["position"] for verdict in verdicts] == [job.position or n for n, job in enumerate(jobs, 1)]
    return [_name(verdict, names) for verdict in verdicts], left


def _name(verdict: dict[str, Any], names: list[str]) -> str:
    if verdict["may_start"]:
        assert verdict["parked_on"] == 0
        return "+"
    return names[verdict["parked_on"] - 1] if verdict["parked_on"] else "-"


ONE, FULL, BUSY = Place(1), Place(0), Place(is_locked=False)

CASES: dict[str, tuple[list[Job], dict[str, Place], str, list[int]]] = {
    "no limit": ([Job("a"), Job("a")], {"a": Place()}, "++", [ANY_NUMBER - 2]),
    "the first of a key": ([Job("a"), Job("a"), Job("a")], {"a": Place(2)}, "++a", [0]),
    "a key that is full": ([Job("a"), Job("b")], {"a": FULL, "b": ONE}, "a+", [0, 0]),
    "fewer places than holders": ([Job("a")], {"a": Place(-1)}, "a", [-1]),
    "a place in all keys or in none": ([Job("ab"), Job("b")], {"a": FULL, "b": Place(2)}, "a+", [0, 1]),
    "a rank counts those that may not start": ([Job("ab"), Job("b")], {"a": FULL, "b": ONE}, "a-", [0, 1]),
    "the first key that is full": ([Job("abc")], {"a": ONE, "b": FULL, "c": FULL}, "b", [1, 0, 0]),
    "a key of another transaction": ([Job("a"), Job("b")], {"a": BUSY, "b": ONE}, "-+", [ANY_NUMBER, 0]),
    "busy and full": ([Job("ab")], {"a": BUSY, "b": FULL}, "b", [ANY_NUMBER, 0]),
    "only the head of an order": ([Job("o"), Job("o")], {"o": Place(1, head=2)}, "o+", [0]),
    "a head that was not picked": ([Job("o")], {"o": Place(1, head=9)}, "o", [1]),
    "an order that another job holds": ([Job("o")], {"o": Place(0, head=1)}, "o", [0]),
    "a rate, of a job in class 1": ([Job("r", once=True)], {"r": Place(1, new_places=0)}, "+", [0]),
    "a rate that the job did not know": ([Job("r")], {"r": Place(1, new_places=0)}, "-", [1]),
    "a job without keys": ([Job(""), Job("a")], {"a": FULL}, "+a", [0]),
}


@pytest.mark.parametrize("case", CASES)
def test_a_job_starts_if_all_its_keys_have_a_place(db: Db, case: str) -> None:
    jobs, keys, verdicts, left = CASES[case]
    assert judge(db, jobs, keys, 10, 10) == (list(verdicts), left)


@pytest.mark.parametrize(
    ("jobs", "max", "free", "verdicts"),
    [
        ([Job("")] * 3, 2, 2, "++-"),
        ([Job("a"), Job(""), Job("")], 1, 1, "a+-"),  # one that may not start takes no place
        ([Job("", once=True)] * 2, 2, 1, "+-"),
        ([Job(""), Job("", once=True), Job("")], 3, 1, "+-+"),
        ([Job("", position=3), Job("", position=5)], 4, 4, "+-"),  # the jobs before and between them start
    ],
)
def test_no_more_jobs_start_than_are_wanted(db: Db, jobs: list[Job], max: int, free: int, verdicts: str) -> None:
    assert judge(db, jobs, {"a": FULL} if jobs[0].keys else {}, max, free)[0] == list(verdicts)
