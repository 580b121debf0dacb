-- Does what is due of the figures: adds up what nodes report, samples how many jobs wait, records
-- groups of failures, summarizes the BRIN indexes of the history, evaluates alerts, counts ended
-- hours from history, and deletes old figures. Each part is a step of a few milliseconds, and the
-- call ends after the step with which it has taken 30 ms. Returns in how many seconds the next step
-- is due. A part that fails is tried again a minute later, and chore_marks has its error. Locks the
-- row `observer` of chore_marks; returns NULL at once if another node has it.
CREATE OR REPLACE FUNCTION _observe(now timestamptz DEFAULT NULL)
RETURNS float8
LANGUAGE plpgsql VOLATILE AS $$
#variable_conflict use_variable
DECLARE
  t timestamptz := _clock(now);
  began timestamptz := clock_timestamp();
  step_began timestamptz;
  step text;
  pause float8;
BEGIN
  PERFORM _check_shared_change('_observe');
  PERFORM FROM chore_marks m WHERE m.chore = 'observer' FOR UPDATE SKIP LOCKED;
  IF NOT FOUND THEN RETURN NULL; END IF;
  FOR step IN
    SELECT m.chore
    FROM chore_marks m
    WHERE m.due_at <= t
      AND m.chore <> 'observer'
    ORDER BY m.due_at, m.chore = 'alerts', m.chore
  LOOP
    step_began := clock_timestamp();
    BEGIN
      pause := CASE step
          WHEN 'tallies' THEN _add_up_tallies()
          WHEN 'samples' THEN _sample_backlog(t)
          WHEN 'failures' THEN _record_failures(t)
          WHEN 'summaries' THEN _summarize_history(t)
          WHEN 'alerts' THEN _evaluate_alerts(t)
          WHEN 'history' THEN _count_history(t)
          WHEN 'retention' THEN least(_prune_figures(t), _prune_alerts(t))
        END;
      PERFORM _end_step(step, pause, step_began, NULL, t);
    EXCEPTION WHEN OTHERS THEN
      PERFORM _end_step(step, 60, step_began, SQLERRM, t);
    END;
    EXIT WHEN clock_timestamp() > began + interval '30 milliseconds';
  END LOOP;
  RETURN (
    SELECT extract(epoch FROM greatest(min(m.due_at), t) - t)
    FROM chore_marks m
    WHERE m.chore <> 'observer'
      AND (m.chore <> 'tallies' OR EXISTS (SELECT FROM node_counts)));
END $$;

-- Records when the next step of this part is due: after `pause` seconds, and after at least 200
-- times what this step took, so that figures use at most a two-hundredth of one process. A pause of
-- 0 says that nodes have reported, or jobs have failed, more than one step reads: the next one
-- follows at once.
CREATE OR REPLACE FUNCTION _end_step(
  step text, pause float8, began timestamptz, error text, t timestamptz
)
RETURNS void
LANGUAGE plpgsql VOLATILE AS $$
#variable_conflict use_variable
DECLARE
  seconds float8 := extract(epoch FROM clock_timestamp() - began);
BEGIN
  UPDATE chore_marks m
  SET last_at = t,
    took = seconds,
    error = error,
    due_at = CASE
      WHEN pause = 0 THEN t
      ELSE t + greatest(pause, 200 * seconds) * interval '1 second'
    END
  WHERE m.chore = step;
END $$;

-- Says whether _observe() has something to do now.
CREATE OR REPLACE FUNCTION _has_due_observation(t timestamptz)
RETURNS boolean
LANGUAGE sql STABLE
AS $$
  SELECT EXISTS (
    SELECT
    FROM chore_marks m
    WHERE m.due_at <= t
      AND m.chore <> 'observer'
      AND (m.chore <> 'tallies' OR EXISTS (SELECT FROM node_counts)))
$$;
