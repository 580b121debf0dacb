-- What tick() does otherwise in a session that acts for a tenant. It finds the timers through the
-- tenant's schedules, so that the number of schedules of others does not matter.

-- As _lock_due_timers(), for the schedules of one tenant. Reads all of them, and none of others.
CREATE OR REPLACE FUNCTION _lock_due_timers_of_tenant(acting text, max int, t timestamptz)
RETURNS bigint[]
LANGUAGE plpgsql VOLATILE AS $$
BEGIN
  RETURN _stop_orphans(ARRAY(
    SELECT x.schedule_id
    FROM schedules s
    JOIN timers x ON x.schedule_id = s.id
    WHERE s.tenant = acting
      AND x.next_run <= t
    ORDER BY x.next_run
    LIMIT max
    FOR UPDATE OF x SKIP LOCKED));
END $$;

-- When the next schedule of a tenant fires, or its next slot becomes overdue.
CREATE OR REPLACE FUNCTION _find_next_tick_of_tenant(acting text)
RETURNS timestamptz
LANGUAGE plpgsql STABLE AS $$
BEGIN
  RETURN least(
    (
      SELECT min(x.next_run)
      FROM schedules s
      JOIN timers x ON x.schedule_id = s.id
      WHERE s.tenant = acting),
    (
      SELECT l.due_by
      FROM slots l
      WHERE l.due_by IS NOT NULL
        AND l.overdue_at IS NULL
        AND l.finished_at IS NULL
        AND EXISTS (SELECT FROM schedules s WHERE s.id = l.schedule_id AND s.tenant = acting)
      ORDER BY l.due_by
      LIMIT 1));
END $$;
