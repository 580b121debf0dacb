-- Adds a schedule and returns its id. Users may also INSERT into schedules, UPDATE and DELETE, but
-- then nothing is written to the table audit.
CREATE OR REPLACE FUNCTION add_schedule(
  name text,
  pattern text DEFAULT NULL,
  type text DEFAULT NULL,
  payload jsonb DEFAULT NULL,
  command text DEFAULT NULL,
  every interval DEFAULT NULL,
  at timestamptz DEFAULT NULL,
  tz text DEFAULT NULL,
  dst text DEFAULT NULL,
  start timestamptz DEFAULT NULL,
  "end" timestamptz DEFAULT NULL,
  max_runs int DEFAULT NULL,
  jitter interval DEFAULT NULL,
  version int DEFAULT NULL,
  role text DEFAULT NULL,
  queue text DEFAULT NULL,
  priority int DEFAULT NULL,
  max_attempts int DEFAULT NULL,
  retry jsonb DEFAULT NULL,
  timeout interval DEFAULT NULL,
  missed text DEFAULT NULL,
  catch_up int DEFAULT NULL,
  grace interval DEFAULT NULL,
  overlap text DEFAULT NULL,
  deadline interval DEFAULT NULL,
  run_on_start boolean DEFAULT NULL,
  enabled boolean DEFAULT NULL,
  description text DEFAULT NULL,
  category text DEFAULT NULL,
  tags text[] DEFAULT NULL,
  context jsonb DEFAULT NULL,
  tenant text DEFAULT NULL,
  created_by text DEFAULT NULL,
  now timestamptz DEFAULT NULL,
  expires interval DEFAULT NULL
)
RETURNS bigint
LANGUAGE plpgsql VOLATILE AS $$
DECLARE
  given jsonb := jsonb_build_object(
    'name', name, 'pattern', pattern, 'type', type, 'payload', payload, 'command', command,
    'every', every, 'at', at, 'tz', tz, 'dst', dst, 'start', start, 'end', "end",
    'max_runs', max_runs, 'jitter', jitter, 'version', version, 'role', role, 'queue', queue,
    'priority', priority, 'max_attempts', max_attempts, 'retry', retry, 'timeout', timeout,
    'missed', missed, 'catch_up', catch_up, 'grace', grace, 'overlap', overlap,
    'deadline', deadline, 'run_on_start', run_on_start, 'enabled', enabled,
    'description', description, 'category', category, 'tags', tags, 'context', context,
    'tenant', tenant, 'created_by', created_by, 'expires', expires);
BEGIN
  RETURN add_schedule_from(
    (SELECT jsonb_object_agg(g.key, g.value)
      FROM jsonb_each(given) g
      WHERE g.value <> 'null' OR g.key = 'name'),
    now);
END $$;
