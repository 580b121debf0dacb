-- Records the outcome of parents, in the transaction that ends them. Returns the children to check.
-- `tenants` are those of the parents: a job of another tenant may have the same id.
-- Wakes sleeping nodes, because a user of psql may not call unblock() next.
CREATE OR REPLACE FUNCTION _record_parent_endings(
  ids uuid[],
  tenants text[],
  outcomes text[],
  t timestamptz
)
RETURNS uuid[]
LANGUAGE plpgsql VOLATILE
AS $$
DECLARE
  children uuid[];
BEGIN
  WITH u AS (
      UPDATE dependencies d
      SET outcome = p.outcome
      FROM unnest(ids, tenants, outcomes) p(id, tenant, outcome)
      WHERE d.parent = p.id
        AND d.tenant = p.tenant
        AND d.outcome IS NULL
      RETURNING d.child, d.outcome),
    i AS (
      INSERT INTO dependency_checks (id, what, failed, at)
      SELECT u.child, 'child', bool_or(u.outcome = 'failed'), t
      FROM u
      GROUP BY 1
      RETURNING id)
  SELECT array_agg(i.id) INTO children FROM i;
  IF children IS NOT NULL THEN PERFORM _wake_unblockers(); END IF;
  RETURN children;
END $$;

-- The outcome of a finished parent for its children.
CREATE OR REPLACE FUNCTION _dependency_outcome(state text, error jsonb)
RETURNS text
LANGUAGE sql IMMUTABLE
RETURN CASE
    WHEN state = 'succeeded' THEN 'succeeded'
    WHEN state = 'canceled' AND error->>'kind' = 'skipped' THEN 'skipped'
    WHEN state IS NOT NULL THEN 'failed'
  END;

-- Whether blocked jobs become ready or canceled, or stay blocked, by the outcomes of their parents.
-- `tenants` are those of the children.
CREATE OR REPLACE FUNCTION _dependency_verdicts(children uuid[], tenants text[])
RETURNS TABLE (child uuid, verdict text, error jsonb)
LANGUAGE plpgsql STABLE
AS $$
#variable_conflict use_column
BEGIN
  RETURN QUERY
    SELECT
      v.child,
      v.verdict,
      CASE
        WHEN v.verdict <> 'canceled' THEN NULL
        WHEN v.failed IS NOT NULL THEN
          jsonb_build_object('kind', 'dependency', 'message',
            format('job %s, which it waits for, did not succeed', v.failed))
        WHEN v.skipped IS NOT NULL THEN
          jsonb_build_object('kind', 'skipped', 'message',
            format('job %s, which it waits for, was skipped', v.skipped))
        ELSE
          jsonb_build_object('kind', 'skipped', 'message', 'nothing that it waits for has failed')
      END
    FROM (
      SELECT
        s.child,
        s.failed,
        s.skipped,
        CASE s.run_if
          WHEN 'all_succeeded' THEN
            CASE
              WHEN s.failed IS NOT NULL THEN 'canceled'
              WHEN s.open THEN 'blocked'
              WHEN s.skipped IS NOT NULL THEN 'canceled'
              ELSE 'ready'
            END
          WHEN 'all_finished' THEN CASE WHEN s.open THEN 'blocked' ELSE 'ready' END
          ELSE
            CASE
              WHEN s.failed IS NOT NULL THEN 'ready'
              WHEN s.open THEN 'blocked'
              ELSE 'canceled'
            END
        END AS verdict
      FROM (
        SELECT
          d.child,
          d.run_if,
          bool_or(d.outcome IS NULL) AS open,
          (array_agg(d.parent ORDER BY d.place) FILTER (WHERE d.outcome = 'failed'))[1] AS failed,
          (array_agg(d.parent ORDER BY d.place) FILTER (WHERE d.outcome = 'skipped'))[1] AS skipped
        FROM unnest(children, tenants) c(id, tenant)
        JOIN dependencies d ON d.child = c.id AND d.tenant = c.tenant
        GROUP BY 1, 2) s) v;
END $$;

-- Queues or cancels children by their verdicts. The caller has locked them in an earlier statement,
-- so this one does not read outcomes that _block_children_again() has reset.
CREATE OR REPLACE FUNCTION _queue_or_cancel_children(
  children uuid[],
  tenants text[],
  t timestamptz
)
RETURNS TABLE (id uuid, state text)
LANGUAGE plpgsql VOLATILE
AS $$
DECLARE
  ready uuid[];
  endings ending[];
  at_once boolean;
  due timestamptz;
BEGIN
  IF cardinality(children) = 0 THEN RETURN; END IF;
  SELECT
    array_agg(v.child) FILTER (WHERE v.verdict = 'ready'),
    array_agg(ROW(v.child, 0, 'canceled', 'canceled', NULL, NULL, NULL, v.error)::ending)
      FILTER (WHERE v.verdict = 'canceled')
  INTO ready, endings
  FROM _dependency_verdicts(children, tenants) v;
  IF ready IS NOT NULL THEN
    WITH u AS (
      UPDATE jobs j
      SET wait = CASE WHEN j.run_at > t THEN 'delayed' END,
        run_at = greatest(j.run_at, t),
        lane = _find_ready_lane(j.queue, j.route_key, j.lane)
      WHERE j.id = ANY (ready)
      RETURNING j.run_at)
    SELECT
      bool_or(u.run_at <= t),
      min(u.run_at) FILTER (WHERE u.run_at > t)
    INTO at_once, due
    FROM u;
    IF at_once THEN PERFORM _wake_workers(''); END IF;
    PERFORM _wake_promoters(due, t);
    RETURN QUERY SELECT r, 'queued' FROM unnest(ready) r;
  END IF;
  IF endings IS NOT NULL THEN
    PERFORM _announce_freed(e.freed) FROM _finish_jobs(endings, NULL, t) e;
    RETURN QUERY SELECT e.id, 'canceled' FROM unnest(endings) e;
  END IF;
END $$;
