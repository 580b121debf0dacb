-- A cause why a job does not run. Of several the lowest rank decides. `reason` is a sentence;
-- `until` is when the cause ends by itself, and `since` when it began, if that is known.
-- `needs_action`: it does not end before a person acts. `way_out` has the commands that help.
SELECT _create_type('job_cause', $$
  rank int,
  cause text,
  reason text,
  until timestamptz,
  since timestamptz,
  needs_action boolean,
  way_out text[],
  detail jsonb$$);

-- Returns a name as one word of a shell command. Producers choose names of queues, types and keys,
-- and an operator may paste the command.
CREATE OR REPLACE FUNCTION _shell_word(word text)
RETURNS text
LANGUAGE sql IMMUTABLE
RETURN CASE
    WHEN word ~ '^[[:alnum:]_./:@%+,=-]+$' THEN word
    ELSE '''' || replace(word, '''', '''\''''') || ''''
  END;

-- Returns how long ago `since` was, or how far ahead, in whole seconds.
CREATE OR REPLACE FUNCTION _show_distance(since timestamptz, t timestamptz)
RETURNS interval
LANGUAGE sql IMMUTABLE
RETURN date_trunc('second', greatest(t, since) - least(t, since));
