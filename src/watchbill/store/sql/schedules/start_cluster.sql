-- Runs the schedules that run when the cluster starts, if declare_schedules() could not decide
-- whether it just did. That happens after a crash of all nodes, until the old nodes are declared
-- lost. Returns whether the cluster has started since this process registered; NULL if this is not
-- known yet: call again. Takes the advisory lock of declare_schedules().
CREATE OR REPLACE FUNCTION start_cluster(epoch bigint, now timestamptz DEFAULT NULL)
RETURNS boolean
LANGUAGE plpgsql VOLATILE AS $$
#variable_conflict use_variable
DECLARE
  t timestamptz := _clock(now);
  node nodes;
  on_start bigint[] := ARRAY(SELECT _find_on_start_schedules(epoch));
  is_start boolean;
BEGIN
  PERFORM _check_shared_change('start_cluster');
  SELECT *
  INTO node
  FROM nodes n
  WHERE n.epoch = epoch
    AND n.state IN ('active', 'draining')
    AND n.declared_at IS NOT NULL;
  IF NOT FOUND THEN
    -- The node is lost, but its process may register again.
    RETURN NULL;
  ELSIF on_start = '{}' THEN
    RETURN false;
  END IF;
  PERFORM _take_lock(_lock_class_declarations(), hashtext('schedules'::regclass::oid || node.app));
  IF EXISTS (
    SELECT
    FROM slots s
    WHERE s.schedule_id = ANY (on_start)
      AND s.kind = 'start'
      AND s.slot >= (_find_first_registration(node)).at) THEN
    RETURN true;
  END IF;
  is_start := _has_started_cluster(node);
  IF is_start THEN
    PERFORM _run_schedule_outside_slots(_lock_schedule_to_run(m, t), 'start', NULL, t)
    FROM unnest(on_start) m;
  END IF;
  RETURN is_start;
END $$;

-- Lists the schedules that a node declares and that run when its cluster starts; in a session that
-- acts for a tenant, those of this tenant.
CREATE OR REPLACE FUNCTION _find_on_start_schedules(epoch bigint)
RETURNS SETOF bigint
LANGUAGE sql STABLE AS $$
  SELECT s.id
  FROM declarations d
  JOIN schedules s ON s.id = d.schedule_id
  LEFT JOIN compiled_patterns r ON r.id = s.pattern_id
  WHERE d.epoch = _find_on_start_schedules.epoch
    AND s.enabled
    AND (s.run_on_start OR r.on_start)
    AND s.tenant = coalesce(_acting_tenant(), s.tenant)
$$;

-- Returns when the process of a node first registered, and when it first declared its schedules. A
-- process that registers again after a loss keeps its `instance`.
CREATE OR REPLACE FUNCTION _find_first_registration(
  node nodes, OUT at timestamptz, OUT declared_at timestamptz, OUT epoch bigint
)
LANGUAGE sql STABLE AS $$
  SELECT
    min(n.started_at), min(n.declared_at), min(n.epoch) FILTER (WHERE n.declared_at IS NOT NULL)
  FROM nodes n
  WHERE n.instance = node.instance
$$;

-- Says whether this process started the cluster: no other process of the app was alive and had
-- declared its schedules when this process registered. NULL if this is not known yet, because
-- another process has neither sent a beat since then nor been declared lost.
CREATE OR REPLACE FUNCTION _has_started_cluster(node nodes)
RETURNS boolean
LANGUAGE sql STABLE AS $$
  SELECT CASE WHEN bool_or(x.lived) THEN false WHEN count(*) = 0 THEN true END
  FROM (
    SELECT o.state IN ('left', 'lost') OR b.at >= me.at AS lived
    FROM _find_first_registration(node) me
    CROSS JOIN nodes o
    LEFT JOIN beats b ON b.epoch = o.epoch
    WHERE o.app = node.app
      AND o.instance <> node.instance
      AND (o.state IN ('active', 'draining') OR o.ended_at > me.at)
      AND EXISTS (
        SELECT
        FROM _find_first_registration(o) c
        WHERE c.declared_at IS NOT NULL
          AND (me.declared_at IS NULL OR (c.declared_at, c.epoch) < (me.declared_at, me.epoch)))) x
$$;
