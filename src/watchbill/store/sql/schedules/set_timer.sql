-- After a schedule is written, writes to its timer when it is due next, and wakes the schedulers.
-- This is a trigger function. New times apply from now on: slots that are due but have not fired
-- become missed. Locks the row of timers FOR UPDATE.
CREATE OR REPLACE FUNCTION _set_timer()
RETURNS trigger
LANGUAGE plpgsql VOLATILE
SET timezone = 'UTC'
AS $$
DECLARE
  timer timers;
  due timestamptz;
  missed_count int;
  missed_until timestamptz;
  times_changed boolean;
BEGIN
  IF TG_OP = 'DELETE' THEN
    DELETE FROM timers x WHERE x.schedule_id = OLD.id;
    DELETE FROM declarations d WHERE d.schedule_id = OLD.id;
    DELETE FROM pruned_slot_counts y WHERE y.schedule_id = OLD.id;
    RETURN NULL;
  END IF;
  IF TG_OP = 'INSERT' THEN
    INSERT INTO timers (schedule_id, next_run)
    VALUES (
      NEW.id,
      CASE WHEN NEW.enabled THEN
        _find_next_slot(NEW, CASE WHEN NEW.at IS NULL THEN NEW.created_at ELSE '-infinity' END)
      END);
    PERFORM _wake_schedulers();
    RETURN NULL;
  END IF;
  times_changed := (OLD.pattern_id, OLD.every, OLD.at, OLD.start, OLD.enabled)
    IS DISTINCT FROM (NEW.pattern_id, NEW.every, NEW.at, NEW.start, NEW.enabled);
  IF NOT times_changed
    AND (OLD."end", OLD.max_runs) IS NOT DISTINCT FROM (NEW."end", NEW.max_runs) THEN
    RETURN NULL;
  END IF;
  -- Waits for a tick that has locked the timer, and then reads the values that the tick has
  -- written.
  SELECT *
  INTO timer
  FROM timers x
  WHERE x.schedule_id = NEW.id
  FOR UPDATE;
  due := coalesce(timer.next_run, timer.held_slot);
  IF times_changed AND due <= NEW.updated_at THEN
    SELECT g.missed_count + cardinality(g.runs), g.last
    INTO missed_count, missed_until
    FROM _classify_due_slots(
      OLD.pattern_id, OLD.every, coalesce(OLD.start, OLD.created_at), OLD.at, due, OLD."end",
      'skip', 1, interval '0', NEW.updated_at) g;
    INSERT INTO slots (schedule_id, slot, until, count, outcome, reason, fired_at, due_by)
    VALUES (
      NEW.id, due, CASE WHEN missed_count > 1 THEN missed_until END, missed_count, 'missed',
      CASE WHEN missed_count = 10000 THEN 'at least this many; ' ELSE '' END
        || 'the schedule was changed before this slot had run',
      NEW.updated_at, missed_until + OLD.deadline)
    ON CONFLICT DO NOTHING;
    timer.last_slot := missed_until;
  END IF;
  IF times_changed OR due IS NULL OR due > NEW."end" THEN
    due := _find_next_slot(NEW, CASE
      WHEN NEW.at IS NULL THEN greatest(NEW.updated_at, timer.last_slot)
      WHEN NEW.at IS DISTINCT FROM OLD.at THEN '-infinity'
      ELSE coalesce(timer.last_slot, '-infinity')
    END);
  END IF;
  UPDATE timers x
  SET last_slot = timer.last_slot,
    held_slot = NULL,
    next_run = CASE
      WHEN NEW.enabled AND timer.slot_runs < coalesce(NEW.max_runs, 2147483647) THEN due
    END
  WHERE x.schedule_id = NEW.id;
  PERFORM _wake_schedulers();
  RETURN NULL;
END $$;

CREATE OR REPLACE TRIGGER set_timer
AFTER INSERT OR UPDATE OR DELETE ON schedules
FOR EACH ROW EXECUTE FUNCTION _set_timer();

-- Notifies the schedulers that a schedule has changed. PostgreSQL sends equal notifications of a
-- transaction only once, however many rows it writes.
CREATE OR REPLACE FUNCTION _wake_schedulers()
RETURNS void
LANGUAGE plpgsql VOLATILE AS $$
BEGIN
  PERFORM pg_notify(_wake_channel(), 'schedules');
END $$;

-- Computes the next slots of schedules again after an update of the time zones. Locks the timers
-- FOR UPDATE.
CREATE OR REPLACE FUNCTION _recompute_timers(now timestamptz DEFAULT NULL)
RETURNS int
LANGUAGE plpgsql VOLATILE AS $$
DECLARE
  t timestamptz := _clock(now);
  n int;
BEGIN
  WITH changed AS MATERIALIZED (
    SELECT
      x.schedule_id,
      _find_next_slot(s, CASE
        WHEN r.has_modifier THEN coalesce(x.last_slot, s.created_at)
        ELSE greatest(t, x.last_slot)
      END) AS slot
    FROM timers x
    JOIN schedules s ON s.id = x.schedule_id
    JOIN compiled_patterns r ON r.id = s.pattern_id
    WHERE x.next_run > t
      AND EXISTS (
        SELECT
        FROM generate_series(0, _cron_last_part_offset(r.cron), 27) b
        WHERE _cron_part_zone(r.cron, b) > 0)
    FOR UPDATE OF x)
  UPDATE timers x
  SET next_run = a.slot
  FROM changed a
  WHERE x.schedule_id = a.schedule_id
    AND x.next_run IS DISTINCT FROM a.slot;
  GET DIAGNOSTICS n = ROW_COUNT;
  IF n > 0 THEN PERFORM _wake_schedulers(); END IF;
  RETURN n;
END $$;
