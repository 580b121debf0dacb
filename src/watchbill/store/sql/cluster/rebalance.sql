-- What the leader of a group does: it plans who gets which tokens whenever the set of its members
-- or its pins have changed, grants the tokens of dead owners, and takes tokens from owners that do
-- not pass them on in time. `term` is that of the caller's leadership. Without work it writes
-- nothing. Returns the number of tokens that got, or will get, another owner.
-- Locks the rows of the leader's lock, of the group, and of nodes from which it takes tokens.
CREATE OR REPLACE FUNCTION rebalance(
  token_group text,
  term bigint,
  epoch bigint DEFAULT NULL,
  now timestamptz DEFAULT NULL
)
RETURNS int
LANGUAGE plpgsql VOLATILE AS $$
#variable_conflict use_variable
DECLARE
  began timestamptz := clock_timestamp();
  t timestamptz := _clock(now);
  g token_groups;
  before bigint[];
  after bigint[];
  reason text;
  is_planned boolean;
  moved int := 0;
  granted int := 0;
BEGIN
  PERFORM _check_shared_change('rebalance');
  g := _lock_group(token_group);
  PERFORM _check_term(g.name, term);
  PERFORM _update_pins(g, t);
  SELECT * INTO g FROM token_groups x WHERE x.name = g.name;
  before := coalesce(g.planned_members, '{}');
  after := _eligible_members(g.name);
  reason := _find_rebalance_reason(g, after);
  is_planned := reason IS NOT NULL AND cardinality(after) >= g.min_nodes;
  IF is_planned THEN
    moved := _plan_tokens(g, after, t) + _plan_pins(g, after, t);
  END IF;
  granted := _grant_tokens_of_dead(g.name, t) + _take_overdue_tokens(g, t);
  UPDATE token_groups x
  SET version = x.version + (moved + granted > 0)::int,
    planned_members = CASE WHEN is_planned THEN after ELSE x.planned_members END,
    planned_pins_version = CASE
      WHEN is_planned THEN x.pins_version
      ELSE x.planned_pins_version
    END
  WHERE x.name = g.name
    AND (moved + granted > 0 OR is_planned);
  IF moved > 0 THEN
    INSERT INTO rebalances (
      token_group, at, reason, leader, nodes_before, nodes_after, moved, version, duration)
    VALUES (
      g.name, t, reason, (SELECT n.name FROM nodes n WHERE n.epoch = epoch),
      _read_node_names(before), _read_node_names(after), moved, g.version + 1,
      clock_timestamp() - began);
  END IF;
  -- The row of a node that ended long ago may be gone.
  DELETE FROM members m
  WHERE m.token_group = g.name
    AND NOT EXISTS (
      SELECT
      FROM nodes n
      WHERE n.epoch = m.epoch
        AND n.state IN ('active', 'draining'));
  IF moved + granted > 0 THEN PERFORM _wake_members(); END IF;
  RETURN moved;
END $$;

CREATE OR REPLACE FUNCTION _read_node_names(epochs bigint[])
RETURNS text[]
LANGUAGE sql STABLE AS $$
  SELECT ARRAY(
    SELECT n.name
    FROM nodes n
    WHERE n.epoch = ANY (epochs)
    ORDER BY n.name)
$$;

-- Why a plan is needed; NULL: it is not.
CREATE OR REPLACE FUNCTION _find_rebalance_reason(g token_groups, eligible bigint[])
RETURNS text
LANGUAGE sql STABLE AS $$
  SELECT CASE
      WHEN g.planned_members IS NULL THEN
        CASE
          WHEN EXISTS (SELECT FROM rebalances r WHERE r.token_group = g.name) THEN 'requested'
          ELSE 'first assignment'
        END
      WHEN g.planned_members <> eligible THEN concat_ws(
        ', ',
        CASE WHEN NOT g.planned_members @> eligible THEN 'nodes joined' END,
        CASE WHEN NOT g.planned_members <@ eligible THEN 'nodes left' END)
      WHEN g.planned_pins_version <> g.pins_version THEN 'pins changed'
    END
$$;

-- Divides the tokens evenly among `owners`, with the fewest moves; distribution.py says why these
-- are the fewest. A token counts for the owner that it moves to. Only rows that change are written.
-- The caller has locked the group. Tokens and their new owners are paired by arrays and not by a
-- join: statistics know nothing of a new group, so the planner would compare each with each.
CREATE OR REPLACE FUNCTION _plan_tokens(g token_groups, owners bigint[], t timestamptz)
RETURNS int
LANGUAGE plpgsql VOLATILE
SET work_mem = '64MB'
AS $$
DECLARE
  moved int;
  grant_fence bigint := _next_fence();
  -- The tokens of dead owners whose jobs are not reclaimed yet.
  busy int[] := _tokens_with_jobs(
    g.name,
    ARRAY(
      SELECT DISTINCT c.epoch
      FROM claims c
      JOIN nodes n ON n.epoch = c.epoch AND n.state IN ('left', 'lost')));
BEGIN
  IF NOT EXISTS (SELECT FROM tokens x WHERE x.token_group = g.name AND x.token < g.total) THEN
    RETURN _grant_first_tokens(g, owners, grant_fence);
  END IF;
  WITH balance AS MATERIALIZED (
      SELECT * FROM _count_surplus_tokens(g, owners)),
    homeless AS MATERIALIZED (
      SELECT
        b.owner, x.token, x.place,
        n.epoch IS NULL AND x.token <> ALL (busy) AS is_free
      FROM balance b
      CROSS JOIN LATERAL (
        SELECT y.token, y.holder, y.place
        FROM (
          (
            SELECT z.token, z.epoch AS holder, z.ctid AS place, false AS is_moving
            FROM tokens z
            WHERE z.token_group = g.name
              AND z.epoch = b.owner
              AND z.next IS NULL
              AND z.token < g.total
            ORDER BY z.token DESC
            LIMIT b.surplus)
          UNION ALL
          (
            SELECT z.token, z.epoch, z.ctid, true
            FROM tokens z
            WHERE z.token_group = g.name
              AND z.next = b.owner
              AND z.token < g.total
            ORDER BY z.token DESC
            LIMIT b.surplus)) y
        ORDER BY y.is_moving DESC, y.token DESC
        LIMIT b.surplus) x
      LEFT JOIN nodes n ON n.epoch = x.holder AND n.state IN ('active', 'draining')
      WHERE b.surplus > 0),
    pairs AS (
      SELECT *
      FROM unnest(
        ARRAY(SELECT h.place FROM homeless h ORDER BY h.owner, h.token),
        ARRAY(SELECT h.is_free FROM homeless h ORDER BY h.owner, h.token),
        ARRAY(
          SELECT b.owner
          FROM balance b
          CROSS JOIN LATERAL generate_series(1, -b.surplus)
          WHERE b.surplus < 0
          ORDER BY b.owner)) u(place, is_free, owner)
      WHERE u.place IS NOT NULL
        AND u.owner IS NOT NULL)
  UPDATE tokens x
  SET epoch = CASE WHEN h.is_free THEN h.owner ELSE x.epoch END,
    fence = CASE WHEN h.is_free THEN grant_fence ELSE x.fence END,
    next = CASE WHEN NOT h.is_free THEN nullif(h.owner, x.epoch) END,
    asked_at = CASE WHEN NOT h.is_free AND h.owner <> x.epoch THEN coalesce(x.asked_at, t) END
  FROM pairs h
  WHERE x.ctid = h.place;
  GET DIAGNOSTICS moved = ROW_COUNT;
  RETURN moved;
END $$;

-- Gives a new group its tokens: each owner gets as many neighbors as every other, give or take one.
CREATE OR REPLACE FUNCTION _grant_first_tokens(g token_groups, owners bigint[], grant_fence bigint)
RETURNS int
LANGUAGE plpgsql VOLATILE AS $$
DECLARE
  granted int;
BEGIN
  INSERT INTO tokens (token_group, token, epoch, fence)
  SELECT g.name, s.token, o.epoch, grant_fence
  FROM unnest(owners) WITH ORDINALITY o(epoch, place)
  CROSS JOIN LATERAL generate_series(
    ((o.place - 1) * g.total / cardinality(owners))::int,
    (o.place * g.total / cardinality(owners))::int - 1) s(token);
  GET DIAGNOSTICS granted = ROW_COUNT;
  RETURN granted;
END $$;

-- Counts how many tokens each node has too many, below 0: too few. A node that is not one of
-- `owners` should have none; those who have most now get one more where the division leaves a rest.
CREATE OR REPLACE FUNCTION _count_surplus_tokens(g token_groups, owners bigint[])
RETURNS TABLE (owner bigint, surplus int)
LANGUAGE plpgsql STABLE AS $$
BEGIN
  RETURN QUERY
  WITH held AS (
    SELECT y.owner, sum(y.count)::int AS count
    FROM (
      SELECT x.epoch AS owner, count(*) AS count
      FROM tokens x
      WHERE x.token_group = g.name
        AND x.next IS NULL
        AND x.token < g.total
      GROUP BY x.epoch
      UNION ALL
      SELECT x.next, count(*)
      FROM tokens x
      WHERE x.token_group = g.name
        AND x.next IS NOT NULL
        AND x.token < g.total
      GROUP BY x.next) y
    GROUP BY y.owner)
  SELECT
    coalesce(o.epoch, h.owner) AS owner,
    coalesce(h.count, 0) - CASE
      WHEN o.epoch IS NULL THEN 0
      ELSE g.total / cardinality(owners) + (
        row_number() OVER (
          ORDER BY o.epoch IS NULL, coalesce(h.count, 0) DESC, o.epoch)
        <= g.total % cardinality(owners))::int
    END AS surplus
  FROM unnest(owners) o(epoch)
  FULL JOIN held h ON h.owner = o.epoch;
END $$;

-- Gives each pin to a member that matches its first alternative that any member matches. Among
-- several, the present owner keeps it; otherwise a hash of key and name decides, so that pins
-- spread and few of them move. A pin without a match gets no owner. A pin that ends goes to the
-- owner of the key's own token. The caller has locked the group. A pin whose jobs do not all have
-- its lane yet stays where it is.
-- It looks up the tokens of each pin: statistics know nothing of a new group, so a join that starts
-- with its tokens looks cheap, and reads all of them for each of them.
CREATE OR REPLACE FUNCTION _plan_pins(g token_groups, owners bigint[], t timestamptz)
RETURNS int
LANGUAGE plpgsql VOLATILE AS $$
DECLARE
  moved int;
BEGIN
  WITH choices AS (
      SELECT p.pattern, p.labels, n.epoch, n.name
      FROM (SELECT DISTINCT x.pattern, x.labels FROM pins x WHERE x.token_group = g.name) p
      JOIN nodes n ON n.name LIKE p.pattern OR _has_labels(n.name, n.labels, p.labels)
      WHERE n.epoch = ANY (owners)),
    pinned AS MATERIALIZED (
      SELECT
        p.token, p.key, p.rank, p.pattern, p.labels, p.state, x.place, x.holder, own.holder AS heir
      FROM pins p
      CROSS JOIN LATERAL (
        SELECT y.ctid AS place, coalesce(y.next, y.epoch) AS holder
        FROM tokens y
        WHERE y.token_group = p.token_group
          AND y.token = p.token
        OFFSET 0) x
      LEFT JOIN LATERAL (
        SELECT coalesce(y.next, y.epoch) AS holder
        FROM tokens y
        WHERE y.token_group = p.token_group
          AND y.token = _token_of(p.key, g.total, g.hash)
          AND p.state <> 'active'
        OFFSET 0) own ON true
      WHERE p.token_group = g.name
        AND (p.settling IS NULL OR p.created_at <= t - g.handover_timeout)),
    wanted AS (
      SELECT DISTINCT ON (p.token)
        p.place,
        p.holder,
        CASE
          WHEN p.state = 'active' THEN coalesce(c.epoch, 0)
          ELSE coalesce(p.heir, 0)
        END AS owner
      FROM pinned p
      LEFT JOIN choices c
        ON (c.pattern = p.pattern OR c.labels = p.labels)
          AND p.state = 'active'
      ORDER BY
        p.token,
        c.epoch IS NULL,
        p.rank,
        (c.epoch = p.holder) DESC,
        md5(p.key || c.name),
        c.epoch)
  UPDATE tokens x
  SET next = nullif(w.owner, x.epoch),
    asked_at = CASE WHEN w.owner <> x.epoch THEN coalesce(x.asked_at, t) END
  FROM wanted w
  WHERE x.ctid = w.place
    AND w.holder <> w.owner;
  GET DIAGNOSTICS moved = ROW_COUNT;
  RETURN moved;
END $$;

-- Gives tokens of dead owners, and those without an owner, to the nodes that they move to. A token
-- waits as long as a job of its lane is claimed under the dead epoch: reclaim() queues that first.
-- The caller has locked the group.
CREATE OR REPLACE FUNCTION _grant_tokens_of_dead(group_name text, t timestamptz)
RETURNS int
LANGUAGE plpgsql VOLATILE AS $$
DECLARE
  granted int;
  grant_fence bigint;
  dead bigint[] := ARRAY(
    SELECT o.epoch
    FROM (
      SELECT DISTINCT x.epoch
      FROM tokens x
      WHERE x.token_group = group_name
        AND x.next IS NOT NULL) o
    WHERE NOT EXISTS (
      SELECT
      FROM nodes n
      WHERE n.epoch = o.epoch
        AND n.state IN ('active', 'draining')));
BEGIN
  IF cardinality(dead) = 0 THEN RETURN 0; END IF;
  grant_fence := _next_fence();
  UPDATE tokens x
  SET epoch = x.next, fence = grant_fence, next = NULL, asked_at = NULL
  WHERE x.token_group = group_name
    AND x.next IS NOT NULL
    AND x.epoch = ANY (dead)
    AND x.token <> ALL (_tokens_with_jobs(group_name, dead));
  GET DIAGNOSTICS granted = ROW_COUNT;
  RETURN granted;
END $$;

-- The tokens in whose lanes these nodes have claimed jobs.
CREATE OR REPLACE FUNCTION _tokens_with_jobs(group_name text, epochs bigint[])
RETURNS int[]
LANGUAGE sql STABLE AS $$
  SELECT ARRAY(
    SELECT DISTINCT j.lane - 1
    FROM claims c
    CROSS JOIN LATERAL unnest(c.job_ids) x(id)
    JOIN jobs j ON j.id = x.id AND j.fence = c.fence AND j.lane > 0
    JOIN queues q ON q.name = j.queue AND q.token_group = group_name
    WHERE c.epoch = ANY (epochs))
$$;

-- The tokens of items that these nodes hold.
CREATE OR REPLACE FUNCTION _tokens_with_items(group_name text, epochs bigint[])
RETURNS int[]
LANGUAGE sql STABLE AS $$
  SELECT ARRAY(
    SELECT DISTINCT i.token
    FROM item_claims i
    WHERE i.token_group = group_name
      AND i.epoch = ANY (epochs)
      AND i.state = 'held')
$$;

-- Takes tokens from owners that were asked to pass them on longer ago than the group allows:
-- releases what they hold in these, and grants them. Waits for claims under way of these owners.
-- Leaves out tokens whose jobs or items somebody has locked. The caller has locked the group.
CREATE OR REPLACE FUNCTION _take_overdue_tokens(g token_groups, t timestamptz)
RETURNS int
LANGUAGE plpgsql VOLATILE AS $$
DECLARE
  taken int := 0;
  owner bigint;
  overdue int[];
BEGIN
  FOR owner, overdue IN
    SELECT x.epoch, array_agg(x.token)
    FROM tokens x
    WHERE x.token_group = g.name
      AND x.next IS NOT NULL
      AND x.asked_at <= t - g.handover_timeout
    GROUP BY x.epoch
    ORDER BY x.epoch
  LOOP
    PERFORM FROM nodes n WHERE n.epoch = owner FOR UPDATE;
    PERFORM _release_lanes(g.name, owner, overdue, t);
    UPDATE item_claims i
    SET state = 'released', ended_at = t
    WHERE i.ctid = ANY (ARRAY(
      SELECT h.ctid
      FROM item_claims h
      WHERE h.token_group = g.name
        AND h.epoch = owner
        AND h.state = 'held'
        AND h.token = ANY (overdue)
      FOR UPDATE SKIP LOCKED));
    taken := taken + _pass_free_tokens(g.name, owner, overdue, t);
  END LOOP;
  RETURN taken;
END $$;

-- Releases the jobs that a node has claimed in the lanes of these tokens. Locks the jobs, and
-- leaves those that are locked. The caller has locked the row of the node.
CREATE OR REPLACE FUNCTION _release_lanes(
  group_name text, owner bigint, tokens int[], t timestamptz
)
RETURNS void
LANGUAGE plpgsql VOLATILE AS $$
#variable_conflict use_variable
BEGIN
  PERFORM _release_job(j.id, t)
  FROM (
    SELECT j.id
    FROM claims c
    CROSS JOIN LATERAL unnest(c.job_ids) x(id)
    JOIN jobs j ON j.id = x.id AND j.fence = c.fence AND j.lane - 1 = ANY (tokens)
    JOIN queues q ON q.name = j.queue AND q.token_group = group_name
    WHERE c.epoch = owner
    FOR UPDATE OF j SKIP LOCKED) j;
END $$;

-- Gives tokens that are to move to their next owner, if the present owner holds no job and no item
-- in them: the given tokens, or all of them if NULL. The caller has locked the group, then the row
-- of the owner, so no claim of the owner runs. A claim that began earlier finds another assignment
-- and takes nothing.
CREATE OR REPLACE FUNCTION _pass_free_tokens(
  group_name text, owner bigint, chosen int[], t timestamptz
)
RETURNS int
LANGUAGE plpgsql VOLATILE AS $$
DECLARE
  passed int;
  grant_fence bigint := _next_fence();
  busy int[] := _tokens_with_jobs(group_name, ARRAY[owner])
    || _tokens_with_items(group_name, ARRAY[owner]);
BEGIN
  UPDATE tokens x
  SET epoch = x.next, fence = grant_fence, next = NULL, asked_at = NULL
  WHERE x.token_group = group_name
    AND x.epoch = owner
    AND x.next IS NOT NULL
    AND (chosen IS NULL OR x.token = ANY (chosen))
    AND x.token <> ALL (busy);
  GET DIAGNOSTICS passed = ROW_COUNT;
  IF passed > 0 THEN
    UPDATE nodes n SET assignment = n.assignment + 1 WHERE n.epoch = owner;
  END IF;
  RETURN passed;
END $$;
