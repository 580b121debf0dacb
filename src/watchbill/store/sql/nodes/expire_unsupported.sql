-- Ends jobs as dead if no node has handled their type for the time `grace`. Time in which no node
-- lived does not count: after an outage of all programs, the first one that starts must not end the
-- jobs of the others. Jobs of a type that was never handled wait for this time from when they are
-- due, or from when a node first met the type. With `queue`, ends only jobs of that queue. Locks
-- the jobs; skips locked ones.
CREATE OR REPLACE FUNCTION expire_unsupported(
  grace interval DEFAULT '1 day',
  max int DEFAULT 1000,
  now timestamptz DEFAULT NULL,
  queue text DEFAULT NULL
)
RETURNS int
LANGUAGE plpgsql VOLATILE AS $$
#variable_conflict use_variable
DECLARE
  t timestamptz := _clock(now);
  grace_start timestamptz := _find_grace_start(grace, t);
  endings ending[];
BEGIN
  PERFORM _check_shared_change('expire_unsupported');
  DELETE FROM unsupported_types u
  WHERE (u.type, u.version) NOT IN (SELECT k.type, k.version FROM _find_wait_keys('unsupported') k);
  -- Adds types that an earlier call deleted while a settle() marked a job of that type as
  -- unsupported.
  INSERT INTO unsupported_types (type, version, since)
  SELECT DISTINCT k.type, k.version, t
  FROM _find_wait_keys('unsupported') k
  ORDER BY 1, 2
  ON CONFLICT DO NOTHING;
  endings := ARRAY(
    SELECT ROW(
      j.id, 0, 'unsupported', 'dead', NULL, NULL, NULL,
      jsonb_build_object('kind', 'unsupported', 'message',
        format('no live node handles type %s, version %s', j.type, j.version)))::ending
    FROM _find_unhandled_keys() k
    JOIN jobs j ON j.wait = 'unsupported' AND j.wait_key = k.key
    WHERE coalesce(k.last_handled_at, greatest(j.run_at, k.met_at)) <= grace_start
      AND (queue IS NULL OR k.queue = queue)
      AND j.fence = 0
    LIMIT max
    FOR UPDATE OF j SKIP LOCKED);
  PERFORM _announce_freed(e.freed) FROM _finish_jobs(endings, NULL, t) e;
  RETURN cardinality(endings);
END $$;

-- Returns the time since which nodes have lived for `grace`, the time without any node left out;
-- NULL if they have not lived that long yet. A node that was not declared lost yet lived until its
-- lease ran out.
CREATE OR REPLACE FUNCTION _find_grace_start(grace interval, t timestamptz)
RETURNS timestamptz
LANGUAGE sql STABLE AS $$
  WITH lives AS (
      SELECT
        lower(m.life) AS began,
        sum(extract(epoch FROM upper(m.life) - lower(m.life))::float8)
          OVER (ORDER BY lower(m.life) DESC) AS seconds
      FROM (
        SELECT unnest(range_agg(tstzrange(n.started_at, greatest(
          n.started_at, coalesce(n.ended_at, least(b.at + n.lease, t)))))) AS life
        FROM nodes n
        LEFT JOIN beats b USING (epoch)) m)
  SELECT l.began + make_interval(secs => l.seconds - extract(epoch FROM grace)::float8)
  FROM lives l
  WHERE l.seconds >= extract(epoch FROM grace)
  ORDER BY l.began DESC
  LIMIT 1
$$;

-- Lists the wait keys of unsupported jobs whose type no living node handles, each with the time
-- when the last node that handled it ended, and the time when a node first met it.
CREATE OR REPLACE FUNCTION _find_unhandled_keys()
RETURNS TABLE (key text, queue text, last_handled_at timestamptz, met_at timestamptz)
LANGUAGE sql STABLE AS $$
  SELECT
    k.key,
    k.queue,
    (
      SELECT max(h.at)
      FROM handled_types h
      WHERE h.type = k.type
        AND h.version >= k.version),
    u.since
  FROM _find_wait_keys('unsupported') k
  JOIN unsupported_types u ON u.type = k.type AND u.version = k.version
  -- A node that ends deletes its rows.
  WHERE NOT EXISTS (
    SELECT
    FROM node_types nt
    WHERE nt.type = k.type
      AND nt.version >= k.version)
$$;

-- Records that a node has handled its types until `at`, and deletes its rows of node_types. Deletes
-- what was recorded for the same types before, and skips locked rows of it: two calls of reclaim()
-- that declare several nodes lost would otherwise deadlock.
CREATE OR REPLACE FUNCTION _end_node_types(node_epoch bigint, at timestamptz)
RETURNS void
LANGUAGE plpgsql VOLATILE AS $$
#variable_conflict use_variable
BEGIN
  DELETE FROM handled_types
  WHERE ctid = ANY (ARRAY(
    SELECT h.ctid
    FROM node_types nt
    JOIN handled_types h ON h.type = nt.type AND h.version = nt.version
    WHERE nt.epoch = node_epoch
      AND h.at <= at
    FOR UPDATE OF h SKIP LOCKED));
  WITH ended AS (
    DELETE FROM node_types nt
    WHERE nt.epoch = node_epoch
    RETURNING nt.type, nt.version)
  INSERT INTO handled_types (type, version, at)
  SELECT e.type, e.version, at
  FROM ended e;
END $$;
