-- Fills a schema 11 with jobs of every kind, by functions of schema 11 only. The payload of a job
-- names its kind; test_upgrade.py has the same names.
SET search_path = watchbill, pg_temp;
SET TimeZone = 'UTC';

CREATE FUNCTION pg_temp.make(kind text, queue text, more jsonb DEFAULT '{}')
RETURNS uuid
LANGUAGE sql
RETURN (
  SELECT e.id
  FROM watchbill.enqueue_many(jsonb_build_array(
    jsonb_build_object(
      'type', 'work', 'queue', queue, 'payload', jsonb_build_object('kind', kind)) || more)) e);

-- Claims the jobs of a queue, and settles them with this outcome.
CREATE FUNCTION pg_temp.run(node text, queue text, outcome text, "limit" int DEFAULT 1)
RETURNS void
LANGUAGE plpgsql
AS $$
DECLARE
  node_epoch bigint := (
    SELECT n.epoch FROM watchbill.nodes n WHERE n.name = node AND n.state = 'active');
  ids uuid[];
  fences bigint[];
BEGIN
  SELECT array_agg(c.id), array_agg(c.fence)
  INTO STRICT ids, fences
  FROM watchbill.claim(node_epoch, ARRAY[queue], "limit", "limit") c;
  PERFORM watchbill.settle(
    node_epoch, ids, fences,
    array_fill(outcome, ARRAY[cardinality(ids)]), array_fill(1.5::float8, ARRAY[cardinality(ids)]),
    errors => array_fill('{"kind": "error", "message": "boom"}'::jsonb, ARRAY[cardinality(ids)]));
END $$;

-- Claims the jobs of a queue, and keeps them: they run, or are set aside.
CREATE FUNCTION pg_temp.hold(node text, queue text, "limit" int DEFAULT 1)
RETURNS bigint
LANGUAGE sql
RETURN (
  SELECT count(*)
  FROM watchbill.nodes n, watchbill.claim(n.epoch, ARRAY[queue], "limit", "limit") c
  WHERE n.name = node AND n.state = 'active');

SELECT make_partitions(days => 3, now => watchbill.now() - interval '2 days');
SELECT make_partitions(days => 2);
SELECT _make_slot_partitions();

-- The leases are short, so that a test need not wait until the nodes are declared lost.
SELECT register(
  'worker', '1 second', app => 'shop', types => '{"work": 2, "shop.mail": 1}',
  labels => '{"zone": "a"}', host => 'one', pid => 4711, queues => '{default,limited,rated}',
  machine => 'm', capacity => 8, watchbill_version => '0.1');
SELECT register('stranger', '1 second', app => 'other', types => '{"other.job": 1}');
SELECT leave(register('left', '1 second', app => 'shop', types => '{"work": 1}'));

-- What has ended.
SELECT enqueue('work', '{"kind": "succeeded"}', queue => 'done', created_by => 'api', meta => '{"a": 1}');
SELECT pg_temp.run('worker', 'done', 'succeeded');
SELECT pg_temp.make('skipped', 'done');
SELECT pg_temp.run('worker', 'done', 'skipped');
SELECT pg_temp.make('dead', 'done', '{"max_attempts": 1}');
SELECT pg_temp.run('worker', 'done', 'failed');
SELECT cancel(pg_temp.make('canceled', 'done'), 'not wanted');
SELECT enqueue('work', '{"kind": "succeeded"}', queue => 'done', now => watchbill.now() - interval '2 days');
WITH held AS MATERIALIZED (
  SELECT n.epoch, c.id, c.fence
  FROM nodes n, claim(n.epoch, '{done}', now => watchbill.now() - interval '2 days') c
  WHERE n.name = 'worker')
SELECT settle(h.epoch, ARRAY[h.id], ARRAY[h.fence], '{succeeded}', now => watchbill.now() - interval '2 days')
FROM held h;

-- What has failed before, was snoozed, timed out or released, and waits.
SELECT pg_temp.make('retrying', 'retried', '{"retry": {"kind": "fixed", "base": 1}}');
SELECT pg_temp.run('worker', 'retried', 'failed');
SELECT pg_temp.make('timed out', 'retried', '{"timeout": "5 seconds"}');
SELECT pg_temp.run('worker', 'retried', 'timed_out');
SELECT pg_temp.make('snoozed', 'snoozed');
SELECT pg_temp.run('worker', 'snoozed', 'snoozed');

-- What was lost with its node, and runs in quarantine.
SELECT register('lost', '1 second', types => '{"work": 2}');
SELECT pg_temp.make('quarantined', 'lost');
SELECT pg_temp.hold('lost', 'lost');
SELECT expire_node(b.epoch, b.n) FROM beats b JOIN nodes n USING (epoch) WHERE n.name = 'lost';
SELECT count(*) FROM reclaim();

-- What waits.
SELECT pg_temp.make('ready', 'default');
SELECT pg_temp.make('urgent', 'default', '{"priority": 9}');
SELECT pg_temp.make('old version', 'default', '{"version": 1}');
SELECT pg_temp.make('delayed', 'default', '{"run_at": "2200-01-01T00:00:00Z"}');
SELECT pg_temp.make('labeled', 'default', '{"runs_on": {"gpu": "a100"}}');
SELECT enqueue('unknown', '{"kind": "unsupported"}', queue => 'unsupported');
SELECT pg_temp.run('stranger', 'unsupported', 'unsupported');
SELECT pause(type => 'paused.type', reason => 'repair');
SELECT enqueue('paused.type', '{"kind": "paused"}', queue => 'paused');
SELECT pg_temp.hold('worker', 'paused');
SELECT pause('paused queue');
SELECT pg_temp.make('in a paused queue', 'paused queue');

-- What a limit, a rate or an order holds back.
SELECT set_limit('crm', max => 1);
SELECT pg_temp.make('running with a limit', 'limited', '{"limit_keys": ["crm"]}');
SELECT pg_temp.make('parked by a limit', 'limited', '{"limit_keys": ["crm"]}');
SELECT pg_temp.hold('worker', 'limited', 2);
SELECT set_limit('mail', count => 1, per => '1 second', burst => 1);
SELECT pg_temp.make('started with a rate', 'rated', '{"limit_keys": ["mail"]}');
SELECT pg_temp.make('parked by a rate', 'rated', '{"limit_keys": ["mail"]}');
SELECT pg_temp.hold('worker', 'rated', 2);
SELECT pg_temp.make('first of an order', 'ordered', '{"ordered_by": "7"}');
SELECT pg_temp.make('second of an order', 'ordered', '{"ordered_by": "7"}');
SELECT pg_temp.hold('worker', 'ordered', 2);

-- What runs. One is asked to stop, and one has reported progress.
SELECT pg_temp.make('running', 'held');
SELECT pg_temp.make('stopping', 'held');
SELECT pg_temp.hold('worker', 'held', 2);
SELECT heartbeat(n.epoch, (
  SELECT jsonb_agg(jsonb_build_object(
    'id', j.id, 'fence', j.fence, 'age', 60, 'progress', '{"done": 3}'::jsonb))
  FROM jobs j
  WHERE j.payload->>'kind' = 'running'), 5)
FROM nodes n
WHERE n.name = 'worker';
SELECT cancel(j.id) FROM jobs j WHERE j.payload->>'kind' = 'stopping';

-- What waits for other jobs.
SELECT pg_temp.make('blocked', 'default', jsonb_build_object('depends_on', jsonb_build_array(j.id)))
FROM jobs j
WHERE j.payload->>'kind' IN ('running');
SELECT pg_temp.make(
  'blocked by two', 'default',
  jsonb_build_object('depends_on', jsonb_agg(j.id ORDER BY j.seq), 'run_if', 'all_finished'))
FROM jobs j
WHERE j.payload->>'kind' IN ('ready', 'urgent');

-- Shares, tokens, pins, items, leaders and locks.
SELECT declare_queues(
  n.epoch, '[{"name": "fair", "fair_by": "{account}", "max": 5, "shares": {"big": 3}}]')
FROM nodes n
WHERE n.name = 'worker';
SELECT enqueue('work', jsonb_build_object('kind', 'fair', 'account', a), queue => 'fair')
FROM unnest('{big,small}'::text[]) a;
SELECT declare_group('shards', 8);
SELECT join_group(n.epoch, 'shards') FROM nodes n WHERE n.name = 'worker';
SELECT rebalance('shards', e.term, n.epoch)
FROM nodes n, elect(n.epoch, '{shards}') e
WHERE n.name = 'worker';
SELECT pin('shards', '[{"key": "vip", "pattern": "worker"}]', 'operator');
SELECT route_queue('routed', 'shards');
SELECT pg_temp.make(
  'routed', 'routed', jsonb_build_object('route_by', k, 'token_group', 'shards'))
FROM unnest('{vip,other}'::text[]) k;
SELECT count(*)
FROM nodes n, claim_items(n.epoch, 'shards', '{a,b}', '2024-01-15') i
WHERE n.name = 'worker';
SELECT finish_items('shards', ARRAY[i.key], ARRAY[i.fence], i.scope)
FROM item_claims i
WHERE i.key = 'a';
SELECT lock_acquire('report', '1 day', 'someone');
SELECT lock_acquire('free', '1 second', 'someone');

-- Keys.
SELECT enqueue('work', '{"kind": "with a key"}', idempotency_key => 'order-1');
SELECT enqueue(
  'work', '{"kind": "with a key"}', idempotency_key => 'order-2', idempotency_window => '100 years');
SELECT enqueue(
  'work', '{"kind": "unique"}', unique_by => '{kind}', unique_until => 'finished',
  on_duplicate => 'keep');

-- Tenants with quotas.
SELECT set_tenant('acme', '{"running": 2, "unfinished": 100, "payload_bytes": 1000000, "per_minute": 1000}');
SELECT enqueue('work', '{"kind": "of a tenant"}', tenant => 'acme');
SELECT refresh_quotas();
SELECT enqueue('work', '{"kind": "of a tenant"}', tenant => 'acme');

-- Schedules with slots that are open, have ended or were missed. They are next due in 2200, except
-- for one that is never due again.
SELECT add_schedule(
  'nightly', '0 3 * * *', 'work', '{"kind": "of a schedule"}', tz => 'Europe/Berlin',
  start => '2200-01-01', queue => 'scheduled', tags => '{a,b}', retry => '{"base": 5}');
SELECT run_schedule('nightly');
SELECT add_schedule('hourly', every => '1 hour', command => 'SELECT 1', start => '2200-01-01');
SELECT add_schedule(
  'once', at => watchbill.now() - interval '1 hour', type => 'work', payload => '{"kind": "of a slot"}',
  queue => 'scheduled', now => watchbill.now() - interval '2 hours');
SELECT tick();
SELECT pg_temp.run('worker', 'scheduled', 'succeeded');
SELECT add_schedule(
  'missed', at => watchbill.now() - interval '1 hour', type => 'work', missed => 'skip', grace => '1 minute',
  now => watchbill.now() - interval '2 hours');
SELECT tick();
SELECT add_schedule(
  'chain', '@daily', 'watchbill.flow', start => '2200-01-01',
  payload => '{"jobs": [{"type": "work"}, {"type": "work", "depends_on": [0]}], "ends": [1]}');
SELECT add_schedule('off', '@weekly', 'work', enabled => false, tenant => 'acme');
SELECT declare_schedules(
  n.epoch, '[{"name": "declared", "pattern": "@yearly", "type": "work", "start": "2200-01-01", "hash": "h1"}]')
FROM nodes n
WHERE n.name = 'worker';
