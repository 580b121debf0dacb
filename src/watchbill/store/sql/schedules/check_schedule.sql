-- Raises if PostgreSQL cannot parse a SQL command, or if the command begins or ends a transaction.
-- Creates a temporary function with the command as its body, and undoes that. The function has a
-- polymorphic argument, so PostgreSQL only parses its body. Without it PostgreSQL would also
-- analyze the body, and so call functions that belong to types in the command. So nothing of the
-- command runs, and its tables need not exist yet. For a role that may not create temporary objects
-- there is no check.
CREATE OR REPLACE FUNCTION _check_sql_command(name text, command text)
RETURNS void
LANGUAGE plpgsql VOLATILE
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
      PERFORM _refuse_schedule(name, 'its command does not parse: ' || message, left(command, 200));
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

-- Checks the SQL command of a definition with the rights of the caller, before a function with the
-- rights of the owner stores it. For a caller that is the owner, the trigger makes this check.
CREATE OR REPLACE FUNCTION _check_command_of_caller(definition jsonb)
RETURNS void
LANGUAGE plpgsql VOLATILE AS $$
BEGIN
  IF definition->>'command' IS NOT NULL
    AND NOT pg_has_role((
      SELECT c.relowner FROM pg_class c WHERE c.oid = 'schedules'::regclass), 'USAGE') THEN
    PERFORM _check_sql_command(definition->>'name', definition->>'command');
  END IF;
END $$;

-- The right to execute this function, which does nothing, is the right to give a schedule a SQL
-- command, which workers run.
CREATE OR REPLACE FUNCTION _may_write_sql_commands()
RETURNS void
LANGUAGE sql STABLE
AS $$ $$;

-- Raises unless the caller may write a schedule with a SQL command. Workers run commands with their
-- own rights and so for all tenants. So a role that is bound to a tenant may not write one.
CREATE OR REPLACE FUNCTION _check_command_writer(name text)
RETURNS void
LANGUAGE plpgsql STABLE AS $$
BEGIN
  IF NOT has_function_privilege(_caller(), '_may_write_sql_commands()', 'EXECUTE') THEN
    PERFORM _refuse_schedule(
      name, format('role %L may not write, change or enable a SQL command', _caller()),
      'workers run commands: an operator has to write it');
  ELSIF NOT sees_all_tenants() THEN
    PERFORM _refuse_schedule(
      name,
      format('role %L is bound to a tenant, and may not write, change or enable a SQL command',
        _caller()),
      'workers run commands for all tenants: an operator that is not bound has to write it');
  END IF;
END $$;

-- Says whether an update changes more of a schedule than to disable it.
CREATE OR REPLACE FUNCTION _is_more_than_disabled(old schedules, new schedules)
RETURNS boolean
LANGUAGE sql STABLE AS $$
  SELECT new.enabled AND NOT old.enabled
    OR to_jsonb(new) - '{enabled,updated_at}'::text[]
      <> to_jsonb(old) - '{enabled,updated_at}'::text[]
$$;

-- Raises if the caller may not start a SQL command again that was written earlier. A role that does
-- not act for all tenants may start only what those who do have left as it is: the command of a
-- schedule that is enabled. `job_payload` is that of an earlier job of the schedule; `s` is NULL if
-- the schedule was removed since.
CREATE OR REPLACE FUNCTION _check_command_start(s schedules, job_payload jsonb)
RETURNS void
LANGUAGE plpgsql STABLE AS $$
BEGIN
  IF NOT _acts_for_all_tenants()
    AND (s.enabled
      AND s.command IS NOT NULL
      AND _make_schedule_payload(s) = coalesce(job_payload, _make_schedule_payload(s)))
      IS NOT TRUE THEN
    RAISE EXCEPTION 'role % may not run this SQL command: no enabled schedule has it',
      quote_literal(_caller())
      USING ERRCODE = 'WB013', HINT = 'an operator that is not bound to a tenant may';
  END IF;
END $$;

-- Raises if the caller may not write what only code declares: which app owns a schedule, and what
-- the app has declared. A role that does not act for all tenants could otherwise give its schedule
-- to an app, which would then make it a SQL command.
CREATE OR REPLACE FUNCTION _check_declaration_writer(old schedules, new schedules)
RETURNS void
LANGUAGE plpgsql STABLE AS $$
BEGIN
  IF (new.owner, new.hash, new.superseded_hashes, new.declared_definition)
      IS DISTINCT FROM
        (old.owner, old.hash, coalesce(old.superseded_hashes, '{}'), old.declared_definition)
    AND NOT _acts_for_all_tenants() THEN
    PERFORM _refuse_schedule(
      new.name,
      format('role %L may not write owner, hash, superseded_hashes or declared_definition',
        _caller()),
      'an app writes them when it declares its schedules');
  END IF;
END $$;

-- Raises if the jobs of a scheduled chain could not be enqueued.
CREATE OR REPLACE FUNCTION _check_scheduled_chain(name text, payload jsonb, tenant text)
RETURNS void
LANGUAGE plpgsql VOLATILE AS $$
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
  -- Checks with ids that are made up for this check only.
  jobs := _resolve_positions(jobs, 'epoch');
  PERFORM _refuse_schedule(name, format('position %s of its chain: %s', e.position, e.error))
  FROM (
    SELECT s.n - 1 AS position, _find_step_error(s.step, tenant) AS error
    FROM jsonb_array_elements(jobs) WITH ORDINALITY s(step, n)
    ORDER BY s.n) e
  WHERE e.error IS NOT NULL;
  PERFORM _check_no_cycle(ARRAY(
    SELECT j FROM jsonb_populate_recordset(NULL::new_job, jobs) j));
END $$;

-- Returns what is invalid in a step of a scheduled chain, an object with arguments of enqueue();
-- NULL if nothing is. Does not ask whether its limits are declared, because the code that declares
-- them may start later.
CREATE OR REPLACE FUNCTION _find_step_error(step jsonb, tenant text)
RETURNS text
LANGUAGE plpgsql VOLATILE AS $$
DECLARE
  job new_job := jsonb_populate_record(
    NULL::new_job,
    '{"payload": {}, "queue": "default", "priority": 0, "max_attempts": 10, "version": 1}');
  unknown_name text := (
    SELECT min(k)
    FROM jsonb_object_keys(step) k
    WHERE NOT to_jsonb(job) ? k);
BEGIN
  IF unknown_name IS NOT NULL THEN
    RETURN format('%L is not a field of a job', unknown_name);
  END IF;
  PERFORM _check_limit_keys(jsonb_build_array(step));
  job := jsonb_populate_record(job, (
    SELECT jsonb_object_agg(f.key, f.value) FROM jsonb_each(step) f WHERE f.value <> 'null'));
  job.tenant := tenant;
  PERFORM _policy_id(job.retry);
  PERFORM _render_key(o.format, job.payload, job.tenant, job.type, o.name)
  FROM (
    VALUES
      ('ordered_by', job.ordered_by), ('route_by', job.route_by), ('unique_by', job.unique_by))
    AS o(name, format)
  WHERE o.format IS NOT NULL;
  PERFORM _render_key(f, job.payload, job.tenant, job.type, 'limit_keys')
  FROM unnest(job.limit_keys) f;
  RETURN _job_error(job, 100000, _newest_id_prefix(_clock()));
EXCEPTION WHEN data_exception OR SQLSTATE 'WB003' THEN
  RETURN SQLERRM;
END $$;

-- Checks every row of schedules before it is written, and compiles its pattern. This is a trigger
-- function.
CREATE OR REPLACE FUNCTION _check_schedule()
RETURNS trigger
LANGUAGE plpgsql VOLATILE AS $$
DECLARE
  is_new boolean := TG_OP = 'INSERT';
BEGIN
  IF is_new THEN
    -- Slots and jobs refer to a schedule by its id alone. So only the owner, who restores a dump,
    -- chooses one: an id that was in use before would show the slots of a removed schedule.
    IF NEW.id IS NULL OR NOT pg_has_role(
      _caller(), (SELECT c.relowner FROM pg_class c WHERE c.oid = TG_RELID), 'USAGE') THEN
      NEW.id := nextval('schedule_seq');
    END IF;
    NEW.created_at := coalesce(NEW.created_at, _clock());
    NEW.updated_at := coalesce(NEW.updated_at, NEW.created_at);
  -- update_schedule() and similar functions set updated_at. An UPDATE that users write may leave it
  -- out.
  ELSIF NEW.updated_at IS NOT DISTINCT FROM OLD.updated_at THEN
    NEW.updated_at := _clock();
  END IF;
  -- doctor looks for what bound roles have written, so such a role cannot name another writer.
  IF _may_be_bound() AND NOT _acts_for_all_tenants() THEN
    NEW.created_by := CASE WHEN is_new THEN _caller() ELSE OLD.created_by END;
  END IF;
  NEW.overlap := coalesce(
    NEW.overlap, CASE NEW.missed WHEN 'catch_up' THEN 'queue' ELSE 'skip' END);
  PERFORM _refuse_schedule(NEW.name, _find_schedule_error(NEW));
  IF NEW.pattern IS NULL THEN
    NEW.pattern_id := NULL;
    IF _parse_zone(NEW.tz) IS NULL THEN PERFORM _cron_refuse_zone(NEW.tz, 0, NEW.tz); END IF;
  ELSIF is_new
    OR (NEW.pattern, NEW.tz, NEW.dst, NEW.start, NEW.created_at)
      IS DISTINCT FROM (OLD.pattern, OLD.tz, OLD.dst, OLD.start, OLD.created_at) THEN
    NEW.pattern_id := _compile_pattern(
      NEW.pattern, NEW.tz, NEW.dst, coalesce(NEW.start, NEW.created_at));
  ELSE
    -- Keeps the id of the pattern: another id for the same pattern would look like a new pattern to
    -- _set_timer().
    NEW.pattern_id := OLD.pattern_id;
  END IF;
  NEW.policy := _policy_id(NEW.retry);
  IF NEW.command IS NOT NULL AND (is_new OR _is_more_than_disabled(OLD, NEW)) THEN
    PERFORM _check_command_writer(NEW.name);
  END IF;
  PERFORM _check_declaration_writer(OLD, NEW);
  IF NEW.type = 'watchbill.flow'
    AND (is_new OR (NEW.type, NEW.payload) IS DISTINCT FROM (OLD.type, OLD.payload)) THEN
    PERFORM _check_scheduled_chain(NEW.name, NEW.payload, NEW.tenant);
  END IF;
  IF NOT is_new AND NEW.id <> OLD.id THEN
    PERFORM _refuse_schedule(NEW.name, 'its id cannot be changed');
  END IF;
  RETURN NEW;
END $$;

-- Parses a new SQL command with the rights of the role that writes the row. This is a trigger
-- function. If the row comes from a function with the rights of the owner, that function has
-- checked the command of its caller before.
CREATE OR REPLACE FUNCTION _check_schedule_command()
RETURNS trigger
LANGUAGE plpgsql VOLATILE AS $$
BEGIN
  IF (TG_OP = 'INSERT' OR NEW.command IS DISTINCT FROM OLD.command)
    AND pg_has_role(_caller(), current_user, 'USAGE') THEN
    PERFORM _check_sql_command(NEW.name, NEW.command);
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
