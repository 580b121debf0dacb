-- Returns a row of schedules with the fields changed that a definition names. The value null sets
-- the default.
CREATE OR REPLACE FUNCTION _apply_schedule_definition(base schedules, definition jsonb)
RETURNS schedules
LANGUAGE plpgsql VOLATILE AS $$
DECLARE
  known text[] := '{tenant,name,pattern,every,at,tz,dst,start,end,max_runs,jitter,type,payload,'
    'version,command,role,queue,priority,max_attempts,retry,timeout,expires,missed,catch_up,grace,'
    'overlap,deadline,run_on_start,enabled,description,category,tags,context,created_by}';
  key text;
  value jsonb;
  message text;
  filled jsonb;
BEGIN
  IF jsonb_typeof(definition) <> 'object' THEN
    RAISE EXCEPTION 'definition is invalid: it must be a JSON object' USING ERRCODE = 'WB003';
  END IF;
  SELECT k INTO key FROM jsonb_object_keys(definition) k WHERE k <> ALL (known) LIMIT 1;
  IF FOUND THEN
    PERFORM _refuse_schedule(
      base.name,
      format('%L is not a field', key),
      'the fields are ' || array_to_string(known, ', '));
  END IF;
  filled := (
    SELECT jsonb_object_agg(
      e.key,
      CASE
        WHEN e.value = 'null' THEN coalesce(_list_schedule_defaults()->e.key, 'null')
        ELSE e.value
      END)
    FROM jsonb_each(definition) e);
  BEGIN
    RETURN CASE WHEN filled IS NULL THEN base ELSE jsonb_populate_record(base, filled) END;
  EXCEPTION WHEN data_exception THEN
    NULL;
  END;
  -- At least one value is invalid. Tries each value alone, to name the invalid one in the error.
  FOR key, value IN SELECT e.key, e.value FROM jsonb_each(filled) e LOOP
    BEGIN
      PERFORM jsonb_populate_record(base, jsonb_build_object(key, value));
    EXCEPTION WHEN data_exception THEN
      GET STACKED DIAGNOSTICS message = MESSAGE_TEXT;
      PERFORM _refuse_schedule(base.name, format('%s: %s', key, message));
    END;
  END LOOP;
END $$;

CREATE OR REPLACE FUNCTION _list_schedule_defaults()
RETURNS jsonb
LANGUAGE sql STABLE
RETURN jsonb_build_object(
  'tenant', _session_tenant(), 'tz', 'UTC', 'dst', 'default', 'payload', '{}'::jsonb, 'version', 1,
  'queue', 'default', 'priority', 0, 'max_attempts', 10, 'missed', 'once', 'catch_up', 100,
  'run_on_start', false, 'enabled', true, 'tags', '[]'::jsonb, 'created_by', session_user);

-- Makes a row of schedules from a definition, without storing it.
CREATE OR REPLACE FUNCTION _build_schedule(definition jsonb, t timestamptz)
RETURNS schedules
LANGUAGE plpgsql VOLATILE AS $$
DECLARE
  s schedules := jsonb_populate_record(NULL::schedules, _list_schedule_defaults());
BEGIN
  s.name := definition->>'name';
  s := _apply_schedule_definition(s, definition);
  s.overlap := coalesce(s.overlap, CASE s.missed WHEN 'catch_up' THEN 'queue' ELSE 'skip' END);
  s.superseded_hashes := '{}';
  s.policy := 1;
  s.created_at := t;
  s.updated_at := s.created_at;
  RETURN s;
END $$;

CREATE OR REPLACE FUNCTION _write_schedule(s schedules)
RETURNS void
LANGUAGE plpgsql VOLATILE AS $$
BEGIN
  UPDATE schedules x
  SET tenant = s.tenant,
    name = s.name,
    pattern = s.pattern,
    every = s.every,
    at = s.at,
    tz = s.tz,
    dst = s.dst,
    start = s.start,
    "end" = s."end",
    max_runs = s.max_runs,
    jitter = s.jitter,
    type = s.type,
    payload = s.payload,
    version = s.version,
    command = s.command,
    role = s.role,
    queue = s.queue,
    priority = s.priority,
    max_attempts = s.max_attempts,
    retry = s.retry,
    timeout = s.timeout,
    expires = s.expires,
    missed = s.missed,
    catch_up = s.catch_up,
    grace = s.grace,
    overlap = s.overlap,
    deadline = s.deadline,
    run_on_start = s.run_on_start,
    enabled = s.enabled,
    description = s.description,
    category = s.category,
    tags = s.tags,
    context = s.context,
    created_by = s.created_by,
    hash = s.hash,
    superseded_hashes = s.superseded_hashes,
    declared_definition = s.declared_definition,
    updated_at = s.updated_at
  WHERE x.id = s.id;
END $$;

CREATE OR REPLACE FUNCTION _make_schedule_definition(s schedules)
RETURNS jsonb
LANGUAGE sql STABLE
RETURN to_jsonb(s)
  - '{id,name,tenant,owner,hash,superseded_hashes,declared_definition,created_at,updated_at,'
    'created_by,pattern_id,policy}'::text[];

-- Says whether an operator has changed what the code declares.
CREATE OR REPLACE FUNCTION _is_schedule_changed(s schedules)
RETURNS boolean
LANGUAGE sql STABLE AS $$
  SELECT s.declared_definition IS NOT NULL
    AND EXISTS (
      SELECT
      FROM jsonb_each(s.declared_definition) d
      JOIN jsonb_each(_make_schedule_definition(s)) n ON n.key = d.key
      WHERE n.value <> d.value)
$$;
