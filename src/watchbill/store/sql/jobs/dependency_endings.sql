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
    w AS (
      UPDATE step_waits s
      SET outcome = p.outcome
      FROM unnest(ids, tenants, outcomes) p(id, tenant, outcome)
      WHERE s.child = p.id
        AND s.tenant = p.tenant
        AND s.outcome IS NULL
      RETURNING s.job_id, s.outcome),
    i AS (
      INSERT INTO dependency_checks (id, what, failed, at)
      SELECT x.id, 'child', bool_or(x.outcome = 'failed'), t
      FROM (
        SELECT u.child, u.outcome FROM u
        UNION ALL
        SELECT w.job_id, w.outcome FROM w) x(id, outcome)
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
CREATE OR REPLACE FUNCTION _judge_children(children uuid[], tenants text[])
RETURNS TABLE (child uuid, verdict text, error jsonb, tenant text, takes_results boolean)
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
      END,
      v.tenant,
      v.takes_results
    FROM (
      SELECT
        s.child,
        s.tenant,
        s.failed,
        s.skipped,
        s.takes_results,
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
          d.tenant,
          d.run_if,
          bool_or(d.outcome IS NULL) AS open,
          bool_or(d.arguments IS NOT NULL) AS takes_results,
          (array_agg(d.parent ORDER BY d.place) FILTER (WHERE d.outcome = 'failed'))[1] AS failed,
          (array_agg(d.parent ORDER BY d.place) FILTER (WHERE d.outcome = 'skipped'))[1] AS skipped
        FROM unnest(children, tenants) c(id, tenant)
        JOIN dependencies d ON d.child = c.id AND d.tenant = c.tenant
        GROUP BY 1, 2, 3) s) v;
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
  taking uuid[];
  taking_tenants text[];
  too_large uuid[];
  at_once boolean;
  due timestamptz;
BEGIN
  IF cardinality(children) = 0 THEN RETURN; END IF;
  SELECT
    array_agg(v.child) FILTER (WHERE v.verdict = 'ready'),
    array_agg(ROW(v.child, 0, 'canceled', 'canceled', NULL, NULL, NULL, v.error)::ending)
      FILTER (WHERE v.verdict = 'canceled'),
    array_agg(v.child) FILTER (WHERE v.verdict = 'ready' AND v.takes_results),
    array_agg(v.tenant) FILTER (WHERE v.verdict = 'ready' AND v.takes_results)
  INTO ready, endings, taking, taking_tenants
  FROM _judge_children(children, tenants) v;
  IF taking IS NOT NULL THEN
    too_large := _write_results(taking, taking_tenants);
    IF cardinality(too_large) > 0 THEN
      ready := ARRAY(SELECT r FROM unnest(ready) r WHERE r <> ALL (too_large));
      endings := endings || ARRAY(
        SELECT ROW(
          x, 0, 'canceled', 'canceled', NULL, NULL, NULL,
          jsonb_build_object(
            'kind', 'dependency',
            'message', 'the results that it takes make a payload of more than 100000000 bytes')
          )::ending
        FROM unnest(too_large) x);
    END IF;
  END IF;
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

-- Writes the results that blocked jobs take into their payloads: of a parent that did not succeed,
-- null. A payload in a payload store is only a reference, which then has the results beside it.
-- Writes nothing for those whose payload would be too large to be sent, and returns them. The
-- caller has locked the jobs.
CREATE OR REPLACE FUNCTION _write_results(children uuid[], tenants text[])
RETURNS uuid[]
LANGUAGE plpgsql VOLATILE
AS $$
#variable_conflict use_column
DECLARE
  too_large uuid[];
BEGIN
  WITH given AS MATERIALIZED (
      SELECT c.id, a.key, a.place, d.parent, coalesce(
          d.result,
          (
            SELECT f.result
            FROM finished_jobs f
            WHERE f.id = d.parent
              AND f.tenant = d.tenant
              AND f.finished_at >= _history_start(d.parent)
              AND f.state = 'succeeded'
              AND d.outcome = 'succeeded'
            LIMIT 1),
          'null') AS result
      FROM unnest(children, tenants) c(id, tenant)
      JOIN dependencies d ON d.child = c.id AND d.tenant = c.tenant
      CROSS JOIN LATERAL (
        SELECT e.key, nullif(e.value, 'null')::int AS place FROM jsonb_each(d.arguments) e) a
      WHERE d.arguments IS NOT NULL),
    -- The sizes first: a value of more than 255 MB would be an error.
    sizes AS MATERIALIZED (
      SELECT g.id, sum(octet_length(g.result::text) + octet_length(g.key) + 6) AS bytes
      FROM given g
      GROUP BY 1),
    fitting AS MATERIALIZED (
      SELECT s.id
      FROM sizes s
      JOIN jobs j ON j.id = s.id
      WHERE s.bytes + octet_length(j.payload::text) <= 100000000),
    arguments AS (
      SELECT
        g.id, g.key,
        CASE
          WHEN bool_or(g.place IS NULL) THEN (array_agg(g.result))[1]
          ELSE jsonb_agg(g.result ORDER BY g.place)
        END AS value
      FROM given g
      JOIN fitting f ON f.id = g.id
      GROUP BY 1, 2),
    whole AS (
      SELECT a.id, jsonb_object_agg(a.key, a.value) AS results FROM arguments a GROUP BY 1),
    u AS (
      UPDATE jobs j
      SET payload = CASE
          WHEN j.payload ? '$stored' THEN j.payload || jsonb_build_object('$results', w.results)
          ELSE j.payload || w.results
        END
      FROM whole w
      WHERE j.id = w.id)
  SELECT coalesce(array_agg(s.id), '{}') INTO too_large
  FROM sizes s
  WHERE s.id NOT IN (SELECT f.id FROM fitting f);
  RETURN too_large;
END $$;
