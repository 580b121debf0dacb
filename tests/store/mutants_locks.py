# ruff: noqa: E501 - what stands here is the text of SQL lines, which are longer
"""Mutants of the named locks and of the election of leaders: each fence, term and expiry check taken out."""

from __future__ import annotations

from tests.store.mutants import LEAVE, MARK_NODE_LOST, REGISTER, Mutant

ACQUIRE, RENEW, RELEASE_LOCK, CHECK = (
    "cluster/lock_acquire.sql", "cluster/lock_renew.sql", "cluster/lock_release.sql", "cluster/lock_check.sql",
)  # fmt: skip
PRUNE_LOCKS, ELECT, CHECK_TERM = "upkeep/prune_locks.sql", "cluster/elect.sql", "cluster/check_term.sql"

MUTANTS_OF_LOCKS: list[Mutant] = [
    Mutant("acquire: expiry", ACQUIRE, "OR _lock_end(x.epoch, x.expires_at) <= t", "OR true", "locks"),
    Mutant("acquire: never expires", ACQUIRE, "OR _lock_end(x.epoch, x.expires_at) <= t", "", "locks"),
    Mutant(
        "acquire: at the end of the ttl",
        ACQUIRE,
        "_lock_end(x.epoch, x.expires_at) <= t",
        "_lock_end(x.epoch, x.expires_at) < t",
        "locks",
    ),
    Mutant("acquire: a released lock", ACQUIRE, "x.holder IS NULL OR x.request", "x.request", "locks"),
    Mutant(
        "acquire: another request", ACQUIRE, "OR x.request = _acquire_lock.request", "OR x.request IS NOT NULL", "locks"
    ),
    Mutant("acquire: the same request", ACQUIRE, "OR x.request = _acquire_lock.request", "", "locks"),
    Mutant(
        "acquire: the same request keeps its fence",
        ACQUIRE,
        "WHEN l.request = _acquire_lock.request AND l.holder IS NOT NULL THEN l.fence",
        "WHEN false THEN l.fence",
        "locks",
    ),
    Mutant(
        "acquire: a new fence", ACQUIRE, "ELSE _make_fence(_adopt_database())", "ELSE greatest(l.fence, 1)", "locks"
    ),
    Mutant(
        "acquire: waits for checks",
        ACQUIRE,
        "<= t) FOR UPDATE SKIP LOCKED)",
        "<= t) FOR NO KEY UPDATE SKIP LOCKED)",
        "locks",
    ),
    Mutant(
        "acquire: does not wait",
        ACQUIRE,
        "<= t) FOR UPDATE SKIP LOCKED)",
        "<= t) FOR UPDATE)",
        "locks",
    ),
    Mutant(
        "acquire: a row that is being changed",
        ACQUIRE,
        "EXIT WHEN EXISTS (SELECT FROM locks l WHERE l.name = _acquire_lock.name);",
        "",
        "locks",
    ),
    Mutant(
        "acquire: this lock", ACQUIRE, "WHERE x.name = _acquire_lock.name AND (x.holder", "WHERE (x.holder", "locks"
    ),
    Mutant("acquire: waiting is noted", ACQUIRE, "IF _acquire_lock.waits THEN", "IF false THEN", "locks"),
    Mutant(
        "lock end: of a node",
        ACQUIRE,
        "WHEN _lock_end.epoch IS NULL THEN _lock_end.expires_at",
        "WHEN true THEN _lock_end.expires_at",
        "leaders",
    ),
    Mutant("lock end: the lease", ACQUIRE, "SELECT b.at + n.lease", "SELECT b.at", "leaders"),
    Mutant("lock end: a node without a heartbeat", ACQUIRE, ", '-infinity')", ", 'infinity')", "leaders"),
    Mutant(
        "lock end: of its own node",
        ACQUIRE,
        "WHERE b.epoch = _lock_end.epoch), ",
        "ORDER BY b.at DESC LIMIT 1), ",
        "leaders",
    ),
    Mutant("renew: fence", RENEW, "AND l.fence = lock_renew.fence", "", "locks"),
    Mutant("renew: released", RENEW, "AND l.holder IS NOT NULL", "", "locks"),
    Mutant("renew: of a node", RENEW, "AND l.epoch IS NULL", "", "leaders"),
    Mutant("release: fence", RELEASE_LOCK, "AND l.fence = coalesce(lock_release.fence, l.fence)", "", "locks"),
    Mutant("release: twice", RELEASE_LOCK, "AND l.holder IS NOT NULL FOR NO KEY UPDATE", "FOR NO KEY UPDATE", "locks"),
    Mutant("release: does not wait for checks", RELEASE_LOCK, "FOR NO KEY UPDATE", "FOR UPDATE", "locks"),
    Mutant("release: the audit", RELEASE_LOCK, "IF lock_release.fence IS NULL THEN", "IF false THEN", "locks"),
    Mutant("release: notifies who waits", RELEASE_LOCK, "IF was_awaited THEN", "IF false THEN", "locks"),
    Mutant("release: notifies only if awaited", RELEASE_LOCK, "IF was_awaited THEN", "IF true THEN", "locks"),
    Mutant(
        "release: notifies once",
        RELEASE_LOCK,
        "UPDATE locks l SET awaited = false WHERE l.name = _free_lock.name;",
        "",
        "locks",
    ),
    Mutant(
        "release: announces a leader's end",
        RELEASE_LOCK,
        "IF starts_with(_free_lock.name, 'leader/') THEN",
        "IF false THEN",
        "leaders",
    ),
    Mutant("check: fence", CHECK, "AND l.fence = lock_check.fence", "", "locks leaders"),
    Mutant("check: released", CHECK, "AND l.holder IS NOT NULL", "", "locks"),
    Mutant("check: holds the next grant off", CHECK, "FOR KEY SHARE;", ";", "locks"),
    Mutant("check: does not hold up renewals", CHECK, "FOR KEY SHARE;", "FOR SHARE;", "locks"),
    Mutant("check: refuses", CHECK, "IF NOT FOUND THEN", "IF false THEN", "locks"),
    Mutant("check: this lock", CHECK, "WHERE l.name = lock_check.name AND", "WHERE", "leaders"),
    Mutant("prune: held locks", PRUNE_LOCKS, "AND _lock_end(l.epoch, l.expires_at) < oldest", "", "locks"),
    Mutant("prune: young locks", PRUNE_LOCKS, "AND l.released_at < oldest", "", "locks"),
    Mutant(
        "prune: locks under a check", PRUNE_LOCKS, "FOR UPDATE SKIP LOCKED", "FOR NO KEY UPDATE SKIP LOCKED", "locks"
    ),
    Mutant(
        "elect: a lost node",
        ELECT,
        "WHERE n.epoch = elect.epoch AND n.state IN ('active', 'draining') FOR KEY SHARE;",
        "WHERE n.epoch = elect.epoch FOR KEY SHARE;",
        "leaders",
    ),
    Mutant("elect: waits for the end of its node", ELECT, "FOR KEY SHARE;", ";", "leaders"),
    Mutant("elect: a draining node", ELECT, "IF node.state = 'active' THEN", "IF true THEN", "leaders"),
    Mutant("elect: its turn", ELECT, "WHERE _find_leader_turn(g.name, node.epoch, t) <= t;", ";", "leaders"),
    Mutant(
        "elect: the clock of a new group",
        ELECT,
        "INSERT INTO locks (name, released_at) SELECT DISTINCT 'leader/' || g, t FROM unnest(elect.groups) g WHERE NOT EXISTS (SELECT FROM locks l WHERE l.name = 'leader/' || g) ORDER BY 1 ON CONFLICT DO NOTHING;",
        "",
        "leaders",
    ),
    Mutant(
        "elect: a row that is being changed",
        ELECT,
        "WHERE NOT EXISTS (SELECT FROM locks l WHERE l.name = 'leader/' || g)",
        "",
        "leaders",
    ),
    Mutant("leaders: whose lease has ended", ELECT, "AND _lock_end(l.epoch, l.expires_at) > t;", ";", "leaders"),
    Mutant("turn: older candidates only", ELECT, "AND c.epoch < _find_leader_turn.epoch);", ");", "leaders"),
    Mutant("turn: of this group", ELECT, "WHERE c.group_name = _find_leader_turn.group_name AND", "WHERE", "leaders"),
    Mutant("turn: that send heartbeats", ELECT, "AND b.at > t - n.lease / 2", "", "leaders"),
    Mutant(
        "turn: that do not drain",
        ELECT,
        "ON n.epoch = c.epoch AND n.state = 'active'",
        "ON n.epoch = c.epoch",
        "leaders",
    ),
    Mutant(
        "turn: ends",
        ELECT,
        "CASE WHEN l.holder IS NULL THEN l.released_at ELSE _lock_end(l.epoch, l.expires_at) END",
        "t",
        "leaders",
    ),
    Mutant(
        "end of candidacies: own epoch", ELECT, "WHERE l.epoch = _end_candidacies.epoch ORDER", "ORDER", "leaders locks"
    ),
    Mutant(
        "end of candidacies: own candidacies",
        ELECT,
        "DELETE FROM candidates c WHERE c.epoch = _end_candidacies.epoch;",
        "DELETE FROM candidates c;",
        "leaders",
    ),
    Mutant("leave: the leadership", LEAVE, "PERFORM _end_candidacies(leave.epoch, t);", "", "leaders"),
    Mutant("mark lost: the leadership", MARK_NODE_LOST, "PERFORM _end_candidacies(node_epoch, t);", "", "leaders"),
    Mutant(
        "term: of this group",
        CHECK_TERM,
        "PERFORM lock_check('leader/' || _check_term.group_name, _check_term.term);",
        "PERFORM lock_check(l.name, _check_term.term) FROM locks l WHERE l.fence = _check_term.term;",
        "leaders",
    ),
    Mutant(
        "take over: another process", REGISTER, "AND nd.instance IS DISTINCT FROM _take_over_name.instance", "", "nodes"
    ),
    Mutant("take over: waits for claims", REGISTER, "FOR UPDATE OF b, nd;", ";", "nodes"),
    Mutant("take over: only when asked", REGISTER, "IF register.take_over THEN", "IF true THEN", "nodes"),
    Mutant(
        "take over: fences",
        REGISTER,
        "PERFORM _mark_node_lost(old, t);",
        "UPDATE nodes n SET state = 'left' WHERE n.epoch = old;",
        "nodes",
    ),
]
