-- Stores many jobs and returns a row for each, in their order. `plain` jobs are of the common kind
-- (_is_plain_job) and need no flow control. Locks nothing, unless jobs may be stored already or
-- have keys (_insert_with_care).
CREATE OR REPLACE FUNCTION _insert_jobs(
  new_jobs new_job[],
  resend boolean,
  ids_are_new boolean,
  strict boolean,
  max_payload int,
  t timestamptz,
  builtin boolean DEFAULT false
)
RETURNS SETOF enqueued_job
LANGUAGE plpgsql VOLATILE
AS $$
#variable_conflict use_variable
DECLARE
  horizon text := _newest_id_prefix(t);
  newest uuid := rpad(replace(horizon, '-', ''), 32, '0');
  plain boolean;
  has_quota boolean;
  has_lanes boolean;
  has_keys boolean := false;
  awaited uuid[];
BEGIN
  SELECT
    bool_and(
      coalesce(_is_plain_job(n, max_payload), false)
      AND n.id < newest
      AND get_byte(uuid_send(n.id), 6) >> 4 = 7),
    bool_or(_may_have_quota(n.tenant)),
    EXISTS (
      SELECT
      FROM queues q
      WHERE q.lanes <> 'none'
        AND q.name = ANY (ARRAY(SELECT x.queue FROM unnest(new_jobs) x)))
  INTO plain, has_quota, has_lanes
  FROM unnest(new_jobs) n;
  IF NOT plain THEN
    IF EXISTS (SELECT FROM unnest(new_jobs) x WHERE starts_with(x.type, 'connector.')) THEN
      new_jobs := ARRAY(
        SELECT CASE WHEN starts_with(x.type, 'connector.') THEN _prepare_connector_job(x) ELSE x END
        FROM unnest(new_jobs) x);
    END IF;
    PERFORM _refuse_job(x.type, x.fault)
    FROM (
      SELECT
        n.type,
        coalesce(_job_error(n, max_payload, horizon, builtin), _expiry_error(n, t)) AS fault
      FROM unnest(new_jobs) n) x
    WHERE x.fault IS NOT NULL
    LIMIT 1;
    awaited := ARRAY(SELECT unnest(x.depends_on) FROM unnest(new_jobs) x);
    has_keys := EXISTS (
      SELECT
      FROM unnest(new_jobs) x
      WHERE x.idempotency_key IS NOT NULL
        OR _is_unique(x)
        OR x.meta ? 'notify');
  END IF;
  plain := plain AND NOT has_quota AND NOT has_lanes;
  IF resend OR NOT ids_are_new OR has_keys THEN
    RETURN QUERY
      SELECT *
      FROM _insert_with_care(
        new_jobs, plain, has_keys OR has_quota, resend, ids_are_new, strict, t);
    RETURN;
  END IF;
  IF has_quota THEN PERFORM _take_quotas(new_jobs); END IF;
  RETURN QUERY
    WITH p AS MATERIALIZED (SELECT * FROM _policy_ids(new_jobs))
    INSERT INTO jobs AS j (
      id, run_at, created_at, policy, timeout, version, priority, max_attempts, class, lane,
      limit_keys, order_key, route_key, awaited, wait, wait_key, queue, type, tenant, created_by,
      payload, meta, expires_at)
    SELECT
      x.id, coalesce(x.run_at, t + x.delay, t), t,
      CASE
        WHEN x.retry IS NULL THEN 1
        ELSE (SELECT p.policy FROM p WHERE p.retry = x.retry)
      END,
      extract(epoch FROM x.timeout), x.version, x.priority, x.max_attempts,
      coalesce(x.flow_class, CASE WHEN x.max_attempts = 1 THEN 1 ELSE 0 END),
      coalesce(x.flow_lane, 0), x.flow_keys, x.flow_order, x.flow_route,
      x.id IN (SELECT unnest(awaited)), x.flow_wait, x.flow_wait_key,
      x.queue, x.type, x.tenant, x.created_by, x.payload, x.meta,
      coalesce(x.expires_at, t + x.expires_in)
    FROM
      ROWS FROM (unnest(new_jobs), _plan_flow(CASE WHEN NOT plain THEN new_jobs END, t)) x
    RETURNING j.id, j.seq, true, false;
  PERFORM _wake_for_new_jobs(new_jobs, t);
  IF NOT plain THEN
    PERFORM _refuse_ids_of_holders(ARRAY(
      SELECT x.id FROM unnest(new_jobs) x WHERE x.ordered_by IS NOT NULL));
  END IF;
  IF cardinality(awaited) > 0 THEN
    PERFORM _add_dependencies(
      new_jobs, ARRAY(SELECT x.id FROM unnest(new_jobs) x),
      array_fill(true, ARRAY[cardinality(new_jobs)]), t);
  END IF;
END $$;

-- Stores jobs that may be stored already, or have idempotency or unique keys, or a notification.
-- `one_by_one`: a job has such a key or notification, or may have a quota. Locks the keys, and the
-- jobs that it waits for or replaces.
CREATE OR REPLACE FUNCTION _insert_with_care(
  new_jobs new_job[],
  plain boolean,
  one_by_one boolean,
  resend boolean,
  ids_are_new boolean,
  strict boolean,
  t timestamptz
)
RETURNS SETOF enqueued_job
LANGUAGE plpgsql VOLATILE
AS $$
#variable_conflict use_variable
DECLARE
  answers enqueued_job[];
  ids uuid[];
BEGIN
  PERFORM _refuse_job(min(x.type), format('id %s must not be given to two jobs', x.id))
  FROM unnest(new_jobs) x
  GROUP BY x.id
  HAVING count(*) > 1;
  IF one_by_one THEN
    answers := ARRAY(
      SELECT i FROM _insert_jobs_one_by_one(new_jobs, resend, ids_are_new, strict, t) i);
  ELSE
    answers := ARRAY(SELECT i FROM _insert_unless_stored(new_jobs, plain, resend, t) i);
    PERFORM _wake_for_new_jobs(new_jobs, t);
  END IF;
  IF EXISTS (SELECT FROM unnest(new_jobs) x WHERE cardinality(x.depends_on) > 0) THEN
    ids := ARRAY(SELECT a.id FROM unnest(answers) a);
    PERFORM _add_dependencies(
      new_jobs, ids,
      CASE WHEN NOT resend THEN ARRAY(SELECT a.created FROM unnest(answers) a) END, t);
    PERFORM _replace_dependencies(x.job, x.earlier_job, x.parents, t)
    FROM _find_replaced_parents(new_jobs, ids) x;
  END IF;
  RETURN QUERY SELECT * FROM unnest(answers);
END $$;

-- Counts new jobs against the quotas of their tenants, in the order of their names.
CREATE OR REPLACE FUNCTION _take_quotas(new_jobs new_job[])
RETURNS void
LANGUAGE plpgsql VOLATILE
AS $$
BEGIN
  PERFORM _take_quota(q.tenant, q.jobs, q.payload_bytes)
  FROM (
    SELECT
      x.tenant, count(*) AS jobs, sum(_payload_size(x.payload, x.meta))::bigint AS payload_bytes
    FROM unnest(new_jobs) x
    WHERE _may_have_quota(x.tenant)
    GROUP BY 1
    ORDER BY 1) q;
END $$;

-- Jobs that have replaced an earlier one, with the parents that they name: `ids` are the ids of the
-- stored jobs.
CREATE OR REPLACE FUNCTION _find_replaced_parents(new_jobs new_job[], ids uuid[])
RETURNS TABLE (job new_job, earlier_job uuid, parents uuid[])
LANGUAGE sql STABLE
AS $$
  WITH n AS MATERIALIZED (
    SELECT x AS job, ids[row_number() OVER ()] AS actual FROM unnest(new_jobs) x)
  SELECT n.job, n.actual, ARRAY(
      SELECT coalesce(p.actual, w.parent)
      FROM unnest((n.job).depends_on) WITH ORDINALITY w(parent, place)
      LEFT JOIN n p ON (p.job).id = w.parent
      ORDER BY w.place)
  FROM n
  WHERE n.actual <> (n.job).id
    AND cardinality((n.job).depends_on) > 0
    AND ((n.job).on_duplicate = 'replace' OR (n.job).debounce_wait IS NOT NULL)
    AND EXISTS (
      SELECT
      FROM uniques u
      WHERE u.tenant = (n.job).tenant
        AND u.type = (n.job).type
        AND u.key = _unique_key(n.job)
        AND u.job_id = n.actual)
$$;

-- The columns of new jobs that say how they may run, as _job_flow(), and what they wait for. One
-- row per job, in their order; none for NULL.
--
-- If a bulk has more jobs of a key than the key has places, the others are parked at once: a claim
-- need not read them to find out that the key is full. Each of the jobs that stay ready makes
-- another one ready when it ends, so no job is left behind. A queue and a type each have ready jobs
-- of their own, because they may be paused. Keys with a rate, and jobs with several keys or in
-- lanes, are left to the claim.
CREATE OR REPLACE FUNCTION _plan_flow(new_jobs new_job[], t timestamptz)
RETURNS TABLE (
  flow_class smallint,
  flow_lane int,
  flow_keys text[],
  flow_order text,
  flow_route text,
  flow_wait text,
  flow_wait_key text
)
LANGUAGE plpgsql VOLATILE
AS $$
BEGIN
  IF new_jobs IS NULL THEN RETURN; END IF;
  RETURN QUERY
    SELECT
      y.class, y.lane, y.limit_keys, y.order_key, y.route_key,
      CASE WHEN y.rank > y.places THEN 'parked' ELSE y.wait END,
      CASE WHEN y.rank > y.places THEN y.limit_keys[1] END
    FROM (
      SELECT
        f.*, w.wait, n.number, p.places,
        row_number() OVER (
          PARTITION BY f.limit_keys, p.places, (n.job).queue, (n.job).type
          ORDER BY (n.job).priority DESC, n.number) AS rank
      FROM (SELECT x AS job, row_number() OVER () AS number FROM unnest(new_jobs) x) n
      CROSS JOIN LATERAL (
        SELECT CASE
            WHEN cardinality((n.job).depends_on) > 0 THEN 'blocked'
            WHEN coalesce((n.job).run_at, t + (n.job).delay) > t THEN 'delayed'
          END AS wait) w
      CROSS JOIN LATERAL _job_flow(n.job) f
      LEFT JOIN LATERAL (
        SELECT coalesce(
          (
            SELECT greatest(l.max, 1)
            FROM limits l
            WHERE l.name = _limit_name(f.limit_keys[1])
              AND l.rates IS NULL
              AND l.when_full = 'wait'),
          CASE WHEN f.order_key IS NOT NULL THEN 1 END) AS places
        WHERE w.wait IS NULL
          AND f.lane = 0
          AND cardinality(f.limit_keys) = 1) p ON true) y
    ORDER BY y.number;
END $$;

-- Wakes workers for the jobs that can run now, and promoters for the others.
CREATE OR REPLACE FUNCTION _wake_for_new_jobs(new_jobs new_job[], t timestamptz)
RETURNS void
LANGUAGE plpgsql VOLATILE
AS $$
BEGIN
  PERFORM _wake_workers(q.queue)
  FROM (
    SELECT DISTINCT x.queue
    FROM unnest(new_jobs) x
    WHERE coalesce(x.run_at, t + x.delay, t) <= t
      AND x.depends_on IS NULL) q;
  PERFORM _wake_promoters(min(x.due), t)
  FROM (
    SELECT coalesce(n.run_at, t + n.delay) AS due
    FROM unnest(new_jobs) n
    UNION ALL
    SELECT coalesce(n.expires_at, t + n.expires_in)
    FROM unnest(new_jobs) n) x
  WHERE x.due > t
  HAVING count(*) > 0;
END $$;

-- Inserts jobs whose ids may be stored already. `is_plain`: none has options of flow control. A job
-- that is sent again, after a lost reply, may have run: the INSERT waits for a settle() that moves
-- it, but only a later statement sees it in the history.
CREATE OR REPLACE FUNCTION _insert_unless_stored(
  new_jobs new_job[],
  is_plain boolean,
  resend boolean,
  t timestamptz
)
RETURNS SETOF enqueued_job
LANGUAGE plpgsql VOLATILE
AS $$
#variable_conflict use_variable
DECLARE
  stored uuid[];
  seqs bigint[];
  finished uuid[];
BEGIN
  PERFORM _check_isolation('enqueue with a given id');
  WITH p AS MATERIALIZED (SELECT * FROM _policy_ids(new_jobs)),
    i AS (
      INSERT INTO jobs AS j (
        id, run_at, created_at, policy, timeout, version, priority, max_attempts, class, lane,
        limit_keys, order_key, route_key, wait, queue, type, tenant, created_by, payload, meta,
        expires_at)
      SELECT
        x.id, coalesce(x.run_at, t + x.delay, t), t,
        CASE
          WHEN x.retry IS NULL THEN 1
          ELSE (SELECT p.policy FROM p WHERE p.retry = x.retry)
        END,
        extract(epoch FROM x.timeout), x.version, x.priority, x.max_attempts,
        coalesce(f.class, CASE WHEN x.max_attempts = 1 THEN 1 ELSE 0 END), coalesce(f.lane, 0),
        f.limit_keys, f.order_key, f.route_key,
        CASE WHEN coalesce(x.run_at, t + x.delay) > t THEN 'delayed' END,
        x.queue, x.type, x.tenant, x.created_by, x.payload, x.meta, _expiry(x, t)
      FROM unnest(new_jobs) x
      LEFT JOIN LATERAL (SELECT g.* FROM _job_flow(x) g WHERE NOT is_plain) f ON true
      ON CONFLICT (id) DO NOTHING
      RETURNING j.id, j.seq)
  SELECT coalesce(array_agg(i.id), '{}'), coalesce(array_agg(i.seq), '{}')
  INTO stored, seqs
  FROM i;
  finished := ARRAY(
    SELECT f.id
    FROM finished_jobs f
    JOIN unnest(new_jobs) x ON x.id = f.id AND x.tenant = f.tenant
    WHERE f.id = ANY (stored)
      AND f.finished_at >= (SELECT min(_history_start(x)) FROM unnest(stored) x));
  IF NOT is_plain THEN
    PERFORM _refuse_ids_of_holders(ARRAY(
      SELECT x.id
      FROM unnest(new_jobs) x
      WHERE x.ordered_by IS NOT NULL
        AND x.id = ANY (stored)
        AND x.id <> ALL (finished)));
  END IF;
  IF cardinality(stored) = cardinality(new_jobs) AND cardinality(finished) = 0 THEN
    RETURN QUERY SELECT i.id, i.seq, true, false FROM unnest(stored, seqs) i(id, seq);
    RETURN;
  END IF;
  DELETE FROM jobs j WHERE j.id = ANY (finished);
  seqs := ARRAY(SELECT _own_job_seq(x.id, x.tenant, x.type) FROM unnest(new_jobs) x);
  -- A job of another tenant or type has the id.
  PERFORM _refuse_taken_id(x.type, x.id)
  FROM unnest(new_jobs) WITH ORDINALITY x
  WHERE seqs[x.ordinality] IS NULL
  LIMIT 1;
  RETURN QUERY
    SELECT
      x.id, seqs[x.ordinality],
      resend OR x.id = ANY (stored) AND x.id <> ALL (finished),
      false
    FROM unnest(new_jobs) WITH ORDINALITY x;
END $$;

-- The retry policies of these jobs, each with its id.
CREATE OR REPLACE FUNCTION _policy_ids(new_jobs new_job[])
RETURNS TABLE (retry jsonb, policy int)
LANGUAGE sql VOLATILE
AS $$
  SELECT r.retry, _policy_id(r.retry)
  FROM (SELECT DISTINCT x.retry FROM unnest(new_jobs) x WHERE x.retry IS NOT NULL) r
$$;

-- Inserts jobs in the order of their unique and idempotency keys, so that two calls with the same
-- keys do not deadlock. If a job has both, all idempotency keys are reserved first. A job whose
-- idempotency key an earlier one in the call has comes after that one.
CREATE OR REPLACE FUNCTION _insert_jobs_one_by_one(
  new_jobs new_job[],
  resend boolean,
  ids_are_new boolean,
  strict boolean,
  t timestamptz
)
RETURNS SETOF enqueued_job
LANGUAGE plpgsql VOLATILE
AS $$
BEGIN
  IF EXISTS (
    SELECT FROM unnest(new_jobs) x WHERE x.idempotency_key IS NOT NULL AND _is_unique(x)) THEN
    PERFORM _reserve_key(
      k.tenant, k.type, k.idempotency_key, k.id, k.payload, t + k.idempotency_window, t)
    FROM (
      SELECT DISTINCT ON (x.tenant, x.type, x.idempotency_key) x.*
      FROM unnest(new_jobs) WITH ORDINALITY x
      WHERE x.idempotency_key IS NOT NULL
      ORDER BY x.tenant, x.type, x.idempotency_key, x.ordinality) k;
  END IF;
  RETURN QUERY
    WITH sorted AS MATERIALIZED (
        SELECT
          n.place,
          jsonb_populate_record(n.job, '{"depends_on": null, "run_if": null}') AS job
        FROM (
          SELECT
            x.place,
            x.job,
            (x.job).idempotency_key IS NOT NULL AND row_number() OVER (
              PARTITION BY (x.job).tenant, (x.job).type, (x.job).idempotency_key
              ORDER BY x.place) > 1 AS is_repeated
          FROM (SELECT row_number() OVER () AS place, y AS job FROM unnest(new_jobs) y) x) n
        ORDER BY
          n.is_repeated, (n.job).tenant, (n.job).type,
          CASE WHEN _is_unique(n.job) THEN _unique_key(n.job) END, (n.job).idempotency_key,
          n.place),
      done AS MATERIALIZED (
        SELECT
          s.place,
          _enqueue_checked(
            s.job, (ids_are_new AND NOT resend) IS TRUE, resend IS TRUE, strict, NULL, t) AS answer
        FROM sorted s)
    SELECT (d.answer).* FROM done d ORDER BY d.place;
END $$;
