-- Releases the claims of a node that it does not know, because the reply was lost. Locks the row of
-- the node, to wait for its uncommitted claims.
CREATE OR REPLACE FUNCTION release_unknown(
  epoch bigint,
  known bigint[],
  now timestamptz DEFAULT NULL
)
RETURNS int
LANGUAGE plpgsql VOLATILE AS $$
#variable_conflict use_variable
BEGIN
  PERFORM _check_shared_change('release_unknown');
  PERFORM FROM nodes n WHERE n.epoch = epoch FOR UPDATE;
  RETURN _release_claims(
    ARRAY(
      SELECT c.fence
      FROM claims c
      WHERE c.epoch = epoch
        AND c.fence <> ALL (known)),
    _clock(now));
END $$;
