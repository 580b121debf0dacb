-- Starts a bulk operation, which changes all jobs that match the conditions of a filter and existed
-- when it was started. It is worked off in steps by run_operations(), which every node calls, with
-- the rights of its creator: if that acts for one tenant, only on jobs of that tenant. `kind` is
-- retry, cancel, release, purge, set_priority (argument `priority`) or move_queue (argument
-- `queue`). Without a condition for the state it takes the states that _operation_states() names.
-- The kinds backfill_slots (backfill_slots.sql has its arguments) and enqueue (argument `tenant`)
-- make jobs, and take no conditions. One that enqueues waits for add_operation_items() and
-- resume_operation().
-- `rate` is in jobs per second, and `max_jobs` says with how many jobs it ends. `filter` is the
-- text of the filter, for people. Returns its id; with an idempotency key that the same caller has
-- used, that of the earlier operation.
CREATE OR REPLACE FUNCTION start_operation(
  kind text,
  conditions jsonb,
  filter text DEFAULT NULL,
  arguments jsonb DEFAULT '{}',
  rate float8 DEFAULT NULL,
  max_jobs bigint DEFAULT NULL,
  idempotency_key text DEFAULT NULL,
  now timestamptz DEFAULT NULL
)
RETURNS bigint
LANGUAGE plpgsql VOLATILE AS $$
#variable_conflict use_variable
DECLARE
  t timestamptz := _clock(now);
  actor text := _actor();
  owner_tenant text := CASE WHEN NOT _acts_for_all_tenants() THEN _read_acting_tenant(NULL) END;
  all_conditions jsonb := '[]';
  operation bigint;
BEGIN
  PERFORM _check_conditions(conditions);
  PERFORM _check_operation(kind, conditions, arguments, rate, max_jobs);
  arguments := coalesce(arguments, '{}');
  IF kind = 'backfill_slots' THEN
    arguments := _complete_backfill(arguments, owner_tenant, t);
  ELSIF kind = 'enqueue' THEN
    arguments := jsonb_build_object(
      'tenant', coalesce(owner_tenant, arguments->>'tenant', _session_tenant()));
  ELSE
    all_conditions := _fix_condition_times(conditions, t)
      || _make_operation_conditions(kind, conditions, owner_tenant, t);
  END IF;
  INSERT INTO bulk_operations AS o (
    kind, state, tenant, filter, conditions, arguments, rate, max_jobs, idempotency_key,
    created_by, created_at, next_at)
  VALUES (
    kind, CASE kind WHEN 'enqueue' THEN 'pending' ELSE 'running' END, owner_tenant,
    left(filter, 1000), all_conditions, arguments, rate, max_jobs, idempotency_key, actor, t, t)
  ON CONFLICT DO NOTHING
  RETURNING o.id INTO operation;
  IF operation IS NULL THEN
    SELECT o.id
    INTO operation
    FROM bulk_operations o
    WHERE o.tenant IS NOT DISTINCT FROM owner_tenant
      AND o.created_by = actor
      AND o.idempotency_key = idempotency_key
      AND o.kind = kind
      AND o.filter IS NOT DISTINCT FROM left(filter, 1000)
      AND o.arguments = arguments;
    IF operation IS NULL THEN
      RAISE EXCEPTION 'another operation has the idempotency key %', quote_literal(idempotency_key)
        USING ERRCODE = 'WB014', HINT = 'give another key';
    END IF;
    RETURN operation;
  END IF;
  PERFORM _audit(
    'start_operation', 'operation ' || operation, owner_tenant,
    jsonb_strip_nulls(jsonb_build_object(
      'kind', kind, 'filter', filter, 'conditions', conditions, 'arguments', arguments)),
    t);
  RETURN operation;
END $$;

-- Raises unless an operation can be started like this.
CREATE OR REPLACE FUNCTION _check_operation(
  kind text, conditions jsonb, arguments jsonb, rate float8, max_jobs bigint
)
RETURNS void
LANGUAGE plpgsql STABLE AS $$
DECLARE
  wrong text := CASE
      WHEN _operation_states(kind) IS NULL THEN
        'kind is invalid: give retry, cancel, release, purge, set_priority, move_queue, '
          'backfill_slots or enqueue'
      WHEN kind NOT IN ('backfill_slots', 'enqueue')
        AND jsonb_array_length(conditions) NOT BETWEEN 1 AND 20 THEN
        'conditions are invalid: give one to twenty'
      WHEN kind IN ('backfill_slots', 'enqueue') AND conditions <> '[]' THEN
        'conditions are invalid: this kind takes none'
      WHEN NOT rate BETWEEN 0.001 AND 1e6 THEN
        'rate is invalid: give jobs per second, between 0.001 and 1000000'
      WHEN max_jobs < 1 THEN 'max_jobs is invalid: give at least 1'
      WHEN octet_length(arguments::text) > 10000 THEN
        'arguments are invalid: give at most 10000 bytes'
      WHEN kind = 'set_priority'
        AND (jsonb_typeof(arguments->'priority') = 'number'
          AND arguments->>'priority' ~ '^-?[0-9]{1,5}$'
          AND (arguments->>'priority')::int BETWEEN -32768 AND 32767) IS NOT TRUE THEN
        'arguments are invalid: give a priority from -32768 to 32767'
      WHEN kind = 'move_queue'
        AND (jsonb_typeof(arguments->'queue') = 'string'
          AND length(arguments->>'queue') BETWEEN 1 AND 100) IS NOT TRUE THEN
        'arguments are invalid: give the name of a queue, of at most 100 characters'
    END;
BEGIN
  IF wrong IS NOT NULL THEN
    RAISE EXCEPTION '%', split_part(wrong, ': ', 1)
      USING ERRCODE = 'WB003', HINT = split_part(wrong, ': ', 2);
  END IF;
END $$;

-- The states of the jobs that an operation takes if its filter names no state; NULL for an unknown
-- kind.
CREATE OR REPLACE FUNCTION _operation_states(kind text)
RETURNS jsonb
LANGUAGE sql IMMUTABLE
RETURN CASE kind
    WHEN 'retry' THEN '["failed", "dead"]'::jsonb
    WHEN 'cancel' THEN '["blocked", "queued", "running", "failed", "suspended"]'
    WHEN 'release' THEN '["running"]'
    WHEN 'purge' THEN '["succeeded", "dead", "canceled"]'
    WHEN 'set_priority' THEN '["blocked", "queued", "failed"]'
    WHEN 'move_queue' THEN '["blocked", "queued", "failed"]'
    WHEN 'backfill_slots' THEN '[]'
    WHEN 'enqueue' THEN '[]'
  END;

-- Writes a time as the parser does.
CREATE OR REPLACE FUNCTION _write_filter_time(t timestamptz)
RETURNS text
LANGUAGE sql STABLE
RETURN to_char(t AT TIME ZONE 'UTC', 'YYYY-MM-DD"T"HH24:MI:SS.US"+00:00"');

-- The conditions that an operation adds to those of its filter: jobs of its tenant, that existed at
-- its start, in the states that it takes.
CREATE OR REPLACE FUNCTION _make_operation_conditions(
  kind text, conditions jsonb, tenant text, t timestamptz
)
RETURNS jsonb
LANGUAGE sql STABLE AS $$
  SELECT jsonb_build_array(jsonb_build_object(
      'field', 'created', 'operator', '<=', 'values', jsonb_build_array(_write_filter_time(t))))
    || CASE
        WHEN tenant IS NULL THEN '[]'
        ELSE jsonb_build_array(jsonb_build_object(
          'field', 'tenant', 'operator', '=', 'values', jsonb_build_array(tenant)))
      END
    || CASE
        WHEN EXISTS (
          SELECT
          FROM jsonb_array_elements(conditions) c
          WHERE c->>'field' IN ('state', 'waits')
            AND (c->>'is_negated')::boolean IS NOT TRUE) THEN '[]'
        ELSE jsonb_build_array(jsonb_build_object(
          'field', 'state', 'operator', '=', 'values', _operation_states(kind)))
      END
$$;

-- Replaces times that count from now by instants, because the steps come later.
CREATE OR REPLACE FUNCTION _fix_condition_times(conditions jsonb, t timestamptz)
RETURNS jsonb
LANGUAGE sql STABLE AS $$
  SELECT coalesce(jsonb_agg(
    CASE
      WHEN f.kind = 'time' THEN jsonb_set(
        c.condition, '{values,0}',
        to_jsonb(_write_filter_time(_read_filter_time(c.condition->'values'->0, t))))
      ELSE c.condition
    END
    ORDER BY c.place), '[]')
  FROM jsonb_array_elements(conditions) WITH ORDINALITY c(condition, place)
  JOIN _filter_fields() f ON f.field = c.condition->>'field'
$$;
