-- Which declarations still stand. A schedule with an owner is orphaned while that app has living nodes that have said what they declare, and none declares it.

CREATE OR REPLACE FUNCTION orphans(ids bigint[]) RETURNS bigint[] LANGUAGE sql STABLE SET search_path FROM CURRENT AS $$
  SELECT coalesce(array_agg(s.id), '{}') FROM schedules s WHERE s.id = ANY (orphans.ids) AND s.owner IS NOT NULL
    AND EXISTS (SELECT FROM nodes n WHERE n.app = s.owner AND n.state IN ('active', 'draining') AND n.declared_at IS NOT NULL)
    AND NOT EXISTS (SELECT FROM declarations d JOIN nodes n USING (epoch) WHERE d.schedule_id = s.id AND n.app = s.owner AND n.state IN ('active', 'draining')) $$;

-- Those of the due timers that are orphaned stop here, with the slot they would have begun with; returns the others.
CREATE OR REPLACE FUNCTION hold_orphans(ids bigint[]) RETURNS bigint[] LANGUAGE plpgsql VOLATILE SET search_path FROM CURRENT AS $$
#variable_conflict use_column
DECLARE
  orphaned bigint[];
BEGIN
  IF NOT EXISTS (SELECT FROM nodes n WHERE n.state IN ('active', 'draining') AND n.declared_at IS NOT NULL) THEN RETURN ids; END IF;
  orphaned := orphans(ids);
  IF cardinality(orphaned) = 0 THEN RETURN ids; END IF;
  UPDATE timers x SET held = x.next_run, next_run = NULL WHERE x.schedule_id = ANY (orphaned);
  RETURN ARRAY(SELECT i FROM unnest(ids) i WHERE i <> ALL (orphaned));
END $$;

-- Schedules that are no orphans any more go on where they were held: their slots since then are missed ones. After each change among the nodes, and as a chore.
CREATE OR REPLACE FUNCTION release_held() RETURNS int LANGUAGE plpgsql VOLATILE SET search_path FROM CURRENT AS $$
#variable_conflict use_column
DECLARE
  ids bigint[] := ARRAY(SELECT x.schedule_id FROM timers x WHERE x.held IS NOT NULL FOR UPDATE SKIP LOCKED);
  n int;
BEGIN
  IF cardinality(ids) = 0 THEN RETURN 0; END IF;
  UPDATE timers x SET next_run = x.held, held = NULL WHERE x.schedule_id = ANY (ids) AND x.schedule_id <> ALL (orphans(ids));
  GET DIAGNOSTICS n = ROW_COUNT;
  IF n > 0 THEN PERFORM wake_schedulers(); END IF;
  RETURN n;
END $$;
