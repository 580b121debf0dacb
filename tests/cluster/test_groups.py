"""Token groups from Python: members, ownership, items, pins."""

from __future__ import annotations

import asyncio
import inspect
import secrets
import sys
import threading
from contextlib import AbstractContextManager
from datetime import date
from typing import Any

import psycopg
import pytest

from tests.cluster.conftest import Bench
from watchbill import App
from watchbill.app.members import Item, ItemRefused, LocalItem, LocalMember, Member
from watchbill.cluster import elector
from watchbill.cluster.ownership import Rebalance
from watchbill.store.refusals import Invalid, StaleFence

KEYS = [f"customer-{number}" for number in range(60)]


def test_a_single_member_owns_everything_when_its_block_starts(bench: Bench) -> None:
    group = bench.app.cluster.group("production", tokens=20)
    with group.join("a") as member:
        assert member.is_ready
        assert all(member.owns(key) for key in KEYS)
        assert len(member.tokens) == 20
        assert (group.status().leader, group.status().members) == ("a", ["a"])
    assert not member.owns(KEYS[0])


def test_two_members_share_the_keys(bench: Bench) -> None:
    group = bench.app.cluster.group("production", tokens=20)
    with group.join("a") as first, group.join("b") as second:
        assert [each.tokens for each in group.owners()] == [10, 10]
        assert all(first.owns(key) != second.owns(key) for key in KEYS)
    assert group.rebalances()[-1].reason == "first assignment"


def test_the_keys_of_a_member_that_leaves_go_to_the_other(bench: Bench) -> None:
    """Also if it was the leader."""
    group = bench.app.cluster.group("production", tokens=20)
    first = group.join("a")
    first.__enter__()
    with group.join("b") as second:
        assert group.status().leader == "a"
        first.__exit__(None, None, None)
        bench.until(lambda: all(second.owns(key) for key in KEYS))
        assert group.status().leader == "b"


async def run_members(bench: Bench) -> None:
    group = bench.app.cluster.group("production", tokens=20)
    async with group.join("a") as first, group.join("b") as second:
        assert all(first.owns(key) != second.owns(key) for key in KEYS)
        owner = first if first.owns("customer-7") else second
        async with (
            owner.claim("customer-7", scope="today") as item,
            await psycopg.AsyncConnection.connect(bench.url) as connection,
        ):
            await item.acheck(connection)
        assert [each.state for each in await group.aaudit("today")] == ["finished"]
        other = second if owner is first else first
        with pytest.raises(ItemRefused, match="Item 'customer-7' is not owned"):
            async with other.claim("customer-7"):
                pass
        assert (await group.astatus()).owned == 20


def test_members_work_on_an_event_loop(bench: Bench) -> None:
    asyncio.run(run_members(bench))


@pytest.mark.parametrize("how", ["on_rebalance", "leader task"])
def test_a_node_leaves_although_a_function_of_the_program_does_not_return(
    bench: Bench, how: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The block would never end: closing an event loop waits for the threads of its executor."""
    monkeypatch.setattr(elector, "STOP_SECONDS", 0.01)
    called, may_return = threading.Event(), threading.Event()

    def wait(_: object) -> None:
        called.set()
        may_return.wait()

    app = App(bench.url, lease=3)
    try:
        if how == "leader task":
            app.leader_task(group="production")(wait)
            block: AbstractContextManager[object] = app.node()
        else:
            block = app.cluster.group("production", tokens=20, handover_timeout=1).join("a", on_rebalance=wait, wait=0)
        with block:
            assert called.wait(60)
        assert not may_return.is_set()
    finally:
        may_return.set()
        app.close()


def test_a_group_waits_for_min_nodes(bench: Bench) -> None:
    group, waits_for = (
        bench.app.cluster.group("production", tokens=20, min_nodes=2),
        "1 of at least 2 nodes have joined",
    )
    with group.join("a", wait=0) as first:
        assert not first.is_ready
        assert not any(first.owns(key) for key in KEYS)
        bench.until(lambda: [row.waits_for for row in bench.app.cluster.groups()] == [waits_for])
        with group.join("b") as second:
            bench.until(lambda: first.is_ready)
            assert all(first.owns(key) != second.owns(key) for key in KEYS)


def test_on_rebalance_is_called_before_tokens_are_passed_on(bench: Bench) -> None:
    group = bench.app.cluster.group("production", tokens=20)
    events: list[Rebalance] = []
    observed: list[str] = []
    may_go = threading.Event()
    bench.app.events.on("rebalance", lambda group, **_: observed.append(group))

    def moved(event: Rebalance) -> None:
        events.append(event)
        if event.lost:
            may_go.wait(60)

    with group.join("a", on_rebalance=moved) as first:
        second = group.join("b", wait=0)
        with second:
            bench.until(lambda: len(events) == 2)
            assert len(first.tokens) == 10
            assert second.tokens == frozenset()
            may_go.set()
            bench.until(lambda: len(second.tokens) == 10)
    assert [(len(event.gained), len(event.lost)) for event in events[:2]] == [(20, 0), (0, 10)]
    assert observed


def test_an_on_rebalance_that_exits_does_not_end_its_node(bench: Bench, caplog: pytest.LogCaptureFixture) -> None:
    group = bench.app.cluster.group("production", tokens=20)
    with group.join("a", on_rebalance=lambda _: sys.exit("enough")) as member:
        assert "on_rebalance of group production failed" in caplog.text
        assert member.owns(KEYS[0])


def test_an_item_is_exclusive_and_recorded(bench: Bench) -> None:
    group = bench.app.cluster.group("production", tokens=20)
    today = date(2026, 11, 17)
    with group.join("a") as member:
        with member.claim("customer-7", scope=today) as item:
            with pytest.raises(ItemRefused, match="is taken, by a"), member.claim("customer-7", scope=today):
                pass
            with psycopg.connect(bench.url) as connection:
                item.check(connection)
        with pytest.raises(ItemRefused, match="is finished, by a"), member.claim("customer-7", scope=today):
            pass
        (row,) = group.audit(today)
        assert (row.key, row.node, row.state, row.fence) == ("customer-7", "a", "finished", item.fence)


def test_a_key_that_fits_into_no_index_is_refused_as_too_large(bench: Bench) -> None:
    key = secrets.token_hex(10_000)
    group = bench.app.cluster.group("production", tokens=20)
    with group.join("a") as member, pytest.raises(Invalid, match=r"key of .* bytes is invalid: the limit is 1000"):
        member.claim(key)
    alone = bench.app.cluster.group("alone", coordination=False)
    with alone.join() as member, pytest.raises(Invalid, match="scope of 1001 bytes is invalid"):
        member.claim("k", scope="s" * 1001)


def test_an_item_whose_block_raises_is_released_and_incomplete(bench: Bench) -> None:
    group = bench.app.cluster.group("production", tokens=20)
    with group.join("a") as member:
        with pytest.raises(ZeroDivisionError), member.claim("k", scope="today"):
            raise ZeroDivisionError
        (row,) = group.incomplete("today")
        assert (row.key, row.is_held) == ("k", False)
        with member.claim("k", scope="today"):
            pass
        assert group.incomplete("today") == []


def test_a_member_whose_epoch_is_lost_owns_nothing_until_it_has_joined_again(bench: Bench) -> None:
    group = bench.app.cluster.group("production", tokens=20)
    with group.join("a") as member:
        epoch = member.epoch
        claimed = member.claim("k")
        claimed.__enter__()
        bench.sql("SELECT watchbill.expire_node(epoch, n) FROM watchbill.beats")
        bench.until(lambda: member.epoch != epoch and member.owns("k"))
        with member.claim("k") as item, psycopg.connect(bench.url) as connection:
            assert item.fence > claimed.fence
            with pytest.raises(StaleFence):
                claimed.check(connection)


def test_a_claim_of_a_node_that_was_just_lost_is_refused(bench: Bench) -> None:
    """It does not know yet, so it asks the database."""
    group = bench.app.cluster.group("production", tokens=20)
    with group.join("a") as member:
        lost = Item("k", "", FrozenMember(member, member.epoch))
        bench.sql("SELECT watchbill.expire_node(epoch, n) FROM watchbill.beats")
        with pytest.raises(ItemRefused, match="Item 'k' is not owned"), lost:
            pass


class FrozenMember(Member):
    """A member that has not noticed that its epoch has ended."""

    def __init__(self, member: Member, epoch: int) -> None:
        self.group, self._epoch = member.group, epoch

    def owns(self, key: object) -> bool:
        return True

    @property
    def epoch(self) -> int:
        return self._epoch


def test_pins_move_a_key_and_can_be_cleared(bench: Bench) -> None:
    group = bench.app.cluster.group("production", tokens=20)
    with group.join("a") as first, group.join("gpu-1") as second:
        key = next(key for key in KEYS if first.owns(key))
        group.pin(key, {"gpu": "a100"}, "gpu-%", reason="needs memory", expires="30d", created_by="me")
        bench.until(lambda: second.owns(key))
        assert not first.owns(key)
        (pin,) = group.pins()
        assert (pin.key, pin.owner, pin.created_by) == (key, "gpu-1", "me")
        assert pin.patterns == ['{"gpu": "a100"}', "gpu-%"]
        group.pin("nowhere", "mars-%")
        bench.until(lambda: group.status().waits_for == "1 pins match no node")
        assert group.clear_pins(created_by="me") == 1
        bench.until(lambda: first.owns(key))
        assert group.clear_pins() == 1
    wrong: list[tuple[Any, ...]] = [(), ("",), ({},), (7,), (["a", "b"],)]
    for places in wrong:
        with pytest.raises(ValueError, match=r"pin 'x' to .* is invalid: each place is a pattern"):
            group.pin("x", *places)
    for expires in (0, -1, "0s"):
        with pytest.raises(ValueError, match=r"expires=.* is invalid"):
            group.pin("x", "a", expires=expires)


def test_another_number_of_tokens_is_refused(bench: Bench) -> None:
    with bench.app.cluster.group("production", tokens=20).join("a"), pytest.raises(Invalid, match="has 20 tokens"):
        bench.app.cluster.group("production", tokens=30).declare()


def test_a_member_that_declares_another_number_of_tokens_does_not_join(bench: Bench) -> None:
    with bench.app.cluster.group("production", tokens=20).join("a"):
        other = bench.app.cluster.group("production", tokens=30)
        with pytest.raises(Invalid, match="has 20 tokens"), other.join("b"):
            pass

        async def join() -> None:
            async with other.join("b"):
                pass

        with pytest.raises(Invalid, match="has 20 tokens"):
            asyncio.run(join())
        assert [node.name for node in bench.app.cluster.nodes()] == ["a"]


@pytest.mark.parametrize(
    "options",
    [
        {"name": ""}, {"name": 7}, {"tokens": "10"}, {"tokens": 1.5}, {"tokens": 0}, {"tokens": True}, {"hash": "crc"},
        {"min_nodes": 0}, {"min_nodes": "1"}, {"handover_timeout": 0},
    ],
)  # fmt: skip
def test_wrong_options_are_refused_where_the_group_is_declared(options: dict[str, Any]) -> None:
    app = App("postgresql://nowhere")
    (word,) = options
    with pytest.raises(Invalid, match=rf"app\.cluster\.group\({word}=.*\) is invalid"):
        app.cluster.group(**({"name": "production"} | options))


def test_members_and_items_say_what_they_are(bench: Bench) -> None:
    with bench.app.cluster.group("production", tokens=20).join("a") as member:
        assert repr(member) == "<Member 'a' of group 'production' with 20 tokens>"
        item = member.claim("k", scope="today")
        assert repr(item) == "<Item 'k' of scope 'today' of group 'production', not claimed>"
        with item:
            assert repr(item) == f"<Item 'k' of scope 'today' of group 'production', held under fence {item.fence}>"
        assert repr(item) == "<Item 'k' of scope 'today' of group 'production', ended>"
        with pytest.raises(TypeError, match="the key None is invalid"):
            member.owns(None)
        with pytest.raises(TypeError, match="the key None is invalid"):
            member.claim(None)


def test_without_coordination_one_process_owns_everything(bench: Bench) -> None:
    group = bench.app.cluster.group("production", tokens=20, coordination=False)
    with group.join() as member:
        assert all(member.owns(key) for key in KEYS)
        with member.claim("k", scope="today") as item:
            item.check(None)
        with pytest.raises(ItemRefused, match="is finished"), member.claim("k", scope="today"):
            pass
    assert bench.sql("SELECT count(*) FROM watchbill.token_groups") == [(0,)]


def find_surface(kind: type) -> dict[str, object]:
    """What a class itself has for its users: names without an underscore, and the entry and exit of its blocks."""
    entries = {"__enter__", "__exit__", "__aenter__", "__aexit__"}
    return {name: found for name, found in vars(kind).items() if not name.startswith("_") or name in entries}


@pytest.mark.parametrize(("general", "local"), [(Member, LocalMember), (Item, LocalItem)])
def test_members_without_coordination_have_all_that_others_have(general: type, local: type) -> None:
    """What is inherited would ask a node that is not there. The entry and exit of an item only call the others."""
    inherited = {"again", "fence", "__exit__", "__aexit__"} if general is Item else set()
    found = find_surface(local)
    for name, wanted in find_surface(general).items():
        if name in inherited:
            continue
        assert name in found, f"{local.__name__}.{name} is inherited"
        assert type(found[name]) is type(wanted), name
        if inspect.isfunction(wanted) and not name.startswith("_"):
            given, own = inspect.signature(wanted), inspect.signature(getattr(local, name))
            assert list(given.parameters.values()) == list(own.parameters.values()), name


def read_properties(member: Member) -> dict[str, object]:
    return {name: getattr(member, name) for name, found in vars(Member).items() if isinstance(found, property)}


async def run_local_member(bench: Bench) -> dict[str, object]:
    group = bench.app.cluster.group("production", tokens=3, coordination=False)
    async with group.join() as member:
        async with member.claim("k", scope=date(2026, 11, 17)) as item:
            await item.acheck(None)
            with pytest.raises(ItemRefused, match="is taken, by local"):
                async with member.claim("k", scope="2026-11-17"):
                    pass
        with pytest.raises(StaleFence):
            await item.acheck(None)
        async with member.claim("k", scope="2026-11-17", again=True) as item:
            await item.arelease()
        return read_properties(member)


def test_every_property_of_a_member_without_coordination_answers(bench: Bench) -> None:
    group = bench.app.cluster.group("production", tokens=3, coordination=False)
    with group.join() as member:
        found = read_properties(member)
    assert found == {
        "tokens": {0, 1, 2},
        "version": 0,
        "is_ready": True,
        "is_healthy": True,
        "is_leader": True,
        "heartbeat_age": None,
        "name": "local",
        "epoch": 0,
    }
    assert asyncio.run(run_local_member(bench)) == found
