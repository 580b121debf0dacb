-- after: job_cause
-- Says who has locked the row of a job, so that claims skip it. The transaction that has locked it
-- stands in the row: alone, or as a member of a multixact. Names the session for a caller that acts
-- for all tenants, and its statement for a role that may read the statements of others.
CREATE OR REPLACE FUNCTION _explain_lock(j jobs, t timestamptz)
RETURNS SETOF job_cause
LANGUAGE plpgsql STABLE AS $$
DECLARE
  lockers xid[] := _find_lockers(j.id);
  s record;
BEGIN
  IF cardinality(lockers) = 0 THEN RETURN; END IF;
  SELECT
    a.pid, a.usename, a.application_name, a.xact_start,
    CASE WHEN pg_has_role(_caller(), 'pg_read_all_stats', 'USAGE') THEN a.query END AS query
  INTO s
  FROM pg_locks l
  JOIN pg_stat_activity a USING (pid)
  WHERE l.locktype = 'transactionid'
    AND l.granted
    AND l.transactionid = ANY (lockers)
    AND _acts_for_all_tenants()
  LIMIT 1;
  RETURN QUERY
    SELECT
      10,
      'locked',
      'another transaction has locked it, so claims skip it' || coalesce(format(
        ': process %s (%s) of role %s, since %s', s.pid, coalesce(
          nullif(s.application_name, ''), 'no program name'),
        s.usename, date_trunc('second', s.xact_start)), ''),
      NULL::timestamptz,
      s.xact_start,
      coalesce(s.xact_start < t - interval '15 seconds', false),
      CASE
        WHEN s.pid IS NULL THEN '{}'
        ELSE ARRAY[format('psql -c "SELECT pg_terminate_backend(%s)"', s.pid)]
      END,
      jsonb_strip_nulls(jsonb_build_object(
        'pid', s.pid, 'program', s.application_name, 'role', s.usename, 'statement', s.query));
END $$;

-- Returns the transactions that have locked the row of a job and have not ended. The row does not
-- say whether its number is that of a transaction or of a multixact, so a session counts only if it
-- has locked the table too.
CREATE OR REPLACE FUNCTION _find_lockers(id uuid)
RETURNS xid[]
LANGUAGE plpgsql STABLE AS $$
#variable_conflict use_variable
DECLARE
  locker xid := (SELECT x.xmax FROM jobs x WHERE x.id = id);
  lockers xid[] := ARRAY[locker];
BEGIN
  IF locker = '0'::xid THEN RETURN '{}'; END IF;
  BEGIN
    lockers := lockers || ARRAY(SELECT m.xid FROM pg_get_multixact_members(locker) m);
  -- It is a transaction, and no multixact has this number.
  EXCEPTION WHEN internal_error OR invalid_parameter_value OR undefined_file THEN
    NULL;
  END;
  RETURN ARRAY(
    SELECT l.transactionid
    FROM pg_locks l
    WHERE l.locktype = 'transactionid'
      AND l.granted
      AND l.pid <> pg_backend_pid()
      AND l.transactionid = ANY (lockers)
      AND EXISTS (
        SELECT
        FROM pg_locks r
        WHERE r.pid = l.pid
          AND r.locktype = 'relation'
          AND r.relation = 'jobs'::regclass
          AND r.granted));
END $$;

-- Says that every node that could take a job runs as many as it can. Counts the jobs that a node
-- has claimed: claims name more than these, because some have ended. Only for a caller that sees
-- the jobs of all tenants.
CREATE OR REPLACE FUNCTION _explain_full_nodes(j jobs, t timestamptz)
RETURNS SETOF job_cause
LANGUAGE plpgsql STABLE AS $$
DECLARE
  able record;
BEGIN
  IF NOT _acts_for_all_tenants() THEN RETURN; END IF;
  SELECT
    count(*) AS nodes,
    sum(n.capacity) AS slots,
    bool_and(coalesce(n.named >= n.capacity AND n.claimed >= n.capacity, false)) AS are_full,
    (array_agg(n.name ORDER BY n.name))[1:5] AS names
  INTO able
  FROM (
    SELECT
      x.name,
      x.capacity,
      o.named,
      CASE WHEN o.named >= x.capacity THEN _count_claimed_jobs(x.epoch, x.capacity) END AS claimed
    FROM _judge_nodes(j, t) x
    CROSS JOIN LATERAL (
      SELECT coalesce(sum(cardinality(c.job_ids)), 0) AS named
      FROM claims c
      WHERE c.epoch = x.epoch) o
    WHERE x.serves
      AND x.handles
      AND x.matches
      AND x.owns) n;
  IF able.are_full IS NOT TRUE THEN RETURN; END IF;
  RETURN QUERY
    SELECT
      12,
      'full',
      format(
        '%s that could take it %s no free handler slot: %s',
        CASE able.nodes WHEN 1 THEN 'the node' ELSE format('all %s nodes', able.nodes) END,
        CASE able.nodes WHEN 1 THEN 'has' ELSE 'have' END,
        array_to_string(able.names, ', ')
          || CASE WHEN able.nodes > 5 THEN ' and others' ELSE '' END),
      NULL::timestamptz,
      NULL::timestamptz,
      false,
      ARRAY['watchbill worker'],
      jsonb_build_object('nodes', able.nodes, 'slots', able.slots);
END $$;

-- Counts the jobs that a node has claimed and that have not ended, up to `max`.
CREATE OR REPLACE FUNCTION _count_claimed_jobs(epoch bigint, max int)
RETURNS int
LANGUAGE plpgsql STABLE AS $$
#variable_conflict use_variable
BEGIN
  RETURN (
    SELECT count(*)
    FROM (
      SELECT
      FROM claims c
      CROSS JOIN unnest(c.job_ids) h(id)
      JOIN jobs j ON j.id = h.id AND j.fence = c.fence
      WHERE c.epoch = epoch
      LIMIT max) x);
END $$;

-- Says how many jobs come before a job in its order, exact up to 10,000, and about when they have
-- ended, if the queue goes on as in the last ten minutes. In a fair queue each share has an order
-- of its own, and the shares take turns. Only for a caller that acts for all tenants: to pass by
-- the jobs of others would have no bound.
CREATE OR REPLACE FUNCTION _explain_place(j jobs, t timestamptz)
RETURNS SETOF job_cause
LANGUAGE plpgsql STABLE AS $$
DECLARE
  most int := 10000;
  before int;
  is_fair boolean := EXISTS (
    SELECT
    FROM queues q
    WHERE q.name = j.queue
      AND q.lanes = 'share');
  seconds float8;
BEGIN
  IF NOT _acts_for_all_tenants() THEN RETURN; END IF;
  before := _count_jobs_before(j, most + 1);
  IF before = 0 THEN RETURN; END IF;
  IF NOT (is_fair AND j.lane > 0) THEN seconds := before / _find_pace(j.queue, t); END IF;
  RETURN QUERY
    SELECT
      13,
      CASE WHEN is_fair AND j.lane > 0 THEN 'turn' ELSE 'behind' END,
      format(
        '%s %s before it in queue %s',
        CASE
          WHEN before > most THEN format('more than %s jobs', to_char(most, 'FM999,999'))
          WHEN before = 1 THEN '1 job'
          ELSE format('%s jobs', to_char(before, 'FM999,999'))
        END,
        CASE before WHEN 1 THEN 'comes' ELSE 'come' END,
        j.queue)
        || CASE
          WHEN is_fair AND j.lane > 0 THEN ', of its own share; the shares take turns'
          WHEN seconds > 0 THEN format(
            ', %s%s at the pace of the last ten minutes',
            CASE WHEN before > most THEN 'at least ' ELSE 'about ' END,
            date_trunc('second', greatest(seconds, 1) * interval '1 second'))
          ELSE ''
        END,
      CASE WHEN before <= most THEN t + seconds * interval '1 second' END,
      NULL::timestamptz,
      false,
      ARRAY['watchbill worker'],
      jsonb_strip_nulls(jsonb_build_object(
        'before', least(before, most), 'is_exact', before <= most,
        'seconds', round(seconds::numeric, 1)));
END $$;

-- Returns how many runs of a queue have ended per second in the last ten whole minutes, as nodes
-- have reported; NULL if none has.
CREATE OR REPLACE FUNCTION _find_pace(queue text, t timestamptz)
RETURNS float8
LANGUAGE plpgsql STABLE AS $$
#variable_conflict use_variable
DECLARE
  minutes int := 10;
BEGIN
  RETURN (
    SELECT nullif(sum(r.succeeded + r.skipped + r.failed + r.timed_out), 0) / (minutes * 60.0)
    FROM generate_series(1, minutes) m
    JOIN rollups r
      ON r.grain = 'minute'
        AND r.dimension = 'queue'
        AND r.at = date_bin('1 minute', t, _figures_origin()) - m * interval '1 minute'
        AND r.name = queue);
END $$;

-- Counts the ready jobs of the same queue and lane that start before a job, up to `max`.
CREATE OR REPLACE FUNCTION _count_jobs_before(j jobs, max int)
RETURNS int
LANGUAGE plpgsql STABLE AS $$
BEGIN
  RETURN (
    SELECT count(*)
    FROM (
      SELECT
      FROM (VALUES (0::smallint), (1::smallint)) c(class)
      CROSS JOIN LATERAL (
        (
          SELECT
          FROM jobs x
          WHERE x.queue = j.queue
            AND x.class = c.class
            AND x.lane = j.lane
            AND x.priority > j.priority
            AND x.wait IS NULL
            AND x.fence = 0
          LIMIT max)
        UNION ALL
        (
          SELECT
          FROM jobs x
          WHERE x.queue = j.queue
            AND x.class = c.class
            AND x.lane = j.lane
            AND x.priority = j.priority
            AND (x.run_at, x.id) < (j.run_at, j.id)
            AND x.wait IS NULL
            AND x.fence = 0
          LIMIT max)) y
      LIMIT max) b);
END $$;
