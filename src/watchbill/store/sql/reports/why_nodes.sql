-- after: job_cause
-- Lists the live nodes, and which requirements of a job each of them meets: it serves the queue,
-- handles the type in this version, has the labels, and owns the route key. A node without rows in
-- node_types has not declared its types, so it may handle any; but not a job that a node has set
-- aside as unsupported. A live node has sent a beat within its lease: if all nodes were killed,
-- none is left that declares the others lost.
CREATE OR REPLACE FUNCTION _judge_nodes(j jobs, t timestamptz)
RETURNS TABLE (
  epoch bigint,
  name text,
  capacity int,
  queues text[],
  serves boolean,
  handles boolean,
  matches boolean,
  owns boolean
)
LANGUAGE plpgsql STABLE AS $$
#variable_conflict use_column
BEGIN
  RETURN QUERY
    SELECT
      n.epoch,
      n.name,
      n.capacity,
      n.queues,
      n.queues IS NULL OR j.queue = ANY (n.queues),
      EXISTS (
        SELECT
        FROM node_types x
        WHERE x.epoch = n.epoch
          AND x.type = j.type
          AND x.version >= j.version)
        OR j.wait IS DISTINCT FROM 'unsupported'
        AND NOT EXISTS (SELECT FROM node_types x WHERE x.epoch = n.epoch),
      j.lane >= 0 OR EXISTS (
        SELECT
        FROM label_sets s
        WHERE s.lane = j.lane
          AND _has_labels(n.name, n.labels, s.labels)),
      j.lane <= 0 OR _owns_lane(n.epoch, j.queue, j.lane)
    FROM beats b
    JOIN nodes n USING (epoch)
    WHERE n.state = 'active'
      AND b.at + n.lease > t;
END $$;

-- Says what keeps live nodes from taking a job. The requirements are asked of one node at a time:
-- all of them of the nodes that serve its queue, or of all nodes if none serves it.
CREATE OR REPLACE FUNCTION _explain_nodes(j jobs, t timestamptz)
RETURNS SETOF job_cause
LANGUAGE plpgsql STABLE AS $$
DECLARE
  met record;
BEGIN
  SELECT
    count(*) > 0 AS is_alive,
    coalesce(bool_or(n.serves), false) AS is_served,
    coalesce(bool_or(n.handles) FILTER (WHERE n.is_asked), false) AS is_handled,
    coalesce(bool_or(n.matches) FILTER (WHERE n.is_asked), false) AS is_matched,
    coalesce(bool_or(n.owns) FILTER (WHERE n.is_asked), false) AS is_owned,
    coalesce(bool_or(n.serves AND n.handles AND n.matches AND n.owns), false) AS is_possible
  INTO met
  FROM (
    SELECT x.*, x.serves OR NOT bool_or(x.serves) OVER () AS is_asked
    FROM _judge_nodes(j, t) x) n;
  IF NOT met.is_alive THEN
    RETURN QUERY SELECT * FROM _explain_dead_nodes();
  END IF;
  IF _is_in_wrong_lane(j) THEN
    RETURN QUERY SELECT * FROM _explain_wrong_lane(j);
  END IF;
  IF NOT met.is_alive OR met.is_possible THEN RETURN; END IF;
  IF NOT met.is_served THEN
    RETURN QUERY SELECT * FROM _explain_unserved_queue(j, t);
  END IF;
  IF NOT met.is_handled THEN
    RETURN QUERY SELECT * FROM _explain_unsupported_type(j, t);
  END IF;
  IF NOT met.is_matched THEN
    RETURN QUERY SELECT * FROM _explain_unmatched_labels(j);
  END IF;
  IF NOT met.is_owned THEN
    RETURN QUERY SELECT * FROM _explain_unowned_key(j, t);
  END IF;
  IF met.is_served AND met.is_handled AND met.is_matched AND met.is_owned THEN
    RETURN QUERY SELECT * FROM _explain_no_match(j, t);
  END IF;
END $$;

-- Says that no node is alive, and which was the last.
CREATE OR REPLACE FUNCTION _explain_dead_nodes()
RETURNS SETOF job_cause
LANGUAGE plpgsql STABLE AS $$
DECLARE
  last record;
BEGIN
  SELECT n.name, n.state, coalesce(b.at, n.ended_at) AS at INTO last
  FROM (
    (SELECT b.epoch FROM beats b ORDER BY b.at DESC LIMIT 1)
    UNION ALL
    (
      SELECT n.epoch
      FROM nodes n
      WHERE n.ended_at IS NOT NULL
      ORDER BY n.ended_at DESC
      LIMIT 1)) x
  JOIN nodes n USING (epoch)
  LEFT JOIN beats b USING (epoch)
  ORDER BY 3 DESC
  LIMIT 1;
  RETURN QUERY
    SELECT
      6,
      'no_node',
      'no node is alive' || CASE last.state
          WHEN 'draining' THEN format(': node %s drains, and takes no more jobs', last.name)
          WHEN 'left' THEN format(
            '; the last one was %s, which left at %s', last.name, date_trunc('second', last.at))
          WHEN 'active' THEN format(
            '; the last one was %s, whose last beat was at %s',
            last.name, date_trunc('second', last.at))
          WHEN 'lost' THEN format(
            '; the last one was %s, which was lost at %s', last.name, date_trunc('second', last.at))
          ELSE ''
        END,
      NULL::timestamptz,
      last.at,
      true,
      ARRAY['watchbill worker'],
      jsonb_strip_nulls(jsonb_build_object('last_node', last.name));
END $$;

-- Says that no live node serves the queue, and which queues are served.
CREATE OR REPLACE FUNCTION _explain_unserved_queue(j jobs, t timestamptz)
RETURNS SETOF job_cause
LANGUAGE plpgsql STABLE AS $$
DECLARE
  served text[] := ARRAY(
    SELECT DISTINCT q.queue
    FROM _judge_nodes(j, t) n
    CROSS JOIN unnest(n.queues) q(queue)
    ORDER BY 1
    LIMIT 6);
BEGIN
  RETURN QUERY
    SELECT
      7,
      'unserved',
      format('no live node serves its queue %s', j.queue) || CASE
          WHEN cardinality(served) = 0 THEN '; live nodes serve no queue'
          ELSE '; live nodes serve ' || array_to_string(served[1:5], ', ')
        END || CASE WHEN cardinality(served) > 5 THEN ' and others' ELSE '' END,
      NULL::timestamptz,
      NULL::timestamptz,
      true,
      ARRAY[format('watchbill worker --queues %s', _shell_word(j.queue))],
      jsonb_build_object('queue', j.queue, 'served', served);
END $$;

-- Says that no live node that serves the queue handles the type in this version. Names one that
-- handles it and serves other queues.
CREATE OR REPLACE FUNCTION _explain_unsupported_type(j jobs, t timestamptz)
RETURNS SETOF job_cause
LANGUAGE plpgsql STABLE AS $$
DECLARE
  is_served boolean;
  known int;
  other record;
BEGIN
  SELECT bool_or(n.serves), max(x.version)
  INTO is_served, known
  FROM _judge_nodes(j, t) n
  LEFT JOIN node_types x ON x.epoch = n.epoch AND x.type = j.type;
  SELECT n.name, n.queues INTO other FROM _judge_nodes(j, t) n WHERE n.handles ORDER BY 1 LIMIT 1;
  RETURN QUERY
    SELECT
      7,
      'unsupported',
      CASE
        WHEN other.name IS NOT NULL AND is_served THEN format(
          'no live node that serves its queue %s handles its type %s; node %s does, and serves %s',
          j.queue, j.type, other.name, coalesce(
            nullif(array_to_string(other.queues[1:5], ', '), ''), 'no queue'))
        WHEN known IS NULL THEN format('no live node handles its type %s', j.type)
        ELSE format(
          'live nodes handle version %s of its type %s, and it has version %s',
          known, j.type, j.version)
      END,
      NULL::timestamptz,
      (
        SELECT u.since
        FROM unsupported_types u
        WHERE u.type = j.type
          AND u.version = j.version),
      true,
      ARRAY['watchbill nodes list'],
      jsonb_strip_nulls(jsonb_build_object(
        'type', j.type, 'version', j.version, 'known_version', known, 'node', other.name));
END $$;

CREATE OR REPLACE FUNCTION _explain_unmatched_labels(j jobs)
RETURNS SETOF job_cause
LANGUAGE plpgsql STABLE AS $$
BEGIN
  RETURN QUERY
    SELECT
      7,
      'unmatched',
      'no live node that serves its queue ' || concat_ws(
        ' and ', 'is named ' || (s.labels->>'node'),
        'has the labels ' || nullif((s.labels - 'node')::text, '{}')),
      NULL::timestamptz,
      NULL::timestamptz,
      true,
      ARRAY[(
        SELECT 'watchbill worker ' || string_agg(
          CASE l.key
            WHEN 'node' THEN '--name ' || _shell_word(l.value)
            ELSE '--label ' || _shell_word(l.key || '=' || l.value)
          END, ' ' ORDER BY l.key)
        FROM jsonb_each_text(s.labels) l)],
      jsonb_build_object('labels', s.labels)
    FROM label_sets s
    WHERE s.lane = j.lane;
END $$;

-- Says why no live node that serves its queue owns the route key of a job. While the token of the
-- key moves to another node, the job waits for the end of that hand-over.
CREATE OR REPLACE FUNCTION _explain_unowned_key(j jobs, t timestamptz)
RETURNS SETOF job_cause
LANGUAGE plpgsql STABLE AS $$
DECLARE
  g token_groups;
  token tokens;
  owner record;
  members bigint;
  is_pinned boolean;
BEGIN
  SELECT x.* INTO g
  FROM queues q
  JOIN token_groups x ON x.name = q.token_group
  WHERE q.name = j.queue;
  SELECT * INTO token FROM tokens x WHERE x.token_group = g.name AND x.token = j.lane - 1;
  SELECT n.name, n.queues INTO owner
  FROM nodes n
  JOIN beats b USING (epoch)
  WHERE n.epoch = token.epoch
    AND n.state IN ('active', 'draining')
    AND b.at + n.lease > t;
  members := (SELECT count(*) FROM _eligible_members(g.name));
  is_pinned := EXISTS (
    SELECT
    FROM pins p
    WHERE p.token_group = g.name
      AND p.key = j.route_key
      AND p.token = j.lane - 1);
  RETURN QUERY
    SELECT
      7,
      'unowned',
      CASE
        WHEN owner.name IS NULL AND is_pinned THEN format(
          'its key %L is pinned, and no live node of group %s matches the pin',
          j.route_key, g.name)
        WHEN owner.name IS NULL AND members < g.min_nodes THEN format(
          'no live node of group %s owns its key %L: the group has %s of the %s members that it '
            'needs', g.name, j.route_key, members, g.min_nodes)
        WHEN owner.name IS NULL THEN
          format('no live node of group %s owns its key %L yet', g.name, j.route_key)
        WHEN token.next IS NOT NULL THEN
          format('its key %L moves from node %s to another', j.route_key, owner.name)
        ELSE format(
          'node %s owns its key %L, and does not serve its queue %s',
          owner.name, j.route_key, j.queue)
      END,
      NULL::timestamptz,
      token.asked_at,
      token.next IS NULL OR owner.name IS NULL,
      ARRAY[
        format('watchbill groups list'), format('watchbill tokens show %s', _shell_word(g.name))],
      jsonb_strip_nulls(jsonb_build_object(
        'group', g.name, 'key', j.route_key, 'owner', owner.name, 'pinned', is_pinned));
END $$;

-- Says of each live node that serves the queue what it lacks; of the first five.
CREATE OR REPLACE FUNCTION _explain_no_match(j jobs, t timestamptz)
RETURNS SETOF job_cause
LANGUAGE plpgsql STABLE AS $$
BEGIN
  RETURN QUERY
    SELECT
      7,
      'no_match',
      'no live node meets all that it needs: ' || string_agg(
        format('node %s does not %s', n.name, concat_ws(
          ' and does not ', CASE WHEN NOT n.handles THEN 'handle its type ' || j.type END,
          CASE WHEN NOT n.matches THEN 'have its labels' END,
          CASE WHEN NOT n.owns THEN 'own its key' END)), ', ' ORDER BY n.name),
      NULL::timestamptz,
      NULL::timestamptz,
      true,
      ARRAY['watchbill nodes list'],
      jsonb_object_agg(n.name, jsonb_build_object(
        'handles', n.handles, 'matches', n.matches, 'owns', n.owns))
    FROM (
      SELECT * FROM _judge_nodes(j, t) x WHERE x.serves ORDER BY x.name LIMIT 5) n;
END $$;

-- Says whether a job of a plain queue is in the lane of a share or a token, which no claim reads.
CREATE OR REPLACE FUNCTION _is_in_wrong_lane(j jobs)
RETURNS boolean
LANGUAGE plpgsql STABLE AS $$
BEGIN
  RETURN j.lane > 0 AND NOT EXISTS (
    SELECT
    FROM queues q
    WHERE q.name = j.queue
      AND q.lanes <> 'none');
END $$;

CREATE OR REPLACE FUNCTION _explain_wrong_lane(j jobs)
RETURNS SETOF job_cause
LANGUAGE plpgsql STABLE AS $$
BEGIN
  RETURN QUERY
    SELECT
      7,
      'wrong_lane',
      format(
        'queue %s is no longer fair or routed, and the job has a lane of that time; a node gives '
          'it another within ten seconds', j.queue),
      NULL::timestamptz,
      NULL::timestamptz,
      false,
      '{}'::text[],
      jsonb_build_object('lane', j.lane);
END $$;
