-- The columns of a new job that say how it may run: its limits, its order, and who may take it.
-- Raises if a limit was not declared, or if the options exclude each other in this queue.
CREATE OR REPLACE FUNCTION _job_flow(
  n new_job,
  OUT class smallint,
  OUT lane int,
  OUT limit_keys text[],
  OUT order_key text,
  OUT route_key text
)
LANGUAGE plpgsql VOLATILE
AS $$
#variable_conflict use_variable
DECLARE
  q queues;
  undeclared text;
BEGIN
  lane := 0;
  IF n.ordered_by IS NOT NULL THEN
    order_key := _order_name(n.type) || ':'
      || _render_key(n.ordered_by, n.payload, n.tenant, n.type, 'ordered_by');
  END IF;
  IF n.limit_keys IS NOT NULL OR order_key IS NOT NULL THEN
    SELECT array_agg(k.key ORDER BY k.key) INTO limit_keys
    FROM (
      SELECT CASE WHEN f ~ '^(task|tenant):' THEN '' ELSE 'key:' END
        || _render_key(f, n.payload, n.tenant, n.type, 'limit_keys')
      FROM unnest(n.limit_keys) f
      UNION
      SELECT order_key WHERE order_key IS NOT NULL) k(key);
    SELECT min(k) INTO undeclared
    FROM unnest(limit_keys) k
    WHERE k IS DISTINCT FROM order_key
      AND NOT EXISTS (SELECT FROM limits l WHERE l.name = _limit_name(k));
    IF EXISTS (
      SELECT
      FROM unnest(limit_keys) k
      WHERE _is_tenant_key(k)
        AND k <> _tenant_key(n.tenant)) THEN
      PERFORM _refuse_job(
        n.type, format('limit_keys may name tenant:%s, and no other tenant', n.tenant));
    ELSIF undeclared ~ '^key:(queue|order):' THEN
      PERFORM _refuse_job(
        n.type, format(
          'limit_keys cannot name %L: a job gets that key from its queue or its ordered_by',
          left(substr(undeclared, 5), 220)));
    ELSIF undeclared IS NOT NULL THEN
      PERFORM _refuse_job(
        n.type, format(
          'limit %L is unknown: declare it in a task, or with set_limit()',
          left(_limit_name(undeclared), 220)));
    END IF;
  END IF;
  IF _may_have_quota(n.tenant) THEN limit_keys := _quota_keys(limit_keys, n.tenant); END IF;
  class := _job_class(n.max_attempts::smallint, limit_keys);
  -- No node claims it ahead, so it starts when it is claimed.
  IF num_nonnulls(n.expires_at, n.expires_in) > 0 THEN class := 1; END IF;
  IF n.route_by IS NOT NULL THEN
    route_key := _render_key(n.route_by, n.payload, n.tenant, n.type, 'route_by');
  END IF;
  SELECT * INTO q FROM queues x WHERE x.name = n.queue;
  IF q.lanes = 'share' AND num_nonnulls(n.route_by, n.runs_on) > 0 THEN
    PERFORM _refuse_job(
      n.type, format('queue %L is fair, so route_by and runs_on cannot be used in it', n.queue));
  ELSIF route_key IS NOT NULL AND n.token_group <> q.token_group THEN
    -- The members of its group would wait for jobs that the other group's members get.
    PERFORM _refuse_job(
      n.type,
      format(
        'queue %L is routed by group %L, not by %L; a queue has one group, use another queue',
        n.queue, q.token_group, n.token_group));
  ELSIF n.runs_on IS NOT NULL THEN
    lane := _make_label_lane(n.runs_on);
  ELSIF q.lanes = 'share' THEN
    lane := _make_share_lane(_render_key(q.fair_by, n.payload, n.tenant, n.type, 'fair_by', ''));
  ELSIF q.lanes = 'route' AND route_key IS NOT NULL THEN
    lane := _route_lane(q.token_group, route_key);
  END IF;
END $$;
