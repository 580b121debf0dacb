# ruff: noqa: E501 - what stands here is the text of SQL lines, which are longer
"""The functions with one check taken out, each a mutant that some test must notice.

`original` stands once in its file. `tests` are the files that are run against it, in the order in which they are likely
to notice. EQUIVALENT lists checks that cannot be missed, each with the reason why it is there all the same.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import NamedTuple

from watchbill.postgres.migration_files import Source, SqlFile


class Mutant(NamedTuple):
    name: str
    file: str
    original: str
    replacement: str
    tests: str

    def apply(self, source: Source) -> Source:
        """The same source with this one change."""
        return replace(source, functions=tuple(self._change(source)))

    def _change(self, source: Source) -> Iterator[SqlFile]:
        for file in source.functions:
            if file.name != self.file:
                yield file
                continue
            assert file.text.count(self.original) == 1, f"{self.name}: stands {file.text.count(self.original)} times"
            yield replace(file, text=file.text.replace(self.original, self.replacement))


IDS, NODES, ENQUEUE = "020_ids.sql", "050_nodes.sql", "060_enqueue.sql"
CLAIM, SETTLE, RECLAIM = "070_claim.sql", "080_settle.sql", "090_reclaim.sql"
OPERATE, PARTITIONS, LISTS = "100_operate.sql", "110_partitions.sql", "125_lists.sql"
CHECKS, TICK, ORPHANS = "305_schedule_checks.sql", "310_tick.sql", "315_orphans.sql"
DECLARE, EXECUTE, FLOWS = "330_declare.sql", "360_execute_due.sql", "365_flow_slots.sql"
DEPENDENCIES = "065_dependencies.sql"

READY = (
    "j.wait IS NULL AND j.max_attempts > 1 AND NOT (j.alone OR j.limited) AND j.fence = 0\n    ORDER BY j.priority DESC"
)
ONCE = (
    "j.wait IS NULL AND j.max_attempts = 1 AND NOT (j.alone OR j.limited) AND j.fence = 0\n    ORDER BY j.priority DESC"
)
ALONE = "j.wait IS NULL AND j.alone AND NOT j.limited AND j.fence = 0"
ABOVE = "AND (j.run_at, j.id) > (s.at, s.id) AND j.wait IS NULL AND j.max_attempts > 1 AND NOT (j.alone OR j.limited) AND j.fence = 0"
BETWEEN = "j.priority > s.above\n          AND j.wait IS NULL AND j.max_attempts > 1 AND NOT (j.alone OR j.limited) AND j.fence = 0"
UNSUPPORTED = "AND j.wait = 'unsupported' AND j.alone = pick_unsupported.alone AND j.fence = 0"

MUTANTS: list[Mutant] = [
    # Nodes.
    Mutant("register: a living name", NODES, "DO NOTHING;\n  IF NOT FOUND THEN", "DO NOTHING;\n  IF false THEN", "nodes"),
    Mutant("register: our own instance", NODES, " AND n.instance = register.instance", "", "nodes"),
    Mutant("register: the server is adopted", NODES, "PERFORM adopt_server();", "", "ids"),
    Mutant("heartbeat: lost", NODES, "WHERE b.epoch = heartbeat.epoch;\n  IF NOT FOUND", "WHERE b.epoch = heartbeat.epoch;\n  IF false", "nodes"),
    Mutant("heartbeat: own epoch", NODES, "WHERE b.epoch = heartbeat.epoch;", "WHERE b.epoch = heartbeat.epoch OR true;", "nodes loss"),
    Mutant("runs: own epoch", NODES, "r.epoch = record_runs.epoch\n", "true\n", "nodes"),
    Mutant("runs: that are none", NODES, "IS DISTINCT FROM ('string', 'number', 'number')) THEN", "IS DISTINCT FROM ('string', 'number', 'number') AND false) THEN", "nodes"),
    Mutant("runs: an older fence", NODES, "    WHERE EXCLUDED.fence >= r.fence;", ";", "nodes"),
    Mutant("runs: started under this fence", NODES, "CASE WHEN r.fence = EXCLUDED.fence THEN", "CASE WHEN true THEN", "nodes"),
    Mutant("stop requests: own epoch", NODES, "WHERE c.epoch = stop_requests.epoch", "", "nodes"),
    Mutant("drain: waits for claims", NODES, "AND n.state = 'active' FOR UPDATE;", "AND n.state = 'active';", "nodes"),
    Mutant("drain: only active", NODES, "SET state = 'draining' WHERE n.name = drain.name AND n.state = 'active';",
        "SET state = 'draining' WHERE n.name = drain.name;", "nodes"),
    Mutant("release_claims: fence", NODES, "JOIN jobs j ON j.id = x.id AND j.fence = c.fence\n      WHERE c.fence",
        "JOIN jobs j ON j.id = x.id\n      WHERE c.fence", "nodes operate"),
    Mutant("release_claims: locked rows", NODES, "WHERE c.fence = ANY (release_claims.fences) FOR UPDATE OF j SKIP LOCKED)",
        "WHERE c.fence = ANY (release_claims.fences))", "nodes"),
    Mutant("release_claims: canceling", NODES, " AND NOT j.canceling;", ";", "nodes"),
    Mutant("release_claims: claims still held", NODES, "WHERE c.fence = ANY (release_claims.fences)\n    AND NOT EXISTS (SELECT FROM unnest(c.job_ids) x(id) JOIN jobs j ON j.id = x.id AND j.fence = c.fence);",
        "WHERE c.fence = ANY (release_claims.fences);", "nodes"),
    Mutant("abandon: waits for a claim", NODES, "PERFORM FROM nodes n WHERE n.epoch = abandon.epoch FOR UPDATE;", "", "nodes"),
    Mutant("abandon: own epoch", NODES, "c.epoch = abandon.epoch AND ", "", "nodes"),
    Mutant("abandon: known fences", NODES, " AND c.fence <> ALL (abandon.known)", "", "nodes"),
    Mutant("leave: waits for a claim", NODES, "PERFORM FROM nodes n WHERE n.epoch = leave.epoch FOR UPDATE;", "", "nodes"),
    Mutant("leave: only the living", NODES, " AND n.state IN ('active', 'draining');\n  IF NOT FOUND THEN RETURN 0", ";\n  IF NOT FOUND THEN RETURN 0", "nodes"),
    Mutant("leave: own claims", NODES, "FROM claims c WHERE c.epoch = leave.epoch)", "FROM claims c)", "nodes state_machine"),
    Mutant("leave: gives up its lease", NODES, "DELETE FROM beats b WHERE b.epoch = leave.epoch;", "", "nodes"),
    # Producing.
    Mutant("enqueue: resend needs READ COMMITTED", ENQUEUE, "IF enqueue.resend THEN PERFORM check_isolation('enqueue with resend'); END IF;", "", "resend"),
    Mutant("enqueue: an id that is in use", ENQUEUE, "    ON CONFLICT (id) DO NOTHING RETURNING j.seq INTO seq;", "    RETURNING j.seq INTO seq;", "enqueue resend"),
    Mutant("enqueue: finished meanwhile", ENQUEUE, "IF first_seq IS NULL THEN RETURN undo_if_finished.seq; END IF;", "RETURN undo_if_finished.seq;", "resend"),
    Mutant("enqueue: an old id", ENQUEUE, "ELSIF enqueue.resend OR NOT fresh THEN", "ELSIF enqueue.resend THEN", "enqueue"),
    Mutant("enqueue: an id of the future", ENQUEUE, "abs(date_part('epoch', uuid_time(enqueue.id)) - date_part('epoch', t)) <= 3600;", "date_part('epoch', uuid_time(enqueue.id)) >= date_part('epoch', t) - 3600;", "enqueue"),
    Mutant("enqueue_many: an old id", ENQUEUE, " OR x.id < oldest OR substr(x.id::text, 15, 1) <> '7')", ")", "enqueue"),
    Mutant("keys: the row is locked", ENQUEUE, "AND i.key = take_key.key FOR UPDATE;", "AND i.key = take_key.key;", "idempotency"),
    Mutant("keys: purged while waiting", ENQUEUE, "EXIT WHEN FOUND; ", "EXIT; ", "idempotency"),
    Mutant("keys: our own", ENQUEUE, "IF k.job_id = take_key.id THEN", "IF false THEN", "resend"),
    Mutant("keys: the window", ENQUEUE, "k.expires_at <= take_key.t OR ", "", "idempotency"),
    Mutant("keys: the job is gone", ENQUEUE, " OR k.expires_at IS NULL AND seq_of(k.job_id) IS NULL THEN", " THEN", "idempotency"),
    Mutant("keys: the job is kept", ENQUEUE, " AND seq_of(k.job_id) IS NULL THEN", " THEN", "idempotency"),
    Mutant("keys: sorted", ENQUEUE, "      ORDER BY n.tenant, n.type, n.idempotency_key, n.place),", "      ORDER BY n.place),", "idempotency"),
    Mutant("enqueue: strict", ENQUEUE, "IF payload_differs AND enqueue.strict THEN", "IF false THEN", "idempotency"),
    # Claiming.
    Mutant("claim: isolation", CLAIM, "THEN PERFORM check_isolation('claim'); END IF;", "THEN END IF;", "claim"),
    Mutant("claim: the node is active", CLAIM, "IF node_state IS DISTINCT FROM 'active' THEN", "IF false THEN", "claim"),
    Mutant("claim: the node's row is locked", CLAIM, "AND n.state = 'active' FOR KEY SHARE OF n SKIP LOCKED;", "AND n.state = 'active';", "nodes loss"),
    Mutant("claim: a lost node takes nothing", CLAIM, "AND n.state = 'active' FOR KEY SHARE OF n", "FOR KEY SHARE OF n", "loss"),
    Mutant("claim: waits for no loss", CLAIM, "'active' FOR KEY SHARE OF n SKIP LOCKED;", "'active' FOR KEY SHARE OF n;", "loss"),
    Mutant("claim: a draining node", CLAIM, "IF node_state IS DISTINCT FROM 'active' THEN", "IF coalesce(node_state, '') NOT IN ('active', 'draining') THEN", "nodes"),
    Mutant("claim: a lost node", CLAIM, "IF node_state IS DISTINCT FROM 'active' THEN", "IF coalesce(node_state, '') NOT IN ('active', 'lost') THEN", "claim loss"),
    Mutant("claim: a node that has left", CLAIM, "IF node_state IS DISTINCT FROM 'active' THEN", "IF coalesce(node_state, '') NOT IN ('active', 'left') THEN", "nodes"),
    Mutant("claim: an unknown node", CLAIM, "IF node_state IS DISTINCT FROM 'active' THEN", "IF node_state <> 'active' THEN", "claim"),
    Mutant("claim: pauses are locked", CLAIM, "PERFORM FROM pauses FOR KEY SHARE SKIP LOCKED;", "", "pause"),
    Mutant("claim: waits for no resume", CLAIM, "FROM pauses FOR KEY SHARE SKIP LOCKED;", "FROM pauses FOR KEY SHARE;", "pause"),
    Mutant("claim: paused queues", CLAIM, "open_queues := unpaused(claim.queues);", "", "pause"),
    Mutant("claim: paused types", CLAIM, "EXIT WHEN cardinality(tids) = 0 OR NOT types_paused;", "EXIT;", "pause"),
    Mutant("pick_ready: taken", CLAIM, READY, READY.replace(" AND j.fence = 0", ""), "claim"),
    Mutant("pick_ready: waiting", CLAIM, READY, READY.replace("j.wait IS NULL AND ", ""), "claim"),
    Mutant("pick_ready: alone", CLAIM, READY, READY.replace("(j.alone OR j.limited)", "j.limited"), "claim"),
    Mutant("pick_ready: limited", CLAIM, READY, READY.replace("(j.alone OR j.limited)", "j.alone"), "claim"),
    Mutant("pick_ready: one attempt", CLAIM, READY, READY.replace("j.max_attempts > 1 AND ", ""), "claim"),
    Mutant("pick_ready: locked rows", CLAIM, READY + ", j.run_at, j.id LIMIT max FOR UPDATE SKIP LOCKED", READY + ", j.run_at, j.id LIMIT max", "claim"),
    Mutant("pick_ready: waits", CLAIM, READY + ", j.run_at, j.id LIMIT max FOR UPDATE SKIP LOCKED", READY + ", j.run_at, j.id LIMIT max FOR UPDATE", "claim"),
    Mutant("pick_once: taken", CLAIM, ONCE, ONCE.replace(" AND j.fence = 0", ""), "claim"),
    Mutant("pick_once: waiting", CLAIM, ONCE, ONCE.replace("j.wait IS NULL AND ", ""), "claim"),
    Mutant("pick_once: locked rows", CLAIM, ONCE + ", j.run_at, j.id LIMIT max FOR UPDATE SKIP LOCKED", ONCE + ", j.run_at, j.id LIMIT max", "claim"),
    Mutant("pick_once: free slots", CLAIM, "least(claim.free, claim.max), claim.floor_queues", "claim.max, claim.floor_queues", "claim"),
    Mutant("pick_alone: taken", CLAIM, ALONE, ALONE.replace(" AND j.fence = 0", ""), "claim"),
    Mutant("pick_alone: waiting", CLAIM, ALONE, ALONE.replace("j.wait IS NULL AND ", ""), "claim state_machine"),
    Mutant("pick_alone: alone", CLAIM, ALONE, ALONE.replace("j.alone AND ", ""), "claim"),
    Mutant("pick_above: taken", CLAIM, ABOVE, ABOVE.replace(" AND j.fence = 0", ""), "claim"),
    Mutant("pick_above: waiting", CLAIM, ABOVE, ABOVE.replace("AND j.wait IS NULL ", ""), "claim"),
    Mutant("pick_above: not later than 250 ms ago", CLAIM, "SELECT f.priority AS floor, least(f.at, latest) AS at,", "SELECT f.priority AS floor, f.at AS at,", "claim"),
    Mutant("pick_above: taken, between", CLAIM, BETWEEN, BETWEEN.replace(" AND j.fence = 0", ""), "claim"),
    Mutant("pick_above: waiting, between", CLAIM, BETWEEN, BETWEEN.replace("AND j.wait IS NULL ", ""), "claim"),
    Mutant("pick_above: priorities below", CLAIM, "j.priority < s.below AND j.priority > s.above", "j.priority > s.above", "claim"),
    Mutant("pick_above: priorities above", CLAIM, "j.priority < s.below AND j.priority > s.above", "j.priority < s.below", "claim"),
    Mutant("pick_above: in order", CLAIM, "ORDER BY q.n, coalesce(s.floor, s.above) DESC, s.floor NULLS FIRST) s", "ORDER BY q.n) s", "claim"),
    Mutant("pick_others: once", CLAIM, "FROM jobs j WHERE j.type <> ALL (without)\n        AND j.queue = q.queue AND j.lane = l.lane AND j.wait IS NULL AND j.max_attempts = 1", "FROM jobs j WHERE true\n        AND j.queue = q.queue AND j.lane = l.lane AND j.wait IS NULL AND j.max_attempts = 1", "claim"),
    Mutant("pick_others: ready", CLAIM, "FROM jobs j WHERE j.type <> ALL (without)\n        AND j.queue = q.queue AND j.lane = l.lane AND j.wait IS NULL AND j.max_attempts > 1", "FROM jobs j WHERE true\n        AND j.queue = q.queue AND j.lane = l.lane AND j.wait IS NULL AND j.max_attempts > 1", "claim"),
    Mutant("pick_others: locked rows", CLAIM, "j.priority DESC, j.run_at, j.id LIMIT max FOR UPDATE SKIP LOCKED);\nEND", "j.priority DESC, j.run_at, j.id LIMIT max);\nEND", "claim"),
    Mutant("pick_others: in order", CLAIM, "ORDER BY array_position(queues, j.queue), j.priority DESC, j.run_at, j.id LIMIT", "LIMIT", "claim"),
    Mutant("pick_unsupported: left out", CLAIM, "coalesce(pick_unsupported.without, '{}')", "'{}'", "unsupported"),
    Mutant("pick_unsupported: taken", CLAIM, UNSUPPORTED, UNSUPPORTED.replace(" AND j.fence = 0", ""), "unsupported"),
    Mutant("pick_unsupported: waiting", CLAIM, UNSUPPORTED, UNSUPPORTED.replace("AND j.wait = 'unsupported' ", ""), "unsupported"),
    Mutant("pick_unsupported: alone", CLAIM, UNSUPPORTED, UNSUPPORTED.replace("AND j.alone = pick_unsupported.alone ", ""), "unsupported"),
    Mutant("pick_unsupported: own types", CLAIM, "n.epoch = pick_unsupported.epoch AND n.type = u.type AND", "n.type = u.type AND", "unsupported"),
    Mutant("pick_unsupported: version", CLAIM, " AND n.version >= u.version\n", "\n", "unsupported"),
    Mutant("claim: run grows", CLAIM, "SET fence = f, run = j.run + 1", "SET fence = f", "claim"),
    Mutant("claim: the claim is recorded", CLAIM, "SELECT f, claim.epoch, array_agg(u.id), t FROM u)", "SELECT f, claim.epoch, array_agg(u.id), t FROM u HAVING false)", "claim"),
    Mutant("promote: isolation", CLAIM, "PERFORM check_isolation('promote');", "", "claim"),
    Mutant("promote: due", CLAIM, "d.run_at <= t AND ", "", "claim"),
    Mutant("promote: delayed", CLAIM, "FROM jobs d WHERE d.wait = 'delayed' AND", "FROM jobs d WHERE d.wait IS NOT NULL AND", "claim state_machine"),
    Mutant("promote: locked rows", CLAIM, "LIMIT promote.max FOR UPDATE SKIP LOCKED", "LIMIT promote.max FOR UPDATE", "claim"),
    Mutant("promote: locked rows are not the next", CLAIM, "CASE WHEN n < promote.max THEN t END", "NULL", "claim"),
    # The end of a run.
    Mutant("settle: isolation", SETTLE, "PERFORM check_isolation('settle');", "", "claim"),
    Mutant("settle: fence", SETTLE, "WHERE j.id = i.id AND j.fence = i.fence AND i.fence <> 0\n", "WHERE j.id = i.id\n", "settle"),
    Mutant("settle: nobody's fence", SETTLE, "WHERE j.id = i.id AND j.fence = i.fence AND i.fence <> 0\n", "WHERE j.id = i.id AND j.fence = i.fence\n", "settle"),
    Mutant("settle: stop requests are forgotten", SETTLE, "DELETE FROM cancels c WHERE c.job_id = ANY (stopping);", "NULL;", "cancel"),
    Mutant("settle: only own claims are closed", SETTLE, " AND c.epoch = settle.epoch;", ";", "settle"),
    Mutant("settle_each: fence", SETTLE, "ON j.id = i.id AND j.fence = i.fence AND i.fence <> 0 FOR UPDATE OF j", "ON j.id = i.id FOR UPDATE OF j", "settle complete"),
    Mutant("settle_each: nobody's fence", SETTLE, " AND i.fence <> 0 FOR UPDATE OF j", " FOR UPDATE OF j", "settle complete"),
    Mutant("settle_each: lock", SETTLE, " AND i.fence <> 0 FOR UPDATE OF j", " AND i.fence <> 0", "cancel settle"),
    Mutant("settle_each: asked to stop", SETTLE, "WHEN j.canceling OR i.outcome = 'canceled'", "WHEN i.outcome = 'canceled'", "cancel"),
    Mutant("settle_each: attempts are spent", SETTLE, "j.attempt + 1 >= j.max_attempts OR ", "", "settle"),
    Mutant("settle_each: permanent", SETTLE, " OR i.error->>'kind' = 'permanent'", "", "settle"),
    Mutant("settle_each: known outcomes", SETTLE, "PERFORM check_outcomes(settle_each.outcomes);", "", "settle"),
    Mutant("finish: final states", SETTLE, " AND e.state IN ('succeeded', 'dead', 'canceled')\n", "\n", "settle"),
    Mutant("finish: stop requests are forgotten", SETTLE, "WHERE c.job_id = d.id AND d.canceling)", "WHERE false)", "cancel"),
    Mutant("finish: attempts count", SETTLE, "j.attempt + (e.outcome IN ('succeeded', 'skipped', 'failed', 'timed_out'))::int AS spent, CASE", "j.attempt + 1 AS spent, CASE", "settle"),
    Mutant("finish: a loss counts", SETTLE, "WHEN e.outcome = 'lost' THEN j.lost + 1", "WHEN e.outcome = 'lost' THEN j.lost", "loss"),
    Mutant("put_back: attempts count", SETTLE, "j.attempt + (e.outcome IN ('failed', 'timed_out'))::int AS spent,", "j.attempt + 1 AS spent,", "settle"),
    Mutant("put_back: losses are cleared", SETTLE, "lost = CASE WHEN due.started THEN 0 ELSE j.lost END", "lost = j.lost", "loss"),
    Mutant("put_back: losses are kept", SETTLE, "lost = CASE WHEN due.started THEN 0 ELSE j.lost END", "lost = 0", "loss"),
    Mutant("put_back: alone is kept", SETTLE, "alone = j.alone AND NOT due.started", "alone = false", "loss"),
    Mutant("put_back: types are listed", SETTLE, "FROM u WHERE u.outcome = 'unsupported'\n", "FROM u WHERE false\n", "unsupported"),
    Mutant("end_one: refused", SETTLE, "IF FOUND AND s IS NULL THEN", "IF false THEN", "complete"),
    Mutant("end_one: no job at all", SETTLE, "x.id IS NOT DISTINCT FROM end_one.id", "x.id = end_one.id", "complete"),
    Mutant("settle_each: no delay into the past", SETTLE, "CASE WHEN i.delay < interval '0' THEN interval '0' ELSE i.delay END", "i.delay", "settle"),
    Mutant("fail: retryable unless told", SETTLE, "WHEN fail.retryable IS NOT FALSE THEN", "WHEN fail.retryable THEN", "complete"),
    Mutant("guard: fence", SETTLE, "j.id = guard.id AND j.fence = guard.fence AND j.fence <> 0", "j.id = guard.id AND j.fence <> 0", "complete"),
    Mutant("guard: nobody's fence", SETTLE, "j.fence = guard.fence AND j.fence <> 0", "j.fence = guard.fence", "complete"),
    Mutant("guard: lock", SETTLE, "AND j.fence <> 0 FOR KEY SHARE;", "AND j.fence <> 0;", "complete"),
    Mutant("guard: lock too strong", SETTLE, "AND j.fence <> 0 FOR KEY SHARE;", "AND j.fence <> 0 FOR SHARE;", "complete"),
    Mutant("guard: refused", SETTLE, "FOR KEY SHARE;\n  IF NOT FOUND THEN", "FOR KEY SHARE;\n  IF false THEN", "complete"),
    # Loss.
    Mutant("reclaim: isolation", RECLAIM, "PERFORM check_isolation('reclaim');", "", "claim"),
    Mutant("reclaim: the beat seen", RECLAIM, " AND b.n = s.n", "", "loss"),
    Mutant("reclaim: the lease", RECLAIM, " AND b.at < t - nd.lease", "", "loss"),
    Mutant("reclaim: the node is locked", RECLAIM, "FOR UPDATE OF b, nd SKIP LOCKED) x;", "FOR UPDATE OF b SKIP LOCKED) x;", "loss"),
    Mutant("reclaim: the beat is locked", RECLAIM, "FOR UPDATE OF b, nd SKIP LOCKED) x;", "FOR UPDATE OF nd SKIP LOCKED) x;", "loss"),
    Mutant("reclaim: waits for nobody", RECLAIM, "FOR UPDATE OF b, nd SKIP LOCKED) x;", "FOR UPDATE OF b, nd) x;", "loss"),
    Mutant("reclaim: dead nodes only", RECLAIM, "USING (epoch) WHERE nd.state IN ('lost', 'left') LOOP", "USING (epoch) LOOP", "loss"),
    Mutant("reclaim: a polite end", RECLAIM, "IF how = 'left' THEN", "IF false THEN", "nodes"),
    Mutant("bury: the beat seen", RECLAIM, " AND b.n = bury.beat", "", "loss"),
    Mutant("bury: waits for nobody", RECLAIM, "bury.beat FOR UPDATE OF b, nd SKIP LOCKED", "bury.beat FOR UPDATE OF b, nd", "loss"),
    Mutant("lose: the lease", RECLAIM, "DELETE FROM beats b WHERE b.epoch = lose.epoch;", "", "loss"),
    Mutant("lose: the state", RECLAIM, "UPDATE nodes n SET state = 'lost', ended_at", "UPDATE nodes n SET ended_at", "loss"),
    Mutant("lose: when it was last heard of", RECLAIM, "ended_at = coalesce((SELECT b.at FROM beats b WHERE b.epoch = lose.epoch), lose.t)", "ended_at = lose.t", "loss declare"),
    Mutant("lose: this node only", RECLAIM, "WHERE b.epoch = lose.epoch), lose.t) WHERE n.epoch = lose.epoch;", "WHERE b.epoch = lose.epoch), lose.t);", "loss"),
    Mutant("take_back: fence", RECLAIM, "ON j.id = x.id AND j.fence = c.fence\n    WHERE c.epoch = take_back.epoch", "ON j.id = x.id\n    WHERE c.epoch = take_back.epoch", "operate"),
    Mutant("take_back: epoch", RECLAIM, "WHERE c.epoch = take_back.epoch AND (take_back.one", "WHERE (take_back.one", "loss"),
    Mutant("take_back: locked rows", RECLAIM, "x.id = take_back.one) FOR UPDATE OF j SKIP LOCKED", "x.id = take_back.one) FOR UPDATE OF j", "settle"),
    Mutant("take_back: one of them", RECLAIM, " AND (take_back.one IS NULL OR x.id = take_back.one) FOR", " FOR", "loss"),
    Mutant("reclaim: what one refuses", RECLAIM, "IF how = 'lost' THEN RETURN QUERY SELECT r.id, gone, r.state FROM take_back_each(gone, t) r; END IF;", "", "loss"),
    Mutant("reclaim: what all wait for", RECLAIM, "EXCEPTION WHEN lock_not_available OR deadlock_detected THEN", "EXCEPTION WHEN deadlock_detected THEN", "loss"),
    Mutant("reclaim: what one of the polite refuses", RECLAIM, "IF how = 'lost' THEN RETURN QUERY", "IF true THEN RETURN QUERY", "loss"),
    Mutant("take_back: asked to stop", RECLAIM, "WHEN j.canceling THEN 'canceled' ", "", "loss"),
    Mutant("take_back: one attempt", RECLAIM, "j.max_attempts = 1 OR ", "", "loss"),
    Mutant("take_back: the third loss", RECLAIM, "j.lost >= 2", "j.lost >= 3", "loss"),
    Mutant("take_back: the second loss", RECLAIM, "j.lost >= 2", "j.lost >= 1", "loss"),
    Mutant("take_back: a loss counts", RECLAIM, "lost = j.lost + 1, alone = true", "alone = true", "loss"),
    Mutant("take_back: alone", RECLAIM, "lost = j.lost + 1, alone = true", "lost = j.lost + 1", "loss"),
    Mutant("take_back: claims still held", RECLAIM,
        "DELETE FROM claims c WHERE c.epoch = take_back.epoch\n    AND NOT EXISTS (SELECT FROM unnest(c.job_ids) x(id) JOIN jobs j ON j.id = x.id AND j.fence = c.fence);",
        "DELETE FROM claims c WHERE c.epoch = take_back.epoch;", "complete settle"),
    Mutant("expire: running", RECLAIM, "expire_unsupported.grace AND j.fence = 0 LIMIT", "expire_unsupported.grace LIMIT", "unsupported"),
    Mutant("expire: the grace", RECLAIM, "WHERE greatest(j.run_at, u.since) <= t - expire_unsupported.grace AND", "WHERE", "unsupported"),
    Mutant("expire: the clock stops", RECLAIM, "nt.type = u.type AND nt.version >= u.version);", "false);", "unsupported"),
    Mutant("expire: by a live node", RECLAIM, "WHERE n.state = 'active' AND nt.type = u.type", "WHERE nt.type = u.type", "unsupported"),
    Mutant("expire: of that version", RECLAIM, "nt.type = u.type AND nt.version >= u.version);", "nt.type = u.type);", "unsupported"),
    Mutant("expire: locked rows", RECLAIM, "LIMIT expire_unsupported.max FOR UPDATE OF j SKIP LOCKED", "LIMIT expire_unsupported.max", "unsupported"),
    Mutant("expire: types are listed again", RECLAIM, "SELECT DISTINCT j.type, j.version, t FROM jobs j WHERE j.wait = 'unsupported'\n", "SELECT DISTINCT j.type, j.version, t FROM jobs j WHERE false\n", "unsupported"),
    Mutant("sweep: jobs still held", RECLAIM,
        "- sweep_claims.older\n    AND NOT EXISTS (SELECT FROM unnest(c.job_ids) x(id) JOIN jobs j ON j.id = x.id AND j.fence = c.fence);", "- sweep_claims.older;", "settle"),
    Mutant("sweep: age", RECLAIM, "WHERE c.at < coalesce(sweep_claims.now, clock()) - sweep_claims.older\n    AND", "WHERE", "settle"),
    # Operators.
    Mutant("cancel: force waits first", OPERATE, "WHERE x.id = cancel_job.id FOR UPDATE; ", "WHERE x.id = cancel_job.id FOR NO KEY UPDATE; ", "complete"),
    Mutant("cancel: lock", OPERATE, "WHERE x.id = cancel_job.id FOR NO KEY UPDATE; ", "WHERE x.id = cancel_job.id; ", "cancel"),
    Mutant("cancel: lock too strong", OPERATE, "WHERE x.id = cancel_job.id FOR NO KEY UPDATE; ", "WHERE x.id = cancel_job.id FOR UPDATE; ", "complete"),
    Mutant("cancel: running", OPERATE, "  IF j.fence <> 0 THEN\n    UPDATE jobs x SET canceling", "  IF false THEN\n    UPDATE jobs x SET canceling", "cancel"),
    Mutant("cancel: forced when told only", OPERATE, "IF cancel_job.force IS NOT TRUE THEN RETURN", "IF NOT cancel_job.force THEN RETURN", "cancel"),
    Mutant("cancel: the flag", OPERATE, "UPDATE jobs x SET canceling = true WHERE x.id = cancel_job.id;", "", "cancel"),
    Mutant("reschedule: running", OPERATE, "IF was IS NULL AND j.fence <> 0 THEN", "IF false THEN", "operate"),
    Mutant("reschedule: lock", OPERATE,
        "  SELECT * INTO j FROM jobs x WHERE x.id = reschedule.id FOR UPDATE;\n  IF NOT FOUND", "  SELECT * INTO j FROM jobs x WHERE x.id = reschedule.id;\n  IF NOT FOUND", "operate"),
    Mutant("reschedule: attempts are kept", OPERATE, "attempt = CASE WHEN x.failed THEN 0 ELSE x.attempt END", "attempt = 0", "operate"),
    Mutant("reschedule: attempts are fresh", OPERATE, "attempt = CASE WHEN x.failed THEN 0 ELSE x.attempt END", "attempt = x.attempt", "operate"),
    Mutant("release: running", OPERATE, "WHERE x.id = release_job.id AND x.fence <> 0 FOR UPDATE;", "WHERE x.id = release_job.id FOR UPDATE;", "operate"),
    Mutant("release: lock", OPERATE, "WHERE x.id = release_job.id AND x.fence <> 0 FOR UPDATE;", "WHERE x.id = release_job.id AND x.fence <> 0;", "operate complete"),
    Mutant("release: asked to stop", OPERATE, "IF j.canceling THEN", "IF false THEN", "cancel"),
    Mutant("release: takes the claim away", OPERATE, "SET fence = 0, ended_at = t, failed = false, run_at = t, wait = NULL", "SET ended_at = t, failed = false, run_at = t, wait = NULL", "operate"),
    Mutant("finish_canceled: fence", OPERATE, "ON j.id = x.id AND j.fence = c.fence\n    WHERE c.fence = ANY (finish_canceled.fences)", "ON j.id = x.id\n    WHERE c.fence = ANY (finish_canceled.fences)", "nodes operate"),
    Mutant("unpark: still paused", OPERATE, "      AND NOT EXISTS (SELECT FROM pauses p WHERE p.type = x.type AND (p.queue IS NULL OR p.queue = x.queue)) FOR UPDATE", "      FOR UPDATE", "pause"),
    # Lists and partitions.
    Mutant("reschedule_many: claimed meanwhile", LISTS, "EXCEPTION WHEN SQLSTATE 'WB008' THEN NULL; ", "EXCEPTION WHEN SQLSTATE 'FO999' THEN NULL; ", "lists"),
    Mutant("reschedule_many: running", LISTS, "IF 'running' = ANY (reschedule_many.states) THEN", "IF false THEN", "lists"),
    Mutant("purge: finished only", LISTS, "IF NOT purge.states <@ '{succeeded,dead,canceled}'::text[] THEN", "IF false THEN", "lists"),
    Mutant("purge: what comes back to life", LISTS, "  ids := ARRAY(SELECT f.id FROM finished_jobs f WHERE f.id = ANY (ids) AND f.state = ANY (purge.states) FOR UPDATE SKIP LOCKED);", "", "lists"),
    Mutant("partitions: one maker at a time", PARTITIONS, "PERFORM pg_advisory_xact_lock(1181707370, 'jobs'::regclass::oid::int);", "", "partitions"),
    Mutant("partitions: caught by the default", PARTITIONS, "EXCEPTION WHEN check_violation THEN NULL;", "EXCEPTION WHEN division_by_zero THEN NULL;", "partitions"),
    Mutant("fences: the timeline", IDS, "RETURN ((generation + server_timeline())::bigint << 40) + nextval", "RETURN nextval", "ids"),
    # Schedules.
    Mutant("tick: isolation", TICK, "PERFORM check_isolation('tick');", "", "tick"),
    Mutant("tick: lock", TICK, "LIMIT tick.max FOR UPDATE SKIP LOCKED);", "LIMIT tick.max);", "tick"),
    Mutant("tick: waits for nobody", TICK, "LIMIT tick.max FOR UPDATE SKIP LOCKED);", "LIMIT tick.max FOR UPDATE);", "tick"),
    Mutant("tick: a slot that is there", TICK, "ON CONFLICT DO NOTHING RETURNING schedule_id, slot, job_id, outcome, count)", "RETURNING schedule_id, slot, job_id, outcome, count)", "tick"),
    Mutant("tick: jobs of written slots only", TICK, "FROM written w JOIN firings f ON f.job_id = w.job_id JOIN due", "FROM firings f JOIN due", "tick"),
    Mutant("tick: max_runs", TICK, "next_run = CASE WHEN x.counted + coalesce(c.n, 0) < coalesce(d.max_runs, 2147483647) THEN r.next END", "next_run = r.next", "tick"),
    Mutant("tick: as many as max_runs leaves", TICK, "r.runs[:coalesce(d.max_runs - d.counted, 2147483647)]", "r.runs", "tick"),
    Mutant("tick: the job before", TICK, "r.has_job AND r.overlap = 'skip' AND (o.job_id IS NOT NULL OR row_number() OVER w > 1) AS skips", "false AS skips", "tick"),
    Mutant("tick: the end", TICK, "CASE WHEN s.second <= coalesce(s.\"end\", 'infinity') THEN s.second END AS next", "s.second AS next", "tick"),
    Mutant("tick: overdue once", TICK, "AND s.due_by IS NOT NULL AND s.overdue_at IS NULL AND s.finished_at IS NULL\n      ORDER BY s.due_by LIMIT note_overdue.max", "AND s.finished_at IS NULL\n      ORDER BY s.due_by LIMIT note_overdue.max", "tick"),
    Mutant("tick: cancels without waiting", TICK, "SET search_path FROM CURRENT SET lock_timeout = '100ms' AS", "SET search_path FROM CURRENT SET lock_timeout = '1min' AS", "tick"),
    Mutant("cancel_runs: a chain's end", TICK, "UPDATE jobs j SET canceling = true WHERE j.id = ANY (chains);", "", "flow_slots"),
    Mutant("cancel_runs: a chain", TICK, "    wanted := wanted || lock_soon(ARRAY(SELECT d.parent", "    PERFORM lock_soon(ARRAY(SELECT d.parent", "flow_slots"),
    Mutant("queue_behind: what is as new", TICK, "UPDATE jobs j SET awaited = true WHERE j.id = ANY (queue_behind.own);", "", "schedules tick"),
    Mutant("edit: all slots that were due", CHECKS, "gone, 'missed', CASE", "1, 'missed', CASE", "tick"),
    Mutant("edit: no twin", CHECKS, "NEW.rhythm := OLD.rhythm;", "NEW.rhythm := rhythm(NEW.pattern, NEW.tz, NEW.dst, coalesce(NEW.start, NEW.created_at));", "tick"),
    Mutant("reopen: the chain started again", TICK, "OR s.outcome IS NOT NULL AND s.job_id IS NOT NULL AND EXISTS", "OR false AND EXISTS", "flow_slots"),
    Mutant("reopen: not while it is under way", TICK, "OR s.outcome IS NOT NULL AND s.job_id IS NOT NULL AND EXISTS", "OR EXISTS", "flow_slots"),
    Mutant("hand_over: the timer's lock", FLOWS, "  PERFORM FROM timers x WHERE x.schedule_id = j.schedule_id FOR NO KEY UPDATE;\n", "", "flow_slots"),
    Mutant("hand_over: those queued behind", FLOWS, "WHERE d.parent = j.id AND c.id", "WHERE false AND c.id", "flow_slots"),
    Mutant("hand_over: they are told", FLOWS, "IF FOUND THEN UPDATE jobs x SET awaited = true", "IF false THEN UPDATE jobs x SET awaited = true", "flow_slots"),
    Mutant("retry of a step: its slot, before it is closed", DEPENDENCIES, " AND j.fence = 0 OR j.type = 'watchbill.flow_end')", " AND j.fence = 0)", "flow_slots"),
    Mutant("retry of a step: the end is taken away", DEPENDENCIES, "UPDATE jobs j SET fence = 0, wait = 'blocked' WHERE j.id = ANY (waiting)", "UPDATE jobs j SET wait = 'blocked' WHERE j.id = ANY (waiting)", "flow_slots"),
    Mutant("retry of a step: its slot, closed", DEPENDENCIES, " OR c.type = 'watchbill.flow_end')) c);", ")) c);", "flow_slots"),
    Mutant("cancel_previous: what is being claimed", TICK, "IF FOUND THEN got := got || other; END IF;", "", "tick"),
    Mutant("hand_over: canceled meanwhile", FLOWS, "IF (SELECT x.canceling FROM jobs x WHERE x.id = j.id) THEN", "IF false THEN", "flow_slots"),
    Mutant("edit: lock of the timer", CHECKS, "WHERE x.schedule_id = NEW.id FOR UPDATE;", "WHERE x.schedule_id = NEW.id;", "tick"),
    Mutant("edit: a slot that is due is recorded", CHECKS, "IF again AND due <= NEW.updated_at THEN", "IF false THEN", "tick"),
    Mutant("schedule: a role of one's own", CHECKS, "THEN NOT pg_has_role(s.role, 'MEMBER') END THEN", "THEN false END THEN", "schedules"),
    Mutant("orphans: who has declared", ORPHANS, "n.app = s.owner AND n.state IN ('active', 'draining') AND n.declared_at IS NOT NULL)\n", "n.app = s.owner AND n.state IN ('active', 'draining'))\n", "declare"),
    Mutant("orphans: of the same app", ORPHANS, "(SELECT FROM nodes n WHERE n.app = s.owner AND", "(SELECT FROM nodes n WHERE", "declare"),
    Mutant("orphans: still held", ORPHANS, " AND x.schedule_id <> ALL (orphans(ids));", ";", "declare"),
    Mutant("declare: the owner", DECLARE, "IF id IS NOT NULL AND old.owner IS DISTINCT FROM node.app THEN", "IF false THEN", "declare"),
    Mutant("declare: what was superseded", DECLARE, "ELSIF is_superseded(old, given, node.epoch) THEN", "ELSIF false THEN", "declare"),
    Mutant("declare: while the newer lives", DECLARE, "n.epoch <> is_superseded.epoch AND n.state IN ('active', 'draining')", "true", "declare"),
    Mutant("declare: the newest of those before", DECLARE, "> array_position(s.superseded || s.hash, is_superseded.hash)", "= cardinality(s.superseded || s.hash)", "declare"),
    Mutant("declare: in vain", DECLARE, "AND d.hash <> s.hash AND NOT is_superseded(s, d.hash, d.epoch)", "AND d.hash <> s.hash", "declare"),
    Mutant("declare: nodes take turns", DECLARE, "PERFORM pg_advisory_xact_lock(1181707371, hashtext('schedules'::regclass::oid || node.app));   -- nodes of one app take turns", "", "declare"),
    Mutant("declare: one start", DECLARE, "CASE WHEN (born(node)).declared_at IS NOT NULL THEN false ELSE is_cluster_start(node) END", "is_cluster_start(node)", "declare"),
    Mutant("declare: others alive", DECLARE, "ELSE is_cluster_start(node) END", "ELSE true END", "declare"),
    Mutant("declare: a sign of life", DECLARE, "PERFORM pg_notify(wake_channel(), 'beat');", "NULL;", "declare"),
    Mutant("start: one process", DECLARE, "FROM nodes n WHERE n.instance = node.instance", "FROM nodes n WHERE n.epoch = node.epoch", "declare"),
    Mutant("start: others that beat", DECLARE, " OR b.at >= me.at AS lived", " AS lived", "declare"),
    Mutant("start: those who came later", DECLARE, " AND (me.declared_at IS NULL OR (c.declared_at, c.epoch) < (me.declared_at, me.epoch))", "", "declare"),
    Mutant("start: once", DECLARE, "s.slot >= (born(node)).at) THEN RETURN true", "false) THEN RETURN true", "declare"),
    Mutant("declare: alive when it came", DECLARE, "(o.state IN ('active', 'draining') OR o.ended_at > me.at)", "o.state IN ('active', 'draining')", "declare"),
    Mutant("execute_due: what a worker has", EXECUTE, "AND x.wait IS NULL AND x.fence = 0\n", "AND x.wait IS NULL\n", "schedules"),
    Mutant("execute_due: the role is left", EXECUTE, "  PERFORM set_config('role', own_role, true);", "", "schedules"),
]  # fmt: skip

EQUIVALENT: list[tuple[Mutant, str]] = [
    (Mutant("runs: own fence", NODES, "WHERE x.id = r.job_id AND x.fence = r.fence)", "WHERE x.id = r.job_id)", ""),
        "the row that stays is overwritten by the next statement, which compares the fences itself"),
    (Mutant("finish: fence", SETTLE, "WHERE j.id = e.id AND j.fence = e.fence AND e.state IN", "WHERE j.id = e.id AND e.state IN", ""),
        "every caller holds the row's lock since it read the fence; the check is for callers to come"),
    (Mutant("put_back: fence", SETTLE, "FROM due WHERE j.id = due.id AND j.fence = due.fence\n", "FROM due WHERE j.id = due.id\n", ""),
        "as above"),
    (Mutant("take_back: fence again", RECLAIM, "FROM unnest(endings) e WHERE j.id = e.id AND j.fence = e.fence AND e.state = 'failed'", "FROM unnest(endings) e WHERE j.id = e.id AND e.state = 'failed'", ""),
        "as above"),
    (Mutant("purge: the state again", LISTS, "WHERE f.id = ANY (ids) AND f.state = ANY (purge.states) FOR UPDATE", "WHERE f.id = ANY (ids) FOR UPDATE", ""),
        "only a job that is revived and finished otherwise between two statements of purge would differ"),
    (Mutant("finish_canceled: asked to stop", OPERATE, " AND j.canceling FOR UPDATE OF j SKIP LOCKED", " FOR UPDATE OF j SKIP LOCKED", ""),
        "the statement before has released all others, but for one whose lock is given up between the two"),
]  # fmt: skip
