-- Deletes claims whose jobs have all ended, which complete() and fail() leave behind. Skips locked
-- claims.
CREATE OR REPLACE FUNCTION sweep_claims(
  older interval DEFAULT '1 minute',
  now timestamptz DEFAULT NULL
)
RETURNS int
LANGUAGE plpgsql VOLATILE AS $$
BEGIN
  PERFORM _check_shared_change('sweep_claims');
  RETURN _delete_ended_claims(ARRAY(
    SELECT c.fence
    FROM claims c
    WHERE c.at < _clock(now) - older));
END $$;
