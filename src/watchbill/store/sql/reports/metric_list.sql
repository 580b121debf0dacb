-- after: sample_list, schedule_stats, group_list, measure_queues, measure_shared
-- Lists the metrics of the installation: a name without its prefix, the labels, and the value. A
-- metric has a bounded number of series: the rest are added up as `(other)`. A caller that acts for
-- a tenant gets what it may see of nodes, schedules and tenants. Reads small tables, and locks
-- nothing.
CREATE OR REPLACE FUNCTION metric_list(now timestamptz DEFAULT NULL)
RETURNS TABLE (metric text, labels jsonb, value float8)
LANGUAGE plpgsql STABLE AS $$
DECLARE
  t timestamptz := _clock(now);
BEGIN
  RETURN QUERY SELECT * FROM _measure_queues(t);
  RETURN QUERY SELECT * FROM _measure_endings(t);
  RETURN QUERY SELECT * FROM _measure_tenants();
  RETURN QUERY SELECT * FROM _measure_nodes(t);
  RETURN QUERY
    SELECT 'schedules', jsonb_build_object('status', w.status), w.count::float8
    FROM schedule_stats(now => now) s
    CROSS JOIN LATERAL (
      VALUES
        ('all', s.schedules), ('due', s.due), ('late', s.late), ('orphaned', s.orphaned),
        ('overdue', s.overdue)) w(status, count);
  RETURN QUERY
    SELECT
      'schedule_lag_seconds', '{}'::jsonb,
      greatest(0, extract(epoch FROM t - min(x.next_run)))::float8
    FROM timers x
    HAVING count(*) > 0;
  IF _acts_for_all_tenants() THEN
    RETURN QUERY SELECT * FROM _measure_flow(t);
    RETURN QUERY SELECT * FROM _measure_groups(t, now);
    RETURN QUERY SELECT * FROM _measure_upkeep(t);
    RETURN QUERY SELECT * FROM _measure_tables(t);
  END IF;
END $$;
