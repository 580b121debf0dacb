# ruff: noqa: E501 - what stands here is the text of SQL lines, which are longer
"""The functions with one check taken out, each a mutant that some test must notice.

`original` stands once in its file; how the file is broken into lines does not matter.
`tests` are the files that are run against it, in the order in which they are likely to notice. EQUIVALENT lists checks that cannot be missed, each with the reason why it is there all the same.
"""

from __future__ import annotations

import re
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
            places = list(_anywhere(self.original).finditer(file.text))
            assert len(places) == 1, f"{self.name}: stands {len(places)} times in {file.name}"
            start, end = places[0].span()
            yield replace(file, text=f"{file.text[:start]}{self.replacement}{file.text[end:]}")


def _anywhere(original: str) -> re.Pattern[str]:
    """Matches the text whatever white space stands in it."""
    return re.compile(r"\s*".join(re.escape(character) for character in original if not character.isspace()))


FENCES = "foundation/fences.sql"
REGISTER = "nodes/register.sql"
HEARTBEAT = "nodes/heartbeat.sql"
STOP_REQUESTS = "nodes/stop_requests.sql"
DRAIN = "nodes/drain.sql"
RELEASE_CLAIMS = "nodes/release_claims.sql"
RELEASE_UNKNOWN = "nodes/release_unknown.sql"
LEAVE = "nodes/leave.sql"
ENQUEUE = "jobs/enqueue.sql"
INSERT_JOBS = "jobs/insert_jobs.sql"
UNIQUE_JOBS = "jobs/unique_jobs.sql"
DEPENDENCIES = "jobs/dependencies.sql"
DEPENDENCY_ENDINGS = "jobs/dependency_endings.sql"
UNBLOCK = "jobs/unblock.sql"
SWEEP_DEPENDENCIES = "upkeep/sweep_dependencies.sql"
CLAIM = "claim/claim.sql"
PICK = "claim/pick.sql"
PICK_BY_QUEUE = "claim/pick_by_queue.sql"
PICK_ALONE = "claim/pick_alone.sql"
PROMOTE = "claim/promote.sql"
SETTLE = "jobs/settle.sql"
SETTLE_EACH = "jobs/settle_each.sql"
FINISH_REQUEUE = "jobs/finish_requeue.sql"
FAIL = "jobs/fail.sql"
GUARD = "jobs/guard.sql"
RECLAIM = "nodes/reclaim.sql"
EXPIRE_NODE = "nodes/expire_node.sql"
MARK_NODE_LOST = "nodes/mark_node_lost.sql"
EXPIRE_UNSUPPORTED = "nodes/expire_unsupported.sql"
SWEEP_CLAIMS = "upkeep/sweep_claims.sql"
CANCEL = "jobs/cancel.sql"
RESCHEDULE = "jobs/reschedule.sql"
RELEASE = "jobs/release.sql"
UNPARK_PAUSED = "jobs/unpark_paused.sql"
MAKE_PARTITIONS = "tenants/make_partitions.sql"
PRUNE_HISTORY = "upkeep/prune_history.sql"
PRUNE_AUDIT = "upkeep/prune_audit.sql"
PRUNE_NODES = "upkeep/prune_nodes.sql"
PRUNE_KEYS = "upkeep/prune_keys.sql"
RESCHEDULE_MANY = "upkeep/reschedule_many.sql"
PURGE = "upkeep/purge.sql"
SCHEDULE_ERRORS, CHECK_SCHEDULE, SET_TIMER = (
    "schedules/schedule_errors.sql",
    "schedules/check_schedule.sql",
    "schedules/set_timer.sql",
)
RUN_SCHEDULE, EXECUTE_SCHEDULE = "schedules/run_schedule.sql", "schedules/execute_schedule.sql"
TICK, CANCEL_RUNS, CLOSE_SLOTS = "schedules/tick.sql", "schedules/cancel_runs.sql", "schedules/close_slots.sql"
ORPHANS, DECLARE, START_CLUSTER = (
    "schedules/orphans.sql",
    "schedules/declare_schedules.sql",
    "schedules/start_cluster.sql",
)
EXECUTE, HAND_OVER = "schedules/execute_due.sql", "schedules/hand_over_slot.sql"

TO_LOCK, TO_LIST = "LIMIT max FOR UPDATE SKIP LOCKED)", "LIMIT max)"
ABOVE = "AND (j.run_at, j.id) > (s.run_at, s.id) AND j.wait IS NULL AND j.fence = 0 ORDER BY j.run_at, j.id "
BETWEEN = "AND j.class = class AND j.lane = lane AND j.priority < s.below AND j.priority > s.above AND j.wait IS NULL AND j.fence = 0 AND (without IS NULL OR j.type <> ALL (without)) ORDER BY j.priority DESC, j.run_at, j.id "
READY, FIRST_JOBS, ABOVE = BETWEEN + TO_LOCK, BETWEEN + TO_LIST, ABOVE + TO_LOCK
QUARANTINED = "AND j.class = 2 AND j.wait IS NULL AND j.fence = 0 AND ("
UNSUPPORTED = "AND j.wait_key = k.wait_key AND (j.class = 2) = rules.alone AND j.fence = 0"

MUTANTS: list[Mutant] = [
    # Results that are passed on.
    Mutant("results: the order of a list", DEPENDENCY_ENDINGS, "ELSE jsonb_agg(g.result ORDER BY g.place)", "ELSE jsonb_agg(g.result ORDER BY g.parent)", "passed_results"),
    Mutant("results: beside a reference", DEPENDENCY_ENDINGS, "WHEN j.payload ? '$stored' THEN j.payload || jsonb_build_object('$results', w.results)", "", "passed_results"),
    Mutant("results: too large", DEPENDENCY_ENDINGS, "WHERE s.bytes + octet_length(j.payload::text) <= 100000000", "", "passed_results"),
    Mutant("results: kept by retention", "upkeep/prune_history.sql", "IF parent = 'finished_succeeded' THEN PERFORM _keep_results_of_day(day); END IF;", "", "passed_results"),
    Mutant("results: kept before a parent runs again", "jobs/reschedule.sql", "SET outcome = NULL, result = NULL", "SET outcome = NULL", "passed_results"),
    Mutant("results: of jobs that it waits for", "foundation/new_job.sql", "EXCEPT SELECT p::text FROM unnest(n.depends_on) p) y", "EXCEPT SELECT x FROM jsonb_object_keys(n.payload) x) y", "passed_results"),
    Mutant("results: shares of a fair queue", "foundation/new_job.sql", "JOIN queues q ON q.name = n.queue AND strpos(q.fair_by, '{' || k || '}') > 0;", "JOIN queues q ON false;", "passed_results"),
    # Expiry.
    Mutant("expiry: not claimed ahead", "jobs/job_flow.sql", "IF num_nonnulls(n.expires_at, n.expires_in) > 0 THEN class := 1; END IF;", "", "expiry"),
    Mutant("expiry: a claim ends many", CLAIM, "IF rules.has_expired_jobs THEN PERFORM _expire_jobs(1000, '-infinity', t); END IF;", "", "expiry"),
    Mutant("expiry: a claim takes none", CLAIM, "picked.jobs := _leave_out_expired_jobs(picked.jobs, t);", "", "expiry"),
    Mutant("expiry: those that run", "claim/expire_jobs.sql", "AND j.expires_at >= since AND j.fence = 0 ORDER BY j.expires_at LIMIT max", "AND j.expires_at >= since ORDER BY j.expires_at LIMIT max", "expiry"),
    Mutant("expiry: those that have started", "jobs/finish_requeue.sql", "expires_at = CASE WHEN due.started THEN NULL ELSE j.expires_at END,", "", "expiry"),
    Mutant("expiry: those that were given back", "jobs/finish_requeue.sql", "expires_at = CASE WHEN due.started THEN NULL ELSE j.expires_at END,", "expires_at = NULL,", "expiry"),
    Mutant("expiry: lost jobs", "nodes/reclaim.sql", "expires_at = NULL,", "", "expiry"),
    Mutant("expiry: a job that replaces another", UNIQUE_JOBS, ",\n    expires_at = _expiry(n, t)", "", "expiry"),
    Mutant("expiry: put off", "jobs/reschedule.sql", "IF due > j.expires_at THEN", "IF false THEN", "expiry"),
    Mutant("expiry: after the last try", "claim/expire_jobs.sql", "WHEN first <= t AND n < max THEN t + interval '1 second'", "", "expiry"),
    Mutant("expiry: keys are freed", "claim/expire_jobs.sql", "PERFORM _announce_freed(e.freed) FROM _finish_jobs", "PERFORM FROM _finish_jobs", "expiry"),
    Mutant("expiry: before it is due", "foundation/new_job.sql", "_due_time(n, t) > t AND _due_time(n, t) > _expiry(n, t)", "false", "expiry"),
    Mutant("expiry: of a slot", "schedules/tick.sql", "f.slot + d.expires", "NULL", "expiry"),
    # Nodes.
    Mutant("register: a living name", REGISTER, "DO NOTHING;\n  IF NOT FOUND THEN", "DO NOTHING;\n  IF false THEN", "nodes"),
    Mutant("register: our own instance", REGISTER, " AND n.instance = register.instance", "", "nodes"),
    Mutant("register: the database is adopted", REGISTER, "PERFORM _adopt_database();", "", "ids"),
    Mutant("heartbeat: lost", HEARTBEAT, "WHERE b.epoch = epoch;\n  IF NOT FOUND", "WHERE b.epoch = epoch;\n  IF false", "nodes"),
    Mutant("heartbeat: own epoch", HEARTBEAT, "WHERE b.epoch = epoch;", "WHERE b.epoch = epoch OR true;", "nodes loss"),
    Mutant("runs: own epoch", HEARTBEAT, "r.epoch = epoch\n", "true\n", "nodes"),
    Mutant("runs: that are none", HEARTBEAT, "IS DISTINCT FROM ('string', 'number', 'number')) THEN", "IS DISTINCT FROM ('string', 'number', 'number') AND false) THEN", "nodes"),
    Mutant("runs: an older fence", HEARTBEAT, "    WHERE EXCLUDED.fence >= r.fence;", ";", "nodes"),
    Mutant("runs: started under this fence", HEARTBEAT, "CASE WHEN r.fence = EXCLUDED.fence THEN", "CASE WHEN true THEN", "nodes"),
    Mutant("stop requests: own epoch", STOP_REQUESTS, "WHERE c.epoch = stop_requests.epoch", "WHERE true", "nodes"),
    Mutant("drain: waits for claims", DRAIN, "AND n.state = 'active' FOR UPDATE;", "AND n.state = 'active';", "nodes"),
    Mutant("drain: only active", DRAIN, "SET state = 'draining' WHERE n.name = name AND n.state = 'active';",
        "SET state = 'draining' WHERE n.name = name;", "nodes"),
    Mutant("release_claims: fence", RELEASE_CLAIMS, "JOIN jobs j ON j.id = x.id AND j.fence = c.fence WHERE c.fence = ANY (fences) FOR",
        "JOIN jobs j ON j.id = x.id WHERE c.fence = ANY (fences) FOR", "nodes operate"),
    Mutant("release_claims: locked rows", RELEASE_CLAIMS, "WHERE c.fence = ANY (fences) FOR UPDATE OF j SKIP LOCKED)",
        "WHERE c.fence = ANY (fences))", "nodes"),
    Mutant("release_claims: canceling", RELEASE_CLAIMS, " AND NOT j.canceling RETURNING j.id)", " RETURNING j.id)", "nodes"),
    Mutant("delete_ended_claims: claims still held", RELEASE_CLAIMS, "WHERE c.fence = ANY (fences) AND NOT EXISTS (SELECT FROM unnest(c.job_ids) x(id) JOIN jobs j ON j.id = x.id AND j.fence = c.fence) FOR",
        "WHERE c.fence = ANY (fences) FOR", "nodes complete settle"),
    Mutant("delete_ended_claims: locked rows", RELEASE_CLAIMS, " FOR UPDATE SKIP LOCKED)", ")", "settle"),
    Mutant("release_unknown: waits for a claim", RELEASE_UNKNOWN, "PERFORM FROM nodes n WHERE n.epoch = epoch FOR UPDATE;", "", "nodes"),
    Mutant("release_unknown: own epoch", RELEASE_UNKNOWN, "c.epoch = epoch AND ", "", "nodes"),
    Mutant("release_unknown: known fences", RELEASE_UNKNOWN, " AND c.fence <> ALL (known)", "", "nodes"),
    Mutant("leave: waits for a claim", LEAVE, "PERFORM FROM nodes n WHERE n.epoch = epoch FOR UPDATE;", "", "nodes"),
    Mutant("leave: only the living", LEAVE, " AND n.state IN ('active', 'draining');\n  IF NOT FOUND THEN RETURN 0", ";\n  IF NOT FOUND THEN RETURN 0", "nodes"),
    Mutant("leave: own claims", LEAVE, "FROM claims c WHERE c.epoch = epoch)", "FROM claims c)", "nodes state_machine"),
    Mutant("leave: gives up its lease", LEAVE, "DELETE FROM beats b WHERE b.epoch = epoch;", "", "nodes"),
    # Producing.
    Mutant("enqueue: a given id needs READ COMMITTED", ENQUEUE, "IF NOT is_new THEN PERFORM _check_isolation('enqueue with a given id'); END IF;", "", "resend"),
    Mutant("enqueue: an id that is in use", ENQUEUE, "    ON CONFLICT (id) DO NOTHING RETURNING j.seq INTO answer.seq;", "    RETURNING j.seq INTO answer.seq;", "enqueue resend"),
    Mutant("enqueue: finished meanwhile", ENQUEUE, "IF NOT FOUND THEN RETURN new_seq; END IF;", "RETURN new_seq;", "resend"),
    Mutant("enqueue: a given id", ENQUEUE, "ELSIF NOT is_new THEN", "ELSIF resend THEN", "resend"),
    Mutant("enqueue: an id of the future", ENQUEUE, " AND uuid_send(id) < _newest_id_bytes(t))", ")", "enqueue"),
    Mutant("enqueue_many: given ids", INSERT_JOBS, "IF resend OR NOT ids_are_new OR has_keys THEN", "IF resend OR has_keys THEN", "resend"),
    Mutant("enqueue_many: given ids need READ COMMITTED", INSERT_JOBS, "PERFORM _check_isolation('enqueue with a given id');", "", "resend"),
    Mutant("enqueue_many: ids that are in use", INSERT_JOBS, "ON CONFLICT (id) DO NOTHING RETURNING", "RETURNING", "resend"),
    Mutant("enqueue_many: finished meanwhile", INSERT_JOBS, "DELETE FROM jobs j WHERE j.id = ANY (finished);", "", "resend"),
    Mutant("enqueue_many: an id for two jobs", INSERT_JOBS, "HAVING count(*) > 1;", "HAVING count(*) > 2;", "enqueue"),
    Mutant("keys: the row is locked", ENQUEUE, "AND i.key = key FOR UPDATE;", "AND i.key = key;", "idempotency"),
    Mutant("keys: purged while waiting", ENQUEUE, "EXIT WHEN FOUND; ", "EXIT; ", "idempotency"),
    Mutant("keys: our own", ENQUEUE, "IF k.job_id = id THEN", "IF false THEN", "resend"),
    Mutant("keys: the window", ENQUEUE, "k.expires_at <= t OR ", "", "idempotency"),
    Mutant("keys: the job is gone", ENQUEUE, " OR k.expires_at IS NULL AND _own_job_seq(k.job_id, tenant, type) IS NULL THEN", " THEN", "idempotency"),
    Mutant("keys: the job is kept", ENQUEUE, " AND _own_job_seq(k.job_id, tenant, type) IS NULL THEN", " THEN", "idempotency"),
    Mutant("keys: sorted", INSERT_JOBS, "END, (n.job).idempotency_key, n.place),", "END, n.place),", "idempotency"),
    Mutant("enqueue: strict", ENQUEUE, "IF answer.payload_differs AND strict THEN", "IF false THEN", "idempotency"),
    Mutant("unique: keys sorted", INSERT_JOBS, "CASE WHEN _is_unique(n.job) THEN _unique_key(n.job) END, (n.job).idempotency_key", "(n.job).idempotency_key", "unique"),
    Mutant("unique: idempotency keys before unique keys", INSERT_JOBS, "WHERE x.idempotency_key IS NOT NULL AND _is_unique(x)) THEN PERFORM", "WHERE false) THEN PERFORM", "unique"),
    Mutant("unique: the first of an idempotency key", INSERT_JOBS, "ORDER BY n.is_repeated, (n.job).tenant", "ORDER BY (n.job).tenant", "unique"),
    Mutant("unique: dependencies of a replacement", UNIQUE_JOBS, "IF cardinality(n.depends_on) > 0 THEN PERFORM _replace_dependencies", "IF false THEN PERFORM _replace_dependencies", "unique"),
    Mutant("unique: a replacement that waits for itself", UNIQUE_JOBS, "WHERE p = earlier_job OR EXISTS (SELECT FROM ancestors(p) a WHERE a.id = earlier_job);", "WHERE p = earlier_job;", "unique"),
    Mutant("unique: a waiting job is locked", UNIQUE_JOBS, "AND j.fence = 0 FOR SHARE;", "AND j.fence = 0;", "unique"),
    Mutant("unique: a started job has lost its key", UNIQUE_JOBS, "AND j.type = u.type AND j.fence = 0 FOR SHARE;", "AND j.type = u.type FOR SHARE;", "unique"),
    Mutant("unique: our own key", UNIQUE_JOBS, "IF u.job_id = n.id THEN RETURN NULL; END IF;", "", "unique"),
    Mutant("unique: taken over meanwhile", UNIQUE_JOBS, "AND x.key = new_key AND x.job_id = u.job_id;", "AND x.key = new_key;", "unique"),
    Mutant("unique: the time", UNIQUE_JOBS, "IF u.until = 'time' THEN RETURN u.expires_at > t; END IF;", "", "unique"),
    Mutant("unique: until finished", UNIQUE_JOBS, "IF u.until = 'finished' THEN", "IF false THEN", "unique"),
    Mutant("unique: sent again", ENQUEUE, "IF answer.seq IS NOT NULL THEN RETURN answer; END IF; answer.created := true;", "answer.created := true;", "unique"),
    # Claiming.
    Mutant("claim: isolation", CLAIM, "THEN PERFORM _check_isolation('claim'); END IF;", "THEN END IF;", "claim"),
    Mutant("claim: the node is active", CLAIM, "IF node_state IS DISTINCT FROM 'active' THEN", "IF false THEN", "claim"),
    Mutant("claim: the node's row is locked", CLAIM, "AND n.assignment = rules.assignment FOR KEY SHARE OF n SKIP LOCKED;", "AND n.assignment = rules.assignment;", "nodes loss"),
    Mutant("claim: a lost node takes nothing", CLAIM, "AND n.state = 'active' AND n.assignment", "AND n.assignment", "loss"),
    Mutant("claim: waits for no loss", CLAIM, "rules.assignment FOR KEY SHARE OF n SKIP LOCKED;", "rules.assignment FOR KEY SHARE OF n;", "loss"),
    Mutant("claim: a draining node", CLAIM, "IF node_state IS DISTINCT FROM 'active' THEN", "IF coalesce(node_state, '') NOT IN ('active', 'draining') THEN", "nodes"),
    Mutant("claim: a lost node", CLAIM, "IF node_state IS DISTINCT FROM 'active' THEN", "IF coalesce(node_state, '') NOT IN ('active', 'lost') THEN", "claim loss"),
    Mutant("claim: a node that has left", CLAIM, "IF node_state IS DISTINCT FROM 'active' THEN", "IF coalesce(node_state, '') NOT IN ('active', 'left') THEN", "nodes"),
    Mutant("claim: an unknown node", CLAIM, "IF node_state IS DISTINCT FROM 'active' THEN", "IF node_state <> 'active' THEN", "claim"),
    Mutant("claim: pauses are locked", CLAIM, "PERFORM FROM pauses FOR KEY SHARE SKIP LOCKED;", "", "pause"),
    Mutant("claim: waits for no resume", CLAIM, "FROM pauses FOR KEY SHARE SKIP LOCKED;", "FROM pauses FOR KEY SHARE;", "pause"),
    Mutant("claim: paused queues", CLAIM, "rules.queues := _unpaused_queues(queues);", "", "pause"),
    Mutant("claim: paused types", CLAIM, "rules.has_paused_types := EXISTS (SELECT FROM pauses p WHERE p.type IS NOT NULL);", "", "pause"),
    Mutant("claim: jobs set aside do not hide others", PICK, "ELSE greatest(rules.max, 1000) END", "ELSE rules.max END", "limits"),
    Mutant("pick: taken", PICK, READY, READY.replace(" AND j.fence = 0", ""), "claim"),
    Mutant("pick: waiting", PICK, READY, READY.replace("AND j.wait IS NULL ", ""), "claim"),
    Mutant("pick: class", PICK, READY, READY.replace("AND j.class = class ", ""), "claim"),
    Mutant("pick: lane", PICK, READY, READY.replace("AND j.lane = lane ", ""), "lanes"),
    Mutant("pick: left out types", PICK, READY, READY.replace("AND (without IS NULL OR j.type <> ALL (without)) ", ""), "claim"),
    Mutant("pick: locked rows", PICK, READY, READY.replace(" FOR UPDATE SKIP LOCKED", ""), "claim"),
    Mutant("pick: waits", PICK, READY, READY.replace(" SKIP LOCKED", ""), "claim"),
    Mutant("pick: taken, above", PICK, ABOVE, ABOVE.replace(" AND j.fence = 0", ""), "claim"),
    Mutant("pick: waiting, above", PICK, ABOVE, ABOVE.replace("AND j.wait IS NULL ", ""), "claim"),
    Mutant("scan_ranges: not later than 250 ms ago", PICK, "SELECT f.priority AS floor, least(f.run_at, latest) AS run_at,", "SELECT f.priority AS floor, f.run_at AS run_at,", "claim"),
    Mutant("scan_ranges: in order", PICK, "ORDER BY q.n, coalesce(s.floor, s.above) DESC, s.floor NULLS FIRST;", "ORDER BY q.n;", "claim"),
    Mutant("first jobs: taken", PICK, FIRST_JOBS, FIRST_JOBS.replace(" AND j.fence = 0", ""), "claim"),
    Mutant("first jobs: waiting", PICK, FIRST_JOBS, FIRST_JOBS.replace("AND j.wait IS NULL ", ""), "claim"),
    Mutant("pick_merged: free slots", PICK_BY_QUEUE, "slots_left int := least(free, max);", "slots_left int := max;", "claim"),
    Mutant("pick_merged: picked", PICK_BY_QUEUE, "WHERE h.tid <> ALL (ARRAY(SELECT p.tid FROM unnest(jobs) p)) ORDER BY", "ORDER BY", "claim"),
    Mutant("pick_merged: order", PICK_BY_QUEUE, "(-x.priority, x.run_at, x.id) < (-left_one.priority, left_one.run_at, left_one.id)", "true", "claim"),
    Mutant("pick_by_queue: later queues", PICK_BY_QUEUE, "IF has_left_one THEN wanted := least(wanted, slots); END IF;", "", "claim"),
    Mutant("pick_by_queue: slots are used up", PICK_BY_QUEUE, "slots := greatest(0, slots - cardinality(more));", "", "claim state_machine"),
    Mutant("quarantined: taken", PICK_ALONE, QUARANTINED, QUARANTINED.replace(" AND j.fence = 0", ""), "claim"),
    Mutant("quarantined: waiting", PICK_ALONE, QUARANTINED, QUARANTINED.replace("AND j.wait IS NULL ", ""), "claim state_machine"),
    Mutant("quarantined: class", PICK_ALONE, QUARANTINED, QUARANTINED.replace("AND j.class = 2 ", ""), "claim"),
    Mutant("pick_unsupported_elsewhere: left out", PICK_ALONE, "coalesce(rules.without, '{}')", "'{}'", "unsupported"),
    Mutant("pick_unsupported_elsewhere: taken", PICK_ALONE, UNSUPPORTED, UNSUPPORTED.replace(" AND j.fence = 0", ""), "unsupported"),
    Mutant("pick_unsupported_elsewhere: key", PICK_ALONE, UNSUPPORTED, UNSUPPORTED.replace("AND j.wait_key = k.wait_key ", ""), "unsupported"),
    Mutant("pick_unsupported_elsewhere: quarantine", PICK_ALONE, UNSUPPORTED, UNSUPPORTED.replace("AND (j.class = 2) = rules.alone ", ""), "unsupported"),
    Mutant("pick_unsupported_elsewhere: one attempt, counted", PICK_ALONE, "AND j.fence = 0 AND (j.class <> 1 OR into_slots) AND (rules.tenant IS NULL OR j.tenant = rules.tenant) AND (j.lane = ANY (rules.lanes) OR j.lane > 0 AND _owns_lane(n.epoch", "AND j.fence = 0 AND (rules.tenant IS NULL OR j.tenant = rules.tenant) AND (j.lane = ANY (rules.lanes) OR j.lane > 0 AND _owns_lane(n.epoch", "unsupported"),
    Mutant("pick_unsupported_elsewhere: one attempt, picked", PICK_ALONE, UNSUPPORTED + " AND (j.class <> 1 OR into_slots)", UNSUPPORTED, "unsupported"),
    Mutant("pick_unsupported_elsewhere: own types", PICK_ALONE, "n.epoch = rules.epoch AND n.type = u.type AND", "n.type = u.type AND", "unsupported"),
    Mutant("pick_unsupported_elsewhere: version", PICK_ALONE, " AND n.version >= u.version\n", "\n", "unsupported"),
    Mutant("claim: run grows", CLAIM, "SET fence = f, run = j.run + 1 WHERE j.ctid = ANY", "SET fence = f WHERE j.ctid = ANY", "claim"),
    Mutant("claim: the claim is recorded", CLAIM, "SELECT f, rules.epoch, array_agg(u.id), t FROM u)", "SELECT f, rules.epoch, array_agg(u.id), t FROM u HAVING false)", "claim"),
    Mutant("promote: isolation", PROMOTE, "PERFORM _check_isolation('promote');", "", "claim"),
    Mutant("promote: due", PROMOTE, "d.run_at <= t AND ", "", "claim"),
    Mutant("promote: delayed", PROMOTE, "FROM jobs d WHERE d.wait = 'delayed' AND", "FROM jobs d WHERE d.wait IS NOT NULL AND", "claim state_machine"),
    Mutant("promote: locked rows", PROMOTE, "LIMIT max FOR UPDATE SKIP LOCKED));", "LIMIT max FOR UPDATE));", "claim"),
    Mutant("promote: locked rows are not the next", PROMOTE, "IF NOT is_full AND next_due <= t THEN", "IF false THEN", "claim"),
    # The end of a run.
    Mutant("settle: isolation", SETTLE, "PERFORM _check_isolation('settle');", "", "claim"),
    Mutant("settle: fence", SETTLE, "WHERE j.id = i.id AND j.fence = i.fence AND i.fence <> 0\n", "WHERE j.id = i.id\n", "settle"),
    Mutant("settle: fence 0", SETTLE, "WHERE j.id = i.id AND j.fence = i.fence AND i.fence <> 0\n", "WHERE j.id = i.id AND j.fence = i.fence\n", "settle"),
    Mutant("settle: stop requests are forgotten", SETTLE, "DELETE FROM cancels c WHERE c.job_id = ANY (stopping);", "NULL;", "cancel"),
    Mutant("settle: only own claims are closed", SETTLE, " AND c.epoch = epoch;", ";", "settle"),
    Mutant("settle_each: fence", SETTLE_EACH, "ON j.id = i.id AND j.fence = i.fence AND i.fence <> 0 FOR UPDATE OF j", "ON j.id = i.id FOR UPDATE OF j", "settle complete"),
    Mutant("settle_each: fence 0", SETTLE_EACH, " AND i.fence <> 0 FOR UPDATE OF j", " FOR UPDATE OF j", "settle complete"),
    Mutant("settle_each: lock", SETTLE_EACH, " AND i.fence <> 0 FOR UPDATE OF j", " AND i.fence <> 0", "cancel settle"),
    Mutant("settle_each: asked to stop", SETTLE_EACH, "WHEN j.canceling THEN 'canceled'", "WHEN i.outcome = 'canceled' THEN 'canceled'", "cancel"),
    Mutant("settle_each: nobody asked it to stop", SETTLE_EACH, "AND NOT j.canceling THEN 'failed'", "AND false THEN 'failed'", "cancel"),
    Mutant("stop requests: of that fence", STOP_REQUESTS, "WHERE j.id = r.id AND j.fence = r.fence", "WHERE j.id = r.id", "cancel"),
    Mutant("stop requests: completed by itself", STOP_REQUESTS, "WHERE f.id = r.id", "WHERE false", "cancel"),
    Mutant("settle_each: attempts are spent", SETTLE_EACH, "j.attempt + 1 >= j.max_attempts OR ", "", "settle"),
    Mutant("settle_each: permanent", SETTLE_EACH, " OR i.error->>'kind' = 'permanent'", "", "settle"),
    Mutant("settle_each: known outcomes", SETTLE_EACH, "PERFORM _check_outcomes(outcomes);", "", "settle"),
    Mutant("finish: final states", FINISH_REQUEUE, " AND e.state IN ('succeeded', 'dead', 'canceled')\n", "\n", "settle"),
    Mutant("finish: stop requests are forgotten", FINISH_REQUEUE, "WHERE c.job_id = d.id AND d.canceling)", "WHERE false)", "cancel"),
    Mutant("finish: attempts count", FINISH_REQUEUE, "j.attempt + (e.outcome IN ('succeeded', 'skipped', 'failed', 'timed_out'))::int AS spent, CASE", "j.attempt + 1 AS spent, CASE", "settle"),
    Mutant("finish: a loss counts", FINISH_REQUEUE, "WHEN e.outcome = 'lost' THEN j.lost + 1", "WHEN e.outcome = 'lost' THEN j.lost", "loss"),
    Mutant("requeue: attempts count", FINISH_REQUEUE, "j.attempt + (e.outcome IN ('failed', 'timed_out'))::int AS spent,", "j.attempt + 1 AS spent,", "settle"),
    Mutant("requeue: losses are cleared", FINISH_REQUEUE, "lost = CASE WHEN due.started THEN 0 ELSE j.lost END", "lost = j.lost", "loss"),
    Mutant("requeue: losses are kept", FINISH_REQUEUE, "lost = CASE WHEN due.started THEN 0 ELSE j.lost END", "lost = 0", "loss"),
    Mutant("requeue: quarantine is kept", FINISH_REQUEUE, "WHEN j.class = 2 AND due.started THEN", "WHEN j.class = 2 THEN", "loss"),
    Mutant("requeue: types are listed", FINISH_REQUEUE, "FROM u WHERE u.outcome = 'unsupported'\n", "FROM u WHERE false\n", "unsupported"),
    Mutant("settle_one: refused", SETTLE_EACH, "IF FOUND AND s IS NULL THEN", "IF false THEN", "complete"),
    Mutant("settle_one: no job at all", SETTLE_EACH, "x.id IS NOT DISTINCT FROM job_id", "x.id = job_id", "complete"),
    Mutant("settle_each: no delay into the past", SETTLE_EACH, "CASE WHEN i.delay < interval '0' THEN interval '0' ELSE i.delay END", "i.delay", "settle"),
    Mutant("fail: retryable unless told", FAIL, "WHEN retryable IS NOT FALSE THEN", "WHEN retryable THEN", "complete"),
    Mutant("guard: fence", GUARD, "j.id = id AND j.fence = fence AND j.fence <> 0", "j.id = id AND j.fence <> 0", "complete"),
    Mutant("guard: fence 0", GUARD, "j.fence = fence AND j.fence <> 0", "j.fence = fence", "complete"),
    Mutant("guard: lock", GUARD, "AND j.fence <> 0 FOR KEY SHARE;", "AND j.fence <> 0;", "complete"),
    Mutant("guard: lock too strong", GUARD, "AND j.fence <> 0 FOR KEY SHARE;", "AND j.fence <> 0 FOR SHARE;", "complete"),
    Mutant("guard: refused", GUARD, "FOR KEY SHARE;\n  IF NOT FOUND THEN", "FOR KEY SHARE;\n  IF false THEN", "complete"),
    # Loss.
    Mutant("reclaim: isolation", RECLAIM, "PERFORM _check_isolation('reclaim');", "", "claim"),
    Mutant("reclaim: the beat seen", RECLAIM, " AND b.n = s.n", "", "loss"),
    Mutant("reclaim: the lease", RECLAIM, " AND (b.at < t - nd.lease OR b.at > t)", "", "loss"),
    Mutant("reclaim: a beat of the future", RECLAIM, " OR b.at > t", "", "loss"),
    Mutant("reclaim: the node is locked", RECLAIM, "FOR UPDATE OF b, nd SKIP LOCKED);", "FOR UPDATE OF b SKIP LOCKED);", "loss"),
    Mutant("reclaim: the beat is locked", RECLAIM, "FOR UPDATE OF b, nd SKIP LOCKED);", "FOR UPDATE OF nd SKIP LOCKED);", "loss"),
    Mutant("reclaim: does not wait", RECLAIM, "FOR UPDATE OF b, nd SKIP LOCKED);", "FOR UPDATE OF b, nd);", "loss"),
    Mutant("reclaim: dead nodes only", RECLAIM, "USING (epoch) WHERE nd.state IN ('lost', 'left') LOOP", "USING (epoch) LOOP", "loss"),
    Mutant("reclaim: a polite end", RECLAIM, "IF node_state = 'left' THEN", "IF false THEN", "nodes"),
    Mutant("expire_node: the beat seen", EXPIRE_NODE, " AND b.n = beat", "", "loss"),
    Mutant("expire_node: does not wait", EXPIRE_NODE, "beat FOR UPDATE OF b, nd SKIP LOCKED", "beat FOR UPDATE OF b, nd", "loss"),
    Mutant("mark_node_lost: the lease", MARK_NODE_LOST, "DELETE FROM beats b WHERE b.epoch = node_epoch;", "", "loss"),
    Mutant("mark_node_lost: the state", MARK_NODE_LOST, "UPDATE nodes n SET state = 'lost', ended_at", "UPDATE nodes n SET ended_at", "loss"),
    Mutant("mark_node_lost: when it was last heard of", MARK_NODE_LOST, "ended_at = last_beat_at", "ended_at = t", "loss declare"),
    Mutant("mark_node_lost: not in the future", MARK_NODE_LOST, "least((SELECT b.at FROM beats b WHERE b.epoch = node_epoch), t)", "coalesce((SELECT b.at FROM beats b WHERE b.epoch = node_epoch), t)", "loss"),
    Mutant("mark_node_lost: this node only", MARK_NODE_LOST, "WHERE b.epoch = node_epoch) WHERE n.epoch = node_epoch;", "WHERE b.epoch = node_epoch);", "loss"),
    Mutant("reclaim_jobs: fence", RECLAIM, "ON j.id = x.id AND j.fence = c.fence LEFT JOIN", "ON j.id = x.id LEFT JOIN", "operate"),
    Mutant("reclaim_jobs: the reported start", RECLAIM, "coalesce(r.started_at, c.at)", "c.at", "loss"),
    Mutant("mark_node_lost: runs that it has", MARK_NODE_LOST, "DELETE FROM runs r WHERE r.epoch = node_epoch AND NOT EXISTS (SELECT FROM jobs j WHERE j.id = r.job_id AND j.fence = r.fence);", "DELETE FROM runs r WHERE r.epoch = node_epoch;", "loss"),
    Mutant("reclaim_jobs: epoch", RECLAIM, "WHERE c.epoch = node_epoch AND (one", "WHERE (one", "loss"),
    Mutant("reclaim_jobs: locked rows", RECLAIM, "x.id = one) FOR UPDATE OF j SKIP LOCKED", "x.id = one) FOR UPDATE OF j", "settle"),
    Mutant("reclaim_jobs: one of them", RECLAIM, " AND (one IS NULL OR x.id = one) FOR", " FOR", "loss"),
    Mutant("reclaim: what one refuses", RECLAIM, "IF node_state = 'lost' THEN SELECT r.endings, r.freed INTO reclaimed FROM _reclaim_jobs_one_by_one(node_epoch, t) r; RETURN QUERY SELECT e.id, node_epoch, e.state FROM unnest(reclaimed.endings) e; freed := freed || reclaimed.freed; END IF;", "", "loss"),
    Mutant("reclaim: what all wait for", RECLAIM, "EXCEPTION WHEN lock_not_available OR deadlock_detected THEN", "EXCEPTION WHEN deadlock_detected THEN", "loss"),
    Mutant("reclaim: what one of the polite refuses", RECLAIM, "IF node_state = 'lost' THEN SELECT", "IF true THEN SELECT", "loss"),
    Mutant("reclaim_jobs: asked to stop", RECLAIM, "WHEN j.canceling THEN 'canceled' ", "", "loss"),
    Mutant("reclaim_jobs: one attempt", RECLAIM, "j.max_attempts = 1 AND NOT _is_undoing(j.id, j.tenant) OR ", "", "loss"),
    Mutant("reclaim_jobs: the third loss", RECLAIM, "j.lost >= 2 AND NOT _has_stored_step(j)", "j.lost >= 3 AND NOT _has_stored_step(j)", "loss"),
    Mutant("reclaim_jobs: the second loss", RECLAIM, "j.lost >= 2 AND NOT _has_stored_step(j)", "j.lost >= 1 AND NOT _has_stored_step(j)", "loss"),
    Mutant("reclaim_jobs: a loss counts", RECLAIM, "ELSE j.lost + 1 END, class = 2", "ELSE j.lost END, class = 2", "loss"),
    Mutant("reclaim_jobs: quarantine", RECLAIM, "ELSE j.lost + 1 END, class = 2,", "ELSE j.lost + 1 END,", "loss"),
    Mutant("expire: running", EXPIRE_UNSUPPORTED, "AND j.fence = 0 LIMIT", "LIMIT", "unsupported"),
    Mutant("expire: the grace", EXPIRE_UNSUPPORTED, "WHERE coalesce(k.last_handled_at, greatest(j.run_at, k.met_at)) <= grace_start AND", "WHERE", "unsupported"),
    Mutant("expire: never handled, due", EXPIRE_UNSUPPORTED, "greatest(j.run_at, k.met_at)", "k.met_at", "unsupported"),
    Mutant("expire: last handled", EXPIRE_UNSUPPORTED, "coalesce(k.last_handled_at, greatest(j.run_at, k.met_at))", "greatest(j.run_at, k.met_at)", "unsupported"),
    Mutant("expire: last handled, that version", EXPIRE_UNSUPPORTED, "h.type = k.type AND h.version >= k.version", "h.type = k.type", "unsupported"),
    Mutant("expire: the queue", EXPIRE_UNSUPPORTED, "AND (queue IS NULL OR k.queue = queue)", "", "unsupported"),
    Mutant("expire: a live node", EXPIRE_UNSUPPORTED, "nt.type = k.type AND nt.version >= k.version)", "false)", "unsupported"),
    Mutant("expire: a live node, that version", EXPIRE_UNSUPPORTED, "nt.type = k.type AND nt.version >= k.version)", "nt.type = k.type)", "unsupported"),
    Mutant("grace_start: time without nodes", EXPIRE_UNSUPPORTED, "SELECT unnest(range_agg(tstzrange(n.started_at,", "SELECT unnest(range_agg(tstzrange('2000-01-01',", "unsupported"),
    Mutant("grace_start: nodes that are not lost yet", EXPIRE_UNSUPPORTED, "least(b.at + n.lease, t)", "t", "unsupported"),
    Mutant("end_node_types: what was recorded before", EXPIRE_UNSUPPORTED, "AND h.version = nt.version WHERE nt.epoch = node_epoch", "AND h.version = nt.version WHERE false", "unsupported"),
    Mutant("end_node_types: does not wait", EXPIRE_UNSUPPORTED, "FOR UPDATE OF h SKIP LOCKED", "FOR UPDATE OF h", "unsupported"),
    Mutant("expire: locked rows", EXPIRE_UNSUPPORTED, "LIMIT max FOR UPDATE OF j SKIP LOCKED", "LIMIT max", "unsupported"),
    Mutant("expire: types are listed again", EXPIRE_UNSUPPORTED, "SELECT DISTINCT k.type, k.version, t FROM _find_wait_keys('unsupported') k", "SELECT DISTINCT k.type, k.version, t FROM _find_wait_keys('none') k", "unsupported"),
    Mutant("sweep: age", SWEEP_CLAIMS, " WHERE c.at < _clock(now) - older", "", "settle"),
    # Operators.
    Mutant("cancel: force waits first", CANCEL, "WHERE x.id = job_id FOR UPDATE; ", "WHERE x.id = job_id FOR NO KEY UPDATE; ", "complete"),
    Mutant("cancel: lock", CANCEL, "WHERE x.id = job_id FOR NO KEY UPDATE; ", "WHERE x.id = job_id; ", "cancel"),
    Mutant("cancel: lock too strong", CANCEL, "WHERE x.id = job_id FOR NO KEY UPDATE; ", "WHERE x.id = job_id FOR UPDATE; ", "complete"),
    Mutant("cancel: running", CANCEL, "  IF j.fence <> 0 THEN\n    PERFORM _request_stop", "  IF false THEN\n    PERFORM _request_stop", "cancel"),
    Mutant("cancel: forced when told only", CANCEL, "IF force IS NOT TRUE THEN RETURN", "IF NOT force THEN RETURN", "cancel"),
    Mutant("cancel: the flag", CANCEL, "SET canceling = true WHERE", "SET canceling = false WHERE", "cancel"),
    Mutant("reschedule: running", RESCHEDULE, "IF old_state IS NULL AND j.fence <> 0 THEN", "IF false THEN", "operate"),
    Mutant("reschedule: lock", RESCHEDULE,
        "  SELECT * INTO j FROM jobs x WHERE x.id = id AND x.seq = seq FOR UPDATE;\n  IF NOT FOUND", "  SELECT * INTO j FROM jobs x WHERE x.id = id AND x.seq = seq;\n  IF NOT FOUND", "operate"),
    Mutant("reschedule: attempts are kept", RESCHEDULE, "attempt = CASE WHEN x.failed THEN 0 ELSE x.attempt END", "attempt = 0", "operate"),
    Mutant("reschedule: attempts are fresh", RESCHEDULE, "attempt = CASE WHEN x.failed THEN 0 ELSE x.attempt END", "attempt = x.attempt", "operate"),
    Mutant("release: running", RELEASE, "WHERE x.id = job_id AND x.fence <> 0 FOR UPDATE;", "WHERE x.id = job_id FOR UPDATE;", "operate"),
    Mutant("release: lock", RELEASE, "WHERE x.id = job_id AND x.fence <> 0 FOR UPDATE;", "WHERE x.id = job_id AND x.fence <> 0;", "operate complete"),
    Mutant("release: asked to stop", RELEASE, "IF j.canceling THEN", "IF false THEN", "cancel"),
    Mutant("release: takes the claim away", RELEASE, "SET fence = 0, ended_at = t, failed = false, run_at = t, wait = NULL", "SET ended_at = t, failed = false, run_at = t, wait = NULL", "operate"),
    Mutant("finish_canceled: fence", RELEASE_CLAIMS, "ON j.id = x.id AND j.fence = c.fence WHERE c.fence = ANY (fences) AND", "ON j.id = x.id WHERE c.fence = ANY (fences) AND", "nodes operate"),
    Mutant("unpark: still paused", UNPARK_PAUSED, "WHERE p.type = k.type\n        AND (p.queue IS NULL OR p.queue = k.queue)", "WHERE false", "pause"),
    # Lists and partitions.
    Mutant("reschedule_many: claimed meanwhile", RESCHEDULE_MANY, "EXCEPTION WHEN SQLSTATE 'WB008' OR SQLSTATE 'WB013' THEN NULL;", "EXCEPTION WHEN SQLSTATE 'WB013' THEN NULL;", "lists"),
    Mutant("reschedule_many: running", RESCHEDULE_MANY, "IF 'running' = ANY (states) THEN", "IF false THEN", "lists"),
    Mutant("purge: finished only", PURGE, "IF NOT states <@ '{succeeded,dead,canceled}'::text[] THEN", "IF false THEN", "lists"),
    Mutant("purge: ordered keys", PURGE, "PERFORM _free_keys_of_deleted_jobs(chosen, order_keys);", "", "order"),
    Mutant("purge: the keys of other jobs stay", PURGE, "AND (h.job_id, h.key) IN (SELECT * FROM unnest(ids, order_keys))", "", "order"),
    Mutant("purge: what comes back to life", PURGE, "SELECT coalesce(array_agg(l.id), '{}'), coalesce(array_agg(l.tenant), '{}'), array_agg(l.order_key) INTO chosen, chosen_tenants, order_keys FROM (SELECT f.id, f.tenant, f.order_key FROM finished_jobs f WHERE f.id = ANY (ids) AND (f.id, f.tenant) IN (SELECT * FROM unnest(ids, tenants)) AND f.state = ANY (states) FOR UPDATE SKIP LOCKED) l;", "chosen := ids; chosen_tenants := tenants;", "lists"),
    Mutant("prune history: only whole days", MAKE_PARTITIONS, 'AND c.relname COLLATE "C" < _list_expired_days.parent', 'AND c.relname COLLATE "C" <= _list_expired_days.parent', "retention"),
    Mutant("prune history: one pruner at a time", PRUNE_HISTORY, "IF NOT pg_try_advisory_xact_lock(_lock_class_partitions(), 'jobs'::regclass::oid::int) THEN", "IF false THEN", "retention"),
    Mutant("prune history: keys of the day", PRUNE_HISTORY, "AND i.expires_at IS NULL\n          LIMIT $1", "AND false\n          LIMIT $1", "retention"),
    Mutant("prune history: keys with a window stay", PRUNE_HISTORY, "AND i.expires_at IS NULL\n          LIMIT $1", "LIMIT $1", "retention"),
    Mutant("prune history: gives up", PRUNE_HISTORY, "EXCEPTION WHEN lock_not_available THEN", "EXCEPTION WHEN division_by_zero THEN", "retention"),
    Mutant("prune history: age in the default", PRUNE_HISTORY, "WHERE f.finished_at < $1", "WHERE true", "retention"),
    Mutant("prune history: age of attempts", PRUNE_HISTORY, "WHERE a.ended_at < $1", "WHERE true", "retention"),
    Mutant("prune audit: age", PRUNE_AUDIT, "WHERE a.at < oldest", "WHERE true", "retention"),
    Mutant("prune nodes: claims", PRUNE_NODES, "AND NOT EXISTS (SELECT FROM claims c WHERE c.epoch = n.epoch) ORDER BY", "ORDER BY", "retention"),
    Mutant("prune keys: window", PRUNE_KEYS, "WHERE i.expires_at <= t", "WHERE i.expires_at IS NOT NULL", "retention"),
    Mutant("partitions: one maker at a time", MAKE_PARTITIONS, "PERFORM _take_lock(_lock_class_partitions(), 'jobs'::regclass::oid::int);", "", "partitions"),
    Mutant("partitions: caught by the default", MAKE_PARTITIONS, "EXCEPTION WHEN check_violation THEN NULL;", "EXCEPTION WHEN division_by_zero THEN NULL;", "partitions"),
    Mutant("fences: the timeline", FENCES, "RETURN ((generation + _server_timeline())::bigint << 40) + nextval", "RETURN nextval", "ids"),
    # Schedules.
    Mutant("tick: isolation", TICK, "PERFORM _check_isolation('tick');", "", "tick"),
    Mutant("tick: lock", TICK, "LIMIT max FOR UPDATE SKIP LOCKED));", "LIMIT max));", "tick"),
    Mutant("tick: waits for nobody", TICK, "LIMIT max FOR UPDATE SKIP LOCKED));", "LIMIT max FOR UPDATE));", "tick"),
    Mutant("tick: a slot that is there", TICK, "ON CONFLICT DO NOTHING RETURNING schedule_id, slot, job_id, outcome, count)", "RETURNING schedule_id, slot, job_id, outcome, count)", "tick"),
    Mutant("tick: jobs of written slots only", TICK, "FROM written w JOIN decided f ON f.job_id = w.job_id RETURNING", "FROM decided f WHERE f.job_id IS NOT NULL RETURNING", "tick"),
    Mutant("tick: max_runs", TICK, "next_run = CASE WHEN x.slot_runs + coalesce(c.jobs, 0) < coalesce(f.max_runs, 2147483647) THEN f.next_run END", "next_run = f.next_run", "tick"),
    Mutant("tick: as many as max_runs leaves", TICK, "d.runs[:coalesce(d.max_runs - d.slot_runs, 2147483647)]", "d.runs", "tick"),
    Mutant("tick: the job before", TICK, "r.has_job AND r.overlap = 'skip' AND (o.jobs IS NOT NULL OR row_number() OVER w > 1) AS skips", "false AS skips", "tick"),
    Mutant("tick: the end", TICK, "next := CASE WHEN rule.second <= coalesce(rule.\"end\", 'infinity') THEN rule.second END;", "next := rule.second;", "tick"),
    Mutant("tick: about max slots", TICK, "IF slots_left <= 0 THEN RETURN; END IF;", "", "tick"),
    Mutant("tick: a part of the slots of a schedule", TICK, "IF cardinality(runs) > slots_left THEN", "IF false THEN", "tick"),
    Mutant("tick: continues where it stopped", TICK, "next := runs[slots_left + 1];", "", "tick"),
    Mutant("tick: missed slots count", TICK, "slots_left := greatest(1, slots_left - missed_count);", "", "tick"),
    Mutant("tick: always a slot", TICK, "slots_left := greatest(1, slots_left - missed_count);", "slots_left := slots_left - missed_count;", "tick"),
    Mutant("tick: overdue once", TICK, "WHERE s.due_by <= t AND s.due_by IS NOT NULL AND s.overdue_at IS NULL AND", "WHERE s.due_by <= t AND", "tick"),
    Mutant("tick: cancels without waiting", CANCEL_RUNS, "SET lock_timeout = '100ms' AS", "SET lock_timeout = '1min' AS", "tick"),
    Mutant("cancel_runs: a chain's end", CANCEL_RUNS, "UPDATE jobs j SET canceling = true WHERE j.id = ANY (chains);", "", "flow_slots"),
    Mutant("cancel_runs: a chain", CANCEL_RUNS, "    wanted := wanted || _lock_jobs_briefly(ARRAY(SELECT d.parent", "    PERFORM _lock_jobs_briefly(ARRAY(SELECT d.parent", "flow_slots"),
    Mutant("queue_behind: what is as new", TICK, "UPDATE jobs j SET awaited = true WHERE j.id = ANY (new_parents);", "", "schedules tick"),
    Mutant("run_schedule: what runs is seen", RUN_SCHEDULE, "IF overlap <> 'allow' AND num_nonnulls(s.type, s.command) > 0 THEN", "IF false THEN", "schedules"),
    Mutant("run_schedule: refuses to overlap", RUN_SCHEDULE, "IF unfinished IS NOT NULL AND overlap = 'skip' THEN", "IF false THEN", "schedules"),
    Mutant("run_schedule: waits", RUN_SCHEDULE, "CASE WHEN unfinished IS NOT NULL THEN 'blocked' END,", "NULL,", "schedules"),
    Mutant("run_schedule: cancels", RUN_SCHEDULE, "IF unfinished IS NOT NULL AND overlap = 'cancel_previous' THEN", "IF false THEN", "schedules"),
    Mutant("execute_schedule: SQL commands only", EXECUTE_SCHEDULE, "IF s.command IS NULL THEN", "IF false THEN", "schedules"),
    Mutant("execute_schedule: cannot wait", EXECUTE_SCHEDULE, "ELSIF overlap NOT IN ('allow', 'skip') THEN", "ELSIF false THEN", "schedules"),
    Mutant("edit: all slots that were due", SET_TIMER, "missed_count, 'missed', CASE", "1, 'missed', CASE", "tick"),
    Mutant("edit: no twin", CHECK_SCHEDULE, "NEW.pattern_id := OLD.pattern_id;", "NEW.pattern_id := _compile_pattern(NEW.pattern, NEW.tz, NEW.dst, coalesce(NEW.start, NEW.created_at));", "tick"),
    Mutant("reopen: the chain started again", CLOSE_SLOTS, "OR s.outcome IS NOT NULL AND s.job_id IS NOT NULL AND EXISTS", "OR false AND EXISTS", "flow_slots"),
    Mutant("reopen: not while it is under way", CLOSE_SLOTS, "OR s.outcome IS NOT NULL AND s.job_id IS NOT NULL AND EXISTS", "OR EXISTS", "flow_slots"),
    Mutant("hand_over: the timer's lock", HAND_OVER, "  PERFORM FROM timers x WHERE x.schedule_id = j.schedule_id FOR NO KEY UPDATE;\n", "", "flow_slots"),
    Mutant("hand_over: those queued behind", HAND_OVER, "WHERE d.parent = j.id AND d.tenant", "WHERE false AND d.tenant", "flow_slots"),
    Mutant("hand_over: they are told", HAND_OVER, "IF FOUND THEN UPDATE jobs x SET awaited = true", "IF false THEN UPDATE jobs x SET awaited = true", "flow_slots"),
    Mutant("retry of a step: its slot, before it is closed", RESCHEDULE, " AND j.fence = 0 OR j.type = 'watchbill.flow_end')", " AND j.fence = 0)", "flow_slots"),
    Mutant("retry of a step: the end is taken away", RESCHEDULE, "UPDATE jobs j SET fence = 0, wait = 'blocked', wait_key = NULL WHERE j.id = ANY (waiting)", "UPDATE jobs j SET wait = 'blocked' WHERE j.id = ANY (waiting)", "flow_slots"),
    Mutant("retry of a step: its slot, closed", RESCHEDULE, " OR c.type = 'watchbill.flow_end')) c);", ")) c);", "flow_slots"),
    Mutant("cancel_previous: what is being claimed", CANCEL_RUNS, "IF FOUND THEN locked := locked || other; END IF;", "", "tick"),
    Mutant("hand_over: canceled meanwhile", HAND_OVER, "IF (SELECT x.canceling FROM jobs x WHERE x.id = j.id) THEN", "IF false THEN", "flow_slots"),
    Mutant("edit: lock of the timer", SET_TIMER, "WHERE x.schedule_id = NEW.id FOR UPDATE;", "WHERE x.schedule_id = NEW.id;", "tick"),
    Mutant("edit: a slot that is due is recorded", SET_TIMER, "IF times_changed AND due <= NEW.updated_at THEN", "IF false THEN", "tick"),
    Mutant("schedule: a role of one's own", SCHEDULE_ERRORS, "WHEN NOT pg_has_role(_caller(), s.role, 'MEMBER') THEN", "WHEN false THEN", "schedules"),
    Mutant("orphans: who has declared", ORPHANS, "n.app = s.owner AND n.state IN ('active', 'draining') AND n.declared_at IS NOT NULL)\n", "n.app = s.owner AND n.state IN ('active', 'draining'))\n", "declare"),
    Mutant("orphans: of the same app", ORPHANS, "(SELECT FROM nodes n WHERE n.app = s.owner AND", "(SELECT FROM nodes n WHERE", "declare"),
    Mutant("orphans: still held", ORPHANS, " AND x.schedule_id <> ALL (_find_orphans(ids));", ";", "declare"),
    Mutant("declare: the owner", DECLARE, "WHEN id IS NOT NULL AND old.owner IS DISTINCT FROM node.app THEN", "WHEN false THEN", "declare"),
    Mutant("declare: what was superseded", DECLARE, "WHEN _is_schedule_superseded(old, given, node.epoch) THEN", "WHEN false THEN", "declare"),
    Mutant("declare: while the newer lives", DECLARE, "n.epoch <> _is_schedule_superseded.epoch AND n.state IN ('active', 'draining')", "true", "declare"),
    Mutant("declare: the newest of those before", DECLARE, "> array_position(s.superseded_hashes || s.hash, _is_schedule_superseded.hash)", "= cardinality(s.superseded_hashes || s.hash)", "declare"),
    Mutant("declare: in vain", DECLARE, "AND d.hash <> s.hash AND NOT _is_schedule_superseded(s, d.hash, d.epoch)", "AND d.hash <> s.hash", "declare"),
    Mutant("declare: nodes take turns", DECLARE, "PERFORM _take_lock(_lock_class_declarations(), hashtext('schedules'::regclass::oid || node.app));", "", "declare"),
    Mutant("declare: one start", DECLARE, "CASE WHEN (_find_first_registration(node)).declared_at IS NOT NULL THEN false ELSE _has_started_cluster(node) END", "_has_started_cluster(node)", "declare"),
    Mutant("declare: others alive", DECLARE, "ELSE _has_started_cluster(node) END", "ELSE true END", "declare"),
    Mutant("declare: a sign of life", DECLARE, "PERFORM pg_notify(_wake_channel(), 'beat');", "NULL;", "declare"),
    Mutant("start: one process", START_CLUSTER, "FROM nodes n WHERE n.instance = node.instance", "FROM nodes n WHERE n.epoch = node.epoch", "declare"),
    Mutant("start: others that beat", START_CLUSTER, " OR b.at >= me.at AS lived", " AS lived", "declare"),
    Mutant("start: those who came later", START_CLUSTER, " AND (me.declared_at IS NULL OR (c.declared_at, c.epoch) < (me.declared_at, me.epoch))", "", "declare"),
    Mutant("start: once", START_CLUSTER, "s.slot >= (_find_first_registration(node)).at) THEN RETURN true", "false) THEN RETURN true", "declare"),
    Mutant("declare: alive when it came", START_CLUSTER, "(o.state IN ('active', 'draining') OR o.ended_at > me.at)", "o.state IN ('active', 'draining')", "declare"),
    Mutant("execute_due: what a worker has", EXECUTE, "AND x.wait IS NULL AND x.fence = 0\n", "AND x.wait IS NULL\n", "schedules"),
    Mutant("execute_due: the role is left", EXECUTE, "  PERFORM set_config('role', own_role, true);", "", "schedules"),
]  # fmt: skip

EQUIVALENT: list[tuple[Mutant, str]] = [
    (Mutant("limits: jobs with a rate into free slots", "flow/limits.sql", "AND (x.class <> 1 OR x.rank <= free)", "", ""),
        "all pickers take jobs of class 1 into free slots only; the check is for pickers to come"),
    (Mutant("limits: jobs without keys take slots", "flow/limits.sql", "min(d.position) - d.job + row_number()", "row_number()", ""),
        "as above"),
    (Mutant("release: the request", "cluster/lock_release.sql", "request = NULL,", "", ""),
        "a grant under an old request also asks whether the lock is held, and a released one is not"),
    (Mutant("leaders: that have resigned", "cluster/elect.sql", "AND l.holder IS NOT NULL AND l.epoch IS NOT NULL AND _lock_end", "AND _lock_end", ""),
        "a lock without a holder has no end, and only nodes can hold the locks of leaders"),
    (Mutant("unique: replacements take turns", UNIQUE_JOBS, "AND x.key = new_key FOR UPDATE;", "AND x.key = new_key;", ""),
        "without it two calls deadlock only if both share the lock of the job before one of them changes it"),
    (Mutant("runs: own fence", HEARTBEAT, "WHERE x.id = r.job_id AND x.fence = r.fence)", "WHERE x.id = r.job_id)", ""),
        "the row that stays is overwritten by the next statement, which compares the fences itself"),
    (Mutant("finish: fence", FINISH_REQUEUE, "WHERE j.id = e.id AND j.fence = e.fence AND e.state IN", "WHERE j.id = e.id AND e.state IN", ""),
        "every caller holds the row's lock since it read the fence; the check is for callers to come"),
    (Mutant("requeue: fence", FINISH_REQUEUE, "FROM due WHERE j.id = due.id AND j.fence = due.fence\n", "FROM due WHERE j.id = due.id\n", ""),
        "as above"),
    (Mutant("reclaim_jobs: fence again", RECLAIM, "AND old.fence = e.fence WHERE j.id = e.id AND j.fence = e.fence AND e.state = 'failed'", "AND old.fence = e.fence WHERE j.id = e.id AND e.state = 'failed'", ""),
        "as above"),
    (Mutant("purge: the state again", PURGE, "AND f.state = ANY (states) FOR UPDATE", "FOR UPDATE", ""),
        "only a job that is revived and finished otherwise between two statements of purge would differ"),
    (Mutant("finish_canceled: asked to stop", RELEASE_CLAIMS, " AND j.canceling FOR UPDATE OF j SKIP LOCKED", " FOR UPDATE OF j SKIP LOCKED", ""),
        "the statement before has released all others, but for one whose lock is given up between the two"),
]  # fmt: skip
