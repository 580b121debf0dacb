"""What enqueue computes from the options of a job and from its queue: class, lane, limit, order and route keys."""

from __future__ import annotations

from typing import Any
from uuid import UUID

import pytest

from tests.store.flow import declare_limit, declare_queue
from tests.store.harness import Db, End, refused
from watchbill.model import ids


@pytest.fixture(autouse=True)
def limits(db: Db) -> None:
    db.change("INSERT INTO {schema}.limits (name, max) VALUES ('crm-api', 10), ('account', 1), ('task:mail.send', 5)")
    declare_limit(db, "rated", rates=[(10, 1)])


def row(db: Db, job: UUID) -> Any:
    (found,) = db.execute(db._in_schema("SELECT * FROM {schema}.jobs WHERE id = %s"), (job,))
    return found


def every_way(db: Db, **job: Any) -> list[Any]:
    """The rows of such a job through each function that stores jobs."""
    one = db.enqueue(**job)
    many = db.call("enqueue_many", jobs=[{"type": "other"}, job])[1].id
    return [row(db, one), row(db, many)]


def test_limit_keys_are_filled_in_sorted_and_unique(db: Db) -> None:
    keys = ["crm-api", "account:{account}", "task:mail.send", "crm-api"]
    for found in every_way(db, type="mail.send", payload={"account": 7}, limit_keys=keys):
        assert found.limit_keys == ["key:account:7", "key:crm-api", "task:mail.send"]
        assert (found.class_, found.lane, found.order_key) == (0, 0, None)


def test_job_under_a_rate_is_claimed_only_into_a_free_slot(db: Db) -> None:
    for found in every_way(db, type="t", limit_keys=["rated"]):
        assert found.class_ == 1
    for found in every_way(db, type="t", max_attempts=1):
        assert found.class_ == 1


def test_order_key_names_the_type_and_is_a_limit_key_too(db: Db) -> None:
    for found in every_way(db, type="apply", payload={"order": 17}, ordered_by="{order}", limit_keys=["crm-api"]):
        assert found.order_key == "order:apply:17"
        assert found.limit_keys == ["key:crm-api", "order:apply:17"]


@pytest.mark.parametrize(
    ("format", "key"),
    [
        ("{text}", "a:b"),
        ("{number}-{tenant}", "1.5-acme"),
        ("{{{yes}}}", "{true}"),
        ("{nothing}", "null"),
        ("{list}", "[1, 2]"),
        ("plain", "plain"),
    ],
)
def test_formats_are_filled_in_from_the_payload_and_the_tenant(db: Db, format: str, key: str) -> None:
    payload = {"text": "a:b", "number": 1.5, "yes": True, "nothing": None, "list": [1, 2]}
    for found in every_way(db, type="t", payload=payload, tenant="acme", route_by=format):
        assert found.route_key == key


REFUSALS: list[tuple[dict[str, Any], str]] = [
    ({"limit_keys": ["unknown:7"]}, r"limit 'unknown' is unknown: declare it in a task, or with set_limit\(\)"),
    ({"limit_keys": ["queue:mail"]}, "limit_keys cannot name 'queue:mail': a job gets that key from its queue"),
    ({"limit_keys": ["order:t:7"]}, "limit_keys cannot name 'order:t:7'"),
    ({"limit_keys": ["task:other"]}, "limit 'task:other' is unknown"),
    ({"limit_keys": [""]}, "limit_keys must be texts that are not empty"),
    ({"limit_keys": ["account:{account}"]}, "limit_keys='account:{account}' needs the parameter 'account'"),
    ({"ordered_by": "{order}"}, "ordered_by='{order}' needs the parameter 'order', which the payload lacks"),
    ({"ordered_by": "x", "priority": 1}, "ordered_by and priority exclude each other"),
    ({"route_by": "x", "runs_on": {"gpu": "yes"}}, "route_by and runs_on exclude each other"),
    ({"runs_on": [1]}, "runs_on must be a JSON object of labels"),
    ({"runs_on": {"node": 1}}, "the label node in runs_on must be the name of a node, as a text"),
    ({"queue": "fair", "route_by": "x"}, "queue 'fair' is fair, so route_by and runs_on cannot be used in it"),
    ({"queue": "fair", "runs_on": {"gpu": "yes"}}, "queue 'fair' is fair"),
    (
        {"queue": "routed", "route_by": "x", "token_group": "h"},
        "queue 'routed' is routed by group 'g', not by 'h'; a queue has one group",
    ),
]


@pytest.mark.parametrize(("given", "words"), REFUSALS, ids=lambda value: str(value)[:40])
def test_invalid_options_are_refused_with_a_message(db: Db, given: dict[str, Any], words: str) -> None:
    db.change("INSERT INTO {schema}.queues (name, lanes, fair_by) VALUES ('fair', 'share', '{{account}}')")
    db.call("declare_group", name="g")
    db.call("route_queue", queue="routed", token_group="g")
    with refused("WB003", words):
        db.send("t", **given)
    with refused("WB003", words):
        db.call("enqueue_many", jobs=[{"type": "t"}, {"type": "t"} | given])
    assert db.count("jobs") == 0


@pytest.mark.parametrize("given", ["crm-api", 7, {"a": 1}, ["crm-api", 7], [["crm-api"]]])
def test_limit_keys_that_are_no_list_of_texts_are_refused_with_their_position(db: Db, given: object) -> None:
    jobs = [{"type": "t", "limit_keys": None}, {"type": "u", "limit_keys": given}]
    with refused("WB003", r"job of type 'u' is invalid: limit_keys must be an array of texts, .* at position 1 of"):
        db.call("enqueue_many", jobs=jobs)
    assert db.count("jobs") == 0


def test_order_keys_of_types_with_colons_differ(db: Db) -> None:
    """Type a:b with the value c, and type a with the value b:c."""
    types = {"a": "b:c", "a:b": "c", "a%3Ab": "c", "a:b:c": ""}
    jobs = [db.enqueue(name, payload={"v": value}, ordered_by="{v}") for name, value in types.items()]
    assert [row(db, job).order_key for job in jobs] == [
        "order:a:b:c",
        "order:a%3Ab:c",
        "order:a%253Ab:c",
        "order:a%3Ab%3Ac:",
    ]


def test_lane_of_a_fair_queue_is_that_of_the_share(db: Db) -> None:
    db.change("INSERT INTO {schema}.queues (name, lanes, fair_by) VALUES ('fair', 'share', '{{account}}')")
    for found in every_way(db, type="t", payload={"account": 7}, queue="fair"):
        assert found.lane == db.value("_make_share_lane", share="7") > 0
    for found in every_way(db, type="t", queue="fair"):
        assert found.lane == db.value("_make_share_lane", share="") > 0
    assert row(db, db.enqueue(payload={"account": 7})).lane == 0


def test_plain_enqueue_of_a_client_finds_the_lane_of_a_fair_queue(db: Db) -> None:
    db.change("INSERT INTO {schema}.queues (name, lanes, fair_by) VALUES ('fair', 'share', '{{tenant}}')")
    job = ids.new_id()  # that function has no `now`
    arguments = {"type": "t", "payload": {}, "queue": "fair", "priority": 0, "tenant": "acme", "max_attempts": 10}
    arguments |= {"timeout": None, "version": 1, "id": job, "created_by": None, "meta": None}
    assert db.value("_enqueue_plain", **arguments) == row(db, job).seq
    assert row(db, job).lane == db.value("_make_share_lane", share="acme")


def test_share_lanes_do_not_depend_on_the_server(db: Db) -> None:
    assert db.value("_make_share_lane", share="acme") == 1404888305


def test_jobs_with_the_same_labels_share_a_lane(db: Db) -> None:
    lanes = [row(db, db.enqueue(runs_on=labels)).lane for labels in ({"a": 1, "b": 2}, {"b": 2, "a": 1}, {"a": 1})]
    assert lanes[0] == lanes[1] != lanes[2]
    assert max(lanes) < 0
    assert {entry.lane for entry in db.rows("label_sets")} == set(lanes)


def test_two_sets_of_labels_never_share_a_lane(db: Db) -> None:
    lanes = []
    for labels in ({"a": 1}, {"a": 2}):
        db.execute("SELECT setseed(0.5)")
        lanes.append(row(db, db.enqueue(runs_on=labels)).lane)
    assert lanes[0] != lanes[1]


def test_no_job_waits_for_an_open_transaction_that_asks_for_the_same_labels(db: Db) -> None:
    other = db.session()
    other.begin()
    db.configure(lock_timeout="5s")
    first, second = other.enqueue(runs_on={"gpu": "new"}), db.enqueue(runs_on={"gpu": "new"})
    other.commit()
    third = db.enqueue(runs_on={"gpu": "new"})
    lanes = {row(db, job).lane for job in (first, second, third)}
    assert lanes == {entry.lane for entry in db.rows("label_sets")}
    node = db.node(labels={"gpu": "new"})
    assert {job.id for job in db.claim(node)} == {first, second, third}


def test_sets_of_labels_are_bounded(db: Db) -> None:
    db.change("INSERT INTO {schema}.label_sets SELECT -n, jsonb_build_object('n', n) FROM generate_series(1, 9999) n")
    db.enqueue(runs_on={"gpu": "yes"})
    with refused("WB003", "jobs have asked for 10000 sets of labels already"):
        db.enqueue(runs_on={"gpu": "no"})
    with refused("WB003", "sets of labels already"):
        db.call("enqueue_many", jobs=[{"type": "task", "runs_on": {"gpu": "no"}}])
    db.enqueue(runs_on={"gpu": "yes"})
    assert db.count("label_sets") == 10000


@pytest.mark.parametrize("by_hand", [False, True])
def test_job_of_a_schedule_has_the_lane_of_its_share(db: Db, by_hand: bool) -> None:
    db.change("INSERT INTO {schema}.queues (name, lanes, fair_by) VALUES ('fair', 'share', '{{account}}')")
    for queue in ("fair", "plain"):
        db.value("add_schedule", name=queue, every="1 h", type="t", payload={"account": 7}, queue=queue)
    if by_hand:
        for name in ("fair", "plain"):
            db.value("run_schedule", name=name)
    else:
        db.tick(3600)
        db.row("tick")
    lanes = {job.queue: job.lane for job in db.rows("jobs")}
    assert lanes == {"fair": db.value("_make_share_lane", share="7"), "plain": 0}


def test_tick_makes_a_job_whose_share_is_too_long(db: Db) -> None:
    db.change("INSERT INTO {schema}.queues (name, lanes, fair_by) VALUES ('fair', 'share', '{{account}}')")
    db.value("add_schedule", name="s", every="1 h", type="t", payload={"account": "x" * 1001}, queue="fair")
    db.tick(3600)
    assert db.row("tick").fired == 1
    assert [job.lane for job in db.rows("jobs")] == [0]
    assert len(db.claim(db.node(), queues=["fair"])) == 1


def test_job_that_commits_after_its_queue_became_plain_is_claimed(db: Db) -> None:
    """It has the lane of a share, which no claim of a plain queue reads."""
    epoch, producer = db.node(app="shop"), db.session()
    fair = [{"name": name, "fair_by": "{account}"} for name in ("sync", "fair")]
    db.call("declare_queues", epoch=epoch, queues=fair)
    other = db.enqueue(queue="fair", payload={"account": 7})
    producer.begin()
    jobs = [producer.enqueue(queue="sync", payload={"account": 7}, max_attempts=attempts) for attempts in (1, 5)]
    db.call("declare_queues", epoch=epoch, queues=[{"name": "sync"}])
    assert not db.row("_survey", epoch=epoch, queues=["sync"]).has_parked_job
    producer.commit()
    assert db.claim(epoch, queues=["sync"]) == []
    assert db.row("_survey", epoch=epoch, queues=["sync"]).has_parked_job
    db.value("sweep_limits")
    assert sorted(job.id for job in db.claim(epoch, queues=["sync"])) == sorted(jobs)
    assert row(db, other).lane == db.value("_make_share_lane", share="7")
    assert not db.row("_survey", epoch=epoch, queues=["sync"]).has_parked_job


# Jobs of a bulk that find no place.


def test_jobs_of_a_bulk_that_find_no_place_are_parked_at_once(db: Db) -> None:
    db.change("INSERT INTO {schema}.limits (name, max) VALUES ('pair', 2)")
    jobs = [{"type": "t", "limit_keys": ["pair"], "priority": priority} for priority in (0, 0, 5, 0)]
    found = [row(db, made.id) for made in db.call("enqueue_many", jobs=jobs)]
    assert [(each.wait, each.wait_key) for each in found] == [
        (None, None), ("parked", "key:pair"), (None, None), ("parked", "key:pair"),
    ]  # fmt: skip


def test_parked_jobs_of_a_bulk_follow_one_after_the_other(db: Db) -> None:
    epoch = db.node()
    jobs = [{"type": "t", "limit_keys": ["account:7"]}] * 3 + [{"type": "t", "ordered_by": "x"}] * 3
    made = [each.id for each in db.call("enqueue_many", jobs=jobs)]
    for turn in range(3):
        taken = db.claim(epoch)
        assert {job.id for job in taken} == {made[turn], made[3 + turn]}
        assert db.settle(epoch, *(End(job) for job in taken)) == {}
    assert db.count("jobs") == 0


@pytest.mark.parametrize("first", ["canceled", "failed"])
def test_parked_jobs_of_a_bulk_follow_one_that_does_not_succeed(db: Db, first: str) -> None:
    epoch = db.node()
    made = [each.id for each in db.call("enqueue_many", jobs=[{"type": "t", "limit_keys": ["account:7"]}] * 2)]
    if first == "canceled":
        db.call("cancel", id=made[0])
        db.call("promote")  # as a node that is woken
    else:
        db.run(epoch, "failed")
    assert db.claim_one(epoch).id == made[1]


@pytest.mark.parametrize(
    "job",
    [
        {"limit_keys": ["rated"]},
        {"limit_keys": ["picky"]},
        {"limit_keys": ["account:7", "crm-api"]},
        {"limit_keys": ["account:7"], "delay": "1 minute"},
        {"limit_keys": ["account:7"], "queue": "fair"},
    ],
    ids=["rate", "discarded", "several keys", "delayed", "in a lane"],
)
def test_other_jobs_of_a_bulk_are_left_to_the_claim(db: Db, job: dict[str, Any]) -> None:
    db.change("INSERT INTO {schema}.limits (name, max, when_full) VALUES ('picky', 1, 'discard')")
    declare_queue(db, "fair", "share")
    made = db.call("enqueue_many", jobs=[{"type": "t"} | job] * 2)
    assert "parked" not in {row(db, each.id).wait for each in made}


def test_each_queue_and_type_of_a_bulk_has_a_ready_job(db: Db) -> None:
    kinds = [{"type": "t"}, {"type": "t", "queue": "other"}, {"type": "other"}]
    made = db.call("enqueue_many", jobs=[kind | {"limit_keys": ["account:7"]} for kind in kinds])
    assert {row(db, each.id).wait for each in made} == {None}
