-- How claim() picks jobs in quarantine, and jobs of types that other nodes do not know.

-- Picks one job in quarantine, or one of a type that another node does not know.
CREATE OR REPLACE FUNCTION _pick_alone(rules claim_rules)
RETURNS pick
LANGUAGE plpgsql VOLATILE
AS $$
#variable_conflict use_variable
DECLARE
  picked pick;
  open_queues text[];
BEGIN
  SELECT * INTO open_queues, picked.limited_queues, picked.is_busy
  FROM _find_queues_with_places(rules.queues, rules.declared_queues);
  picked.jobs := _pick_quarantined(rules.epoch, open_queues, rules.lanes);
  IF cardinality(picked.jobs) = 0 AND rules.has_unsupported_types THEN
    picked.jobs := _pick_jobs_others_do_not_support(rules, open_queues, 1, true);
  END IF;
  RETURN picked;
END $$;

-- Picks one job in quarantine, of a lane that this node may take.
CREATE OR REPLACE FUNCTION _pick_quarantined(epoch bigint, queues text[], label_lanes int[])
RETURNS picked_job[]
LANGUAGE plpgsql VOLATILE
AS $$
#variable_conflict use_variable
BEGIN
  RETURN ARRAY(
    SELECT y.job
    FROM unnest(queues) q(queue)
    CROSS JOIN LATERAL (
      SELECT ROW(j.ctid, 0, j.limit_keys IS NOT NULL)::picked_job AS job
      FROM jobs j
      WHERE j.queue = q.queue
        AND j.class = 2
        AND j.wait IS NULL
        AND j.fence = 0
        AND (
          j.lane = ANY (label_lanes)
          OR j.lane > 0 AND _owns_lane(epoch, q.queue, j.lane))
      ORDER BY j.lane, j.priority DESC, j.run_at, j.id
      LIMIT 1
      FOR UPDATE SKIP LOCKED) y
    LIMIT 1);
END $$;

-- Whether a node may take the jobs of a lane above 0: every node may, if the lane is a share.
CREATE OR REPLACE FUNCTION _owns_lane(node_epoch bigint, queue text, lane int)
RETURNS boolean
LANGUAGE sql STABLE
AS $$
  SELECT NOT EXISTS (SELECT FROM queues q WHERE q.name = queue AND q.lanes = 'route')
    OR EXISTS (
      SELECT
      FROM queues q
      JOIN tokens k
        ON k.token_group = q.token_group AND k.token = lane - 1
          AND k.epoch = node_epoch AND k.next IS NULL
      WHERE q.name = queue)
$$;

-- Adds jobs of types that other nodes do not know to those that were picked, and leaves out what
-- comes after the last place of a queue.
CREATE OR REPLACE FUNCTION _add_jobs_others_do_not_support(
  rules claim_rules,
  jobs picked_job[]
)
RETURNS pick
LANGUAGE plpgsql VOLATILE
AS $$
#variable_conflict use_variable
DECLARE
  picked pick;
  open_queues text[];
  number int := cardinality(jobs);
BEGIN
  SELECT * INTO open_queues, picked.limited_queues, picked.is_busy
  FROM _find_queues_with_places(rules.queues, rules.declared_queues);
  picked.jobs := jobs || _pick_jobs_others_do_not_support(
    rules, open_queues,
    CASE
      WHEN rules.slots > number THEN rules.slots - number
      ELSE least(rules.slots, rules.max - number)
    END,
    rules.slots > number);
  IF cardinality(picked.limited_queues) > 0 THEN
    picked.jobs := _keep_jobs_with_places(picked.jobs);
  END IF;
  RETURN picked;
END $$;

-- Picks jobs of types or versions that another node does not know, and this node does. Jobs of
-- class 1 only with `into_slots`: all that it picks can start at once. Lists the first jobs of all
-- these types, without locks, to find out how many to pick from each.
CREATE OR REPLACE FUNCTION _pick_jobs_others_do_not_support(
  rules claim_rules,
  queues text[],
  max int,
  into_slots boolean
)
RETURNS picked_job[]
LANGUAGE plpgsql VOLATILE
AS $$
#variable_conflict use_variable
BEGIN
  RETURN ARRAY(
    WITH first_jobs AS (
        SELECT y.wait_key
        FROM unnest(queues) WITH ORDINALITY q(queue, n)
        CROSS JOIN unsupported_types u
        JOIN node_types n
          ON n.epoch = rules.epoch AND n.type = u.type AND n.version >= u.version
        CROSS JOIN LATERAL (
          SELECT j.wait_key, j.lane, j.priority, j.run_at, j.id
          FROM jobs j
          WHERE j.wait = 'unsupported'
            AND j.wait_key = _unsupported_key(q.queue, u.type, u.version)
            AND (j.class = 2) = rules.alone
            AND j.fence = 0
            AND (j.class <> 1 OR into_slots)
            AND (rules.tenant IS NULL OR j.tenant = rules.tenant)
            AND (j.lane = ANY (rules.lanes) OR j.lane > 0 AND _owns_lane(n.epoch, j.queue, j.lane))
          ORDER BY j.lane, j.priority DESC, j.run_at, j.id
          LIMIT max) y
        WHERE u.type <> ALL (coalesce(rules.without, '{}'))
        ORDER BY q.n, y.lane, y.priority DESC, y.run_at, y.id
        LIMIT max),
      keys AS MATERIALIZED (SELECT f.wait_key, count(*) AS number FROM first_jobs f GROUP BY 1)
    SELECT x.job
    FROM keys k
    CROSS JOIN LATERAL (
      SELECT ROW(j.ctid, 0, j.limit_keys IS NOT NULL)::picked_job AS job
      FROM jobs j
      WHERE j.wait = 'unsupported'
        AND j.wait_key = k.wait_key
        AND (j.class = 2) = rules.alone
        AND j.fence = 0
        AND (j.class <> 1 OR into_slots)
        AND (rules.tenant IS NULL OR j.tenant = rules.tenant)
        AND (
          j.lane = ANY (rules.lanes) OR j.lane > 0 AND _owns_lane(rules.epoch, j.queue, j.lane))
      ORDER BY j.lane, j.priority DESC, j.run_at, j.id
      LIMIT k.number
      FOR UPDATE SKIP LOCKED) x);
END $$;
