-- Shows the schedules of the session's tenant with the columns of the guide's table. A run is an
-- attempt that has ended: run_count is the sum of success_count and error_count. SELECT ... FOR
-- UPDATE locks the rows of `schedules` and `timers`, so a tick skips these schedules.
CREATE OR REPLACE VIEW @facade@.@prefix@scheduled_jobs
WITH (security_invoker = true) AS
SELECT
  s.id::int AS id,
  s.name::varchar AS name,
  s.description,
  s.category::varchar AS category,
  s.pattern::varchar AS cron_pattern,
  s.tz::varchar AS timezone,
  x.last_run,
  x.next_run,
  (x.runs - c.unsuccessful - c.running + c.failures + e.failed_attempts)::int AS run_count,
  (x.runs - c.unsuccessful - c.running)::int AS success_count,
  (c.failures + e.failed_attempts)::int AS error_count,
  CASE
    WHEN c.failed_attempts > 0 OR c.last_outcome IN ('failed', 'timed_out', 'lost')
      THEN c.last_error
  END AS last_error,
  c.last_error_at,
  c.failed_attempts::int AS retry_count,
  s.max_attempts - 1 AS max_retries,
  extract(epoch FROM s.timeout)::int AS timeout_seconds,
  s.enabled,
  s.created_by::varchar AS created_by,
  s.created_at,
  s.updated_at,
  s.command
FROM schedules s
JOIN timer x ON x.schedule_id = s.id
CROSS JOIN LATERAL _count_schedule_slots(s.id) c
CROSS JOIN LATERAL _count_failed_attempts(s.id) e(failed_attempts)
WHERE s.tenant = _session_tenant();

-- Adds a schedule for a row that is inserted into scheduled_jobs. As the guide says, a job has four
-- attempts, with waits of one, two and four minutes between them, and five minutes for each. A job
-- without a command has the type jcron.job and waits for claim_next_job().
CREATE OR REPLACE FUNCTION @facade@.@prefix@_jcron_add_scheduled_job()
RETURNS trigger
LANGUAGE plpgsql VOLATILE
SET search_path FROM CURRENT
AS $$
DECLARE
  given_slot timestamptz := NEW.next_run;
  definition jsonb := jsonb_build_object(
    'name', NEW.name,
    'tenant', _session_tenant(),
    'description', NEW.description,
    'category', NEW.category,
    'pattern', NEW.cron_pattern,
    'tz', coalesce(NEW.timezone, 'UTC'),
    'command', NEW.command,
    'type', CASE WHEN NEW.command IS NULL THEN 'jcron.job' END,
    'queue', 'jcron',
    'max_attempts', coalesce(NEW.max_retries, 3) + 1,
    'retry', '{"kind": "exponential", "base": 60, "factor": 2, "jitter": 0}'::jsonb,
    'timeout', make_interval(secs => coalesce(NEW.timeout_seconds, 300)),
    'enabled', coalesce(NEW.enabled, true),
    'created_by', coalesce(NEW.created_by, session_user));
BEGIN
  IF NEW.cron_pattern IS NULL THEN
    RAISE EXCEPTION 'cron_pattern of job % is missing', quote_nullable(NEW.name)
      USING ERRCODE = 'WB003', HINT = 'give a pattern such as 0 0 9 * * *';
  ELSIF num_nonnulls(
      NEW.id, NEW.last_run, NEW.run_count, NEW.success_count, NEW.error_count, NEW.last_error,
      NEW.last_error_at, NEW.retry_count) > 0 THEN
    RAISE EXCEPTION 'job % cannot be given an id, counts, errors or a last run',
        quote_nullable(NEW.name)
      USING ERRCODE = 'WB003', HINT = 'they come from its runs';
  END IF;
  PERFORM @facade@.@prefix@_jcron_check_pattern(NEW.cron_pattern, NEW.timezone);
  -- The guide gives a higher priority to jobs that run often.
  definition := definition || jsonb_build_object(
    'priority',
    (_cron_describe_frequency(parse_cron(NEW.cron_pattern, coalesce(NEW.timezone, 'UTC')))
      ~ '^(every-second|every-minute|every-\d+-minutes|hourly)$')::int);
  NEW.id := add_schedule_from(
    (SELECT jsonb_object_agg(d.key, d.value)
      FROM jsonb_each(definition) d
      WHERE d.value <> 'null' OR d.key = 'name'));
  PERFORM @facade@.@prefix@_jcron_write_next_run(NEW.id, given_slot, NULL);
  SELECT v.* INTO NEW FROM @facade@.@prefix@scheduled_jobs v WHERE v.name = NEW.name;
  RETURN NEW;
END $$;

-- Refuses a pattern that never comes: it names no day that the calendar has, such as February 30,
-- or only years that have passed. A job with @reboot runs without a next time.
CREATE OR REPLACE FUNCTION @facade@.@prefix@_jcron_check_pattern(p_pattern text, p_timezone text)
RETURNS void
LANGUAGE plpgsql VOLATILE
SET search_path FROM CURRENT
AS $$
BEGIN
  IF next_run(parse_cron(p_pattern, coalesce(p_timezone, 'UTC')), _clock()) IS NULL
    AND p_pattern !~* '@reboot' THEN
    RAISE EXCEPTION 'cron_pattern % never comes', quote_literal(p_pattern)
      USING ERRCODE = 'WB010',
        HINT = 'it names a day that no month has, or only years that have passed';
  END IF;
END $$;

-- Writes the next_run that a user has given. The guide computes it with jcron.next_time(), which
-- does not know the time zone of the job: such a time becomes the next slot in the job's own zone.
-- Any other time becomes the next slot as it is.
CREATE OR REPLACE FUNCTION @facade@.@prefix@_jcron_write_next_run(
  p_job_id bigint,
  given timestamptz,
  last_run timestamptz
)
RETURNS void
LANGUAGE plpgsql VOLATILE
SET search_path FROM CURRENT
AS $$
DECLARE
  s schedules := (SELECT x FROM schedules x WHERE x.id = p_job_id);
  timer timers := (SELECT x FROM timers x WHERE x.schedule_id = p_job_id);
  plain cron := parse_cron(s.pattern, 'UTC');
BEGIN
  IF given IS NULL OR NOT s.enabled OR given = timer.next_run THEN RETURN; END IF;
  IF given IN (
      next_run(plain, pg_catalog.now()),
      next_run(plain, coalesce(last_run, pg_catalog.now()))) THEN
    given := _find_next_slot(s, greatest(_clock(), timer.last_slot));
  END IF;
  IF given IS DISTINCT FROM timer.next_run THEN PERFORM _set_next_slot(s.id, given); END IF;
END $$;

-- Gives the jobs of a schedule that have not ended the command of the schedule, so that the retries
-- of a failed run use a repaired command, as in the guide. A run that a worker has begun ends with
-- the old one. Locks these jobs.
CREATE OR REPLACE FUNCTION @facade@.@prefix@_jcron_repair_command(
  p_job_id bigint,
  p_command text
)
RETURNS void
LANGUAGE plpgsql VOLATILE
SET search_path FROM CURRENT
AS $$
BEGIN
  UPDATE jobs j
  SET payload = j.payload || jsonb_build_object('command', p_command)
  FROM slots l
  WHERE l.schedule_id = p_job_id
    AND l.outcome IS NULL
    AND l.job_id IS NOT NULL
    AND j.id = l.job_id
    AND j.type = 'watchbill.sql';
END $$;

CREATE OR REPLACE FUNCTION @facade@.@prefix@_jcron_change_scheduled_job()
RETURNS trigger
LANGUAGE plpgsql VOLATILE
SET search_path FROM CURRENT
AS $$
DECLARE
  changes jsonb;
BEGIN
  IF (
      NEW.id, NEW.last_run, NEW.run_count, NEW.success_count, NEW.error_count, NEW.last_error,
      NEW.last_error_at, NEW.retry_count, NEW.created_at)
    IS DISTINCT FROM (
      OLD.id, OLD.last_run, OLD.run_count, OLD.success_count, OLD.error_count, OLD.last_error,
      OLD.last_error_at, OLD.retry_count, OLD.created_at) THEN
    RAISE EXCEPTION 'id, counts, errors and the last run of job % cannot be changed', OLD.id
      USING ERRCODE = 'WB003', HINT = 'they come from its runs';
  END IF;
  SELECT jsonb_object_agg(n.field, n.value)
  INTO changes
  FROM (
    VALUES
      ('name', to_jsonb(NEW.name), to_jsonb(OLD.name)),
      ('description', to_jsonb(NEW.description), to_jsonb(OLD.description)),
      ('category', to_jsonb(NEW.category), to_jsonb(OLD.category)),
      ('pattern', to_jsonb(NEW.cron_pattern), to_jsonb(OLD.cron_pattern)),
      ('tz', to_jsonb(NEW.timezone), to_jsonb(OLD.timezone)),
      ('max_attempts', to_jsonb(NEW.max_retries + 1), to_jsonb(OLD.max_retries + 1)),
      ('timeout', to_jsonb(make_interval(secs => NEW.timeout_seconds)),
        to_jsonb(make_interval(secs => OLD.timeout_seconds))),
      ('enabled', to_jsonb(NEW.enabled), to_jsonb(OLD.enabled)),
      ('created_by', to_jsonb(NEW.created_by), to_jsonb(OLD.created_by)),
      ('command', to_jsonb(NEW.command), to_jsonb(OLD.command)),
      ('type',
        CASE WHEN NEW.command IS NULL THEN to_jsonb('jcron.job'::text) END,
        CASE WHEN OLD.command IS NULL THEN to_jsonb('jcron.job'::text) END)
  ) n(field, value, old_value)
  WHERE n.value IS DISTINCT FROM n.old_value;
  IF changes ?| '{pattern,tz}' THEN
    PERFORM @facade@.@prefix@_jcron_check_pattern(NEW.cron_pattern, NEW.timezone);
  END IF;
  IF changes IS NOT NULL THEN
    PERFORM update_schedule(OLD.name, changes, _session_tenant());
  END IF;
  IF NEW.command <> OLD.command THEN
    PERFORM @facade@.@prefix@_jcron_repair_command(OLD.id, NEW.command);
  END IF;
  IF NEW.next_run IS DISTINCT FROM OLD.next_run THEN
    IF NEW.next_run IS NULL AND NEW.enabled THEN
      PERFORM _set_next_slot(OLD.id, NULL);
    ELSE
      PERFORM @facade@.@prefix@_jcron_write_next_run(OLD.id, NEW.next_run, OLD.last_run);
    END IF;
  END IF;
  SELECT v.* INTO NEW FROM @facade@.@prefix@scheduled_jobs v WHERE v.name = NEW.name;
  RETURN NEW;
END $$;

-- Deletes the history of a job with the job, as the guide's foreign key does.
CREATE OR REPLACE FUNCTION @facade@.@prefix@_jcron_remove_scheduled_job()
RETURNS trigger
LANGUAGE plpgsql VOLATILE
SET search_path FROM CURRENT
AS $$
BEGIN
  IF NOT remove_schedule(OLD.name, _session_tenant()) THEN RETURN NULL; END IF;
  DELETE FROM slots s WHERE s.schedule_id = OLD.id;
  RETURN OLD;
END $$;

CREATE OR REPLACE TRIGGER add_scheduled_job
INSTEAD OF INSERT ON @facade@.@prefix@scheduled_jobs
FOR EACH ROW EXECUTE FUNCTION @facade@.@prefix@_jcron_add_scheduled_job();
CREATE OR REPLACE TRIGGER change_scheduled_job
INSTEAD OF UPDATE ON @facade@.@prefix@scheduled_jobs
FOR EACH ROW EXECUTE FUNCTION @facade@.@prefix@_jcron_change_scheduled_job();
CREATE OR REPLACE TRIGGER remove_scheduled_job
INSTEAD OF DELETE ON @facade@.@prefix@scheduled_jobs
FOR EACH ROW EXECUTE FUNCTION @facade@.@prefix@_jcron_remove_scheduled_job();
