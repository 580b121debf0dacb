-- Raises if PostgreSQL cannot parse a SQL command, or if it begins or ends a transaction. Creates a
-- function with the command as its body, and undoes that. Because of the polymorphic argument the
-- body is only parsed: analysis would already call functions that belong to types of the command.
-- So nothing runs, and the tables of the command need not exist yet. A role that may not create
-- temporary objects gets no check.
CREATE OR REPLACE FUNCTION _check_command(name text, command text)
RETURNS void
LANGUAGE plpgsql VOLATILE
SET search_path FROM CURRENT
SET check_function_bodies = on
AS $$
DECLARE
  message text;
BEGIN
  BEGIN
    EXECUTE
      'CREATE OR REPLACE FUNCTION pg_temp.watchbill_parses(anyelement) '
      || 'RETURNS void LANGUAGE sql AS ' || quote_literal(command);
    RAISE EXCEPTION 'it parses';
  EXCEPTION
    WHEN syntax_error THEN
      GET STACKED DIAGNOSTICS message = MESSAGE_TEXT;
      PERFORM _refuse_schedule(
        name, 'its command does not parse: ' || message, left(command, 200));
    WHEN OTHERS THEN NULL;
  END;
  IF btrim(command, E' \t\r\n;') = '' THEN
    PERFORM _refuse_schedule(name, 'its command is empty');
  ELSIF command ~* '^\s*(begin|start\s+transaction)\s*(;|work|transaction|isolation|read|$)'
    OR command ~* '(^|;)\s*(commit|rollback|abort)(\s+(work|transaction))?\s*;?\s*$' THEN
    PERFORM _refuse_schedule(
      name,
      'its command begins or ends a transaction',
      'leave BEGIN and COMMIT out: it runs in a transaction that also ends its job');
  END IF;
END $$;

-- Checks the command of a definition with the rights of the caller, before functions that have the
-- rights of the owner store it. The owner needs no such check: the trigger makes it.
CREATE OR REPLACE FUNCTION _check_given_command(definition jsonb)
RETURNS void
LANGUAGE plpgsql VOLATILE
SET search_path FROM CURRENT
AS $$
BEGIN
  IF definition->>'command' IS NOT NULL
    AND NOT pg_has_role((
      SELECT c.relowner FROM pg_class c WHERE c.oid = 'schedules'::regclass), 'USAGE') THEN
    PERFORM _check_command(definition->>'name', definition->>'command');
  END IF;
END $$;

-- EXECUTE on this function is the right to give a schedule a SQL command, which workers run. It
-- does nothing.
CREATE OR REPLACE FUNCTION _may_write_commands()
RETURNS void
LANGUAGE sql STABLE
SET search_path FROM CURRENT
AS $$ $$;

-- Raises if the jobs of a scheduled chain could not be enqueued.
CREATE OR REPLACE FUNCTION _check_flow(name text, payload jsonb)
RETURNS void
LANGUAGE plpgsql VOLATILE
SET search_path FROM CURRENT
AS $$
DECLARE
  jobs jsonb := payload->'jobs';
  wrong jsonb;
BEGIN
  IF coalesce(jsonb_typeof(jobs), '') <> 'array'
    OR jobs = '[]'
    OR jsonb_path_exists(
      jobs,
      '$[*] ? (@.type() != "object" || !exists(@."type" ? (@.type() == "string")))') THEN
    PERFORM _refuse_schedule(
      name, 'jobs of a chain must be a JSON array of at least one object, each with a type');
  END IF;
  SELECT e
  INTO wrong
  FROM jsonb_path_query(payload, 'lax $.ends[*]') e
  WHERE jsonb_typeof(e) <> 'number'
    OR e NOT IN (SELECT to_jsonb(n) FROM generate_series(0, jsonb_array_length(jobs) - 1) n);
  IF FOUND OR coalesce(jsonb_typeof(payload->'ends'), '') <> 'array' THEN
    PERFORM _refuse_schedule(
      name,
      'ends of a chain must be positions among its jobs, from 0'
      || coalesce(', not ' || wrong::text, ''));
  END IF;
  IF jsonb_path_exists(jobs, '$[*]."type" ? (@ starts with "watchbill.")') THEN
    PERFORM _refuse_schedule(
      name, 'the type of a step must not begin with watchbill.',
      'to run SQL, give a schedule a command');
  END IF;
  -- These ids are only for the check.
  PERFORM _check_no_cycle(ARRAY(
    SELECT j FROM jsonb_populate_recordset(NULL::new_job, _resolve_positions(jobs, 'epoch')) j));
END $$;

-- Trigger function: checks every row of schedules before it is written, and compiles its pattern.
CREATE OR REPLACE FUNCTION _check_schedule()
RETURNS trigger
LANGUAGE plpgsql VOLATILE
SET search_path FROM CURRENT
AS $$
DECLARE
  is_new boolean := TG_OP = 'INSERT';
BEGIN
  IF is_new THEN
    NEW.created_at := coalesce(NEW.created_at, _clock());
    NEW.updated_at := coalesce(NEW.updated_at, NEW.created_at);
  -- update_schedule() and the like set updated_at; a plain UPDATE may not.
  ELSIF NEW.updated_at IS NOT DISTINCT FROM OLD.updated_at THEN
    NEW.updated_at := _clock();
  END IF;
  NEW.overlap := coalesce(
    NEW.overlap, CASE NEW.missed WHEN 'catch_up' THEN 'queue' ELSE 'skip' END);
  PERFORM _refuse_schedule(NEW.name, _schedule_error(NEW));
  IF NEW.pattern IS NULL THEN
    NEW.pattern_id := NULL;
    IF _parse_zone(NEW.tz) IS NULL THEN PERFORM _cron_refuse_zone(NEW.tz, 0, NEW.tz); END IF;
  ELSIF is_new
    OR (NEW.pattern, NEW.tz, NEW.dst, NEW.start, NEW.created_at)
      IS DISTINCT FROM (OLD.pattern, OLD.tz, OLD.dst, OLD.start, OLD.created_at) THEN
    NEW.pattern_id := _compile_pattern(
      NEW.pattern, NEW.tz, NEW.dst, coalesce(NEW.start, NEW.created_at));
  ELSE
    -- The id of another row with the same pattern would look like a new pattern to _set_timer().
    NEW.pattern_id := OLD.pattern_id;
  END IF;
  NEW.policy := _policy_id(NEW.retry);
  IF NEW.command IS NOT NULL
    AND (is_new OR (NEW.command, NEW.role) IS DISTINCT FROM (OLD.command, OLD.role))
    AND NOT has_function_privilege(_caller(), '_may_write_commands()', 'EXECUTE') THEN
    PERFORM _refuse_schedule(
      NEW.name, format('role %L may not give a schedule a SQL command', _caller()),
      'workers run commands: an operator has to write it');
  END IF;
  IF NEW.type = 'watchbill.flow'
    AND (is_new OR (NEW.type, NEW.payload) IS DISTINCT FROM (OLD.type, OLD.payload)) THEN
    PERFORM _check_flow(NEW.name, NEW.payload);
  END IF;
  IF NOT is_new AND NEW.id <> OLD.id THEN
    PERFORM _refuse_schedule(NEW.name, 'its id cannot be changed');
  END IF;
  RETURN NEW;
END $$;

-- Trigger function: parses a new command with the rights of the role that writes the row. A
-- function with the rights of the owner has checked its caller's command before.
CREATE OR REPLACE FUNCTION _check_schedule_command()
RETURNS trigger
LANGUAGE plpgsql VOLATILE
SET search_path FROM CURRENT
AS $$
BEGIN
  IF (TG_OP = 'INSERT' OR NEW.command IS DISTINCT FROM OLD.command)
    AND pg_has_role(_caller(), current_user, 'USAGE') THEN
    PERFORM _check_command(NEW.name, NEW.command);
  END IF;
  RETURN NEW;
END $$;

CREATE OR REPLACE TRIGGER check_schedule_command
BEFORE INSERT OR UPDATE ON schedules
FOR EACH ROW WHEN (NEW.command IS NOT NULL)
EXECUTE FUNCTION _check_schedule_command();

CREATE OR REPLACE TRIGGER check_schedule
BEFORE INSERT OR UPDATE ON schedules
FOR EACH ROW EXECUTE FUNCTION _check_schedule();
