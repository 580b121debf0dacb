-- Has the hours since this instant counted again from history, by any node: `history` of
-- chore_marks says how far it is. Returns the hour with which it begins. Waits for the node that
-- computes figures just now.
CREATE OR REPLACE FUNCTION rebuild_figures(since timestamptz, now timestamptz DEFAULT NULL)
RETURNS timestamptz
LANGUAGE plpgsql VOLATILE AS $$
#variable_conflict use_variable
DECLARE
  t timestamptz := _clock(now);
  first timestamptz := date_bin('1 hour', since, _figures_origin());
BEGIN
  PERFORM _check_shared_change('rebuild_figures');
  IF since IS NULL OR first < t - interval '89 days' OR since > t THEN
    RAISE EXCEPTION 'since is invalid: %', coalesce(since::text, 'NULL')
      USING ERRCODE = 'WB003', HINT = 'give an instant of the last 89 days: older hours are days';
  END IF;
  PERFORM FROM chore_marks m WHERE m.chore = 'observer' FOR UPDATE;
  DELETE FROM rollups r WHERE r.grain = 'counting';
  UPDATE chore_marks m
  SET until = least(m.until, first), unsettled_before = NULL, due_at = t
  WHERE m.chore = 'history'
  RETURNING m.until INTO first;
  RETURN first;
END $$;
