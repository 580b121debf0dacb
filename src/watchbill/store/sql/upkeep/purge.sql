-- Deletes finished jobs that match the same conditions as in job_list(), with their attempts, log
-- lines, steps and idempotency keys, at most `max` jobs in a call. Frees the ordered keys that dead
-- jobs among them keep. Skips locked rows. sweep_dependencies() deletes the dependencies of these
-- jobs later.
CREATE OR REPLACE FUNCTION purge(
  states text[],
  type text DEFAULT NULL,
  queue text DEFAULT NULL,
  tenant text DEFAULT NULL,
  message text DEFAULT NULL,
  max int DEFAULT 1000,
  ids uuid[] DEFAULT NULL,
  created_after timestamptz DEFAULT NULL,
  created_before timestamptz DEFAULT NULL,
  finished_after timestamptz DEFAULT NULL,
  finished_before timestamptz DEFAULT NULL,
  now timestamptz DEFAULT NULL
)
RETURNS int
LANGUAGE plpgsql VOLATILE AS $$
DECLARE
  t timestamptz := _clock(now);
  chosen uuid[];
  tenants text[];
  purged int;
BEGIN
  IF NOT states <@ '{succeeded,dead,canceled}'::text[] THEN
    RAISE EXCEPTION 'only finished jobs can be purged'
      USING ERRCODE = 'WB008',
        HINT = 'give some of succeeded, dead, canceled; cancel other jobs first';
  ELSIF coalesce(cardinality(states), 0) = 0 THEN
    RAISE EXCEPTION 'purge needs states'
      USING ERRCODE = 'WB003', HINT = 'give some of succeeded, dead, canceled';
  END IF;
  -- Jobs of two tenants may have the same id, so that an id alone does not name a job.
  SELECT array_agg(l.id), array_agg(l.tenant)
  INTO chosen, tenants
  FROM job_list(
    states, type, queue, tenant, NULL, message, max, ids, created_after,
    created_before, finished_after, finished_before) l;
  purged := _delete_finished_jobs(chosen, tenants, states);
  IF purged > 0 THEN
    PERFORM _audit(
      'purge', purged || ' jobs',
      coalesce(tenant, CASE WHEN NOT _acts_for_all_tenants() THEN current_tenant() END),
      jsonb_build_object('states', states, 'type', type, 'queue', queue, 'message', message)
      || jsonb_strip_nulls(jsonb_build_object(
        'created_after', created_after, 'created_before', created_before,
        'finished_after', finished_after, 'finished_before', finished_before)),
      t);
  END IF;
  RETURN purged;
END $$;

-- Deletes these finished jobs, each named by its id and tenant, with their attempts, log lines,
-- idempotency keys and dependencies, unless they are in another state by now or locked. Returns how
-- many.
CREATE OR REPLACE FUNCTION _delete_finished_jobs(ids uuid[], tenants text[], states text[])
RETURNS int
LANGUAGE plpgsql VOLATILE AS $$
#variable_conflict use_variable
DECLARE
  chosen uuid[];
  chosen_tenants text[];
  order_keys text[];
BEGIN
  SELECT
    coalesce(array_agg(l.id), '{}'), coalesce(array_agg(l.tenant), '{}'), array_agg(l.order_key)
  INTO chosen, chosen_tenants, order_keys
  FROM (
    SELECT f.id, f.tenant, f.order_key
    FROM finished_jobs f
    WHERE f.id = ANY (ids)
      AND (f.id, f.tenant) IN (SELECT * FROM unnest(ids, tenants))
      AND f.state = ANY (states)
    FOR UPDATE SKIP LOCKED) l;
  DELETE FROM finished_jobs f
  WHERE f.id = ANY (chosen)
    AND (f.id, f.tenant) IN (SELECT * FROM unnest(chosen, chosen_tenants))
    AND f.state = ANY (states);
  DELETE FROM attempts a
  WHERE a.job_id = ANY (chosen)
    AND (a.job_id, a.tenant) IN (SELECT * FROM unnest(chosen, chosen_tenants));
  DELETE FROM job_logs l
  WHERE l.job_id = ANY (chosen)
    AND (l.job_id, l.tenant) IN (SELECT * FROM unnest(chosen, chosen_tenants));
  PERFORM _delete_steps(chosen, chosen_tenants);
  DELETE FROM idempotency i
  WHERE i.job_id = ANY (chosen)
    AND (i.job_id, i.tenant) IN (SELECT * FROM unnest(chosen, chosen_tenants));
  PERFORM _free_keys_of_deleted_jobs(chosen, order_keys);
  DELETE FROM dependencies d
  WHERE d.ctid = ANY (ARRAY(
    SELECT x.ctid
    FROM dependencies x
    WHERE x.child = ANY (chosen)
      AND (x.child, x.tenant) IN (SELECT * FROM unnest(chosen, chosen_tenants))
    FOR UPDATE SKIP LOCKED));
  RETURN cardinality(chosen);
END $$;

-- Frees the ordered keys that these dead jobs keep, because they are deleted, and asks the nodes to
-- make the next jobs of these keys ready after the commit. A job of another tenant that has such an
-- id keeps its own key. Locks the rows of holds.
CREATE OR REPLACE FUNCTION _free_keys_of_deleted_jobs(ids uuid[], order_keys text[])
RETURNS void
LANGUAGE plpgsql VOLATILE AS $$
DECLARE
  freed text[];
BEGIN
  IF ids IS NULL THEN RETURN; END IF;
  WITH d AS (
    DELETE FROM holds h
    WHERE h.key >= 'order:'
      AND h.key < 'order;'
      AND (h.job_id, h.key) IN (SELECT * FROM unnest(ids, order_keys))
    RETURNING h.key)
  SELECT array_agg(d.key) INTO freed FROM d;
  PERFORM _announce_freed(freed);
END $$;
