-- Says what the chores of a node have to do, so that an idle node sends one statement for all its
-- chores. Locks and writes nothing. Each part reads the first entries of an index. The arguments:
--   epoch           the epoch of the node
--   queues          the queues that its worker serves
--   since           delayed jobs that were due earlier, and older dependency checks, are not read;
--                   so a frequent caller skips index entries that an old snapshot keeps
--   looks_for_jobs  whether to look for ready jobs and for a sleeping worker
CREATE OR REPLACE FUNCTION _survey(
  epoch bigint,
  queues text[],
  since timestamptz DEFAULT '-infinity',
  looks_for_jobs boolean DEFAULT true,
  now timestamptz DEFAULT NULL
)
RETURNS TABLE (
  -- For a node that watches the others: all nodes that have not left, with their epochs, the
  -- numbers and leases of their heartbeats, and the ages of these in seconds. NULL for others.
  epochs bigint[],
  beats bigint[],
  leases float8[],
  ages float8[],
  fences bigint[], -- of the claims of this node
  has_leftover_claim boolean, -- of a node that was lost or has left; false for other nodes too
  -- Seconds until promote() has to be called; negative if a job is due or has expired.
  next_delayed_in float8,
  has_dependency_check boolean,
  has_ready_job boolean,
  has_sleeping_worker boolean,
  has_stale_declaration boolean,
  has_unpaused_job boolean, -- parked by a pause that has ended
  has_freed_schedule boolean, -- stopped as an orphan, and declared again
  has_unsupported_job boolean,
  has_claim boolean,
  has_dependency boolean,
  has_step boolean,
  has_parked_job boolean, -- or one in a lane that no claim reads: both are found by sweep_limits()
  has_quota boolean, -- a tenant has one
  has_due_observation boolean, -- of figures
  -- The groups for which the node is a candidate. The next arrays say of each group which node
  -- leads it, in which term, and when that ends: see _list_leaders().
  groups text[],
  leaders bigint[],
  terms bigint[],
  leaders_expire_in float8[],
  turns_in float8[],
  has_operation boolean, -- a bulk operation runs
  has_due_delivery boolean -- of an alert
)
LANGUAGE plpgsql VOLATILE AS $$
#variable_conflict use_variable
DECLARE
  t timestamptz := _clock(now);
  stopped bigint[] := ARRAY(SELECT x.schedule_id FROM timers x WHERE x.held_slot IS NOT NULL);
  watches boolean := _watches_nodes(epoch, t);
BEGIN
  IF watches THEN
    SELECT
      array_agg(b.epoch), array_agg(b.n), array_agg(extract(epoch FROM n.lease)::float8),
      array_agg(extract(epoch FROM t - b.at)::float8)
    INTO epochs, beats, leases, ages
    FROM beats b
    JOIN nodes n USING (epoch);
  END IF;
  SELECT
    ARRAY(SELECT c.fence FROM claims c WHERE c.epoch = epoch),
    watches AND EXISTS (
      SELECT
      FROM (SELECT DISTINCT c.epoch FROM claims c) held
      JOIN nodes n USING (epoch)
      WHERE n.state IN ('lost', 'left')),
    extract(epoch FROM least(
      (
        SELECT j.run_at
        FROM jobs j
        WHERE j.wait = 'delayed'
          AND j.run_at >= since
        ORDER BY j.run_at
        LIMIT 1),
      _find_next_expiry(since),
      (SELECT min(s.next_at) FROM limit_states s WHERE s.next_at IS NOT NULL)) - t)::float8,
    EXISTS (SELECT FROM dependency_checks u WHERE u.at >= since),
    _has_stale_declaration(epoch),
    EXISTS (SELECT FROM _find_unpaused_keys()),
    cardinality(stopped) > 0 AND cardinality(_find_orphans(stopped)) < cardinality(stopped),
    EXISTS (SELECT FROM unsupported_types)
      OR EXISTS (SELECT FROM jobs j WHERE j.wait = 'unsupported' AND j.wait_key IS NOT NULL),
    EXISTS (SELECT FROM claims),
    EXISTS (SELECT FROM dependencies),
    EXISTS (SELECT FROM steps) OR EXISTS (SELECT FROM signals),
    EXISTS (SELECT FROM jobs j WHERE j.wait = 'parked' AND j.wait_key IS NOT NULL)
      OR cardinality(_find_jobs_in_wrong_lanes(1)) > 0,
    EXISTS (SELECT FROM tenants),
    _has_due_observation(t),
    EXISTS (SELECT FROM bulk_operations o WHERE o.state = 'running'),
    EXISTS (SELECT FROM alert_deliveries d WHERE d.ended_at IS NULL AND d.due_at <= t)
  INTO
    fences, has_leftover_claim, next_delayed_in, has_dependency_check, has_stale_declaration,
    has_unpaused_job, has_freed_schedule, has_unsupported_job, has_claim, has_dependency,
    has_step, has_parked_job, has_quota, has_due_observation, has_operation,
    has_due_delivery;
  SELECT
    array_agg(l.group_name), array_agg(l.leader), array_agg(l.term), array_agg(l.expires_in),
    array_agg(l.turn_in)
  INTO groups, leaders, terms, leaders_expire_in, turns_in
  FROM _list_leaders(epoch, NULL, t) l;
  IF looks_for_jobs THEN
    has_ready_job := _has_ready_job(epoch, _unpaused_queues(queues));
    has_sleeping_worker := _has_sleeping_worker();
  END IF;
  RETURN NEXT;
END $$;

-- Says whether a node watches the heartbeats of all others: the sixteen oldest nodes do that live.
-- If every node did, the cost of all surveys would grow with the square of the number of nodes. A
-- node counts as alive for half a lease after its heartbeat, so that others have begun to watch
-- long before the leases of dead watchers have passed twice.
CREATE OR REPLACE FUNCTION _watches_nodes(epoch bigint, t timestamptz)
RETURNS boolean
LANGUAGE plpgsql STABLE AS $$
#variable_conflict use_variable
BEGIN
  RETURN NOT EXISTS (
    SELECT
    FROM beats b
    JOIN nodes n USING (epoch)
    WHERE b.epoch < epoch
      AND b.at > t - n.lease / 2
      AND b.at <= t
    ORDER BY b.epoch
    OFFSET 15
    LIMIT 1);
END $$;

-- Says whether a claim for this node and these queues may find a job. It may still find none,
-- because a job may be routed to another node. Relies on the planner settings of _survey(), which
-- calls it.
CREATE OR REPLACE FUNCTION _has_ready_job(epoch bigint, queues text[])
RETURNS boolean
LANGUAGE plpgsql STABLE AS $$
#variable_conflict use_variable
BEGIN
  RETURN EXISTS (
    SELECT
    FROM unnest(queues) q(queue)
    CROSS JOIN LATERAL (
      (
        SELECT
        FROM jobs j
        WHERE j.queue = q.queue
          AND j.wait IS NULL
          AND j.fence = 0
        LIMIT 1)
      UNION ALL
      (
        SELECT
        FROM unsupported_types u
        JOIN node_types n
          ON n.epoch = epoch AND n.type = u.type AND n.version >= u.version
        JOIN jobs j
          ON j.wait = 'unsupported' AND j.fence = 0
            AND j.wait_key = _unsupported_key(q.queue, u.type, u.version)
        LIMIT 1)) x);
END $$;
