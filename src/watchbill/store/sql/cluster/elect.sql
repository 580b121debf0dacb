-- The leader of a group is the node that holds the lock `leader/GROUP`. Its term is the fence of
-- that lock. The lock lasts as long as the node's lease, so heartbeats renew it, and a leader sends
-- no statement of its own. Nodes that may lead are candidates, in the order of their epochs. When a
-- group has no leader, a younger candidate waits for half a lease, as long as an older candidate
-- sends heartbeats.

-- Makes the node a candidate for the leadership of these groups. Elects it in groups without a
-- leader if no older candidate goes first. Returns the leader of each group; NULL if a group has
-- none. Raises WB001 if the node was declared lost. A node that drains is not a candidate. Locks
-- the node's row FOR KEY SHARE, as a claim does, and the rows of locks that it acquires.
CREATE OR REPLACE FUNCTION elect(
  epoch bigint,
  groups text[],
  now timestamptz DEFAULT NULL
)
RETURNS TABLE (
  group_name text,
  leader bigint, -- its epoch
  term bigint,
  expires_in float8, -- seconds until the leader's lease ends, if no heartbeat renews it
  turn_in float8 -- without a leader: seconds until it is this node's turn
)
LANGUAGE plpgsql VOLATILE AS $$
#variable_conflict use_variable
DECLARE
  t timestamptz := _clock(now);
  node nodes;
BEGIN
  PERFORM _check_shared_change('elect');
  SELECT n.* INTO node
  FROM nodes n
  WHERE n.epoch = epoch
    AND n.state IN ('active', 'draining')
  FOR KEY SHARE;
  IF NOT FOUND THEN
    RAISE EXCEPTION 'the node with epoch % is lost', epoch
      USING ERRCODE = 'WB001', HINT = 'register again; another node may lead its groups';
  END IF;
  IF node.state = 'active' THEN
    INSERT INTO candidates (epoch, group_name)
    SELECT epoch, g
    FROM unnest(groups) g
    ON CONFLICT DO NOTHING;
    -- Makes the locks of new groups; released_at is the time since which a group has no leader.
    -- Makes and locks them in the order of their names, so that two nodes cannot wait for each
    -- other.
    INSERT INTO locks (name, released_at)
    SELECT DISTINCT 'leader/' || g, t
    FROM unnest(groups) g
    WHERE NOT EXISTS (SELECT FROM locks l WHERE l.name = 'leader/' || g)
    ORDER BY 1
    ON CONFLICT DO NOTHING;
    PERFORM _acquire_lock('leader/' || g.name, NULL, node.name, epoch, NULL, false, now)
    FROM (SELECT DISTINCT x.name FROM unnest(groups) x(name) ORDER BY x.name) g
    WHERE _find_leader_turn(g.name, node.epoch, t) <= t;
  END IF;
  RETURN QUERY SELECT * FROM _list_leaders(epoch, groups, t);
END $$;

-- Lists the leader of each of these groups, or, if `groups` is NULL, of all groups for which the
-- node is a candidate.
CREATE OR REPLACE FUNCTION _list_leaders(epoch bigint, groups text[], t timestamptz)
RETURNS TABLE (
  group_name text,
  leader bigint,
  term bigint,
  expires_in float8,
  turn_in float8
)
LANGUAGE plpgsql VOLATILE AS $$
#variable_conflict use_variable
BEGIN
  RETURN QUERY
    SELECT
      g.name, l.epoch, l.fence,
      extract(epoch FROM _lock_end(l.epoch, l.expires_at) - t)::float8,
      CASE
        WHEN l.name IS NULL THEN
          extract(
            epoch FROM greatest(_find_leader_turn(g.name, epoch, t), t) - t)::float8
      END
    FROM unnest(coalesce(groups, ARRAY(
      SELECT c.group_name
      FROM candidates c
      WHERE c.epoch = epoch))) g(name)
    LEFT JOIN locks l
      ON l.name = 'leader/' || g.name AND l.holder IS NOT NULL AND l.epoch IS NOT NULL
        AND _lock_end(l.epoch, l.expires_at) > t;
END $$;

-- Returns from when on a candidate may acquire the leadership of a group that has no leader: at
-- once, unless a candidate with a lower epoch has sent a heartbeat in the last half of a lease.
-- Then that older candidate has half of its lease to acquire it first.
CREATE OR REPLACE FUNCTION _find_leader_turn(group_name text, epoch bigint, t timestamptz)
RETURNS timestamptz
LANGUAGE plpgsql STABLE AS $$
#variable_conflict use_variable
DECLARE
  patience interval := (
    SELECT max(n.lease) / 2
    FROM candidates c
    JOIN nodes n ON n.epoch = c.epoch AND n.state = 'active'
    JOIN beats b ON b.epoch = c.epoch AND b.at > t - n.lease / 2
    WHERE c.group_name = group_name
      AND c.epoch < epoch);
BEGIN
  IF patience IS NULL THEN RETURN '-infinity'; END IF;
  RETURN patience + coalesce((
    SELECT CASE WHEN l.holder IS NULL THEN l.released_at ELSE _lock_end(l.epoch, l.expires_at) END
    FROM locks l
    WHERE l.name = 'leader/' || group_name), t);
END $$;

-- Ends the candidacies of a node that drains, and frees its leaderships. Its row still says that it
-- is active, so younger candidates would wait for it otherwise.
CREATE OR REPLACE FUNCTION _withdraw_candidate(epoch bigint, now timestamptz DEFAULT NULL)
RETURNS void
LANGUAGE plpgsql VOLATILE AS $$
BEGIN
  PERFORM _check_shared_change('_withdraw_candidate');
  PERFORM _end_candidacies(epoch, _clock(now));
END $$;

-- Ends the candidacies of a node, and frees its leaderships. Skips locks whose rows are locked: a
-- lock whose node sends no heartbeat becomes free anyway.
CREATE OR REPLACE FUNCTION _end_candidacies(epoch bigint, now timestamptz)
RETURNS void
LANGUAGE plpgsql VOLATILE AS $$
#variable_conflict use_variable
BEGIN
  DELETE FROM candidates c WHERE c.epoch = epoch;
  PERFORM _free_lock(held.name, now)
  FROM (
    SELECT l.name
    FROM locks l
    WHERE l.epoch = epoch
    ORDER BY l.name
    FOR NO KEY UPDATE SKIP LOCKED) held;
END $$;
