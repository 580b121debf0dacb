"""A role that is bound to a tenant changes and learns nothing outside it, whatever function it calls.

Each function of rights.txt is called as a bound producer, worker, operator and reader, with objects of another tenant
and with what tenants share. After each call every table is compared, less the rows of the caller's own tenant `a`.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import psycopg
import pytest
from psycopg import sql

from tests.role_logins import Logins, make_logins
from tests.servers import Server
from tests.store.conftest import template
from tests.store.security_checks import STATED
from watchbill.postgres.connect import Connection
from watchbill.postgres.rights import ROLE_KINDS
from watchbill.store.tenants import bind_role, enable_tenants

SECRET = "hush"
# Their values depend on nothing but their arguments, the clock, the caller and the table of zones.
COMPUTE_VALUES = {
    "uuid7", "now", "_clock", "_check_given_time", "_job_state", "_is_suspended", "_session_tenant", "_history_start",
    "_has_labels",
    "_extract_uuid_time", "_wake_lock_key", "_wake_channel", "_lock_class_wakeup", "_name_lock_channel",
    "_check_command_of_caller", "_check_sql_command", "_refuse_schedule", "_may_write_sql_commands",
    "_make_schedule_definition", "parse_cron", "is_valid_cron", "_check_cron_names_a_day", "next_run",
    "_find_next_instant", "prev_run", "cron_between", "cron_matches", "cron_upcoming", "cron_window",
    "_cron_measure_window", "_cron_describe_frequency", "_caller", "sees_all_tenants", "current_tenant",
    "_find_visible_tenant", "_read_visible_tenant", "_is_role_binding", "_hash_role_binding", "_refuse_tenant",
    "_may_see_all_tenants", "_count_ready_entries_read", "_has_sleeping_worker", "failure_key",
}  # fmt: skip
NEW_JOB = """{"id": "%(new)s", "type": "t", "tenant": "b", "payload": {}, "queue": "q", "priority": 0,
  "max_attempts": 2, "version": 1}"""
SCHEDULE = """{"name": "new", "every": "1 hour", "type": "t", "tenant": "b", "hash": "1"}"""
# The arguments with which each function is called. %(name)s stands for a value of the site.
CALLS: dict[str, tuple[str, ...]] = {
    "enqueue": (
        "'t', tenant => 'b'", "'t', limit_keys => '{tenant:b}'", "'t', depends_on => '{%(waiting)s}'",
        """'t', '{"x": 1}', queue => 'fresh', route_by => '{x}', token_group => 'g'""",
        """'t', '{"x": 1}', runs_on => '{"new": "label"}'""", """'t', '{"x": 1}', ordered_by => '{x}'""",
        """'t', '{"x": 1}', queue => 'slow', limit_keys => '{"shared:{x}"}'""", "'t', id => '%(waiting)s'",
    ),
    "enqueue_many": (f"'[{NEW_JOB}]'",),
    "enqueue_from": ("'pg_temp.given'",),
    "_enqueue_rows": (
        f"ARRAY[jsonb_populate_record(NULL::watchbill.new_job, '{NEW_JOB}')], false, true, false, NULL, NULL",
    ),
    "_enqueue_plain": (
        "'t', '{}', 'q', 0::smallint, 'b', 10::smallint, NULL, 1, '%(new)s', NULL, NULL",
    ),
    "_enqueue_plain_many": (
        """'t', 'q', 0::smallint, 'b', 10::smallint, NULL, 1, NULL, NULL, '{%(new)s}', '{"{}"}'""",
    ),
    "ensure_limits": ("""'app', '[{"name": "mine", "max": 1}]', '[{"name": "slow", "max": 1}]'""",),
    **dict.fromkeys(
        (
            "job_by_id", "job_attempts", "job_steps", "job_log", "watch", "ancestors", "dependency_graph",
            "_read_job_ending", "why_job", "_job_seq",
        ),
        ("'%(done)s'", "'%(child)s'", "'%(running)s'"),
    ),
    "job_page": ("", """'[{"field": "tenant", "operator": "=", "values": ["b"]}]'"""),
    "_list_ends": ("since => now() - interval '1 minute'",),
    "audit_list": ("", "tenant => 'b'"),
    "job_list": ("", "tenant => 'b'", "ids => '{%(done)s,%(waiting)s}'"),
    "dead_groups": ("", "tenant => 'b'"),
    "why_jobs": ("", "tenant => 'b'", "'default'"),
    "stats": ("",),
    "_describe_job_wait": ("0, NULL, false, 'default', 'type_b', 0, NULL",),
    "cancel": ("'%(waiting)s'", "'%(running)s'", "'%(running)s', force => true"),
    "_cancel_job": ("'%(waiting)s', NULL, false", "'%(running)s', NULL, true"),
    "reschedule": ("'%(waiting)s', '2031-01-01'", "'%(done)s'"),
    "_change_job": ("'%(waiting)s', 7", "'%(waiting)s', queue => 'other'"),
    "release": ("'%(running)s'",),
    "_release_job": ("'%(running)s'",),
    "wake": ("'%(asleep)s'",),
    "reschedule_many": ("'{succeeded,dead,queued,failed}'", "'{succeeded}', tenant => 'b'", "'{dead}', ids => '{%(dead)s}'"),  # noqa: E501
    "purge": ("'{succeeded,dead}'", "'{succeeded}', tenant => 'b'", "'{dead}', ids => '{%(dead)s}'"),
    "start_operation": ("""'cancel', '[{"field": "tenant", "operator": "=", "values": ["b"]}]'""",),
    "run_operations": ("",),
    "pause_operation": ("%(operation)s",),
    "add_operation_items": ("%(operation)s, '[]'",),
    "preview_backfill": (
        """'{"schedule": "nightly_b", "tenant": "b", "from": "2025-01-01T00:00:00+00:00",'
        ' "until": "2025-01-02T00:00:00+00:00"}'""",
    ),
    "_begin_verification": ("clock_timestamp()",),
    "_end_verification": ("1.0, NULL",),
    "_list_chores": ("",),
    "resume_operation": ("%(paused_operation)s",),
    "cancel_operation": ("%(operation)s",),
    "prune_operations": ("'1 hour'",),
    "add_api_key": ("'00000001', sha256('x'), 'new', 'producer', 'b'", "'00000002', sha256('x'), 'new', 'reader'"),
    "revoke_api_key": ("'shopkey1'", "'keyofb01'"),
    "api_key_list": ("",),
    "_use_api_key": ("'shopkey1', sha256('hush')", "'keyofb01', NULL", "'shopkey1', NULL"),
    "save_filter": ("'jobs', 'mine', 'state:dead', 'b'",),
    "saved_filter_list": ("", "'jobs', 'b'"),
    "remove_filter": ("%(filter)s, 'b'", "%(filter)s"),
    "add_chart_mark": ("'deploy'",),
    "chart_mark_list": ("",),
    "remove_chart_mark": ("%(mark)s",),
    "prune_web": ("'1 hour'",),
    **dict.fromkeys(
        ("alert_rule_list", "alert_route_list", "alert_delivery_list", "silence_list"),
        ("",),
    ),
    **dict.fromkeys(("_claim_alert_deliveries", "_find_next_delivery"), ("ARRAY['slack', 'log']",)),
    "alert_list": ("", "id => 1"),
    "_report_clock_skew": ("%(epoch)s, 9",),
    "set_alert_rule": ("'backlog', above => 9",),
    "reset_alert_rule": ("'oldest'",),
    "set_alert_route": ("'log', 'log'",),
    "remove_alert_route": ("'chat'",),
    "test_alert_route": ("'chat'",),
    "add_silence": ("""'{"rule": "backlog"}', '1 hour'""",),
    "end_silence": ("%(silence)s",),
    "_end_alert_delivery": ("'%(delivery)s', 1",),
    "pause": ("'default'", "type => 'type_b'"),
    "resume": ("'stopped'",),
    "drain": ("'node'",),
    "set_limit": ("'shared', 9", "'tenant:b', 9", "'queue:default', 9"),
    "set_endpoint": (
        """'hush', '{"max": 1}', 'b'""", """'hush', '{"base_url": "https://x.example"}', 'b'""",
        """'new', '{"base_url": "https://x.example"}', 'b'""",
    ),
    "remove_endpoint": ("'hush', 'b'",),
    "endpoint_list": ("", "'b'", "'b', 'hush'"),
    "_read_endpoint": ("'b', 'hush'",),
    "_report_endpoint": ("'b', 'hush', 'gone'",),
    "declare_endpoints": (
        """%(epoch)s, '[{"name": "hush", "tenant": "b", "base_url": "https://x.example", "max": 1}]'""",
    ),
    "clear_limit": ("'changed'", "'tenant:b'", "'queue:slow'"),
    "set_tenant": ("""'b', '{"unfinished": 1}'""", """'a', '{"unfinished": 1}'"""),
    "tenant_list": ("", "'b'"),
    "heartbeat_load": ("",),
    "erase_tenant": ("'b'", "'a'"),
    "preview_erasure": ("'b'",),
    "_start_leaving": ("'b', 'other'", "'a', 'other'"),
    "_read_leaving": ("'b'", "'a'"),
    "_depart_tenant": ("'b'", "'a'"),
    "_read_moved_rows": ("'b', gen_random_uuid(), 0, 9", "'a', gen_random_uuid(), 0, 9"),
    "_finish_leaving": ("'b', gen_random_uuid()", "'a', gen_random_uuid()"),
    "_expect_tenant": ("'b', 'other', gen_random_uuid()", "'a', 'other', gen_random_uuid()"),
    "_receive_rows": ("'b', gen_random_uuid(), '[]'", "'a', gen_random_uuid(), '[]'"),
    "_arrive_tenant": ("'b', gen_random_uuid(), 0", "'a', gen_random_uuid(), 0"),
    "_end_arrival": ("'b', gen_random_uuid()", "'a', gen_random_uuid()"),
    "_list_tenant_moves": ("", "'b'"),
    "limit_list": ("",),
    "limit_keys": ("'shared'",),
    "limit_holders": ("'shared'",),
    "queue_rules": ("",),
    "_describe_caller": ("",),
    "_describe_blind_caller": ("",),
    "preview_retention": ("",),
    "register": ("'mine'", "'node', take_over => true"),
    "extend_node": ("""%(epoch)s, '{"t": 1}', '{q}'""",),
    "heartbeat": ("%(epoch)s", """%(epoch)s, '[{"id": "%(running)s", "fence": %(fence)s, "age": 1}]'"""),
    "stop_requests": ("%(epoch)s", "%(epoch)s, '{%(running)s}', '{%(fence)s}'"),
    "_watched_jobs": ("'{%(running)s}'",),
    "_show_runs": ("""%(epoch)s, '[{"id": "%(running)s", "fence": %(fence)s, "age": 1, "lines": "x"}]'""",),
    "_store_logs": ("'{%(running)s}', '{%(fence)s}', '{x}'",),
    "declare_limits": ("""%(epoch)s, '[{"name": "new", "max": 1, "hash": "1"}]'""",),
    "declare_queues": ("""%(epoch)s, '[{"name": "new", "max": 1, "hash": "1"}]'""",),
    "leave": ("%(epoch)s",),
    "release_unknown": ("%(epoch)s, '{}'", "%(silent)s, '{}'"),
    "claim": ("%(epoch)s, max => 9", "%(epoch)s, max => 9, for_tenant => 'b'"),
    "_renew_facade_worker": ("'jcron', 'w', 1",),
    "_claim_for_session": ("%(epoch)s, 'default', 9", "%(epoch)s, 'default', 9, NULL, 'b'"),
    "_claim_for_api": ("%(epoch)s, '{default}', 5",),
    "settle": (
        "%(epoch)s, '{%(running)s}', '{%(fence)s}'", "%(epoch)s, '{}', '{}', closed => '{%(fence)s,%(stale_fence)s}'",
    ),
    "complete": ("'%(running)s', %(fence)s",),
    "_set_artifacts": ("'{%(running)s}', '{%(fence)s}', '{x}'",),
    "fail": ("'%(running)s', %(fence)s",),
    "guard": ("'%(running)s', %(fence)s",),
    "save_steps": (
        "'{%(running)s}', '{%(fence)s}', '{new}', '{run}', '{done}', '{1}', '{1}', '{1}', '{1}'",
        "'{%(running)s}', '{%(fence)s}', '{nap}', '{sleep}', '{done}', '{1}', '{1}', '{1}', '{1}'",
    ),
    "load_steps": ("'{%(running)s,%(asleep)s}'",),
    "_save_result": ("'%(running)s', %(fence)s, 'new', 9, 1, NULL, 1, false, '7'",),
    "save_step": ("'%(running)s', %(fence)s, 'new'",),
    "rewind": ("'%(asleep)s', 'nap'", "'%(done)s', 'nap'"),
    "await_jobs": ("'%(running)s', %(fence)s, 'wait', 9, '{%(waiting)s}'",),
    "restart": ("'%(running)s', %(fence)s, '{}'",),
    "collect_jobs": ("'%(running)s', %(fence)s, 'nap', 9",),
    "receive": ("'%(running)s', %(fence)s, 'answer', 9, '{approval}'",),
    "signal": ("'%(running)s', 'approval'", "'%(asleep)s', 'approval'", "'%(done)s', 'approval'"),
    "signal_by_key": ("'type_b', 'k', 'approval', tenant => 'b'",),
    "waiting_steps": ("", "tenant => 'b'"),
    "locked_jobs": ("'{%(running)s}'",),
    "unblock": ("", "'{%(child)s}'"),
    "promote": ("",),
    "reclaim": ("'{%(silent)s}', '{0}'", ""),
    "_declare_lost": ("'{%(silent)s}', '{0}'",),
    "expire_node": ("%(epoch)s, 0", "%(silent)s, 0"),
    "expire_unsupported": ("'1 second'",),
    "unpark": ("'{shared:x}'",),
    "sweep_limits": ("",),
    "refresh_quotas": ("true",),
    "unpark_paused": ("",),
    "sweep_claims": ("'1 second'",),
    "sweep_dependencies": ("",),
    "sweep_steps": ("",),
    "_report_tally": ("%(epoch)s, 7, '[]'",),
    "_observe": ("",),
    "rebuild_figures": ("clock_timestamp()",),
    "figure_list": ("", "'tenant', 'minute'", "'queue', 'minute'"),
    "sample_list": ("'tenant'", "'queue'"),
    "metric_list": ("",),
    "archive_list": ("",),
    "_list_detached_days": ("",),
    "_read_detached_day": ("'attempts_20200505', 0, 1",),
    "_end_archive": ("'attempts_20200505', '/a', 1, 1, sha256('x')",),
    "_is_archiving": ("",),
    "_count_page_items": ("",),
    "_list_endings": ("'tenant', 'b', clock_timestamp() - interval '1 hour', '1 minute'",),
    "_list_queue_figures": ("", "'slow'"),
    "_list_page_jobs": ("'{%(done)s,%(dead)s,%(waiting)s}'",),
    "_keep_notification": ("'%(running)s', %(fence)s, '%(waiting)s', clock_timestamp(), '{}'",),
    "failure_list": ("", "tenant => 'b'"),
    "_survey": ("%(epoch)s, '{default}'",),
    "lock_acquire": ("'free'", "'shop'"),
    "_acquire_lock": (
        "'free', '1 minute', 'me', NULL, NULL, false", "'shop', '1 minute', 'me', NULL, NULL, true",
        "'leader/g', NULL, 'me', %(epoch)s, NULL, false",
    ),
    "lock_renew": ("'shop', %(lock)s, '1 hour'",),
    "lock_release": ("'shop'", "'shop', %(lock)s", "'leader/g'"),
    "lock_check": ("'shop', %(lock)s", "'leader/g', %(term)s"),
    "elect": ("%(epoch)s, '{other}'",),
    "_withdraw_candidate": ("%(epoch)s",),
    "prune_locks": ("'1 hour'",),
    "_lock_end": ("%(epoch)s, NULL",),
    "declare_group": ("'mine'", "'g', min_nodes => 3"),
    "remove_group": ("'empty'",),
    "join_group": ("%(epoch)s, 'empty'",),
    "leave_group": ("%(epoch)s, 'g'",),
    "rebalance": ("'g', %(term)s, %(epoch)s",),
    "pass_tokens": ("%(epoch)s, 'g'",),
    "request_rebalance": ("'g'",),
    "member_state": ("%(epoch)s, 'g'",),
    "pin": ("""'g', '[{"key": "k", "pattern": "node"}]'""",),
    "clear_pins": ("'g'",),
    "pin_list": ("'g'",),
    "claim_items": ("%(epoch)s, 'g', '{new}'",),
    "check_item": ("'g', 'item', %(item_fence)s",),
    "finish_items": ("'g', '{item}', '{%(item_fence)s}'",),
    "item_audit": ("'g'",),
    "incomplete_items": ("'g'",),
    "prune_items": ("'1 hour'",),
    "_forget_rebalances": ("'{%(rebalance)s}'",),
    "route_queue": ("'fresh', 'g'",),
    "group_list": ("",),
    "token_owners": ("'g'",),
    "token_ranges": ("'g'",),
    "rebalance_list": ("'g'",),
    "make_partitions": ("9",),
    "_make_slot_partitions": ("9",),
    "prune_history": ("'attempts', '1 hour'",),
    "prune_audit": ("'1 hour'",),
    "prune_nodes": ("'1 hour'",),
    "_delete_ended_nodes": ("'{%(ended)s}'",),
    "prune_keys": ("",),
    "prune_slots": ("'1 hour'",),
    "add_schedule": ("'nightly_b', '@daily', 't', tenant => 'b'", "'new', '@daily', 't', tenant => 'b'"),
    "add_schedule_from": (f"'{SCHEDULE}'::jsonb - 'hash'",),
    "_store_schedule": (f"'{SCHEDULE}'::jsonb - 'hash', NULL",),
    "update_schedule": ("""'nightly_b', '{"description": "x"}', 'b'""",),
    "_change_schedule": ("""'nightly_b', '{"description": "x"}', 'b', NULL""",),
    "declare_schedules": (f"%(epoch)s, '[{SCHEDULE}]'", """%(epoch)s, '[{"name": "x", "type": "t", "hash": "1"}]'"""),
    "_store_declared_schedules": (
        f"%(epoch)s, '[{SCHEDULE}]', NULL", """%(epoch)s, '[{"name": "x", "type": "t", "hash": "1"}]', NULL""",
    ),
    **dict.fromkeys(("remove_schedule", "disable_schedule", "enable_schedule", "run_schedule"), ("'nightly_b', 'b'",)),
    **dict.fromkeys(("schedule_by_name", "slot_list", "why_schedule"), ("'nightly_b', 'b'",)),
    "schedule_list": ("", "'b'"),
    "schedule_metrics": ("'nightly_b', tenant => 'b'",),
    "preview_schedule": ("'nightly_b', tenant => 'b'",),
    "preview_schedule_from": (f"'{SCHEDULE}'::jsonb - 'hash'",),
    "schedule_stats": ("",),
    "_list_invalid_schedules": ("5",),
    "_count_schedule_slots": ("%(schedule)s",),
    "_count_failed_attempts": ("%(schedule)s",),
    "_find_orphans": ("'{%(schedule)s}'",),
    "_is_schedule_changed": ("(SELECT s FROM watchbill.schedules s WHERE s.id = %(schedule)s)",),
    "tick": ("", "for_tenant => 'b'"),
    "start_cluster": ("%(epoch)s",),
    "_has_stale_declaration": ("%(epoch)s",),
    "_release_orphans": ("",),
    "_find_job_command": ("'%(running)s'", "'%(waiting)s'"),
    "_add_chain_end": ("'%(running)s', '{%(waiting)s}', '{%(waiting)s}'",),
}  # fmt: skip
# What tenants share: a bound role may not call these, whatever they would change.
REFUSED = {
    "pause", "resume", "drain", "set_limit", "clear_limit", "set_tenant", "erase_tenant", "preview_erasure", "register",
    "_start_leaving", "_read_leaving", "_depart_tenant", "_read_moved_rows", "_finish_leaving", "_expect_tenant",
    "_receive_rows", "_arrive_tenant", "_end_arrival", "_list_tenant_moves",
    "extend_node", "heartbeat", "declare_limits", "declare_queues", "declare_endpoints", "leave",
    "release_unknown", "_renew_facade_worker", "_claim_for_session", "settle", "unblock", "promote", "reclaim",
    "_declare_lost", "expire_node", "_show_runs", "_store_logs",
    "expire_unsupported", "unpark", "sweep_limits", "refresh_quotas", "unpark_paused", "sweep_claims",
    "sweep_dependencies", "sweep_steps", "lock_acquire", "_acquire_lock", "lock_renew", "lock_release", "lock_check",
    "elect",
    "_withdraw_candidate", "prune_locks", "declare_group", "remove_group", "join_group", "leave_group", "rebalance",
    "pass_tokens", "request_rebalance", "pin", "clear_pins", "claim_items", "check_item", "finish_items", "prune_items",
    "_forget_rebalances", "route_queue", "make_partitions", "_make_slot_partitions", "prune_history", "prune_audit",
    "prune_nodes", "_delete_ended_nodes", "prune_keys", "prune_slots", "declare_schedules", "_store_declared_schedules",
    "start_cluster", "_release_orphans", "_report_tally", "_observe", "rebuild_figures", "prune_operations",
    "_begin_verification", "_end_verification",
    "_list_detached_days", "_read_detached_day", "_end_archive", "_is_archiving",
    "add_api_key", "revoke_api_key", "_use_api_key", "add_chart_mark", "remove_chart_mark", "prune_web",
    "set_alert_rule", "reset_alert_rule", "set_alert_route", "remove_alert_route", "test_alert_route", "add_silence",
    "end_silence", "_claim_alert_deliveries", "_end_alert_delivery", "_report_clock_skew",
}  # fmt: skip
# They change nothing; guard() and locked_jobs() lock jobs. For _keep_notification() there is no delivery here,
# for add_operation_items() no operation that takes items.
READ = {
    "_count_failed_attempts", "_count_schedule_slots", "_describe_blind_caller", "_describe_caller",
    "_list_ends", "audit_list",
    "_describe_job_wait", "_find_job_command", "_find_orphans", "_has_stale_declaration", "_list_invalid_schedules",
    "_is_schedule_changed", "_job_seq", "_lock_end", "_read_job_ending", "_survey", "_watched_jobs", "ancestors",
    "dead_groups",
    "dependency_graph", "endpoint_list", "_read_endpoint", "group_list", "guard", "heartbeat_load",
    "incomplete_items", "item_audit", "job_attempts", "job_by_id", "job_list", "job_log", "job_page", "job_steps",
    "limit_holders", "limit_keys", "limit_list", "load_steps", "locked_jobs", "member_state", "pin_list",
    "preview_retention", "waiting_steps", "preview_schedule", "preview_schedule_from", "queue_rules", "rebalance_list",
    "schedule_by_name", "schedule_list", "schedule_metrics", "schedule_stats", "slot_list", "stats", "stop_requests",
    "tenant_list", "token_owners", "token_ranges", "why_job", "why_jobs", "why_schedule",
    "figure_list", "sample_list", "metric_list", "archive_list",
    "failure_list", "api_key_list", "saved_filter_list", "chart_mark_list",
    "alert_list", "alert_rule_list", "alert_route_list", "_count_page_items", "_list_endings", "_list_queue_figures",
    "_list_page_jobs",
    "_keep_notification", "add_operation_items", "preview_backfill", "_list_chores",
    "alert_delivery_list", "silence_list", "_find_next_delivery",
}  # fmt: skip
INVALID_CALLS = ("42601", "42703", "42883", "42P01", "42725", "42804", "22023", "22P02", "23502")

# A site in which every chore finds something to do: each statement makes something of tenant `b`, or that is shared.
BUILD = f"""
CREATE FUNCTION pg_temp.past() RETURNS timestamptz LANGUAGE sql AS $$ SELECT clock_timestamp() - interval '40 days' $$;
CREATE TEMP TABLE site (name text, value text);
CREATE FUNCTION pg_temp.keep(name text, value anyelement) RETURNS void LANGUAGE sql
AS $$ INSERT INTO pg_temp.site VALUES (name, value) $$;
CREATE FUNCTION pg_temp.make(queue text DEFAULT 'default', more jsonb DEFAULT '{{}}') RETURNS uuid LANGUAGE sql
AS $$ SELECT e.id FROM watchbill.enqueue_many(jsonb_build_array(
  '{{"type": "type_b", "tenant": "b", "payload": {{"word": "{SECRET}"}}}}'
  || jsonb_build_object('queue', queue) || more)) e $$;
CREATE FUNCTION pg_temp.find(name text) RETURNS bigint LANGUAGE sql
AS $$ SELECT s.value::bigint FROM pg_temp.site s WHERE s.name = find.name $$;
SELECT watchbill.ensure_limits('app', '[{{"name": "shared", "max": 1}}]', '[{{"name": "slow", "max": 1}}]'),
  watchbill.set_limit('changed', 2), watchbill.set_limit('queue:slow', 2), watchbill.pause('stopped'),
  watchbill.set_tenant('b', '{{"unfinished": 1000, "running": 100}}');
SELECT pg_temp.keep('epoch', watchbill.register('node', app => 'app', lease => '1 hour'));
SELECT pg_temp.keep('silent', watchbill.register('silent', app => 'app', now => pg_temp.past()));
SELECT pg_temp.keep('ended', watchbill.register('ended', now => pg_temp.past()));
SELECT watchbill.leave(value::bigint, now => pg_temp.past()) FROM site WHERE name = 'ended';

SELECT pg_temp.keep('done', pg_temp.make('one')), pg_temp.keep('dead', pg_temp.make('one'));
DO $$
DECLARE j record;
BEGIN
  FOR j IN SELECT * FROM watchbill.claim(pg_temp.find('epoch'), '{{one}}', 2) LOOP
    IF j.id::text = (SELECT value FROM site WHERE name = 'done') THEN
      PERFORM watchbill.complete(j.id, j.fence, '"{SECRET}"');
    ELSE
      PERFORM watchbill.fail(j.id, j.fence, '{{"message": "{SECRET}"}}', retryable => false);
    END IF;
  END LOOP;
END $$;
SELECT pg_temp.keep('running', pg_temp.make('two', '{{"limit_keys": ["shared:x"]}}'));
SELECT pg_temp.keep('fence', c.fence) FROM watchbill.claim(pg_temp.find('epoch'), '{{two}}') c;
SELECT watchbill.cancel(value::uuid) FROM site WHERE name = 'running';
SELECT pg_temp.keep('asleep', pg_temp.make('five'));
INSERT INTO watchbill.steps (job_id, tenant, name, seq, kind, state, fence, run, version, tries, wake_at, result)
SELECT value::uuid, 'b', 'nap', 1, 'sleep', 'waiting', 1, 1, 1, 1, '2099-01-01', '"{SECRET}"' FROM site
WHERE name IN ('running', 'asleep');
INSERT INTO watchbill.steps (job_id, tenant, name, seq, kind, state, fence, run, version, tries)
SELECT gen_random_uuid(), 'b', 'gone', 1, 'run', 'done', 1, 1, 1, 1;
UPDATE watchbill.jobs SET wait = 'delayed', wait_key = 'steps', run_at = '2099-01-01'
WHERE id::text = (SELECT value FROM site WHERE name = 'asleep');
SELECT pg_temp.make('three');
SELECT FROM watchbill.claim(pg_temp.find('silent'), '{{three}}', now => pg_temp.past());
INSERT INTO watchbill.claims (fence, epoch, job_ids, at)
SELECT 99, value::bigint, ARRAY[gen_random_uuid()], pg_temp.past() FROM site WHERE name = 'epoch';
SELECT pg_temp.keep('stale_fence', 99);
SELECT pg_temp.keep('waiting', pg_temp.make()), pg_temp.keep('new', watchbill.uuid7());
SELECT pg_temp.keep('child', pg_temp.make('default', jsonb_build_object('depends_on', ARRAY[value]))) FROM site
WHERE name = 'waiting';
SELECT pg_temp.make('ended', jsonb_build_object('depends_on', ARRAY[value])) FROM site WHERE name = 'waiting';
SELECT watchbill.enqueue('type_b', tenant => 'b', queue => 'late', delay => '1 minute', now => pg_temp.past());
SELECT watchbill.enqueue('type_b', tenant => 'b', queue => 'keyed', idempotency_key => 'k',
  idempotency_window => '1 hour', now => pg_temp.past());
UPDATE watchbill.jobs SET wait = 'parked', wait_key = 'free:x', limit_keys = '{{free:x}}'
WHERE id = pg_temp.make('four');
UPDATE watchbill.jobs SET wait = 'parked', wait_key = 'shared:x', limit_keys = '{{shared:x}}'
WHERE id = pg_temp.make('four');
UPDATE watchbill.jobs SET wait = 'paused', wait_key = 'gone:type_b' WHERE id = pg_temp.make('gone');
SELECT watchbill.add_schedule('nightly_b', '@hourly', 'type_b', payload => '{{"word": "{SECRET}"}}', tenant => 'b',
  now => pg_temp.past());
SELECT pg_temp.keep('schedule', id) FROM watchbill.schedules;
SELECT watchbill.add_schedule('held_b', '@hourly', 'type_b', tenant => 'b', now => pg_temp.past());
UPDATE watchbill.timers t SET held_slot = next_run, next_run = NULL FROM watchbill.schedules s
WHERE s.id = t.schedule_id AND s.name = 'held_b';
SELECT watchbill.set_endpoint('{SECRET}', '{{"base_url": "https://{SECRET}.example"}}', 'b');
INSERT INTO watchbill.api_keys (id, hash, name, role, tenant, created_by, created_at) VALUES
  ('shopkey1', sha256('{SECRET}'), '{SECRET}', 'reader', NULL, 'x', pg_temp.past()),
  ('keyofb01', sha256('b'), '{SECRET} of b', 'reader', 'b', 'x', pg_temp.past());
SELECT pg_temp.keep('filter', watchbill.save_filter('jobs', 'theirs', '{SECRET}', 'b')),
  pg_temp.keep('mark', watchbill.add_chart_mark('deploy', pg_temp.past()));
INSERT INTO watchbill.audit (at, actor, action, subject, tenant)
VALUES (pg_temp.past(), 'x', 'x', 'x', 'b'), (pg_temp.past(), 'x', 'x', 'x', NULL);

CREATE FUNCTION pg_temp.begin(started timestamptz) RETURNS bigint LANGUAGE sql
AS $$ SELECT watchbill.start_operation(
  'cancel', '[{{"field": "type", "operator": "=", "values": ["type_b"]}}]', now => started) $$;
SELECT pg_temp.keep('operation', pg_temp.begin(NULL)), pg_temp.keep('paused_operation', pg_temp.begin(NULL));
SELECT watchbill.pause_operation(pg_temp.find('paused_operation'));
SELECT watchbill.cancel_operation(pg_temp.begin(pg_temp.past()), now => pg_temp.past());

INSERT INTO watchbill.alerts (rule, subject, tenant, severity, state, since, fired_at, reason)
VALUES ('endpoint_disabled', '{SECRET}', 'b', 'warning', 'firing', now(), now(), '{SECRET}');
SELECT watchbill.set_alert_rule('oldest', above => 9), watchbill.set_alert_route('chat', 'slack', 'env:{SECRET}');
SELECT pg_temp.keep('silence', watchbill.add_silence('{{"subject": "{SECRET}"}}', '1 hour'));
SELECT pg_temp.keep('delivery', watchbill.test_alert_route('chat'));
SELECT watchbill._report_clock_skew(value::bigint, 9) FROM site WHERE name = 'epoch';

SELECT pg_temp.keep('lock', watchbill.lock_acquire('shop', '1 hour'));
SELECT watchbill.lock_acquire('old', now => pg_temp.past());
SELECT watchbill.lock_release('old', now => pg_temp.past());
SELECT watchbill.declare_group('g', 10), watchbill.declare_group('empty', 10);
SELECT watchbill.join_group(value::bigint, 'g') FROM site WHERE name = 'epoch';
SELECT pg_temp.keep('term', e.term) FROM site s, watchbill.elect(s.value::bigint, '{{g}}') e WHERE s.name = 'epoch';
SELECT FROM site s, watchbill.rebalance('g', pg_temp.find('term'), s.value::bigint)
WHERE s.name = 'epoch';
SELECT watchbill.pin('g', '[{{"key": "k", "pattern": "node"}}]');
SELECT pg_temp.keep('item_fence', i.fence) FROM site s, watchbill.claim_items(s.value::bigint, 'g', '{{item}}') i
WHERE s.name = 'epoch';
SELECT pg_temp.keep('rebalance', id) FROM watchbill.rebalances LIMIT 1;
"""

# What BUILD makes of tenant `b`, of tenant `a` and under the same names.
OWN_JOBS = """
DELETE FROM pg_temp.site WHERE name IN ('done', 'dead', 'running', 'fence', 'waiting', 'child', 'schedule', 'new');
CREATE FUNCTION pg_temp.make_own(queue text, more jsonb DEFAULT '{}') RETURNS uuid LANGUAGE sql
AS $$ SELECT e.id FROM watchbill.enqueue_many(jsonb_build_array(
  '{"type": "type_a", "tenant": "a", "payload": {}}' || jsonb_build_object('queue', queue) || more)) e $$;
SELECT pg_temp.keep('done', pg_temp.make_own('own')), pg_temp.keep('dead', pg_temp.make_own('own'));
DO $$
DECLARE j record;
BEGIN
  FOR j IN SELECT * FROM watchbill.claim(pg_temp.find('epoch'), '{own}', 2) LOOP
    IF j.id::text = (SELECT value FROM site WHERE name = 'done') THEN
      PERFORM watchbill.complete(j.id, j.fence);
    ELSE
      PERFORM watchbill.fail(j.id, j.fence, '{}', retryable => false);
    END IF;
  END LOOP;
END $$;
SELECT pg_temp.keep('running', pg_temp.make_own('own', '{"limit_keys": ["shared:y"]}'));
SELECT pg_temp.keep('fence', c.fence) FROM watchbill.claim(pg_temp.find('epoch'), '{own}') c;
SELECT pg_temp.keep('waiting', pg_temp.make_own('own')), pg_temp.keep('new', watchbill.uuid7());
SELECT pg_temp.keep('child', pg_temp.make_own('own', jsonb_build_object('depends_on', ARRAY[value]))) FROM site
WHERE name = 'waiting';
SELECT pg_temp.keep('schedule', watchbill.add_schedule('nightly_a', '@hourly', 'type_a', tenant => 'a'));
UPDATE pg_temp.given SET tenant = 'a';
"""
OWN_NAMES = {"'b'": "'a'", '"b"': '"a"', "tenant:b": "tenant:a", "nightly_b": "nightly_a", "type_b": "type_a"}


# What is equal for every caller, whoever needs it first: texts that are stored once and referred to.
SHARED_TEXTS = {"compiled_patterns", "label_sets", "policies", "zones"}
ROWS_OF_A = {  # by a column of the table
    "tenant": "x.tenant IS DISTINCT FROM 'a'",
    "schedule_id": "x.schedule_id NOT IN (SELECT s.id FROM watchbill.schedules s WHERE s.tenant = 'a')",
}


class Site:
    """An installation with row security. A session of the superuser calls functions as other roles."""

    def __init__(self, logins: Logins) -> None:
        self.logins = logins
        self.session = psycopg.connect(logins.owner_url, autocommit=True)
        self.session.execute(BUILD.encode())
        self.values: dict[str, str] = dict(self.session.execute("SELECT name, value FROM pg_temp.site").fetchall())
        self.ids = {self.values[name] for name in ("done", "dead", "running", "waiting", "child", "asleep")}
        self.session.execute("CREATE TEMP TABLE given OF watchbill.new_job")
        self.session.execute(
            "INSERT INTO pg_temp.given (type, tenant) VALUES ('t', 'b'); GRANT SELECT ON given TO PUBLIC"
        )
        tables = self.session.execute("""
            SELECT c.relname, array_agg(a.attname::text) FROM pg_class c JOIN pg_attribute a ON a.attrelid = c.oid
            WHERE c.relnamespace = 'watchbill'::regnamespace AND c.relkind IN ('r', 'p') AND NOT c.relispartition
            GROUP BY 1 ORDER BY 1""").fetchall()
        self.digest = " UNION ALL ".join(
            f"(SELECT '{name}', md5(string_agg(x::text, '|' ORDER BY x::text)) FROM watchbill.{name} x WHERE {which})"
            for name, columns in tables
            if name not in SHARED_TEXTS
            for which in [next((text for column, text in ROWS_OF_A.items() if column in columns), "true")]
        ).encode()
        self.before = self.read()
        # PostgreSQL lets them change nothing.
        stable = """
            SELECT p.proname FROM pg_proc p
            WHERE p.pronamespace = 'watchbill'::regnamespace GROUP BY 1 HAVING bool_and(p.provolatile <> 'v')"""
        self.stable = {name for (name,) in self.session.execute(stable).fetchall()}

    def read(self) -> dict[str, Any]:
        found: dict[str, Any] = dict(self.session.execute(self.digest, prepare=True).fetchall())
        partitions = "SELECT count(*)::text FROM pg_class WHERE relnamespace = 'watchbill'::regnamespace"
        return found | {"partitions": self.session.execute(partitions.encode()).fetchall()}

    def call(self, name: str, arguments: str, role: str | None) -> tuple[str, list[str]]:
        """What the call returns or raises, and the tables that it changes; undone afterwards."""
        begin = "BEGIN; SET LOCAL watchbill.tenant = 'a';" if role else "BEGIN;"
        if role:
            begin += f'SET LOCAL SESSION AUTHORIZATION "{self.logins.database}_{role}"'
        self.session.execute(begin.encode())
        try:
            answer = repr(self.session.execute(f"SELECT * FROM watchbill.{name}({arguments})".encode()).fetchall())
            self.session.execute("RESET SESSION AUTHORIZATION")
            after = self.before if name in self.stable else self.read()
            return answer, [table for table, digest in after.items() if digest != self.before[table]]
        except psycopg.Error as error:
            if error.sqlstate in INVALID_CALLS:
                raise
            return f"{error.sqlstate} {error}", []
        finally:
            self.session.execute("ROLLBACK")


@pytest.fixture(scope="module")
def site(server: Server) -> Iterator[Site]:
    url = server.url(server.create_database(template(server)))
    with make_logins(server, url) as logins:
        for kind in ROLE_KINDS:
            logins.add(f"bound_{kind}", kind)
            role = sql.Literal(f"{logins.database}_bound_{kind}")
            logins.run(
                sql.SQL("INSERT INTO watchbill.tenant_roles VALUES (quote_ident({})::regrole, 'a')").format(role)
            )
        logins.add("operator_of_two", "operator")
        with Connection.connect(url, autocommit=True) as owner:
            for tenant in ("a", "c"):
                bind_role(owner, "watchbill", f"{logins.database}_operator_of_two", tenant)
        enable_tenants(url, "watchbill")
        made = Site(logins)
        with made.session:
            yield made


def test_every_function_that_a_role_may_call_is_called_here() -> None:
    callable_ones = {name for name, right in STATED.items() if right.roles}
    missing = callable_ones - CALLS.keys() - COMPUTE_VALUES
    assert not missing, (
        f"Give arguments for {sorted(missing)} in CALLS: those of another tenant, and of what tenants share. A bound"
        " role must be refused, or the effect must stay in its tenant. A function that only computes a value stands in"
        " COMPUTE_VALUES."
    )
    assert CALLS.keys() | COMPUTE_VALUES == callable_ones


def test_each_call_would_change_something_or_is_known_to_read(site: Site) -> None:
    """A role that sees all tenants calls them. Otherwise the next test would prove nothing about a new function."""
    idle = {
        name
        for name, arguments in CALLS.items()
        if not any(site.call(name, given % site.values, None)[1] for given in arguments)
    }
    assert idle - REFUSED == READ


@pytest.mark.parametrize("kind", ROLE_KINDS)
def test_bound_role_changes_and_learns_nothing_outside_its_tenant(site: Site, kind: str) -> None:
    faults = []
    for name, arguments in CALLS.items():
        for given in arguments if kind in STATED[name].roles else ():
            text = given % site.values
            answer, changed = site.call(name, text, f"bound_{kind}")
            told = [word for word in (SECRET, "type_b", *site.ids) if word in answer and word not in text]
            if changed or told or (name in REFUSED and not answer.startswith(("WB013", "42501"))):
                faults.append(f"{name}({text}) changes {changed}, tells {told}: {answer[:200]}")
    assert not faults, "\n".join(faults)


@pytest.mark.parametrize(
    ("role", "tenant"),
    [*((f"bound_{kind}", "a") for kind in ROLE_KINDS), ("bound_operator", ""), ("operator_of_two", "a")],
)
def test_bound_role_may_do_in_its_own_tenant_what_its_kind_may(site: Site, role: str, tenant: str) -> None:
    """Otherwise the test above would take a verb that never works for a refusal. Without the setting, the role acts
    for the only tenant that it is bound to; a tenant that a call does not name is then still `default`."""
    kind = role.removeprefix("bound_") if role != "operator_of_two" else "operator"
    names_none = "tenant 'default' is invalid here"
    faults, session = [], site.session
    session.execute("BEGIN")
    try:
        session.execute(OWN_JOBS.encode())
        own: dict[str, str] = dict(session.execute("SELECT name, value FROM pg_temp.site").fetchall())
        session.execute(
            f"""SET LOCAL watchbill.tenant = '{tenant}';
            SET LOCAL SESSION AUTHORIZATION "{site.logins.database}_{role}" """.encode()
        )
        for name, arguments in CALLS.items():
            for given in arguments if kind in STATED[name].roles and name not in REFUSED else ():
                text = given % own
                for of_b, of_a in OWN_NAMES.items():
                    text = text.replace(of_b, of_a)
                session.execute("SAVEPOINT before")
                try:
                    session.execute(f"SELECT * FROM watchbill.{name}({text})".encode())
                except psycopg.Error as error:
                    refusal = str(error.diag.message_primary)
                    if error.sqlstate in ("WB013", "42501") and (tenant or names_none not in refusal):
                        faults.append(f"{name}({text}): {refusal}")
                session.execute("ROLLBACK TO before")
    finally:
        session.execute("ROLLBACK")
    assert not faults, "\n".join(faults)


def test_bound_operator_does_not_choose_the_id_of_a_schedule(site: Site) -> None:
    """Slots follow the id: it would read those of a removed schedule of another tenant, and cancel their jobs."""
    session = site.session
    session.execute("BEGIN")
    try:
        session.execute("SELECT watchbill.run_schedule('nightly_b', 'b'), watchbill.remove_schedule('nightly_b', 'b')")
        session.execute(
            f"""SET LOCAL watchbill.tenant = 'a';
            SET LOCAL SESSION AUTHORIZATION "{site.logins.database}_bound_operator";
            INSERT INTO watchbill.schedules (id, tenant, name, type)
            VALUES ({site.values["schedule"]}, 'a', 'x', 't'), (1000000, 'a', 'y', 't')""".encode()
        )
        added = session.execute("SELECT watchbill.add_schedule('z', '@daily', type => 't')").fetchall()
        ids: dict[str, int] = dict(session.execute("SELECT name, id FROM watchbill.schedules").fetchall())
        assert int(site.values["schedule"]) < ids["x"] < ids["y"] < ids["z"] < 1000000
        assert added == [(ids["z"],)]
        assert session.execute("SELECT count(*) FROM watchbill.slot").fetchall() == [(0,)]
        with pytest.raises(psycopg.Error, match="its id cannot be changed"):
            session.execute(f"UPDATE watchbill.schedules SET id = {site.values['schedule']} WHERE name = 'x'".encode())
    finally:
        session.execute("ROLLBACK")


def test_bound_operator_names_no_other_writer_of_a_schedule(site: Site) -> None:
    """doctor looks for commands that bound roles have written."""
    session, login = site.session, f"{site.logins.database}_bound_operator"
    session.execute("BEGIN")
    try:
        session.execute(
            f"""SET LOCAL watchbill.tenant = 'a';
            SET LOCAL SESSION AUTHORIZATION "{login}";
            INSERT INTO watchbill.schedules (tenant, name, type, created_by) VALUES ('a', 'x', 't', 'root');
            SELECT watchbill.add_schedule('y', '@daily', type => 't', created_by => 'root');
            UPDATE watchbill.schedules SET created_by = 'root' WHERE name = 'x';
            SELECT watchbill.update_schedule('y', '{{"created_by": "root"}}');""".encode()
        )
        written = session.execute("SELECT name, created_by FROM watchbill.schedules WHERE name IN ('x', 'y')")
        assert dict(written.fetchall()) == {"x": login, "y": login}
        with pytest.raises(psycopg.errors.InsufficientPrivilege, match="schedule_seq"):
            session.execute("SELECT nextval('watchbill.schedule_seq')")
    finally:
        session.execute("ROLLBACK")


def test_bound_producer_fills_no_quota_by_running_jobs_again(site: Site) -> None:
    session = site.session
    session.execute("BEGIN")
    try:
        added = session.execute("SELECT id FROM watchbill.enqueue('t', tenant => 'a')").fetchall()
        session.execute("SELECT watchbill.cancel(%s)", added[0])
        used = "(SELECT count(*) FROM watchbill.jobs WHERE tenant = 'a')"
        session.execute(
            f"SELECT watchbill.set_tenant('a', jsonb_build_object('unfinished', {used}));"
            "SELECT watchbill.refresh_quotas(at_once => true)".encode()
        )
        session.execute(
            f"""SET LOCAL watchbill.tenant = 'a';
            SET LOCAL SESSION AUTHORIZATION "{site.logins.database}_bound_producer" """.encode()
        )
        with pytest.raises(psycopg.Error, match="the quota unfinished of tenant 'a' is full"):
            session.execute("SELECT watchbill.reschedule(%s)", added[0])
    finally:
        session.execute("ROLLBACK")


@pytest.mark.parametrize("room", [1, 2])
def test_children_that_wait_again_count_for_the_quota(site: Site, room: int) -> None:
    session = site.session
    session.execute("BEGIN")
    try:
        ((parent,),) = session.execute("SELECT id FROM watchbill.enqueue('t', tenant => 'a')").fetchall()
        ((child,),) = session.execute(
            "SELECT id FROM watchbill.enqueue('t', tenant => 'a', depends_on => %s)", ([parent],)
        ).fetchall()
        # unblock() leaves out what its own transaction has written.
        as_another = "UPDATE watchbill.dependency_checks SET by = '3' WHERE id IN (%s, %s)"
        session.execute(as_another, (parent, child))
        session.execute("SELECT watchbill.unblock()")
        session.execute("SELECT watchbill.cancel(%s)", (parent,))
        session.execute(as_another, (parent, child))
        ended = session.execute("SELECT id, state FROM watchbill.unblock(ARRAY[%s])", (child,)).fetchall()
        assert ended == [(child, "canceled")]
        used = "(SELECT count(*) FROM watchbill.jobs WHERE tenant = 'a')"
        session.execute(
            f"SELECT watchbill.set_tenant('a', jsonb_build_object('unfinished', {used} + {room}));"
            "SELECT watchbill.refresh_quotas(at_once => true)".encode()
        )
        session.execute(
            f"""SET LOCAL watchbill.tenant = 'a';
            SET LOCAL SESSION AUTHORIZATION "{site.logins.database}_bound_producer" """.encode()
        )
        if room == 1:
            with pytest.raises(psycopg.Error, match="the quota unfinished of tenant 'a' is full"):
                session.execute("SELECT watchbill.reschedule(%s)", (parent,))
        else:
            session.execute("SELECT watchbill.reschedule(%s)", (parent,))
            states = session.execute("SELECT state FROM watchbill.job_by_id(%s)", (child,)).fetchall()
            assert states == [("blocked",)]
    finally:
        session.execute("ROLLBACK")


@pytest.mark.parametrize(
    ("verb", "left"), [("reschedule_many", [("queued", "a"), ("dead", "b")]), ("purge", [("dead", "b")])]
)
def test_bound_operator_acts_on_many_jobs_without_naming_its_tenant(
    site: Site, verb: str, left: list[tuple[str, str]]
) -> None:
    session = site.session
    session.execute("BEGIN")
    try:
        added = session.execute("SELECT id FROM watchbill.enqueue('t', tenant => 'a', queue => 'five')").fetchall()
        session.execute(
            f"""SELECT watchbill.fail(c.id, c.fence, '{{}}', retryable => false)
            FROM watchbill.claim({site.values["epoch"]}, '{{five}}') c;
            SET LOCAL SESSION AUTHORIZATION "{site.logins.database}_bound_operator" """.encode()
        )
        assert session.execute(f"SELECT watchbill.{verb}('{{dead}}')".encode()).fetchall() == [(1,)]
        session.execute("RESET SESSION AUTHORIZATION")
        ids = [str(added[0][0]), site.values["dead"]]
        found = session.execute(
            "SELECT state, tenant FROM watchbill.job WHERE id = ANY (%s::uuid[]) ORDER BY 2", (ids,)
        )
        assert found.fetchall() == left
        noted = session.execute("SELECT tenant FROM watchbill.audit ORDER BY at DESC LIMIT 1").fetchall()
        assert noted == [("a",)]
    finally:
        session.execute("ROLLBACK")


def test_operation_changes_only_jobs_of_its_creators_tenant_whoever_works_it_off(site: Site) -> None:
    """Nodes see all tenants. The creator is bound to tenant a."""
    session = site.session
    session.execute("BEGIN")
    try:
        session.execute("SELECT watchbill.cancel_operation(%s)", (site.values["operation"],))
        added = session.execute("SELECT id FROM watchbill.enqueue('t', tenant => 'a', queue => 'five')").fetchall()
        session.execute(
            f"""SELECT watchbill.fail(c.id, c.fence, '{{}}', retryable => false)
            FROM watchbill.claim({site.values["epoch"]}, '{{five}}') c;
            SET LOCAL SESSION AUTHORIZATION "{site.logins.database}_bound_operator" """.encode()
        )
        states = """'[{"field": "state", "operator": "=", "values": ["dead"]}]'"""
        ((operation,),) = session.execute(f"SELECT watchbill.start_operation('retry', {states})".encode()).fetchall()
        seen = session.execute("SELECT id, tenant FROM watchbill.bulk_operations").fetchall()
        assert seen == [(operation, "a")]
        assert session.execute("SELECT watchbill.pause_operation(%s)", (site.values["operation"],)).fetchall() == [
            (None,)
        ]
        session.execute(f'SET LOCAL SESSION AUTHORIZATION "{site.logins.database}_worker"'.encode())
        assert session.execute("SELECT watchbill.run_operations()").fetchall() == [(None,)]
        session.execute("RESET SESSION AUTHORIZATION")
        ids = [str(added[0][0]), site.values["dead"]]
        found = session.execute(
            "SELECT state, tenant FROM watchbill.job WHERE id = ANY (%s::uuid[]) ORDER BY 2", (ids,)
        )
        assert found.fetchall() == [("queued", "a"), ("dead", "b")]
        counts = session.execute(
            "SELECT state, done, seen FROM watchbill.bulk_operations WHERE id = %s", (operation,)
        ).fetchall()
        assert counts == [("done", 1, 1)]
    finally:
        session.execute("ROLLBACK")


def test_retries_of_a_bound_creator_count_for_the_quotas_of_its_tenant(site: Site) -> None:
    session = site.session
    session.execute("BEGIN")
    try:
        session.execute("SELECT watchbill.cancel_operation(%s)", (site.values["operation"],))
        session.execute("SELECT watchbill.enqueue('t', tenant => 'a', queue => 'five') FROM generate_series(1, 3)")
        session.execute(
            f"""SELECT watchbill.fail(c.id, c.fence, '{{}}', retryable => false)
            FROM watchbill.claim({site.values["epoch"]}, '{{five}}', 3) c;
            SELECT watchbill.set_tenant('a', '{{"unfinished": 1}}'), watchbill.refresh_quotas(true);
            SET LOCAL SESSION AUTHORIZATION "{site.logins.database}_bound_operator" """.encode()
        )
        dead = """'[{"field": "state", "operator": "=", "values": ["dead"]}]'"""
        ((operation,),) = session.execute(f"SELECT watchbill.start_operation('retry', {dead})".encode()).fetchall()
        session.execute(f'SET LOCAL SESSION AUTHORIZATION "{site.logins.database}_worker"'.encode())
        session.execute("SELECT watchbill.run_operations()")
        session.execute("RESET SESSION AUTHORIZATION")
        found = session.execute(
            "SELECT state, done, error FROM watchbill.bulk_operations WHERE id = %s", (operation,)
        ).fetchall()
        assert found[0][:2] == ("paused", 1)
        assert "quota" in found[0][2]
    finally:
        session.execute("ROLLBACK")
