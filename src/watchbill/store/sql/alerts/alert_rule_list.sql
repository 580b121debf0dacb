-- The rules, with the values that count unless an operator has set others. `about` says what a
-- subject is. `above` is NULL for rules that ask yes or no, and for those that need a value first.
-- A rule that asks yes or no has no unit. `help` is a command, in which {} stands for the subject.
CREATE OR REPLACE FUNCTION _alert_rule_defaults()
RETURNS TABLE (
  rule text, about text, above float8, unit text, lasting interval, severity text, title text,
  help text
)
LANGUAGE sql IMMUTABLE AS $$
  VALUES
    ('failure_rate', 'type', 10, 'percent', interval '5 minutes', 'warning',
      'many runs of the last hour have failed', 'watchbill top --once'),
    ('dead_spike', 'type', 100, 'jobs', '0', 'warning',
      'many jobs have died in the last hour', 'watchbill dead groups'),
    ('backlog', 'queue', 1000, 'jobs', '5 minutes', 'warning',
      'many jobs are ready', 'watchbill queues why {}'),
    ('oldest', 'queue', 600, 'seconds', '5 minutes', 'warning',
      'a job has been ready for long', 'watchbill queues why {}'),
    ('slow_pickup', 'queue', NULL, 'seconds', '5 minutes', 'warning',
      'jobs wait long before they start', 'watchbill queues why {}'),
    ('unserved', 'queue', NULL, NULL, '1 minute', 'critical',
      'no live node serves a queue with ready jobs', 'watchbill worker --queues {}'),
    ('unsupported', 'type', NULL, NULL, '1 minute', 'warning',
      'no live node handles a type of which jobs wait', 'watchbill types why {}'),
    ('unmatched', 'queue', NULL, NULL, '1 minute', 'warning',
      'no live node has the labels that jobs need', 'watchbill queues why {}'),
    ('no_nodes', 'all', NULL, NULL, '1 minute', 'critical',
      'no node lives, and jobs are ready', 'watchbill worker'),
    ('node_down', 'node', NULL, NULL, '5 minutes', 'warning',
      'a node was lost, and not replaced', 'watchbill nodes list'),
    ('clock_skew', 'node', 5, 'seconds', '1 minute', 'warning',
      'the clock of a node differs from that of the database', 'watchbill doctor'),
    ('slow_job', 'job', 3600, 'seconds', '0', 'warning',
      'a job runs for long', 'watchbill jobs show {}'),
    ('poison', 'type', NULL, NULL, '0', 'warning',
      'a job was lost twice with its node', 'watchbill types why {}'),
    ('locked_jobs', 'all', NULL, NULL, '1 minute', 'warning',
      'other transactions lock jobs that workers want to settle', 'watchbill doctor'),
    ('heartbeat_budget', 'tenant', NULL, 'beats per minute', '5 minutes', 'warning',
      'the running jobs of a tenant are above its budget of heartbeats',
      'watchbill tenants show {}'),
    ('quota', 'tenant', 95, 'percent', '5 minutes', 'warning',
      'a tenant has nearly used its quota', 'watchbill tenants show {}'),
    ('limit_saturated', 'limit', NULL, NULL, '30 minutes', 'warning',
      'a limit is full, and jobs wait for it', 'watchbill limits show {}'),
    ('order_stuck', 'key', NULL, NULL, '0', 'warning',
      'a dead job keeps its ordered key', 'watchbill limits clear {}'),
    ('schedule_overdue', 'schedule', NULL, NULL, '0', 'warning',
      'a run has missed its deadline', 'watchbill schedules why {}'),
    ('schedule_late', 'schedule', 60, 'seconds', '0', 'warning',
      'a schedule is due, and no node fires it', 'watchbill schedules why {}'),
    ('schedule_orphaned', 'schedule', NULL, NULL, '0', 'warning',
      'no node of its app declares a schedule any more', 'watchbill schedules why {}'),
    ('schedule_failing', 'schedule', NULL, NULL, '0', 'warning',
      'three runs of a schedule in a row did not succeed', 'watchbill schedules why {}'),
    ('tokens_unowned', 'group', NULL, NULL, '35 seconds', 'critical',
      'tokens have no living owner', 'watchbill tokens show {}'),
    ('no_leader', 'group', NULL, NULL, '35 seconds', 'critical',
      'a group has candidates and no leader', 'watchbill cluster leader {}'),
    ('pin_unmatched', 'group', NULL, NULL, '5 minutes', 'warning',
      'a pin matches no node', 'watchbill pins list --group {}'),
    ('rebalancing', 'group', 5, 'plans', '0', 'warning',
      'tokens have moved often in the last hour', 'watchbill tokens history {}'),
    ('partitions', 'table', NULL, NULL, '10 minutes', 'critical',
      'the partitions of the next days are missing', 'watchbill doctor'),
    ('retention', 'table', NULL, NULL, '10 minutes', 'warning',
      'days are kept that retention should have dropped', 'watchbill retention run --dry-run'),
    ('default_rows', 'table', NULL, NULL, '10 minutes', 'warning',
      'a default partition has rows', 'watchbill doctor'),
    ('old_transaction', 'session', 600, 'seconds', '1 minute', 'warning',
      'a transaction is open for long', 'watchbill doctor'),
    ('chores', 'chore', 180, 'seconds', '1 minute', 'warning',
      'a part of the upkeep is late', 'watchbill doctor'),
    ('forgotten_pause', 'pause', 86400, 'seconds', '0', 'info',
      'a pause has lasted for long', 'watchbill queues list'),
    ('endpoint_disabled', 'endpoint', NULL, NULL, '0', 'warning',
      'an endpoint was disabled, because it is gone or has failed for days',
      'watchbill endpoints list'),
    ('verify', 'all', NULL, NULL, '0', 'critical', 'damage was found', 'watchbill verify')
$$;

-- Lists the rules, each with its values, and the values of single subjects after it. `unit` is NULL
-- for rules that ask yes or no. `changed_by` is NULL where the default counts.
CREATE OR REPLACE FUNCTION alert_rule_list()
RETURNS TABLE (
  rule text,
  subject text,
  about text,
  above float8,
  unit text,
  lasting interval,
  severity text,
  is_enabled boolean,
  title text,
  changed_by text,
  changed_at timestamptz
)
LANGUAGE sql STABLE AS $$
  SELECT
    d.rule, s.subject, d.about, coalesce(own.above, base.above, d.above), d.unit,
    coalesce(own.lasting, base.lasting, d.lasting),
    coalesce(own.severity, base.severity, d.severity),
    coalesce(own.is_enabled, base.is_enabled, true), d.title, own.changed_by, own.changed_at
  FROM _alert_rule_defaults() d
  CROSS JOIN LATERAL (
    SELECT '' AS subject
    UNION
    SELECT r.subject FROM alert_rules r WHERE r.rule = d.rule) s
  LEFT JOIN alert_rules own ON own.rule = d.rule AND own.subject = s.subject
  LEFT JOIN alert_rules base ON base.rule = d.rule AND base.subject = ''
  WHERE s.subject = '' OR _acts_for_all_tenants()
  ORDER BY d.rule, s.subject
$$;

-- Puts the subject into a command. `(all)` and `(many)` are not subjects, so they leave its place
-- empty.
CREATE OR REPLACE FUNCTION _write_alert_help(help text, subject text)
RETURNS text
LANGUAGE sql IMMUTABLE
RETURN CASE
    WHEN subject IN ('(all)', '(many)') THEN rtrim(replace(help, '{}', ''))
    ELSE replace(help, '{}', _shell_word(subject))
  END;
