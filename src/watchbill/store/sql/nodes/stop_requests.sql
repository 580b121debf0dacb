-- The runs of a node that have to stop: those with a stop request, and those of the given runs
-- whose job was canceled by force, released or reclaimed. A handler that has completed its job in
-- its own transaction may continue.
CREATE OR REPLACE FUNCTION stop_requests(
  epoch bigint,
  ids uuid[] DEFAULT '{}',
  fences bigint[] DEFAULT '{}'
)
RETURNS TABLE (id uuid, fence bigint)
LANGUAGE sql STABLE AS $$
  SELECT c.job_id, c.fence
  FROM cancels c
  WHERE c.epoch = stop_requests.epoch
    AND (NOT _may_be_bound() OR _acts_for_all_tenants())
  UNION ALL
  SELECT r.id, r.fence
  FROM unnest(ids, fences) r(id, fence)
  WHERE NOT EXISTS (SELECT FROM jobs j WHERE j.id = r.id AND j.fence = r.fence)
    AND NOT EXISTS (
      SELECT
      FROM finished_succeeded f
      WHERE f.id = r.id
        AND f.fence = r.fence
        AND f.finished_at >= _history_start(r.id))
$$;
