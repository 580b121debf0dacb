-- Makes a token group, or changes its options. Another number of tokens, or another hash, is
-- refused while the group has members, pins or jobs: it would give most keys another owner without
-- any hand-over, and pins would be lost. Locks the row of the group.
CREATE OR REPLACE FUNCTION declare_group(
  name text,
  total int DEFAULT 10000,
  hash text DEFAULT 'md5',
  min_nodes int DEFAULT 1,
  handover_timeout interval DEFAULT '30 seconds',
  now timestamptz DEFAULT NULL
)
RETURNS void
LANGUAGE plpgsql VOLATILE AS $$
#variable_conflict use_column
DECLARE
  t timestamptz := _clock(declare_group.now);
  g token_groups;
BEGIN
  PERFORM _check_shared_change('declare_group');
  PERFORM _check_group_options(
    declare_group.name, declare_group.total, declare_group.hash, declare_group.min_nodes,
    declare_group.handover_timeout);
  SELECT * INTO g FROM token_groups x WHERE x.name = declare_group.name;
  IF (g.total, g.hash, g.min_nodes, g.handover_timeout) = (
    declare_group.total, declare_group.hash, declare_group.min_nodes,
    declare_group.handover_timeout) THEN
    RETURN;
  END IF;
  INSERT INTO token_groups (name, total, hash, min_nodes, handover_timeout, next_pin, created_at)
  VALUES (
    declare_group.name, declare_group.total, declare_group.hash, declare_group.min_nodes,
    declare_group.handover_timeout, declare_group.total, t)
  ON CONFLICT (name) DO NOTHING;
  IF FOUND THEN RETURN; END IF;
  g := _lock_group(declare_group.name);
  IF (g.total, g.hash) <> (declare_group.total, declare_group.hash) THEN
    PERFORM _refuse_change_of_used_group(g, declare_group.total, declare_group.hash);
    DELETE FROM tokens x WHERE x.token_group = g.name;
    DELETE FROM pins x WHERE x.token_group = g.name;
  END IF;
  UPDATE token_groups x
  SET total = declare_group.total,
    hash = declare_group.hash,
    min_nodes = declare_group.min_nodes,
    handover_timeout = declare_group.handover_timeout,
    next_pin = greatest(x.next_pin, declare_group.total),
    planned_members = NULL
  WHERE x.name = g.name;
  PERFORM _wake_members();
END $$;

CREATE OR REPLACE FUNCTION _check_group_options(
  name text, total int, hash text, min_nodes int, handover_timeout interval
)
RETURNS void
LANGUAGE plpgsql IMMUTABLE AS $$
BEGIN
  IF coalesce(length(name), 0) NOT BETWEEN 1 AND 200 THEN
    RAISE EXCEPTION 'a group name of % characters is invalid', coalesce(length(name), 0)
      USING ERRCODE = 'WB003', HINT = 'give a name of 1 to 200 characters';
  ELSIF (total BETWEEN 1 AND 10000000) IS NOT TRUE THEN
    RAISE EXCEPTION 'a total of % tokens is invalid', coalesce(total::text, 'NULL')
      USING ERRCODE = 'WB003', HINT = 'give 1 to 10,000,000 tokens; 10,000 suit most groups';
  ELSIF (hash IN ('md5', 'sha256', 'double_sha256')) IS NOT TRUE THEN
    RAISE EXCEPTION 'hash % is invalid', coalesce(quote_literal(hash), 'NULL')
      USING ERRCODE = 'WB003', HINT = 'give md5, sha256 or double_sha256';
  ELSIF (min_nodes >= 1) IS NOT TRUE THEN
    RAISE EXCEPTION 'min_nodes % is invalid', coalesce(min_nodes::text, 'NULL')
      USING ERRCODE = 'WB003', HINT = 'give 1 or more';
  ELSIF (handover_timeout BETWEEN interval '1 second' AND interval '1 day') IS NOT TRUE THEN
    RAISE EXCEPTION 'handover_timeout % is invalid', coalesce(handover_timeout::text, 'NULL')
      USING ERRCODE = 'WB003', HINT = 'give 1 second to 1 day';
  END IF;
END $$;

-- Raises an error if a declaration would change the tokens or the hash of a group that has living
-- members or pins, or jobs in its queues.
CREATE OR REPLACE FUNCTION _refuse_change_of_used_group(g token_groups, total int, hash text)
RETURNS void
LANGUAGE plpgsql STABLE AS $$
BEGIN
  IF cardinality(_living_members(g.name)) > 0
      OR EXISTS (SELECT FROM pins p WHERE p.token_group = g.name AND p.state = 'active')
      OR EXISTS (
        SELECT
        FROM queues q
        JOIN jobs j ON j.queue = q.name
        WHERE q.token_group = g.name) THEN
    RAISE EXCEPTION 'group % has % tokens (%), not % (%)',
      quote_literal(g.name), g.total, g.hash, total, hash
      USING ERRCODE = 'WB003',
        HINT = 'declare it alike everywhere; to change it, stop its members, finish its jobs and '
          'clear its pins';
  END IF;
END $$;
