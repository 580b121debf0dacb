CREATE OR REPLACE FUNCTION add_schedule_from(definition jsonb, now timestamptz DEFAULT NULL)
RETURNS bigint
LANGUAGE plpgsql VOLATILE AS $$
BEGIN
  PERFORM _check_command_of_caller(definition);
  RETURN _store_schedule(definition, now);
END $$;

-- Stores a schedule. Runs with the rights of the owner.
CREATE OR REPLACE FUNCTION _store_schedule(definition jsonb, now timestamptz)
RETURNS bigint
LANGUAGE plpgsql VOLATILE AS $$
DECLARE
  s schedules := _build_schedule(definition, _clock(now));
BEGIN
  IF EXISTS (SELECT FROM schedules x WHERE x.tenant = s.tenant AND x.name = s.name) THEN
    PERFORM _refuse_taken_schedule_name(s.name);
  END IF;
  INSERT INTO schedules SELECT s.* RETURNING schedules.id INTO s.id;
  PERFORM _audit('add_schedule', 'schedule ' || s.name, s.tenant, definition, s.created_at);
  RETURN s.id;
-- Another transaction has just inserted a schedule with this name.
EXCEPTION WHEN unique_violation THEN
  PERFORM _refuse_taken_schedule_name(s.name);
END $$;

CREATE OR REPLACE FUNCTION _refuse_taken_schedule_name(name text)
RETURNS void
LANGUAGE plpgsql VOLATILE AS $$
BEGIN
  RAISE EXCEPTION 'schedule % exists already', quote_literal(name)
    USING ERRCODE = 'WB009', HINT = 'update it, or choose another name';
END $$;
