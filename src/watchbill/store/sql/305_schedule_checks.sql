-- What may be written into schedules. The triggers hold for every writer, also for plain SQL: they refuse what is wrong, compile the pattern,
-- set the timer and wake the schedulers.

-- The id of a rhythm with this content.
CREATE OR REPLACE FUNCTION rhythm(pattern text, tz text, dst text, anchor timestamptz) RETURNS int LANGUAGE plpgsql VOLATILE SET search_path FROM CURRENT AS $$
#variable_conflict use_column
DECLARE
  from_when timestamptz := CASE WHEN strpos(lower(rhythm.pattern), '@every') > 0 THEN rhythm.anchor ELSE '1970-01-01 00:00:00+00' END;   -- all others share theirs
  parsed cron;
  this int;
BEGIN
  SELECT min(r.id) INTO this FROM rhythms r WHERE r.pattern = rhythm.pattern AND r.tz = rhythm.tz AND r.dst = rhythm.dst AND r.anchor = from_when;
  IF this IS NULL THEN
    parsed := parse_cron(rhythm.pattern, rhythm.tz, rhythm.dst, from_when);
    INSERT INTO rhythms (pattern, tz, dst, anchor, cron, chained, on_start)
      SELECT rhythm.pattern, rhythm.tz, rhythm.dst, from_when, parsed, bool_or(parsed[27 * n + 1] = 3 OR parsed[27 * n + 23] > 0), bool_or(parsed[27 * n + 1] = 2)
      FROM generate_series(0, parsed[26]::int - 1) n RETURNING id INTO this;
  END IF;
  RETURN this;
END $$;

CREATE OR REPLACE FUNCTION refuse_schedule(name text, why text, hint text DEFAULT NULL) RETURNS void LANGUAGE plpgsql VOLATILE SET search_path FROM CURRENT AS $$
BEGIN
  IF hint IS NULL THEN RAISE EXCEPTION 'schedule % refused: %', quote_nullable(name), why USING ERRCODE = 'WB003'; END IF;
  RAISE EXCEPTION 'schedule % refused: %', quote_nullable(name), why USING ERRCODE = 'WB003', HINT = hint;
END $$;

-- What is wrong with a schedule, or NULL.
CREATE OR REPLACE FUNCTION schedule_fault(s schedules) RETURNS text LANGUAGE sql STABLE SET search_path FROM CURRENT AS $$
  SELECT CASE
    WHEN coalesce(s.name, '') = '' OR length(s.name) > 200 THEN 'name must be a text of 1 to 200 characters'
    WHEN num_nonnulls(s.pattern, s.every, s.at) > 1 THEN 'give one of pattern, every and at, or none of them: on demand'
    WHEN s.type IS NOT NULL AND s.command IS NOT NULL THEN 'give a type or a command, not both'
    WHEN s.dst NOT IN ('default', 'skip', 'once', 'both') THEN format('dst is one of default, skip, once, both, not %L', s.dst)
    WHEN s.missed NOT IN ('skip', 'once', 'catch_up') THEN format('missed is one of skip, once, catch_up, not %L', s.missed)
    WHEN s.overlap NOT IN ('skip', 'queue', 'cancel_previous', 'allow') THEN format('overlap is one of skip, queue, cancel_previous, allow, not %L', s.overlap)
    WHEN extract(year FROM s.every) <> 0 OR extract(month FROM s.every) <> 0 THEN 'every has months, which are not all alike: use a pattern'
    WHEN s.every NOT BETWEEN interval '1 second' AND interval '36500 days' THEN 'every must be from a second to 36500 days'
    WHEN NOT isfinite(s.at) THEN 'at must be a finite time'
    WHEN NOT isfinite(s.start) THEN 'start must be a finite time'
    WHEN NOT isfinite(s."end") THEN 'end must be a finite time'
    WHEN s."end" < s.start THEN format('it ends (%s) before it starts (%s)', s."end", s.start)
    WHEN s.at < s.start THEN format('at (%s) lies before its start (%s)', s.at, s.start)
    WHEN s.at > s."end" THEN format('at (%s) lies after its end (%s)', s.at, s."end")
    WHEN s.max_runs < 1 THEN 'max_runs must be 1 or more'
    WHEN s.catch_up NOT BETWEEN 1 AND 10000 THEN 'catch_up must be within 1..10000'
    WHEN s.jitter NOT BETWEEN interval '0' AND interval '1 year' THEN 'jitter must be from 0 to a year'
    WHEN s.grace NOT BETWEEN interval '0' AND interval '100 years' THEN 'grace must be from 0 to 100 years'
    WHEN s.deadline <= interval '0' OR s.deadline > interval '1 year' THEN 'deadline must be more than 0 and at most a year'
    WHEN array_position(s.tags, NULL) IS NOT NULL OR '' = ANY (s.tags) THEN 'tags must be texts that are not empty'
    WHEN jsonb_typeof(s.context) <> 'object' THEN 'context must be a JSON object'
    WHEN s.role IS NOT NULL AND s.command IS NULL THEN 'a role is for a command, and there is none'
    WHEN NOT EXISTS (SELECT FROM pg_roles r WHERE r.rolname = s.role) AND s.role IS NOT NULL THEN format('there is no role %L', s.role)
    WHEN CASE WHEN s.role IS NOT NULL THEN NOT pg_has_role(s.role, 'MEMBER') END THEN format('you are not a member of the role %L', s.role)
    ELSE new_job_fault(ROW(NULL, coalesce(s.type, 'watchbill.sql'), s.payload, s.queue, s.priority, NULL, NULL, s.tenant, s.max_attempts, NULL, s.timeout, s.version,
      NULL, NULL, NULL, NULL, NULL, NULL)::new_job, 100000, NULL)
  END $$;

-- Parses SQL with the server's own parser and runs none of it: as the body of a function that is taken back at once. What the statements name need not exist yet.
CREATE OR REPLACE FUNCTION check_command(name text, command text) RETURNS void LANGUAGE plpgsql VOLATILE SECURITY DEFINER SET search_path FROM CURRENT
SET check_function_bodies = on AS $$
DECLARE
  message text;
BEGIN
  BEGIN
    EXECUTE 'CREATE OR REPLACE FUNCTION pg_temp.watchbill_parses() RETURNS void LANGUAGE sql AS ' || quote_literal(command);
    RAISE EXCEPTION 'it parses';                         -- so take it back
  EXCEPTION
    WHEN syntax_error OR undefined_parameter THEN
      GET STACKED DIAGNOSTICS message = MESSAGE_TEXT;
      PERFORM refuse_schedule(name, 'its command does not parse: ' || message, left(command, 200));
    WHEN OTHERS THEN NULL;                               -- also a table that is made later, or a statement that no function may hold
  END;
  IF btrim(command, E' \t\r\n;') = '' THEN
    PERFORM refuse_schedule(name, 'its command is empty');
  ELSIF command ~* '^\s*(begin|start\s+transaction)\s*(;|work|transaction|isolation|read|$)' OR command ~* '(^|;)\s*(commit|rollback|abort)(\s+(work|transaction))?\s*;?\s*$' THEN
    PERFORM refuse_schedule(name, 'its command begins or ends a transaction', 'it runs in one that also completes its job: leave BEGIN and COMMIT out');
  END IF;
END $$;

-- A chain that could never be started: its jobs are those that enqueue_many takes, its ends are places among them.
CREATE OR REPLACE FUNCTION check_flow(name text, payload jsonb) RETURNS void LANGUAGE plpgsql VOLATILE SET search_path FROM CURRENT AS $$
#variable_conflict use_variable
DECLARE
  jobs jsonb := payload->'jobs';
  wrong jsonb;
BEGIN
  IF coalesce(jsonb_typeof(jobs), '') <> 'array' OR jobs = '[]' OR jsonb_path_exists(jobs, '$[*] ? (@.type() != "object" || !exists(@."type" ? (@.type() == "string")))') THEN
    PERFORM refuse_schedule(name, 'a chain has jobs: a JSON array of at least one, each with its type');
  END IF;
  SELECT e INTO wrong FROM jsonb_path_query(payload, 'lax $.ends[*]') e WHERE jsonb_typeof(e) <> 'number' OR e NOT IN (SELECT to_jsonb(n) FROM generate_series(0, jsonb_array_length(jobs) - 1) n);
  IF FOUND OR coalesce(jsonb_typeof(payload->'ends'), '') <> 'array' THEN
    PERFORM refuse_schedule(name, 'the ends of a chain are places among its jobs, from 0' || coalesce(', not ' || wrong::text, ''));
  END IF;
  PERFORM refuse_cycle(ARRAY(SELECT j FROM jsonb_populate_recordset(NULL::new_job, ids_for_places(jobs, 'epoch')) j));   -- any ids do
END $$;

CREATE OR REPLACE FUNCTION check_schedule() RETURNS trigger LANGUAGE plpgsql VOLATILE SET search_path FROM CURRENT AS $$
DECLARE
  is_new boolean := TG_OP = 'INSERT';
  fault text;
BEGIN
  IF is_new THEN
    NEW.created_at := coalesce(NEW.created_at, clock());
    NEW.updated_at := coalesce(NEW.updated_at, NEW.created_at);
  ELSIF NEW.updated_at IS NOT DISTINCT FROM OLD.updated_at THEN   -- our own verbs say when, others need not
    NEW.updated_at := clock();
  END IF;
  NEW.overlap := coalesce(NEW.overlap, CASE NEW.missed WHEN 'catch_up' THEN 'queue' ELSE 'skip' END);
  fault := schedule_fault(NEW);
  IF fault IS NOT NULL THEN PERFORM refuse_schedule(NEW.name, fault); END IF;
  IF NEW.pattern IS NULL THEN
    NEW.rhythm := NULL;
    IF cron_zone(NEW.tz) IS NULL THEN PERFORM cron_refuse_zone(NEW.tz, 0, NEW.tz); END IF;
  ELSIF is_new OR (NEW.pattern, NEW.tz, NEW.dst, NEW.start, NEW.created_at) IS DISTINCT FROM (OLD.pattern, OLD.tz, OLD.dst, OLD.start, OLD.created_at) THEN
    NEW.rhythm := rhythm(NEW.pattern, NEW.tz, NEW.dst, coalesce(NEW.start, NEW.created_at));
  ELSE
    NEW.rhythm := OLD.rhythm;                            -- not its twin, which would look like another
  END IF;
  NEW.policy := policy(NEW.retry);
  IF NEW.command IS NOT NULL AND (is_new OR NEW.command IS DISTINCT FROM OLD.command) THEN PERFORM check_command(NEW.name, NEW.command); END IF;
  IF NEW.type = 'watchbill.flow' AND (is_new OR (NEW.type, NEW.payload) IS DISTINCT FROM (OLD.type, OLD.payload)) THEN PERFORM check_flow(NEW.name, NEW.payload); END IF;
  IF NOT is_new AND NEW.id <> OLD.id THEN PERFORM refuse_schedule(NEW.name, 'its id stays as it is'); END IF;
  RETURN NEW;
END $$;

-- Sets the timer. What changes a schedule's times holds from now on: slots that were due and had not run are gone, and recorded so.
CREATE OR REPLACE FUNCTION arm_schedule() RETURNS trigger LANGUAGE plpgsql VOLATILE SET search_path FROM CURRENT SET timezone = 'UTC' AS $$
#variable_conflict use_column
DECLARE
  timer timers;
  due timestamptz;
  gone int;
  gone_to timestamptz;
  again boolean;
BEGIN
  IF TG_OP = 'DELETE' THEN
    DELETE FROM timers x WHERE x.schedule_id = OLD.id;
    DELETE FROM declarations d WHERE d.schedule_id = OLD.id;
    DELETE FROM tallies y WHERE y.schedule_id = OLD.id;
    RETURN NULL;
  END IF;
  IF TG_OP = 'INSERT' THEN
    INSERT INTO timers (schedule_id, next_run) VALUES (NEW.id, CASE WHEN NEW.enabled THEN first_slot(NEW, CASE WHEN NEW.at IS NULL THEN NEW.created_at ELSE '-infinity' END) END);
    PERFORM wake_schedulers();
    RETURN NULL;
  END IF;
  again := (OLD.rhythm, OLD.every, OLD.at, OLD.start, OLD.enabled) IS DISTINCT FROM (NEW.rhythm, NEW.every, NEW.at, NEW.start, NEW.enabled);
  IF NOT again AND (OLD."end", OLD.max_runs) IS NOT DISTINCT FROM (NEW."end", NEW.max_runs) THEN RETURN NULL; END IF;
  SELECT * INTO timer FROM timers x WHERE x.schedule_id = NEW.id FOR UPDATE;   -- waits for a tick that is at it, and then sees what that did
  due := coalesce(timer.next_run, timer.held);
  IF again AND due <= NEW.updated_at THEN
    SELECT g.gone + cardinality(g.runs), g.last INTO gone, gone_to
      FROM due_slots(OLD.rhythm, OLD.every, coalesce(OLD.start, OLD.created_at), OLD.at, due, OLD."end", 'skip', 1, interval '0', NEW.updated_at) g;
    INSERT INTO slots (schedule_id, slot, until, count, outcome, reason, fired_at, due_by)
      VALUES (NEW.id, due, CASE WHEN gone > 1 THEN gone_to END, gone, 'missed', CASE WHEN gone = 10000 THEN 'at least so many; ' ELSE '' END
        || 'the schedule was changed before this slot had run', NEW.updated_at, gone_to + OLD.deadline) ON CONFLICT DO NOTHING;
    timer.last_slot := gone_to;
  END IF;
  IF again OR due IS NULL OR due > NEW."end" THEN
    due := first_slot(NEW, CASE WHEN NEW.at IS NULL THEN greatest(NEW.updated_at, timer.last_slot)
      WHEN NEW.at IS DISTINCT FROM OLD.at THEN '-infinity' ELSE coalesce(timer.last_slot, '-infinity') END);
  END IF;
  UPDATE timers x SET last_slot = timer.last_slot, held = NULL, next_run = CASE WHEN NEW.enabled AND timer.counted < coalesce(NEW.max_runs, 2147483647) THEN due END
    WHERE x.schedule_id = NEW.id;
  PERFORM wake_schedulers();
  RETURN NULL;
END $$;

-- When the zones' clock changes are others than was known: timers that are set to a time of the old rules are set anew.
CREATE OR REPLACE FUNCTION rearm_timers(now timestamptz DEFAULT NULL) RETURNS int LANGUAGE plpgsql VOLATILE SET search_path FROM CURRENT AS $$
#variable_conflict use_column
DECLARE
  t timestamptz := coalesce(rearm_timers.now, clock());
  n int;
BEGIN
  WITH anew AS MATERIALIZED (
      SELECT x.schedule_id, first_slot(s, CASE WHEN r.chained THEN coalesce(x.last_slot, s.created_at) ELSE greatest(t, x.last_slot) END) AS slot
      FROM timers x JOIN schedules s ON s.id = x.schedule_id JOIN rhythms r ON r.id = s.rhythm
      WHERE x.next_run > t AND EXISTS (SELECT FROM generate_series(0, r.cron[26] - 1) p WHERE r.cron[27 * p + 2] > 0) FOR UPDATE OF x)
  UPDATE timers x SET next_run = a.slot FROM anew a WHERE x.schedule_id = a.schedule_id AND x.next_run IS DISTINCT FROM a.slot;
  GET DIAGNOSTICS n = ROW_COUNT;
  IF n > 0 THEN PERFORM wake_schedulers(); END IF;
  RETURN n;
END $$;

-- A changed schedule may be due sooner than the schedulers think. One notice per transaction, however many it writes.
CREATE OR REPLACE FUNCTION wake_schedulers() RETURNS void LANGUAGE plpgsql VOLATILE SET search_path FROM CURRENT AS $$
BEGIN
  PERFORM pg_notify(wake_channel(), 'schedules');
END $$;

CREATE OR REPLACE TRIGGER check_schedule BEFORE INSERT OR UPDATE ON schedules FOR EACH ROW EXECUTE FUNCTION check_schedule();
CREATE OR REPLACE TRIGGER arm_schedule AFTER INSERT OR UPDATE OR DELETE ON schedules FOR EACH ROW EXECUTE FUNCTION arm_schedule();
