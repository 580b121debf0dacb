-- What may be done to a schedule. Plain INSERT, UPDATE and DELETE do the same work; these leave a row in the audit, take a `now`, and find by name.

-- A definition, as JSON, laid over a row: only what it names changes, and null puts the default back.
CREATE OR REPLACE FUNCTION schedule_with(base schedules, definition jsonb) RETURNS schedules LANGUAGE plpgsql VOLATILE SET search_path FROM CURRENT AS $$
DECLARE
  known text[] := '{tenant,name,pattern,every,at,tz,dst,start,end,max_runs,jitter,type,payload,version,command,role,queue,priority,max_attempts,retry,timeout,missed,'
    'catch_up,grace,overlap,deadline,run_on_start,enabled,description,category,tags,context,created_by}';
  key text;
  value jsonb;
  message text;
  whole jsonb;
BEGIN
  IF jsonb_typeof(definition) <> 'object' THEN
    RAISE EXCEPTION 'a schedule is defined by a JSON object' USING ERRCODE = 'WB003';
  END IF;
  SELECT k INTO key FROM jsonb_object_keys(definition) k WHERE k <> ALL (known) LIMIT 1;
  IF FOUND THEN PERFORM refuse_schedule(base.name, format('a schedule has no %L', key), 'it has ' || array_to_string(known, ', ')); END IF;
  whole := (SELECT jsonb_object_agg(e.key, CASE WHEN e.value = 'null' THEN coalesce(schedule_defaults()->e.key, 'null') ELSE e.value END) FROM jsonb_each(definition) e);
  BEGIN
    RETURN CASE WHEN whole IS NULL THEN base ELSE jsonb_populate_record(base, whole) END;
  EXCEPTION WHEN data_exception THEN
    NULL;                                                -- which of them?
  END;
  FOR key, value IN SELECT e.key, e.value FROM jsonb_each(whole) e LOOP
    BEGIN
      PERFORM jsonb_populate_record(base, jsonb_build_object(key, value));
    EXCEPTION WHEN data_exception THEN
      GET STACKED DIAGNOSTICS message = MESSAGE_TEXT;
      PERFORM refuse_schedule(base.name, format('%s: %s', key, message));
    END;
  END LOOP;
END $$;

CREATE OR REPLACE FUNCTION schedule_defaults() RETURNS jsonb LANGUAGE sql STABLE
  RETURN jsonb_build_object('tenant', 'default', 'tz', 'UTC', 'dst', 'default', 'payload', '{}'::jsonb, 'version', 1, 'queue', 'default', 'priority', 0, 'max_attempts', 5,
    'missed', 'once', 'catch_up', 100, 'run_on_start', false, 'enabled', true, 'tags', '[]'::jsonb, 'created_by', session_user);

-- A whole one, not yet stored.
CREATE OR REPLACE FUNCTION new_schedule(definition jsonb, now timestamptz) RETURNS schedules LANGUAGE plpgsql VOLATILE SET search_path FROM CURRENT AS $$
DECLARE
  s schedules := jsonb_populate_record(NULL::schedules, schedule_defaults());
BEGIN
  s.name := definition->>'name';
  s := schedule_with(s, definition);
  s.overlap := coalesce(s.overlap, CASE s.missed WHEN 'catch_up' THEN 'queue' ELSE 'skip' END);
  s.superseded := '{}';
  s.policy := 1;
  s.created_at := coalesce(now, clock());
  s.updated_at := s.created_at;
  RETURN s;
END $$;

CREATE OR REPLACE FUNCTION add_schedule_from(definition jsonb, now timestamptz DEFAULT NULL) RETURNS bigint LANGUAGE plpgsql VOLATILE SET search_path FROM CURRENT AS $$
#variable_conflict use_column
DECLARE
  s schedules := new_schedule(add_schedule_from.definition, add_schedule_from.now);
BEGIN
  IF EXISTS (SELECT FROM schedules x WHERE x.tenant = s.tenant AND x.name = s.name) THEN PERFORM refuse_taken_name(s.name); END IF;
  s.id := nextval('schedule_seq');
  INSERT INTO schedules SELECT s.*;
  PERFORM note('add_schedule', 'schedule ' || s.name, s.tenant, add_schedule_from.definition, s.created_at);
  RETURN s.id;
EXCEPTION WHEN unique_violation THEN                     -- by somebody who was not done when we looked
  PERFORM refuse_taken_name(s.name);
END $$;

CREATE OR REPLACE FUNCTION refuse_taken_name(name text) RETURNS void LANGUAGE plpgsql VOLATILE SET search_path FROM CURRENT AS $$
BEGIN
  RAISE EXCEPTION 'there is a schedule named %', quote_literal(name) USING ERRCODE = 'WB009', HINT = 'update it, or give another name';
END $$;

CREATE OR REPLACE FUNCTION add_schedule(
  name text, pattern text DEFAULT NULL, type text DEFAULT NULL, payload jsonb DEFAULT NULL, command text DEFAULT NULL, every interval DEFAULT NULL, at timestamptz DEFAULT NULL,
  tz text DEFAULT NULL, dst text DEFAULT NULL, start timestamptz DEFAULT NULL, "end" timestamptz DEFAULT NULL, max_runs int DEFAULT NULL, jitter interval DEFAULT NULL,
  version int DEFAULT NULL, role text DEFAULT NULL, queue text DEFAULT NULL, priority int DEFAULT NULL, max_attempts int DEFAULT NULL, retry jsonb DEFAULT NULL,
  timeout interval DEFAULT NULL, missed text DEFAULT NULL, catch_up int DEFAULT NULL, grace interval DEFAULT NULL, overlap text DEFAULT NULL, deadline interval DEFAULT NULL,
  run_on_start boolean DEFAULT NULL, enabled boolean DEFAULT NULL, description text DEFAULT NULL, category text DEFAULT NULL, tags text[] DEFAULT NULL, context jsonb DEFAULT NULL,
  tenant text DEFAULT NULL, created_by text DEFAULT NULL, now timestamptz DEFAULT NULL
) RETURNS bigint LANGUAGE plpgsql VOLATILE SET search_path FROM CURRENT AS $$
DECLARE
  given jsonb := jsonb_build_object('name', name, 'pattern', pattern, 'type', type, 'payload', payload, 'command', command, 'every', every, 'at', at, 'tz', tz, 'dst', dst,
    'start', start, 'end', "end", 'max_runs', max_runs, 'jitter', jitter, 'version', version, 'role', role, 'queue', queue, 'priority', priority, 'max_attempts', max_attempts,
    'retry', retry, 'timeout', timeout, 'missed', missed, 'catch_up', catch_up, 'grace', grace, 'overlap', overlap, 'deadline', deadline)
    || jsonb_build_object('run_on_start', run_on_start, 'enabled', enabled, 'description', description, 'category', category, 'tags', tags, 'context', context,
    'tenant', tenant, 'created_by', created_by);
BEGIN
  RETURN add_schedule_from((SELECT jsonb_object_agg(g.key, g.value) FROM jsonb_each(given) g WHERE g.value <> 'null' OR g.key = 'name'), now);
END $$;

CREATE OR REPLACE FUNCTION update_schedule(name text, changes jsonb, tenant text DEFAULT 'default', now timestamptz DEFAULT NULL) RETURNS boolean
LANGUAGE plpgsql VOLATILE SET search_path FROM CURRENT AS $$
#variable_conflict use_column
DECLARE
  s schedules;
BEGIN
  SELECT * INTO s FROM schedules x WHERE x.tenant = update_schedule.tenant AND x.name = update_schedule.name FOR UPDATE;
  IF NOT FOUND THEN RETURN false; END IF;
  s := schedule_with(s, update_schedule.changes);
  s.updated_at := coalesce(update_schedule.now, clock());
  PERFORM write_schedule(s);
  PERFORM note('update_schedule', 'schedule ' || update_schedule.name, update_schedule.tenant, update_schedule.changes, s.updated_at);
  RETURN true;
EXCEPTION WHEN unique_violation THEN
  PERFORM refuse_taken_name(s.name);
END $$;

-- Everything that a definition has; the row is there.
CREATE OR REPLACE FUNCTION write_schedule(s schedules) RETURNS void LANGUAGE plpgsql VOLATILE SET search_path FROM CURRENT AS $$
#variable_conflict use_column
BEGIN
  UPDATE schedules x SET tenant = s.tenant, name = s.name, pattern = s.pattern, every = s.every, at = s.at, tz = s.tz, dst = s.dst, start = s.start, "end" = s."end",
    max_runs = s.max_runs, jitter = s.jitter, type = s.type, payload = s.payload, version = s.version, command = s.command, role = s.role, queue = s.queue, priority = s.priority,
    max_attempts = s.max_attempts, retry = s.retry, timeout = s.timeout, missed = s.missed, catch_up = s.catch_up, grace = s.grace, overlap = s.overlap, deadline = s.deadline,
    run_on_start = s.run_on_start, enabled = s.enabled, description = s.description, category = s.category, tags = s.tags, context = s.context, created_by = s.created_by,
    hash = s.hash, superseded = s.superseded, declared = s.declared, updated_at = s.updated_at WHERE x.id = s.id;
END $$;

CREATE OR REPLACE FUNCTION enable_schedule(name text, tenant text DEFAULT 'default', now timestamptz DEFAULT NULL) RETURNS boolean
LANGUAGE plpgsql VOLATILE SET search_path FROM CURRENT AS $$
BEGIN
  RETURN switch_schedule(name, tenant, true, now);
END $$;

CREATE OR REPLACE FUNCTION disable_schedule(name text, tenant text DEFAULT 'default', now timestamptz DEFAULT NULL) RETURNS boolean
LANGUAGE plpgsql VOLATILE SET search_path FROM CURRENT AS $$
BEGIN
  RETURN switch_schedule(name, tenant, false, now);
END $$;

CREATE OR REPLACE FUNCTION switch_schedule(name text, tenant text, enabled boolean, now timestamptz) RETURNS boolean LANGUAGE plpgsql VOLATILE SET search_path FROM CURRENT AS $$
#variable_conflict use_column
DECLARE
  t timestamptz := coalesce(switch_schedule.now, clock());
BEGIN
  UPDATE schedules s SET enabled = switch_schedule.enabled, updated_at = t WHERE s.tenant = switch_schedule.tenant AND s.name = switch_schedule.name;
  IF NOT FOUND THEN RETURN false; END IF;
  PERFORM note(CASE WHEN switch_schedule.enabled THEN 'enable_schedule' ELSE 'disable_schedule' END, 'schedule ' || switch_schedule.name, switch_schedule.tenant, NULL, t);
  RETURN true;
END $$;

CREATE OR REPLACE FUNCTION remove_schedule(name text, tenant text DEFAULT 'default', now timestamptz DEFAULT NULL) RETURNS boolean
LANGUAGE plpgsql VOLATILE SET search_path FROM CURRENT AS $$
#variable_conflict use_column
DECLARE
  gone jsonb;
BEGIN
  DELETE FROM schedules s WHERE s.tenant = remove_schedule.tenant AND s.name = remove_schedule.name RETURNING schedule_definition(s) INTO gone;
  IF NOT FOUND THEN RETURN false; END IF;
  PERFORM note('remove_schedule', 'schedule ' || remove_schedule.name, remove_schedule.tenant, gone, remove_schedule.now);
  RETURN true;
END $$;

-- What a definition can say, of a stored schedule.
CREATE OR REPLACE FUNCTION schedule_definition(s schedules) RETURNS jsonb LANGUAGE sql STABLE
  RETURN to_jsonb(s) - '{id,name,tenant,owner,hash,superseded,declared,created_at,updated_at,created_by,rhythm,policy}'::text[];

CREATE OR REPLACE FUNCTION run_schedule(name text, tenant text DEFAULT 'default', payload jsonb DEFAULT NULL, now timestamptz DEFAULT NULL) RETURNS uuid
LANGUAGE plpgsql VOLATILE SET search_path FROM CURRENT AS $$
#variable_conflict use_column
DECLARE
  t timestamptz := coalesce(run_schedule.now, clock());
  s schedules;
  job uuid;
BEGIN
  SELECT * INTO s FROM schedules x WHERE x.tenant = run_schedule.tenant AND x.name = run_schedule.name;
  IF NOT FOUND THEN RETURN NULL; END IF;
  IF jsonb_typeof(run_schedule.payload) <> 'object' OR run_schedule.payload IS NOT NULL AND coalesce(s.type, 'watchbill.flow') = 'watchbill.flow' THEN
    RAISE EXCEPTION '%', CASE WHEN s.type IS NULL THEN format('schedule %L runs no task, so it takes no payload', s.name)
      WHEN s.type = 'watchbill.flow' THEN format('schedule %L starts a chain, whose steps have their own payloads', s.name)
      ELSE 'payload must be a JSON object, one key per parameter' END USING ERRCODE = 'WB003';
  END IF;
  job := run_apart(s.id, 'hand', run_schedule.payload, t);
  PERFORM note('run_schedule', 'schedule ' || run_schedule.name, run_schedule.tenant, jsonb_build_object('job', job), t);
  RETURN job;
END $$;

-- A run that no slot asked for. Its row among the slots has the instant at which its job was made.
CREATE OR REPLACE FUNCTION run_apart(schedule_id bigint, kind text, payload jsonb, t timestamptz) RETURNS uuid LANGUAGE plpgsql VOLATILE SET search_path FROM CURRENT SET timezone = 'UTC' AS $$
#variable_conflict use_column
DECLARE
  s schedules;
  job uuid;
  instant timestamptz := run_apart.t;
BEGIN
  UPDATE timers x SET fired = x.fired + 1, last_run = run_apart.t WHERE x.schedule_id = run_apart.schedule_id;   -- first, as everybody: then nobody else is at it
  SELECT * INTO s FROM schedules x WHERE x.id = run_apart.schedule_id;
  IF NOT FOUND THEN RETURN NULL; END IF;
  LOOP
    IF num_nonnulls(s.type, s.command) > 0 THEN job := uuid7(instant); END IF;   -- in the order of the instants
    INSERT INTO slots (schedule_id, slot, kind, job_id, outcome, fired_at, finished_at, due_by)
      VALUES (s.id, instant, run_apart.kind, job, CASE WHEN job IS NULL THEN 'fired' END, run_apart.t, CASE WHEN job IS NULL THEN run_apart.t END, instant + s.deadline)
      ON CONFLICT DO NOTHING;
    EXIT WHEN FOUND;
    instant := instant + interval '1 microsecond';
  END LOOP;
  IF job IS NOT NULL THEN
    INSERT INTO jobs (id, run_at, created_at, policy, timeout, version, priority, max_attempts, queue, type, tenant, schedule_id, created_by, payload, meta)
      VALUES (job, run_apart.t, instant, s.policy, extract(epoch FROM s.timeout), s.version, s.priority, s.max_attempts, s.queue, coalesce(s.type, 'watchbill.sql'), s.tenant, s.id,
        coalesce(nullif(current_setting('watchbill.actor', true), ''), session_user), coalesce(run_apart.payload, job_payload(s)), slot_meta(s.name, NULL, s.context));
    PERFORM wake(s.queue);
  END IF;
  RETURN job;
END $$;
