-- Jobs that wait for other jobs.
--
-- A child is `blocked`, and in no index that a claim reads, until its parents have ended as its run_if says:
--   all_succeeded   runs when every parent has succeeded; canceled as soon as one has failed
--   all_finished    runs when every parent has ended, however
--   any_failed      runs as soon as one parent has failed; canceled as skipped when all have ended and none has
-- To its children a parent has `succeeded`, `failed` (it is dead or canceled), or was `skipped`: canceled because what it was there for did not happen. A child that
-- needs the success of a skipped parent is skipped too: an alternative that is not needed takes what follows it along. No verdict depends on the order of the ends.
--
-- Nobody counts. The transaction that ends a parent notes that on the parent's own dependencies and leaves a row for each child in `unblocks`; it locks no child, so the
-- parents of a child never wait for each other. A later transaction, unblock(), looks whether the children have all they wait for. Of two parents that end at the same
-- time the one that commits last has its row looked at after both commits, so at least one look sees both ends. A crash in between leaves the row to whoever looks next.
--
-- A producer locks no parent: its transaction may stay open for hours. It leaves a row in `unblocks` too, upon which unblock() marks the parent as awaited, or finds that
-- it has ended meanwhile.

-- Adds the dependencies of jobs that have just been inserted. `ids` are those they really have (an idempotency key may have led to an earlier job), `fresh` says which
-- are new; NULL: unknown, since they are sent again. A child that has dependencies was sent before, with all of them, and is left alone.
CREATE OR REPLACE FUNCTION depend(news new_job[], ids uuid[], fresh boolean[], t timestamptz) RETURNS void
LANGUAGE plpgsql VOLATILE SET search_path FROM CURRENT SET jit = off AS $$
#variable_conflict use_column
DECLARE
  children uuid[];                                       -- one element each per dependency
  parents uuid[];
  places int[];
  rules text[];
  tenants text[];
  types text[];
  own uuid[];                                            -- parents whose rows are new, and ours alone until the commit
BEGIN
  PERFORM refuse_cycle(depend.news);
  WITH known AS MATERIALIZED (
      SELECT n.id, n.type, n.tenant, n.depends_on, n.run_if, a.actual, a.fresh FROM unnest(depend.news) WITH ORDINALITY n
      JOIN unnest(depend.ids, depend.fresh) WITH ORDINALITY a(actual, fresh, place) ON a.place = n.ordinality),
    d AS (
      SELECT k.id AS child, coalesce(p.actual, w.parent) AS parent, min(w.place) AS place, k.run_if, k.tenant, k.type, coalesce(bool_or(p.fresh), false) AS own
      FROM known k CROSS JOIN LATERAL unnest(k.depends_on) WITH ORDINALITY w(parent, place) LEFT JOIN known p ON p.id = w.parent
      WHERE k.actual = k.id AND k.fresh IS NOT FALSE AND (SELECT true FROM dependencies e WHERE e.child = k.id LIMIT 1) IS NULL
      GROUP BY 1, 2, 4, 5, 6)
  SELECT array_agg(d.child), array_agg(d.parent), array_agg(d.place), array_agg(coalesce(d.run_if, 'all_succeeded')), array_agg(d.tenant), array_agg(d.type),
      array_agg(DISTINCT d.parent) FILTER (WHERE d.own)
    INTO children, parents, places, rules, tenants, types, own FROM d;
  IF children IS NULL THEN RETURN; END IF;
  PERFORM refuse_parents(parents, tenants, types);
  UPDATE jobs j SET wait = 'blocked' WHERE j.id = ANY (children) AND j.fence = 0 AND j.wait IS DISTINCT FROM 'blocked';
  UPDATE jobs j SET awaited = true WHERE j.id = ANY (own) AND NOT j.awaited;
  PERFORM add_dependencies(children, parents, places, rules, own, depend.t);
END $$;

-- The children are blocked, and nobody else sees them yet; so are the parents in `own`, and marked as awaited. All others are asked to tell of their end.
CREATE OR REPLACE FUNCTION add_dependencies(children uuid[], parents uuid[], places int[], rules text[], own uuid[], t timestamptz) RETURNS void
LANGUAGE plpgsql VOLATILE SET search_path FROM CURRENT SET jit = off AS $$
#variable_conflict use_column
DECLARE
  asked uuid[];
  ready uuid[];
  needless uuid[];
BEGIN
  WITH foreigners AS MATERIALIZED (SELECT DISTINCT p AS id FROM unnest(add_dependencies.parents) p EXCEPT SELECT unnest(add_dependencies.own)),
    succeeded AS MATERIALIZED (SELECT x.id FROM foreigners x CROSS JOIN LATERAL (
      SELECT FROM finished_jobs f WHERE f.id = x.id AND f.finished_at >= history_from(x.id) AND f.state = 'succeeded' LIMIT 1) f),
    added AS (INSERT INTO dependencies (child, parent, place, run_if, outcome)
      SELECT d.child, d.parent, d.place, d.rule, CASE WHEN s.id IS NOT NULL THEN 'succeeded' END
      FROM unnest(add_dependencies.children, add_dependencies.parents, add_dependencies.places, add_dependencies.rules) d(child, parent, place, rule)
      LEFT JOIN succeeded s ON s.id = d.parent RETURNING child, run_if, outcome),
    decidable AS (SELECT a.child, a.run_if FROM added a GROUP BY 1, 2 HAVING bool_and(a.outcome IS NOT NULL))
  SELECT ARRAY(SELECT x.id FROM foreigners x WHERE x.id NOT IN (SELECT s.id FROM succeeded s)), ARRAY(SELECT d.child FROM decidable d WHERE d.run_if <> 'any_failed'),
      ARRAY(SELECT d.child FROM decidable d WHERE d.run_if = 'any_failed') INTO asked, ready, needless;
  IF cardinality(asked || needless) > 0 THEN
    INSERT INTO unblocks (id, what, at) SELECT x, 'parent', add_dependencies.t FROM unnest(asked) x
      UNION ALL SELECT x, 'child', add_dependencies.t FROM unnest(needless) x;   -- whoever cancels it tells of that, which a producer cannot before its commit
    PERFORM wake_unblockers();
  END IF;
  PERFORM decide(ready, add_dependencies.t);
END $$;

-- What a job cannot wait for. In one statement: a parent that moves meanwhile is seen either where it was or where it is.
CREATE OR REPLACE FUNCTION refuse_parents(parents uuid[], tenants text[], types text[]) RETURNS void
LANGUAGE plpgsql VOLATILE SET search_path FROM CURRENT SET jit = off AS $$
#variable_conflict use_column
BEGIN
  PERFORM refuse_job(x.type, CASE WHEN p.tenant IS NULL THEN format('it depends on job %s, which is unknown: never enqueued, not committed yet, or no longer kept', x.parent)
      ELSE format('it depends on job %s, which belongs to another tenant', x.parent) END)
    FROM unnest(refuse_parents.parents, refuse_parents.tenants, refuse_parents.types) x(parent, tenant, type)
    LEFT JOIN LATERAL (
      SELECT j.tenant FROM jobs j WHERE j.id = x.parent
      UNION ALL
      SELECT f.tenant FROM finished_jobs f WHERE f.id = x.parent AND f.finished_at >= history_from(x.parent) LIMIT 1) p ON true
    WHERE p.tenant IS DISTINCT FROM x.tenant LIMIT 1;
END $$;

-- Jobs of one call that wait for each other in a circle. Where each stands after those it waits for, as most callers have them, there is none.
CREATE OR REPLACE FUNCTION refuse_cycle(news new_job[]) RETURNS void LANGUAGE plpgsql VOLATILE SET search_path FROM CURRENT SET jit = off AS $$
#variable_conflict use_column
DECLARE
  children int[];
  parents int[];
  circle int[];
  said text;
BEGIN
  WITH n AS MATERIALIZED (SELECT x.id, x.depends_on, x.ordinality::int AS place FROM unnest(refuse_cycle.news) WITH ORDINALITY x)
  SELECT array_agg(c.place ORDER BY p.place), array_agg(p.place ORDER BY p.place) INTO children, parents
    FROM n c CROSS JOIN LATERAL unnest(c.depends_on) w(parent) JOIN n p ON p.id = w.parent
    HAVING bool_or(p.place >= c.place);
  circle := find_cycle(children, parents, cardinality(refuse_cycle.news));
  IF circle IS NULL THEN RETURN; END IF;
  SELECT string_agg(CASE WHEN c.n BETWEEN 6 AND cardinality(circle) - 5 THEN NULL WHEN c.n = 5 AND cardinality(circle) > 10 THEN '...'
      ELSE format('%s [%s]', refuse_cycle.news[c.place].type, c.place - 1) END, ' waits for ' ORDER BY c.n) INTO said
    FROM unnest(circle) WITH ORDINALITY c(place, n);
  RAISE EXCEPTION 'jobs wait for each other: %', said USING ERRCODE = 'WB003', HINT = 'the numbers are the places of the jobs in this call, from 0';
END $$;

-- A circle in a graph of `nodes` nodes, its first node also last; NULL if there is none. The edges come sorted by parent. Takes away whatever waits for nothing that is left.
CREATE OR REPLACE FUNCTION find_cycle(children int[], parents int[], nodes int) RETURNS int[] LANGUAGE plpgsql IMMUTABLE SET search_path FROM CURRENT AS $$
DECLARE
  waits int[] := array_fill(0, ARRAY[nodes]);            -- of each node, for how many others
  first int[] := array_fill(0, ARRAY[nodes]);            -- of each node, where its edges begin
  free int[] := '{}';
  next int := 1;
  edge int;
  via int[] := array_fill(0, ARRAY[nodes]);
  at int;
  circle int[];
BEGIN
  FOR e IN REVERSE coalesce(cardinality(children), 0)..1 LOOP
    waits[children[e]] := waits[children[e]] + 1;
    first[parents[e]] := e;
  END LOOP;
  FOR n IN 1..nodes LOOP
    IF waits[n] = 0 THEN free[cardinality(free) + 1] := n; END IF;
  END LOOP;
  WHILE next <= cardinality(free) LOOP
    edge := first[free[next]];
    WHILE edge > 0 AND parents[edge] = free[next] LOOP
      waits[children[edge]] := waits[children[edge]] - 1;
      IF waits[children[edge]] = 0 THEN free[cardinality(free) + 1] := children[edge]; END IF;
      edge := edge + 1;
    END LOOP;
    next := next + 1;
  END LOOP;
  IF cardinality(free) = nodes THEN RETURN NULL; END IF;
  FOR e IN 1..cardinality(children) LOOP                 -- each one left waits for another that is left
    IF waits[parents[e]] > 0 THEN
      via[children[e]] := parents[e];
      at := CASE WHEN waits[children[e]] > 0 THEN children[e] ELSE at END;
    END IF;
  END LOOP;
  FOR n IN 1..nodes LOOP at := via[at]; END LOOP;        -- by now it goes in circles
  circle := ARRAY[at];
  LOOP
    at := via[at];
    circle := circle || at;
    EXIT WHEN at = circle[1];
  END LOOP;
  RETURN circle;
END $$;

-- The end of parents, by the transaction that ends them. Answers with the children that are to be looked at afterwards.
CREATE OR REPLACE FUNCTION end_parents(ids uuid[], outcomes text[], t timestamptz) RETURNS uuid[]
LANGUAGE plpgsql VOLATILE SET search_path FROM CURRENT
SET plan_cache_mode = force_generic_plan SET jit = off SET enable_seqscan = off SET enable_bitmapscan = off SET enable_hashjoin = off SET enable_mergejoin = off AS $$
#variable_conflict use_column
DECLARE
  children uuid[];
BEGIN
  WITH u AS (UPDATE dependencies d SET outcome = p.outcome FROM unnest(end_parents.ids, end_parents.outcomes) p(id, outcome) WHERE d.parent = p.id AND d.outcome IS NULL
      RETURNING d.child, d.outcome),
    i AS (INSERT INTO unblocks (id, what, failed, at) SELECT u.child, 'child', bool_or(u.outcome = 'failed'), end_parents.t FROM u GROUP BY 1 RETURNING id)
  SELECT array_agg(i.id) INTO children FROM i;
  IF children IS NOT NULL THEN PERFORM wake_unblockers(); END IF;   -- a worker looks itself; whoever ends a parent in psql may not
  RETURN children;
END $$;

-- As wake(): only when somebody sleeps. All others look once a second.
CREATE OR REPLACE FUNCTION wake_unblockers() RETURNS void LANGUAGE plpgsql VOLATILE SET search_path FROM CURRENT AS $$
BEGIN
  IF NOT pg_try_advisory_xact_lock_shared(1181707369, wake_key()) THEN PERFORM pg_notify(wake_channel(), 'unblock'); END IF;
END $$;

-- What becomes of blocked jobs by what is known of their parents: ready, canceled, or nothing yet.
CREATE OR REPLACE FUNCTION verdicts(children uuid[]) RETURNS TABLE (child uuid, verdict text, error jsonb)
LANGUAGE plpgsql STABLE SET search_path FROM CURRENT SET plan_cache_mode = force_generic_plan SET jit = off SET enable_seqscan = off AS $$
#variable_conflict use_column
BEGIN
  RETURN QUERY
    SELECT v.child, v.verdict, CASE WHEN v.verdict <> 'canceled' THEN NULL
        WHEN v.failed IS NOT NULL THEN jsonb_build_object('kind', 'dependency', 'message', format('job %s, which it waits for, did not succeed', v.failed))
        WHEN v.skipped IS NOT NULL THEN jsonb_build_object('kind', 'skipped', 'message', format('job %s, which it waits for, was skipped', v.skipped))
        ELSE jsonb_build_object('kind', 'skipped', 'message', 'nothing that it waits for has failed') END
    FROM (SELECT s.child, s.failed, s.skipped, CASE s.run_if
        WHEN 'all_succeeded' THEN CASE WHEN s.failed IS NOT NULL THEN 'canceled' WHEN s.open THEN 'blocked' WHEN s.skipped IS NOT NULL THEN 'canceled' ELSE 'ready' END
        WHEN 'all_finished' THEN CASE WHEN s.open THEN 'blocked' ELSE 'ready' END
        ELSE CASE WHEN s.failed IS NOT NULL THEN 'ready' WHEN s.open THEN 'blocked' ELSE 'canceled' END END AS verdict
      FROM (SELECT d.child, d.run_if, bool_or(d.outcome IS NULL) AS open, (array_agg(d.parent ORDER BY d.place) FILTER (WHERE d.outcome = 'failed'))[1] AS failed,
          (array_agg(d.parent ORDER BY d.place) FILTER (WHERE d.outcome = 'skipped'))[1] AS skipped
        FROM dependencies d WHERE d.child = ANY (verdicts.children) GROUP BY 1, 2) s) v;
END $$;

-- Carries out the verdicts. The caller has locked the children in a statement before, so that an end which was taken back meanwhile (take_back_ends) is not acted upon.
CREATE OR REPLACE FUNCTION decide(children uuid[], t timestamptz) RETURNS TABLE (id uuid, state text)
LANGUAGE plpgsql VOLATILE SET search_path FROM CURRENT AS $$
#variable_conflict use_column
DECLARE
  ready uuid[];
  endings ending[];
  at_once boolean;
  due timestamptz;
BEGIN
  IF cardinality(decide.children) = 0 THEN RETURN; END IF;
  SELECT array_agg(v.child) FILTER (WHERE v.verdict = 'ready'),
      array_agg(ROW(v.child, 0, 'canceled', 'canceled', NULL, NULL, NULL, v.error)::ending) FILTER (WHERE v.verdict = 'canceled')
    INTO ready, endings FROM verdicts(decide.children) v;
  IF ready IS NOT NULL THEN
    WITH u AS (UPDATE jobs j SET wait = CASE WHEN j.run_at > decide.t THEN 'delayed' END, run_at = greatest(j.run_at, decide.t) WHERE j.id = ANY (ready) RETURNING j.run_at)
    SELECT bool_or(u.run_at <= decide.t), min(u.run_at) FILTER (WHERE u.run_at > decide.t) INTO at_once, due FROM u;
    IF at_once THEN PERFORM wake(''); END IF;
    PERFORM wake_later(due, decide.t);
    RETURN QUERY SELECT r, 'queued' FROM unnest(ready) r;
  END IF;
  IF endings IS NOT NULL THEN
    PERFORM finish(endings, NULL, decide.t);
    RETURN QUERY SELECT e.id, 'canceled' FROM unnest(endings) e;
  END IF;
END $$;

-- Looks at jobs of which a parent has ended: these, or whichever. A worker does it after each settle that names some, any node once a second.
-- Answers with those that wait no longer, queued or canceled, and with children of parents of which it has just found that they had ended (blocked): call it again while
-- it answers something, in a transaction of its own each time. It waits for nobody's locks: what it cannot have now stays for the next look.
-- `since` spares a frequent caller the walk over entries that an old snapshot keeps in the index.
CREATE OR REPLACE FUNCTION unblock(ids uuid[] DEFAULT NULL, max int DEFAULT 1000, since timestamptz DEFAULT '-infinity', now timestamptz DEFAULT NULL)
RETURNS TABLE (id uuid, state text)
LANGUAGE plpgsql VOLATILE SET search_path FROM CURRENT
SET plan_cache_mode = force_generic_plan SET jit = off SET enable_seqscan = off SET enable_bitmapscan = off SET enable_hashjoin = off SET enable_mergejoin = off SET enable_sort = off AS $$
#variable_conflict use_column
DECLARE
  t timestamptz := coalesce(unblock.now, clock());
  self xid8 := pg_current_xact_id_if_assigned();         -- an end noted in this very transaction is not to be looked at yet: others cannot see it
  tids tid[];
  asked tid[];
  children uuid[];
  hopeless boolean[];                                    -- a parent has failed, which may be enough to decide
  decidable uuid[];
  locked uuid[];
BEGIN
  PERFORM check_isolation('unblock');
  IF unblock.ids IS NULL THEN
    SELECT array_agg(x.tid) FILTER (WHERE x.what = 'child'), array_agg(x.id) FILTER (WHERE x.what = 'child'), array_agg(x.failed) FILTER (WHERE x.what = 'child'),
        array_agg(x.tid) FILTER (WHERE x.what = 'parent') INTO tids, children, hopeless, asked
      FROM (SELECT u.ctid AS tid, u.id, u.what, u.failed FROM unblocks u WHERE u.at >= unblock.since AND u.by IS DISTINCT FROM self
        ORDER BY u.at LIMIT unblock.max FOR UPDATE SKIP LOCKED) x;
  ELSE
    SELECT array_agg(x.tid), array_agg(x.id), array_agg(x.failed) INTO tids, children, hopeless
      FROM (SELECT u.ctid AS tid, u.id, u.failed FROM unblocks u WHERE u.id = ANY (unblock.ids) AND u.what = 'child' AND u.by IS DISTINCT FROM self
        LIMIT unblock.max FOR UPDATE SKIP LOCKED) x;
  END IF;
  IF asked IS NOT NULL THEN
    RETURN QUERY SELECT a.id, 'blocked' FROM unnest(answer_producers(asked, t)) a(id);
  END IF;
  IF children IS NULL THEN RETURN; END IF;
  decidable := ARRAY(SELECT j.id FROM (SELECT x.id, bool_or(x.hopeless) AS hopeless FROM unnest(children, hopeless) x(id, hopeless) GROUP BY 1) c
    JOIN jobs j ON j.id = c.id AND j.wait = 'blocked' AND j.fence = 0
    WHERE c.hopeless AND (SELECT d.run_if FROM dependencies d WHERE d.child = c.id LIMIT 1) <> 'all_finished'
      OR (SELECT true FROM dependencies d WHERE d.child = c.id AND d.outcome IS NULL ORDER BY d.place DESC LIMIT 1) IS NULL);   -- the last are mostly those that are open
  IF cardinality(decidable) > 0 THEN
    locked := ARRAY(SELECT j.id FROM jobs j WHERE j.id = ANY (decidable) AND j.wait = 'blocked' AND j.fence = 0 ORDER BY j.id FOR UPDATE SKIP LOCKED);
    RETURN QUERY SELECT d.id, d.state FROM decide(locked, t) d;
  END IF;
  DELETE FROM unblocks u WHERE u.ctid = ANY (tids) AND (u.id <> ALL (decidable) OR u.id = ANY (locked));   -- not those that somebody has locked
END $$;

-- What producers asked: that a parent tells of its end. One that lives is marked as awaited; of one that has ended this is noted, for a look after the commit.
-- Answers with the children of the latter. One that somebody is about to end or to revive is left for the next look.
CREATE OR REPLACE FUNCTION answer_producers(asked tid[], t timestamptz) RETURNS uuid[]
LANGUAGE plpgsql VOLATILE SET search_path FROM CURRENT
SET plan_cache_mode = force_generic_plan SET jit = off SET enable_seqscan = off SET enable_bitmapscan = off SET enable_hashjoin = off SET enable_mergejoin = off AS $$
#variable_conflict use_column
DECLARE
  parents uuid[] := ARRAY(SELECT DISTINCT u.id FROM unblocks u WHERE u.ctid = ANY (answer_producers.asked) ORDER BY 1);   -- in one order: two of us may note the same ends
  living uuid[] := ARRAY(SELECT j.id FROM jobs j WHERE j.id = ANY (parents) ORDER BY j.id FOR NO KEY UPDATE SKIP LOCKED);   -- does not meet a handler's guard
  over uuid[];
  outcomes text[];
  purged uuid[];
BEGIN
  UPDATE jobs j SET awaited = true WHERE j.id = ANY (living) AND NOT j.awaited;
  SELECT array_agg(f.id), array_agg(outcome_of(f.state, f.error)) INTO over, outcomes FROM unnest(parents) x(id) CROSS JOIN LATERAL (
    SELECT f.id, f.state, f.error FROM finished_jobs f WHERE f.id = x.id AND f.finished_at >= history_from(x.id) FOR KEY SHARE SKIP LOCKED) f;
  purged := ARRAY(SELECT x.id FROM unnest(parents) x(id) WHERE NOT EXISTS (SELECT FROM jobs j WHERE j.id = x.id)
    AND NOT EXISTS (SELECT FROM finished_jobs f WHERE f.id = x.id AND f.finished_at >= history_from(x.id)));
  over := over || purged;
  outcomes := outcomes || array_fill('failed'::text, ARRAY[cardinality(purged)]);
  DELETE FROM unblocks u WHERE u.ctid = ANY (answer_producers.asked) AND (u.id = ANY (living) OR u.id = ANY (over));
  RETURN CASE WHEN cardinality(over) > 0 THEN end_parents(over, outcomes, answer_producers.t) END;
END $$;

CREATE OR REPLACE FUNCTION outcome_of(state text, error jsonb) RETURNS text LANGUAGE sql IMMUTABLE
  RETURN CASE WHEN state = 'succeeded' THEN 'succeeded' WHEN state = 'canceled' AND error->>'kind' = 'skipped' THEN 'skipped' WHEN state IS NOT NULL THEN 'failed' END;

-- A finished job comes back to life: what it told its children is taken back, where they have not run upon it. Those that wait still wait for it again; those that were
-- canceled by what they wait for, and would not be now, come back too, and what they had told in turn. What stands for a scheduled chain waits again in any case, also
-- where it is running or has ended: its slot has not, before its steps have.
CREATE OR REPLACE FUNCTION take_back_ends(parent uuid, t timestamptz) RETURNS void LANGUAGE plpgsql VOLATILE SET search_path FROM CURRENT
SET plan_cache_mode = force_generic_plan SET jit = off SET enable_seqscan = off SET enable_hashjoin = off SET enable_mergejoin = off AS $$
#variable_conflict use_column
DECLARE
  parents uuid[] := ARRAY[take_back_ends.parent];
  children uuid[];
  waiting uuid[];
  over uuid[];
  f finished_jobs;
BEGIN
  LOOP
    children := ARRAY(SELECT DISTINCT d.child FROM dependencies d WHERE d.parent = ANY (parents) AND d.outcome IS NOT NULL);
    EXIT WHEN cardinality(children) = 0;
    waiting := ARRAY(SELECT j.id FROM jobs j WHERE j.id = ANY (children) AND (j.wait = 'blocked' AND j.fence = 0 OR j.type = 'watchbill.flow_end')
      ORDER BY j.id FOR UPDATE);                         -- whoever decides looks under this lock
    UPDATE jobs j SET fence = 0, wait = 'blocked' WHERE j.id = ANY (waiting) AND (j.fence <> 0 OR j.wait IS DISTINCT FROM 'blocked');
    over := ARRAY(SELECT c.id FROM unnest(children) x(id) CROSS JOIN LATERAL (
      SELECT c.id FROM finished_jobs c WHERE c.id = x.id AND c.finished_at >= history_from(x.id) AND (c.state = 'canceled' AND c.error->>'kind' IN ('dependency', 'skipped') OR c.type = 'watchbill.flow_end')) c);
    UPDATE dependencies d SET outcome = NULL WHERE d.parent = ANY (parents) AND d.child = ANY (waiting || over);
    parents := '{}';
    FOR f IN DELETE FROM finished_jobs x USING verdicts(over) v WHERE x.id = v.child AND v.verdict = 'blocked' AND x.finished_at >= history_from(x.id) RETURNING x.* LOOP
      PERFORM restore(f, f.run_at, 'blocked');
      parents := parents || f.id;
    END LOOP;
    EXIT WHEN cardinality(parents) = 0;
  END LOOP;
END $$;

-- Dependencies of children that are no longer kept, from `after` on. Answers with the last child looked at, NULL at the end of the table: a caller goes on from there.
CREATE OR REPLACE FUNCTION sweep_dependencies(after uuid DEFAULT NULL, max int DEFAULT 1000) RETURNS uuid
LANGUAGE plpgsql VOLATILE SET search_path FROM CURRENT
SET plan_cache_mode = force_generic_plan SET jit = off SET enable_seqscan = off SET enable_hashjoin = off SET enable_mergejoin = off AS $$
#variable_conflict use_column
DECLARE
  looked uuid[] := ARRAY(SELECT d.child FROM dependencies d WHERE sweep_dependencies.after IS NULL OR d.child > sweep_dependencies.after ORDER BY d.child LIMIT sweep_dependencies.max);
  last uuid := looked[cardinality(looked)];
  gone uuid[] := ARRAY(SELECT x.child FROM (SELECT DISTINCT l FROM unnest(looked) l) x(child) WHERE NOT EXISTS (SELECT FROM jobs j WHERE j.id = x.child)
    AND NOT EXISTS (SELECT FROM finished_jobs f WHERE f.id = x.child AND f.finished_at >= history_from(x.child)));
BEGIN
  DELETE FROM dependencies d WHERE d.ctid = ANY (ARRAY(SELECT g.ctid FROM dependencies g WHERE g.child = ANY (gone) FOR UPDATE SKIP LOCKED));
  RETURN CASE WHEN cardinality(looked) = sweep_dependencies.max THEN last END;
END $$;

-- What ended before a job could start: its parents at depth 1 in the order given, theirs at depth 2, and so on. One that is no longer kept has neither type nor state.
CREATE OR REPLACE FUNCTION earlier(id uuid, types text[] DEFAULT NULL, deepest int DEFAULT NULL)
RETURNS TABLE (id uuid, depth int, type text, state text, result jsonb, error jsonb) LANGUAGE sql STABLE SET search_path FROM CURRENT
SET jit = off SET enable_seqscan = off SET enable_hashjoin = off SET enable_mergejoin = off AS $$
  WITH RECURSIVE up(id, depth) AS (
      SELECT d.parent, 1 FROM dependencies d WHERE d.child = earlier.id
      UNION
      SELECT d.parent, up.depth + 1 FROM up JOIN dependencies d ON d.child = up.id WHERE up.depth < coalesce(earlier.deepest, 1000000)),
    nearest AS (SELECT up.id, min(up.depth) AS depth FROM up GROUP BY 1)
  SELECT n.id, n.depth, p.type, p.state, p.result, p.error
  FROM nearest n LEFT JOIN dependencies d ON d.child = earlier.id AND d.parent = n.id LEFT JOIN LATERAL (
      SELECT f.type, f.state, f.result, f.error FROM finished_jobs f WHERE f.id = n.id AND f.finished_at >= history_from(n.id)
      UNION ALL
      SELECT j.type, CASE WHEN j.fence <> 0 THEN 'running' WHEN j.wait = 'blocked' THEN 'blocked' WHEN j.failed THEN 'failed' ELSE 'queued' END, NULL, NULL
      FROM jobs j WHERE j.id = n.id) p ON true
  WHERE earlier.types IS NULL OR p.type = ANY (earlier.types) ORDER BY n.depth, d.place, n.id $$;

-- Every job that is connected with this one by dependencies, up or down; the nearest first, no more than `max`.
CREATE OR REPLACE FUNCTION family(id uuid, max int DEFAULT 1000) RETURNS SETOF uuid LANGUAGE plpgsql STABLE SET search_path FROM CURRENT AS $$
#variable_conflict use_column
DECLARE
  members uuid[] := ARRAY[family.id];
  newest uuid[] := members;
BEGIN
  WHILE cardinality(newest) > 0 AND cardinality(members) < family.max LOOP
    newest := ARRAY(SELECT x.id FROM (
        SELECT d.parent AS id FROM dependencies d WHERE d.child = ANY (newest) UNION SELECT d.child FROM dependencies d WHERE d.parent = ANY (newest)
        EXCEPT SELECT unnest(members)) x ORDER BY 1 LIMIT family.max - cardinality(members));
    members := members || newest;
  END LOOP;
  RETURN QUERY SELECT unnest(members);
END $$;
