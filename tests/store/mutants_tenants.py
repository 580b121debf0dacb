# ruff: noqa: E501 - what stands here is the text of SQL lines, which are longer
"""Mutants of quotas, of the erasure of tenants, and of ids that another tenant has: each check taken out.

Those of policies and rights are made from the catalogue: test_security_mutants.py.
"""

from __future__ import annotations

from tests.store.mutants import ENQUEUE, INSERT_JOBS, RESCHEDULE, RUN_SCHEDULE, TICK, Mutant

FILTER, TAKE, REFRESH = "tenants/quota_filter.sql", "flow/take_quota.sql", "flow/refresh_quotas.sql"
SET, ERASE, SKIP = "flow/set_tenant.sql", "upkeep/erase_tenant.sql", "schedules/skip_over_quota.sql"
PLAIN, FLOW = "jobs/enqueue_plain.sql", "jobs/job_flow.sql"
CHECK_SCHEDULE = "schedules/check_schedule.sql"
PICK_FOR_TENANT = "claim/pick_for_tenant.sql"

MUTANTS_OF_TENANTS: list[Mutant] = [
    # What a tenant uses.
    Mutant("quota: own jobs", TAKE, "unfinished := coalesce(unfinished, 0) + total_jobs + others.jobs;", "unfinished := coalesce(unfinished, 0) + others.jobs;", "quotas"),
    Mutant("quota: jobs of others", TAKE, "unfinished := coalesce(unfinished, 0) + total_jobs + others.jobs;", "unfinished := coalesce(unfinished, 0) + total_jobs;", "quotas"),
    Mutant("quota: own bytes", TAKE, "payload_bytes := coalesce(payload_bytes, 0) + total_payload_bytes + others.payload_bytes;", "payload_bytes := coalesce(payload_bytes, 0) + others.payload_bytes;", "quotas"),
    Mutant("quota: bytes of others", TAKE, "payload_bytes := coalesce(payload_bytes, 0) + total_payload_bytes + others.payload_bytes;", "payload_bytes := coalesce(payload_bytes, 0) + total_payload_bytes;", "quotas"),
    Mutant("quota: own enqueues", TAKE, "enqueued := total_jobs + others.recent + (", "enqueued := others.recent + (", "quotas"),
    Mutant("quota: enqueues of others", TAKE, "enqueued := total_jobs + others.recent + (", "enqueued := total_jobs + (", "quotas"),
    Mutant("quota: enqueues of the last minute", TAKE, "AND s.second > t - interval '61 seconds'); END", "); END", "quotas"),
    Mutant("quota: all changes without a node", TAKE, "LIMIT CASE WHEN counted_at > t - interval '10 seconds' THEN 200 END", "LIMIT 200", "quotas"),
    Mutant("quota: the last of the own changes", TAKE, "ORDER BY c.n DESC", "ORDER BY c.n", "quotas"),
    Mutant("quota: each change of its own", TAKE, "used.n + 1, t,", "1, t,", "quotas"),
    # What is refused.
    Mutant("quota: unfinished", TAKE, "IF used.unfinished + jobs > q.max_unfinished THEN", "IF false THEN", "quotas"),
    Mutant("quota: unfinished, the last one fits", TAKE, "used.unfinished + jobs > q.max_unfinished", "used.unfinished + jobs >= q.max_unfinished", "quotas"),
    Mutant("quota: payload bytes", TAKE, "ELSIF used.payload_bytes + payload_bytes > q.max_payload_bytes THEN", "ELSIF false THEN", "quotas"),
    Mutant("quota: per minute", TAKE, "ELSIF used.enqueued + jobs > q.max_per_minute THEN", "ELSIF false THEN", "quotas"),
    Mutant("quota: a tenant in erasure", TAKE, "IF EXISTS (SELECT FROM erasures e WHERE e.tenant = tenant) THEN", "IF false THEN", "erasure"),
    Mutant("quota: enqueue asks", ENQUEUE, "AND NOT _may_have_quota(tenant)", "", "quotas"),
    Mutant("quota: the short way of enqueue asks", PLAIN, "AND NOT %1$I._may_have_quota(tenant)", "", "quotas"),
    Mutant("quota: the short way of a bulk asks", PLAIN, "AND NOT _may_have_quota(tenant)", "", "quotas"),
    Mutant("quota: a checked job", ENQUEUE, "IF _may_have_quota(n.tenant) AND (is_new OR _own_job_seq(n.id, n.tenant, n.type) IS NULL) THEN", "IF false THEN", "quotas"),
    Mutant("quota: a job that is sent again", ENQUEUE, "IF _may_have_quota(n.tenant) AND (is_new OR _own_job_seq(n.id, n.tenant, n.type) IS NULL) THEN", "IF _may_have_quota(n.tenant) THEN", "quotas"),
    Mutant("quota: a bulk", INSERT_JOBS, "IF has_quota THEN PERFORM _take_quotas(new_jobs); END IF;", "", "quotas"),
    Mutant("quota: a bulk with given ids", INSERT_JOBS, "plain, has_keys OR has_quota, resend", "plain, has_keys, resend", "quotas"),
    Mutant("quota: a slot", SKIP, "IF refused ? f.tenant THEN f.outcome", "IF false THEN f.outcome", "quotas"),
    Mutant("quota: later slots of a refused tenant", SKIP, "IF NOT refused ? f.tenant THEN", "IF true THEN", "quotas"),
    Mutant("quota: a run by hand", RUN_SCHEDULE, "IF _may_have_quota(s.tenant) AND num_nonnulls(s.type, s.command) > 0 THEN", "IF false THEN", "quotas"),
    Mutant("quota: a run on start", RUN_SCHEDULE, "IF kind = 'start' THEN -- The job of a cluster start", "IF false THEN -- The job of a cluster start", "quotas"),
    # Running jobs.
    Mutant("quota: running, a new job", FLOW, "IF _may_have_quota(n.tenant) THEN limit_keys := _quota_keys(limit_keys, n.tenant); END IF;", "", "quotas"),
    Mutant("quota: running, a slot", TICK, "CASE WHEN _may_have_quota(f.tenant) THEN _quota_keys(NULL, f.tenant) END,", "NULL,", "quotas"),
    Mutant("quota: running, a run by hand", RUN_SCHEDULE, "CASE WHEN _may_have_quota(s.tenant) THEN _quota_keys(NULL, s.tenant) END,", "NULL,", "quotas"),
    Mutant("quota: running, a job that runs again", RESCHEDULE, "WHEN _may_have_quota(f.tenant) THEN _quota_keys(f.limit_keys, f.tenant) ELSE f.limit_keys", "WHEN false THEN NULL ELSE f.limit_keys", "quotas"),
    Mutant("quota: running, only with such a quota", TAKE, "AND x.limits_running) THEN", ") THEN", "quotas"),
    Mutant("quota: the limit of another tenant", FLOW, "AND k <> _tenant_key(n.tenant)) THEN", "AND false) THEN", "quotas"),
    Mutant("quota: jobs from before", SET, "new_row.may_lack_keys := true;", "", "quotas"),
    Mutant("quota: jobs from before that run", REFRESH, "AND j.fence <> 0 ON CONFLICT DO NOTHING;", "AND false ON CONFLICT DO NOTHING;", "quotas"),
    Mutant("quota: jobs of transactions from before", REFRESH, "AND x.keyless_before <= pg_snapshot_xmin(running);", ";", "quotas"),
    # Counting.
    Mutant("quota: a restored filter", REFRESH, "IF EXISTS (SELECT FROM tenants x WHERE NOT _may_have_quota(x.tenant)) THEN", "IF false THEN", "quotas"),
    Mutant("quota: one node counts", REFRESH, "IF NOT at_once AND", "IF false AND", "quotas"),
    Mutant("quota: a clock that was set back", REFRESH, "AND last.counted_at <= t AND", "AND", "quotas"),
    Mutant("quota: enqueues of one second", REFRESH, "ON CONFLICT (tenant, second) DO UPDATE SET jobs = o.jobs + EXCLUDED.jobs)", "ON CONFLICT (tenant, second) DO NOTHING)", "quotas"),
    Mutant("quota: only tenants that have one are counted", REFRESH, "DELETE FROM quota_usage u WHERE u.tenant <> ALL (names);", "", "quotas"),
    # Setting.
    Mutant("quota: set by those who see all tenants", SET, "PERFORM _check_sees_all_tenants(tenant);", "", "erasure"),
    Mutant("quota: counted at once", SET, "PERFORM _count_quota_usage(_clock());", "NULL;", "quotas"),
    Mutant("quota: its limit ends with it", SET, "PERFORM clear_limit(_tenant_key(tenant), now);", "NULL;", "quotas"),
    Mutant("quota: names that exist", SET, "WHERE q.key NOT IN ('running', 'unfinished', 'payload_bytes', 'per_minute', 'heartbeats') OR CASE", "WHERE CASE", "quotas"),
    # What tenants share.
    Mutant("shared: a living node", "nodes/expire_node.sql", "PERFORM _check_shared_change('expire_node');", "", "bound_rights"),
    Mutant("shared: a lock", "cluster/lock_release.sql", "PERFORM _check_shared_change('lock_release');", "", "bound_rights"),
    Mutant("shared: a lock is not held", "cluster/lock_check.sql", "PERFORM _check_shared_change('lock_check');", "", "bound_rights"),
    Mutant("shared: claims", "jobs/settle.sql", "IF _may_be_bound() THEN PERFORM _check_shared_change('settle'); END IF;", "", "bound_rights"),
    Mutant("shared: the clock", "foundation/now.sql", "ELSE _check_given_time(now) END", "ELSE now END", "rights"),
    # SQL commands.
    Mutant("command: not by a bound role", CHECK_SCHEDULE, "ELSIF NOT sees_all_tenants() THEN", "ELSIF false THEN", "sql_commands"),
    Mutant("command: not enabled by a bound role", CHECK_SCHEDULE, "SELECT new.enabled AND NOT old.enabled OR", "SELECT", "sql_commands"),
    Mutant("command: no other change", CHECK_SCHEDULE, "OR to_jsonb(new) - '{enabled,updated_at}'::text[] <> to_jsonb(old) - '{enabled,updated_at}'::text[]", "", "sql_commands"),
    Mutant("command: only what is enabled", CHECK_SCHEDULE, "AND (s.enabled AND s.command IS NOT NULL", "AND (s.command IS NOT NULL", "sql_commands"),
    Mutant("command: not started by hand", RUN_SCHEDULE, "IF s.command IS NOT NULL THEN PERFORM _check_command_start(s, NULL); END IF;", "", "sql_commands"),
    Mutant("command: not queued again", RESCHEDULE, "PERFORM _check_command_start((SELECT s FROM schedules s WHERE s.id = j.schedule_id), j.payload);", "NULL;", "sql_commands"),
    # Erasure.
    Mutant("erasure: by those who see all tenants", ERASE, "PERFORM _check_sees_all_tenants(tenant);", "", "erasure"),
    Mutant("erasure: enqueues ask", FILTER, " UNION SELECT e.tenant FROM erasures e UNION", " UNION", "erasure"),
    Mutant("erasure: its own jobs", ERASE, "AND j.tenant = e.tenant ORDER BY j.id", "ORDER BY j.id", "erasure"),
    Mutant("erasure: its own history", ERASE, "AND x.tenant = $3 RETURNING", "AND $3 IS NOT NULL RETURNING", "erasure"),
    Mutant("erasure: its own schedules", ERASE, "SET enabled = false WHERE s.tenant = tenant AND s.enabled;", "SET enabled = false WHERE s.enabled;", "erasure"),
    Mutant("erasure: running jobs are waited for", ERASE, "AND (j.fence = 0 OR force)", "", "erasure"),
    Mutant("erasure: force", ERASE, "AND (j.fence = 0 OR force)", "AND j.fence = 0", "erasure"),
    Mutant("erasure: transactions that have not noticed", ERASE, "AND pg_snapshot_xmin(pg_current_snapshot()) < e.unnoticed_before THEN", "AND false THEN", "erasure"),
    Mutant("erasure: a stored payload of its own", ERASE, "WHEN position(''/'' || x.id || ''-'' IN x.meta->>''stored'') > 0 THEN", "WHEN true THEN", "erasure"),
    Mutant("erasure: slots of removed schedules", ERASE, "PERFORM _delete_traces_of_jobs(e.tenant, found_ids, order_keys, schedule_ids, slot_times);", "NULL;", "erasure"),
    Mutant("erasure: enqueues are accepted afterwards", ERASE, "DELETE FROM erasures x WHERE x.tenant = e.tenant;", "", "erasure"),
    # Sessions that act for a tenant.
    Mutant("acting: a claim asks", "claim/claim.sql", "_acting_tenant(for_tenant),", "NULL,", "tenant_sessions"),
    Mutant("acting: a tick asks", TICK, "acting text := _acting_tenant(for_tenant);", "acting text;", "tenant_sessions"),
    Mutant("acting: the place is stored", PICK_FOR_TENANT, "PERFORM _store_tenant_scan(place, is_at_end);", "NULL;", "tenant_sessions"),
    Mutant("acting: the order of classes", PICK_FOR_TENANT, "OR (-r.priority, r.run_at, r.id) <= (-l.priority, l.run_at, l.id))),", "OR true)),", "tenant_sessions"),
    Mutant("acting: others are counted", PICK_FOR_TENANT, "others_read := others_read + read.others;", "", "tenant_sessions"),
    Mutant("acting: the top again", PICK_FOR_TENANT, "ELSIF began_at_top OR cardinality(jobs) > 0 THEN", "ELSIF true THEN", "tenant_sessions"),
    # Ids that a job of another tenant has.
    Mutant("taken id: one job", ENQUEUE, "IF answer.seq IS NULL OR is_new AND NOT is_stored THEN PERFORM _refuse_taken_id(n.type, n.id); END IF;", "", "tenants"),
    Mutant("taken id: a bulk", INSERT_JOBS, "WHERE seqs[x.ordinality] IS NULL LIMIT 1;", "WHERE false LIMIT 1;", "tenants"),
]  # fmt: skip
