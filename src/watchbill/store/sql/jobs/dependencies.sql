-- Jobs that wait for other jobs.
--
-- A child is `blocked`, and in no index that a claim reads, until its parents have ended as its
-- run_if says:
--   all_succeeded   runs when every parent has succeeded; canceled as soon as one has failed
--   all_finished    runs when every parent has ended
--   any_failed      runs as soon as one parent has failed; skipped when all have ended and none has
-- For its children a parent has `succeeded`, `failed` (dead or canceled), or was `skipped`:
-- canceled because it was not needed. A child that needs the success of a skipped parent is skipped
-- too. The order in which parents end does not matter.
--
-- The transaction that ends a parent writes its outcome to `dependencies`, and a row for each child
-- to `dependency_checks`. It locks no child, so the parents of a child do not wait for each other.
-- A later transaction, unblock(), checks those children. If two parents end at the same time, the
-- check after the second commit sees both outcomes.
--
-- A producer locks no parent, because its transaction may stay open for hours. It also writes to
-- `dependency_checks`; unblock() then marks the parent as awaited, or finds that it has ended.

-- Adds the dependencies of jobs that this transaction has inserted. `ids` are the ids under which
-- the jobs are stored: if that is another id than the job's own, its idempotency key belongs to an
-- earlier job, and nothing is added. `fresh`: which jobs are new; NULL if unknown, because the
-- producer sends them again. A child that has dependencies already is skipped: the earlier send
-- stored all of them.
CREATE OR REPLACE FUNCTION _add_dependencies(
  new_jobs new_job[],
  ids uuid[],
  fresh boolean[],
  t timestamptz
)
RETURNS void
LANGUAGE plpgsql VOLATILE
AS $$
#variable_conflict use_column
DECLARE
  -- One element per dependency.
  children uuid[];
  parents uuid[];
  places int[];
  rules text[];
  tenants text[];
  types text[];
  arguments jsonb[];
  -- Parents that this transaction has inserted.
  new_parents uuid[];
BEGIN
  PERFORM _check_no_cycle(new_jobs);
  WITH known AS MATERIALIZED (
      SELECT n.id, n.type, n.tenant, n.depends_on, n.run_if, n.results, a.actual, a.fresh
      FROM unnest(new_jobs) WITH ORDINALITY n
      JOIN unnest(ids, _add_dependencies.fresh) WITH ORDINALITY a(actual, fresh, place)
        ON a.place = n.ordinality),
    -- Which parameters take the result of a parent: each with its position in a list, or with null.
    takes AS MATERIALIZED (
      SELECT k.id AS child, x.id::uuid AS parent, jsonb_object_agg(r.key, x.place) AS arguments
      FROM known k
      CROSS JOIN LATERAL jsonb_each(k.results) r
      CROSS JOIN LATERAL (
        SELECT NULL::bigint AS place, r.value #>> '{}' AS id
        WHERE jsonb_typeof(r.value) = 'string'
        UNION ALL
        SELECT e.place, e.id
        FROM jsonb_array_elements_text(
          CASE jsonb_typeof(r.value) WHEN 'array' THEN r.value ELSE '[]' END)
          WITH ORDINALITY e(id, place)) x
      GROUP BY 1, 2),
    d AS (
      SELECT
        k.id AS child, coalesce(p.actual, w.parent) AS parent, min(w.place) AS place, k.run_if,
        k.tenant, k.type, coalesce(bool_or(p.fresh), false) AS is_new,
        (array_agg(a.arguments) FILTER (WHERE a.arguments IS NOT NULL))[1] AS arguments
      FROM known k
      CROSS JOIN LATERAL unnest(k.depends_on) WITH ORDINALITY w(parent, place)
      LEFT JOIN known p ON p.id = w.parent
      LEFT JOIN takes a ON a.child = k.id AND a.parent = w.parent
      WHERE k.actual = k.id
        AND k.fresh IS NOT FALSE
        AND (
          SELECT true
          FROM dependencies e
          WHERE e.child = k.id
            AND e.tenant = k.tenant
          LIMIT 1) IS NULL
      GROUP BY 1, 2, 4, 5, 6)
  SELECT
    array_agg(d.child), array_agg(d.parent), array_agg(d.place),
    array_agg(coalesce(d.run_if, 'all_succeeded')), array_agg(d.tenant), array_agg(d.type),
    array_agg(DISTINCT d.parent) FILTER (WHERE d.is_new), array_agg(d.arguments)
  INTO children, parents, places, rules, tenants, types, new_parents, arguments
  FROM d;
  IF children IS NULL THEN RETURN; END IF;
  PERFORM _check_parents(parents, tenants, types);
  UPDATE jobs j
  SET wait = 'blocked'
  WHERE j.id = ANY (children)
    AND j.fence = 0
    AND j.wait IS DISTINCT FROM 'blocked';
  UPDATE jobs j SET awaited = true WHERE j.id = ANY (new_parents) AND NOT j.awaited;
  PERFORM _insert_dependencies(
    children, parents, places, rules, tenants, new_parents, t, arguments);
END $$;

-- Stores dependencies; `tenants` are those of the children, and so of their parents. This
-- transaction has inserted the blocked children and the awaited parents in `new_parents`; unblock()
-- marks the other parents as awaited.
CREATE OR REPLACE FUNCTION _insert_dependencies(
  children uuid[],
  parents uuid[],
  places int[],
  rules text[],
  tenants text[],
  new_parents uuid[],
  t timestamptz,
  arguments jsonb[] DEFAULT NULL
)
RETURNS void
LANGUAGE plpgsql VOLATILE
AS $$
#variable_conflict use_column
DECLARE
  to_watch uuid[];
  ready uuid[];
  tenants_of_ready text[];
  skipped uuid[];
BEGIN
  WITH other_parents AS MATERIALIZED (
      SELECT DISTINCT p.id, p.tenant
      FROM unnest(parents, tenants) p(id, tenant)
      WHERE p.id NOT IN (SELECT unnest(new_parents))),
    succeeded AS MATERIALIZED (
      SELECT x.id, x.tenant
      FROM other_parents x
      CROSS JOIN LATERAL (
        SELECT
        FROM finished_jobs f
        WHERE f.id = x.id
          AND f.tenant = x.tenant
          AND f.finished_at >= _history_start(x.id)
          AND f.state = 'succeeded'
        LIMIT 1) f),
    added AS (
      INSERT INTO dependencies (child, parent, place, run_if, outcome, tenant, arguments)
      SELECT
        d.child, d.parent, d.place, d.rule, CASE WHEN s.id IS NOT NULL THEN 'succeeded' END,
        d.tenant, d.arguments
      FROM unnest(
        children, parents, places, rules, tenants, _insert_dependencies.arguments)
        d(child, parent, place, rule, tenant, arguments)
      LEFT JOIN succeeded s ON s.id = d.parent AND s.tenant = d.tenant
      RETURNING child, run_if, outcome, tenant),
    decidable AS (
      SELECT a.child, a.run_if, a.tenant
      FROM added a
      GROUP BY 1, 2, 3
      HAVING bool_and(a.outcome IS NOT NULL))
  SELECT
    ARRAY(
      SELECT DISTINCT x.id
      FROM other_parents x
      WHERE (x.id, x.tenant) NOT IN (SELECT s.id, s.tenant FROM succeeded s)),
    ARRAY(SELECT d.child FROM decidable d WHERE d.run_if <> 'any_failed' ORDER BY 1),
    ARRAY(SELECT d.tenant FROM decidable d WHERE d.run_if <> 'any_failed' ORDER BY d.child),
    ARRAY(SELECT d.child FROM decidable d WHERE d.run_if = 'any_failed')
  INTO to_watch, ready, tenants_of_ready, skipped;
  IF cardinality(to_watch || skipped) > 0 THEN
    -- Skipped children are not canceled here but after the commit, by a node that calls unblock():
    -- it emits an event for each job that it has canceled.
    INSERT INTO dependency_checks (id, what, at)
    SELECT x, 'parent', t FROM unnest(to_watch) x
    UNION ALL
    SELECT x, 'child', t FROM unnest(skipped) x;
    PERFORM _wake_unblockers();
  END IF;
  PERFORM _queue_or_cancel_children(ready, tenants_of_ready, t);
END $$;

-- Raises if a parent is unknown or belongs to another tenant, with the same words: a worker
-- enqueues the steps of a scheduled chain, and the tenant of the chain reads its error. One
-- statement reads both tables, so that it finds a parent that finishes just now.
CREATE OR REPLACE FUNCTION _check_parents(parents uuid[], tenants text[], types text[])
RETURNS void
LANGUAGE plpgsql VOLATILE
AS $$
BEGIN
  PERFORM _refuse_job(
    x.type,
    format('it depends on job %s, which is unknown: '
      'never enqueued, not committed yet, no longer kept, or of another tenant', x.parent))
  FROM unnest(parents, tenants, types) x(parent, tenant, type)
  LEFT JOIN LATERAL (
    SELECT j.tenant FROM jobs j WHERE j.id = x.parent AND j.tenant = x.tenant
    UNION ALL
    SELECT f.tenant
    FROM finished_jobs f
    WHERE f.id = x.parent
      AND f.tenant = x.tenant
      AND f.finished_at >= _history_start(x.parent)
    LIMIT 1) p ON true
  WHERE p.tenant IS NULL
  LIMIT 1;
END $$;

-- Raises if jobs of one call wait for each other. There is no cycle if each job comes after those
-- it waits for, as is usual.
CREATE OR REPLACE FUNCTION _check_no_cycle(new_jobs new_job[])
RETURNS void
LANGUAGE plpgsql VOLATILE
AS $$
DECLARE
  children int[];
  parents int[];
  cycle int[];
  path text;
BEGIN
  WITH n AS MATERIALIZED (
    SELECT x.id, x.depends_on, x.ordinality::int AS place
    FROM unnest(new_jobs) WITH ORDINALITY x)
  SELECT array_agg(c.place ORDER BY p.place), array_agg(p.place ORDER BY p.place)
  INTO children, parents
  FROM n c
  CROSS JOIN LATERAL unnest(c.depends_on) w(parent)
  JOIN n p ON p.id = w.parent
  HAVING bool_or(p.place >= c.place);
  cycle := _find_cycle(children, parents, cardinality(new_jobs));
  IF cycle IS NULL THEN RETURN; END IF;
  SELECT string_agg(
    CASE
      WHEN c.n BETWEEN 6 AND cardinality(cycle) - 5 THEN NULL
      WHEN c.n = 5 AND cardinality(cycle) > 10 THEN '...'
      ELSE format('%s [%s]', new_jobs[c.place].type, c.place - 1)
    END, ' waits for ' ORDER BY c.n)
  INTO path
  FROM unnest(cycle) WITH ORDINALITY c(place, n);
  RAISE EXCEPTION 'jobs wait for each other: %', path
    USING ERRCODE = 'WB003',
      HINT = 'remove one dependency; the numbers are positions in this call, from 0';
END $$;

-- Returns a cycle of a graph, with its first node again at the end; NULL if there is none. The
-- edges are sorted by parent. Removes nodes that wait for no other, until only cycles are left.
CREATE OR REPLACE FUNCTION _find_cycle(children int[], parents int[], nodes int)
RETURNS int[]
LANGUAGE plpgsql IMMUTABLE
AS $$
DECLARE
  -- Per node: how many others it waits for, and its first edge.
  waits int[] := array_fill(0, ARRAY[nodes]);
  first int[] := array_fill(0, ARRAY[nodes]);
  free int[] := '{}';
  next int := 1;
  edge int;
  waits_for int[] := array_fill(0, ARRAY[nodes]);
  at int;
  cycle int[];
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
  -- Each node that is left waits for another that is left.
  FOR e IN 1..cardinality(children) LOOP
    IF waits[parents[e]] > 0 THEN
      waits_for[children[e]] := parents[e];
      at := CASE WHEN waits[children[e]] > 0 THEN children[e] ELSE at END;
    END IF;
  END LOOP;
  -- After as many steps as there are nodes, `at` is on a cycle.
  FOR n IN 1..nodes LOOP at := waits_for[at]; END LOOP;
  cycle := ARRAY[at];
  LOOP
    at := waits_for[at];
    cycle := cycle || at;
    EXIT WHEN at = cycle[1];
  END LOOP;
  RETURN cycle;
END $$;
