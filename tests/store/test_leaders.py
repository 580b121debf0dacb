"""The election of leaders in SQL: who is elected, until when, and what an old term may still do."""

from __future__ import annotations

from typing import Any

import pytest

from tests.store.harness import LEASE, Db, Session, refused

HALF = LEASE.total_seconds() / 2


def elect(session: Session, epoch: int, *groups: str) -> Any:
    """What `elect` says of the (first) group."""
    return session.call("elect", epoch=epoch, groups=list(groups or ("production",)))[0]


def beat(db: Db, *epochs: int) -> None:
    for epoch in epochs:
        db.call("heartbeat", epoch=epoch)


def free(db: Db, epoch: int) -> None:
    """The leader resigns."""
    term = elect(db, epoch).term
    assert db.value("lock_release", name="leader/production", fence=term)


def test_the_first_candidate_is_elected(db: Db) -> None:
    node = db.node()
    found = elect(db, node)
    assert (found.group_name, found.leader, found.expires_in, found.turn_in) == ("production", node, 30, None)
    assert found.term > node


def test_a_second_candidate_finds_the_leader(db: Db) -> None:
    first, second = db.node(), db.node()
    term = elect(db, first).term
    found = elect(db, second)
    assert (found.leader, found.term) == (first, term)


def test_a_leader_that_asks_again_keeps_its_term(db: Db) -> None:
    node = db.node()
    assert elect(db, node).term == elect(db, node).term


def test_groups_have_leaders_of_their_own(db: Db) -> None:
    one, two = db.node(), db.node()
    elect(db, one, "a")
    rows = db.call("elect", epoch=two, groups=["a", "b", "b"])
    assert {(row.group_name, row.leader) for row in rows} == {("a", one), ("b", two)}


def test_heartbeats_renew_the_leadership(db: Db) -> None:
    leader, other = db.node(), db.node()
    elect(db, leader)
    db.tick(20)
    beat(db, leader, other)
    db.tick(29)
    found = elect(db, other)
    assert (found.leader, found.expires_in) == (leader, 1)


def test_another_candidate_is_elected_when_the_lease_of_the_leader_ends(db: Db) -> None:
    leader, other = db.node(), db.node()
    old = elect(db, leader).term
    db.tick(20)
    beat(db, other)
    db.tick(9.9)
    assert elect(db, other).leader == leader
    db.tick(0.1)
    found = elect(db, other)
    assert found.leader == other
    assert found.term > old


def test_another_candidate_is_elected_if_the_leader_died_before_the_clock_was_set_back(db: Db) -> None:
    leader, other = db.node(), db.node()
    elect(db, leader)
    db.tick(-86_400)
    beat(db, other)
    assert elect(db, other).leader == leader
    db.reclaim(leader)
    assert elect(db, other).leader == other


def test_a_leader_that_wakes_up_late_is_not_preferred(db: Db) -> None:
    leader, other = db.node(), db.node()
    elect(db, leader)
    db.tick(30)
    beat(db, other)
    term = elect(db, other).term
    beat(db, leader)
    assert (elect(db, leader).leader, elect(db, leader).term) == (other, term)


def test_the_oldest_candidate_goes_first(db: Db) -> None:
    leader, older, younger = db.node(), db.node(), db.node()
    for node in (leader, older, younger):
        elect(db, node)
    db.call("leave", epoch=leader)
    waiting = elect(db, younger)
    assert (waiting.leader, waiting.turn_in) == (None, HALF)
    assert elect(db, older).leader == older


def test_a_younger_candidate_is_elected_if_the_older_one_does_not_take_its_turn(db: Db) -> None:
    leader, older, younger = db.node(), db.node(), db.node()
    for node in (leader, older, younger):
        elect(db, node)
    db.call("leave", epoch=leader)
    db.tick(HALF - 0.1)
    beat(db, older, younger)
    assert elect(db, younger).leader is None
    db.tick(0.1)
    assert elect(db, younger).leader == younger


def test_the_turn_of_a_new_group_starts_with_its_first_candidate(db: Db) -> None:
    older, younger = db.node(), db.node()
    db.change("INSERT INTO {schema}.candidates VALUES (%s, 'production')", older)
    assert elect(db, younger).turn_in == HALF
    db.tick(HALF)
    beat(db, older)
    assert elect(db, younger).leader == younger


def test_an_older_candidate_that_has_missed_a_heartbeat_is_not_waited_for(db: Db) -> None:
    leader, frozen, younger = db.node(), db.node(), db.node()
    for node in (leader, frozen, younger):
        elect(db, node)
    db.tick(HALF + 0.1)
    beat(db, leader, younger)
    db.call("leave", epoch=leader)
    assert elect(db, younger).leader == younger


def test_a_draining_node_is_not_a_candidate_and_not_waited_for(db: Db) -> None:
    older, younger = db.node("older"), db.node("younger")
    elect(db, older)
    free(db, older)
    db.call("drain", name="older")
    assert elect(db, older).leader is None
    assert elect(db, younger).leader == younger


def test_a_leader_that_drains_leads_until_it_resigns(db: Db) -> None:
    leader, other = db.node("leader"), db.node()
    elect(db, leader)
    db.call("drain", name="leader")
    assert elect(db, other).leader == leader
    free(db, leader)
    assert elect(db, other).leader == other


def test_a_leader_that_withdraws_is_not_waited_for(db: Db) -> None:
    """Its row says that it is active, until it leaves."""
    leader, other = db.node("leader"), db.node()
    elect(db, leader)
    assert elect(db, other).leader == leader
    db.call("_withdraw_candidate", epoch=leader)
    assert elect(db, other).leader == other
    assert [row.epoch for row in db.rows("candidates")] == [other]


def test_a_polite_leave_hands_over_at_once(db: Db) -> None:
    leader, other = db.node(), db.node()
    elect(db, leader)
    elect(db, other)
    db.call("leave", epoch=leader)
    assert elect(db, other).leader == other


def test_a_leave_ends_no_leadership_of_another_node(db: Db) -> None:
    one, two = db.node(), db.node()
    elect(db, one, "a")
    term = elect(db, two, "b").term
    db.call("leave", epoch=one)
    assert elect(db, two, "b").term == term


@pytest.mark.parametrize("end", ["leave", "lose"])
def test_a_leader_that_ends_while_its_lock_is_locked_gives_way_too(db: Db, end: str) -> None:
    """Its end does not wait for that lock, so the row still names it."""
    leader, other = db.node(), db.node()
    elect(db, leader)
    session = db.session()
    session.begin()
    session.execute("SELECT FROM watchbill.locks FOR UPDATE")
    if end == "leave":
        db.call("leave", epoch=leader)
    else:
        db.lose(leader)
        beat(db, other)
    session.commit()
    assert [row.epoch for row in db.rows("locks")] == [leader]
    assert elect(db, other).leader == other


@pytest.mark.parametrize("end", ["leave", "lose", "resign"])
def test_the_end_of_a_leadership_is_announced(db: Db, end: str) -> None:
    leader = db.node()
    term = elect(db, leader).term
    listener = db.session()
    (channel,) = listener.execute("SELECT watchbill._wake_channel()")[0]
    listener.connection.execute(f'LISTEN "{channel}"'.encode())
    match end:
        case "leave":
            db.call("leave", epoch=leader)
        case "lose":
            db.lose(leader)
        case _:
            db.value("lock_release", name="leader/production", fence=term)
    listener.execute("SELECT 1")
    assert "leader" in [note.payload for note in listener.connection.notifies(timeout=0)]


def test_a_lost_node_cannot_be_elected(db: Db) -> None:
    node = db.node()
    db.lose(node)
    with refused("WB001"):
        elect(db, node)
    assert db.count("candidates") == 0


def test_an_election_during_the_leave_of_its_node_is_refused(db: Db) -> None:
    node = db.node()
    leaving = db.session()
    leaving.begin()
    leaving.call("leave", epoch=node)
    election = db.session().start("elect", epoch=node, groups=["production"])
    election.blocked()
    leaving.commit()
    with refused("WB001"):
        election.rows()
    assert db.count("candidates") == 0


def test_two_candidates_at_once_elect_one_leader(db: Db) -> None:
    leader, one, two = db.node(), db.node(), db.node()
    elect(db, leader)
    db.call("leave", epoch=leader)
    session = db.session()
    session.begin()
    assert elect(session, one).leader == one
    assert elect(db, two).leader is None, "it does not wait either"
    session.commit()
    assert elect(db, two).leader == one


# -- terms


def check_term(session: Session, term: int) -> None:
    session.call("_check_term", group_name="production", term=term)


def test_the_term_of_the_leader_passes(db: Db) -> None:
    check_term(db, elect(db, db.node()).term)


def test_an_old_term_is_refused(db: Db) -> None:
    leader, other = db.node(), db.node()
    term = elect(db, leader).term
    db.tick(30)
    beat(db, other)
    elect(db, other)
    with refused("WB012", "leader/production"):
        check_term(db, term)


def test_a_term_passes_after_the_lease_while_there_is_no_later_leader(db: Db) -> None:
    term = elect(db, db.node()).term
    db.tick(100)
    check_term(db, term)


def test_nobody_is_elected_until_the_transaction_of_a_leader_has_ended(db: Db) -> None:
    leader, other = db.node(), db.node()
    term = elect(db, leader).term
    session = db.session()
    session.begin()
    check_term(session, term)
    db.tick(30)
    beat(db, other)
    assert elect(db, other).leader is None
    db.call("leave", epoch=leader)
    assert elect(db, other).leader is None
    session.commit()
    assert elect(db, other).leader == other


def test_the_term_of_one_group_is_not_that_of_another(db: Db) -> None:
    node = db.node()
    elect(db, node, "other")
    term = elect(db, node).term
    with refused("WB012"):
        db.call("_check_term", group_name="other", term=term)


# -- the survey


def test_the_survey_names_the_leaders_of_the_groups_of_a_candidate(db: Db) -> None:
    leader, other = db.node(), db.node()
    term = elect(db, leader).term
    elect(db, other)
    found = db.row("_survey", epoch=other, queues=[])
    assert (found.groups, found.leaders, found.terms) == (["production"], [leader], [term])
    assert (found.leaders_expire_in, found.turns_in) == ([30], [None])


def test_the_survey_names_no_leaders_to_other_nodes(db: Db) -> None:
    elect(db, db.node())
    assert db.row("_survey", epoch=db.node(), queues=[]).groups is None


def test_a_lock_of_a_node_cannot_be_renewed_by_hand(db: Db) -> None:
    term = elect(db, db.node()).term
    assert not db.value("lock_renew", name="leader/production", fence=term)
