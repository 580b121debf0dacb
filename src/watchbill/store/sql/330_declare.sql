-- Schedules that stand in code. A node says, right after it registered, what its code declares. The code's word counts when it is new: what an operator
-- changed stands until then, and in a rolling deploy an old node does not write back what a newer one has replaced.

CREATE OR REPLACE FUNCTION declare_schedules(epoch bigint, schedules jsonb, now timestamptz DEFAULT NULL)
RETURNS TABLE (name text, id bigint, outcome text) LANGUAGE plpgsql VOLATILE SET search_path FROM CURRENT AS $$
#variable_conflict use_column
DECLARE
  t timestamptz := coalesce(declare_schedules.now, clock());
  node nodes;
  starts boolean;
  definition jsonb;
BEGIN
  IF jsonb_typeof(declare_schedules.schedules) <> 'array'
      OR EXISTS (SELECT FROM jsonb_path_query(declare_schedules.schedules, '$[*]') d WHERE jsonb_typeof(d) <> 'object' OR d->>'hash' IS NULL) THEN
    RAISE EXCEPTION 'declare_schedules takes a JSON array of definitions, each with its hash' USING ERRCODE = 'WB003';
  END IF;
  SELECT * INTO node FROM nodes n WHERE n.epoch = declare_schedules.epoch AND n.state IN ('active', 'draining') FOR NO KEY UPDATE;
  IF NOT FOUND THEN
    RAISE EXCEPTION 'node % is lost', declare_schedules.epoch USING ERRCODE = 'WB001', HINT = 'register again';
  ELSIF node.app IS NULL THEN
    RAISE EXCEPTION 'node % has no app, and a declaration needs an owner', node.name USING ERRCODE = 'WB003', HINT = 'register it with app => ...';
  END IF;
  PERFORM pg_advisory_xact_lock(1181707371, hashtext('schedules'::regclass::oid || node.app));   -- nodes of one app take turns
  starts := CASE WHEN (born(node)).declared_at IS NOT NULL THEN false ELSE is_cluster_start(node) END;
  FOR definition IN SELECT d FROM jsonb_array_elements(declare_schedules.schedules) WITH ORDINALITY e(d, n) ORDER BY e.n LOOP
    name := definition->>'name';
    SELECT w.id, w.outcome INTO id, outcome FROM declare_schedule(node, definition, t) w;
    IF outcome <> 'foreign' THEN
      INSERT INTO declarations (epoch, schedule_id, hash) VALUES (node.epoch, id, definition->>'hash')
        ON CONFLICT (schedule_id, epoch) DO UPDATE SET hash = EXCLUDED.hash;
    END IF;
    RETURN NEXT;
  END LOOP;
  UPDATE nodes n SET declared_at = coalesce(n.declared_at, t) WHERE n.epoch = node.epoch;
  PERFORM release_held();
  IF starts THEN
    PERFORM run_apart(s, 'start', NULL, t) FROM run_on_start(node.epoch) s;
  ELSIF starts IS NULL AND EXISTS (SELECT FROM run_on_start(node.epoch)) THEN
    PERFORM pg_notify(wake_channel(), 'beat');           -- who lives says so
  END IF;
END $$;

-- What a node declares that is to run when its cluster starts.
CREATE OR REPLACE FUNCTION run_on_start(epoch bigint) RETURNS SETOF bigint LANGUAGE sql STABLE SET search_path FROM CURRENT AS $$
  SELECT s.id FROM declarations d JOIN schedules s ON s.id = d.schedule_id LEFT JOIN rhythms r ON r.id = s.rhythm
  WHERE d.epoch = run_on_start.epoch AND s.enabled AND (s.run_on_start OR r.on_start) $$;

-- The first of a process's nodes: one that is found lost and lives on registers again, as the same instance.
CREATE OR REPLACE FUNCTION born(node nodes, OUT at timestamptz, OUT declared_at timestamptz, OUT epoch bigint) LANGUAGE sql STABLE SET search_path FROM CURRENT AS $$
  SELECT min(n.started_at), min(n.declared_at), min(n.epoch) FILTER (WHERE n.declared_at IS NOT NULL) FROM nodes n WHERE n.instance = node.instance $$;

-- Whether no other process of the app that has declared before was alive when this one came: a rolling restart starts nothing. NULL: not known yet, since one that was so
-- when we last heard of it has neither beaten since then nor been found lost.
CREATE OR REPLACE FUNCTION is_cluster_start(node nodes) RETURNS boolean LANGUAGE sql STABLE SET search_path FROM CURRENT AS $$
  SELECT CASE WHEN bool_or(x.lived) THEN false WHEN count(*) = 0 THEN true END
  FROM (SELECT o.state IN ('left', 'lost') OR b.at >= me.at AS lived FROM born(node) me CROSS JOIN nodes o LEFT JOIN beats b ON b.epoch = o.epoch
    WHERE o.app = node.app AND o.instance <> node.instance AND (o.state IN ('active', 'draining') OR o.ended_at > me.at)
      AND EXISTS (SELECT FROM born(o) c WHERE c.declared_at IS NOT NULL AND (me.declared_at IS NULL OR (c.declared_at, c.epoch) < (me.declared_at, me.epoch)))) x $$;

-- What runs when the cluster starts, where that was not known yet when the node declared: after a crash of all nodes, once they are found lost. Answers whether the
-- cluster has started since this process came; NULL: ask again.
CREATE OR REPLACE FUNCTION start_cluster(epoch bigint, now timestamptz DEFAULT NULL) RETURNS boolean LANGUAGE plpgsql VOLATILE SET search_path FROM CURRENT AS $$
#variable_conflict use_column
DECLARE
  node nodes;
  mine bigint[] := ARRAY(SELECT run_on_start(start_cluster.epoch));
  verdict boolean;
BEGIN
  SELECT * INTO node FROM nodes n WHERE n.epoch = start_cluster.epoch AND n.state IN ('active', 'draining') AND n.declared_at IS NOT NULL;
  IF NOT FOUND THEN RETURN NULL; ELSIF mine = '{}' THEN RETURN false; END IF;   -- lost: its process may register again
  PERFORM pg_advisory_xact_lock(1181707371, hashtext('schedules'::regclass::oid || node.app));   -- as whoever declares
  IF EXISTS (SELECT FROM slots s WHERE s.schedule_id = ANY (mine) AND s.kind = 'start' AND s.slot >= (born(node)).at) THEN RETURN true; END IF;
  verdict := is_cluster_start(node);
  IF verdict THEN PERFORM run_apart(m, 'start', NULL, coalesce(start_cluster.now, clock())) FROM unnest(mine) m; END IF;
  RETURN verdict;
END $$;

CREATE OR REPLACE FUNCTION declare_schedule(node nodes, definition jsonb, t timestamptz, OUT id bigint, OUT outcome text) LANGUAGE plpgsql VOLATILE SET search_path FROM CURRENT AS $$
#variable_conflict use_column
DECLARE
  given text := definition->>'hash';
  s schedules := new_schedule(definition - 'hash', t);
  old schedules;
BEGIN
  SELECT * INTO old FROM schedules x WHERE x.tenant = s.tenant AND x.name = s.name FOR UPDATE;
  id := old.id;
  IF id IS NOT NULL AND old.owner IS DISTINCT FROM node.app THEN
    outcome := 'foreign';
    RETURN;
  ELSIF old.hash = given THEN
    outcome := 'unchanged';
    RETURN;
  ELSIF is_superseded(old, given, node.epoch) THEN
    outcome := 'superseded';
    RETURN;
  END IF;
  s.hash := given;
  s.declared := schedule_definition(s);
  IF id IS NOT NULL THEN
    outcome := 'updated';
    s.id := id;
    s.created_by := old.created_by;
    s.superseded := (array_remove(old.superseded, given) || old.hash)[greatest(1, cardinality(old.superseded) - 98):];
    PERFORM write_schedule(s);
    RETURN;
  END IF;
  outcome := 'created';
  s.id := nextval('schedule_seq');
  s.owner := node.app;
  s.created_by := coalesce(definition->>'created_by', node.app);
  INSERT INTO schedules SELECT s.* ON CONFLICT (tenant, name) DO NOTHING RETURNING schedules.id INTO id;
  IF id IS NULL THEN                                     -- somebody else's, who was not done when we looked
    outcome := 'foreign';
    id := (SELECT x.id FROM schedules x WHERE x.tenant = s.tenant AND x.name = s.name);
  END IF;
END $$;

-- Whether another living node declares what came after this. What is new came last; of several that were in force before, the one that was so last.
CREATE OR REPLACE FUNCTION is_superseded(s schedules, hash text, epoch bigint) RETURNS boolean LANGUAGE sql STABLE SET search_path FROM CURRENT AS $$
  SELECT EXISTS (SELECT FROM declarations d JOIN nodes n USING (epoch) WHERE d.schedule_id = s.id AND n.epoch <> is_superseded.epoch AND n.state IN ('active', 'draining')
    AND array_position(s.superseded || s.hash, d.hash) > array_position(s.superseded || s.hash, is_superseded.hash)) $$;

-- Whether a node declares something that is not in force, and nobody alive anything later: those who did have gone, and it should declare again. A chore.
CREATE OR REPLACE FUNCTION declares_in_vain(epoch bigint) RETURNS boolean LANGUAGE sql STABLE SET search_path FROM CURRENT AS $$
  SELECT EXISTS (SELECT FROM declarations d JOIN schedules s ON s.id = d.schedule_id
    WHERE d.epoch = declares_in_vain.epoch AND d.hash <> s.hash AND NOT is_superseded(s, d.hash, d.epoch)) $$;

-- Whether an operator, or anybody else but the code, has changed what the code declared.
CREATE OR REPLACE FUNCTION differs_from_code(s schedules) RETURNS boolean LANGUAGE sql STABLE SET search_path FROM CURRENT AS $$
  SELECT s.declared IS NOT NULL AND EXISTS (SELECT FROM jsonb_each(s.declared) d JOIN jsonb_each(schedule_definition(s)) n ON n.key = d.key WHERE n.value <> d.value) $$;
