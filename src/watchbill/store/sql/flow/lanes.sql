-- Returns the lane of a share of a fair queue: 31 bits of the MD5 of the share's name, and never 0.
-- Does not use hashtext(), whose result may differ between servers.
CREATE OR REPLACE FUNCTION _make_share_lane(share text)
RETURNS int
LANGUAGE sql IMMUTABLE PARALLEL SAFE
RETURN greatest(('x' || left(md5(share), 8))::bit(32)::int & 2147483647, 1);

-- Raises if there are too many sets of labels for one more. Every claim reads them all, and a set
-- stays: a finished job that is rescheduled needs it again. A caller that acts for one tenant may
-- only use the first tenth of them, and so cannot keep those who act for all from adding sets.
CREATE OR REPLACE FUNCTION _check_label_set_count(labels jsonb)
RETURNS void
LANGUAGE plpgsql STABLE AS $$
DECLARE
  most int := CASE WHEN _acts_for_all_tenants() THEN 10000 ELSE 1000 END;
BEGIN
  IF (SELECT count(*) FROM label_sets) >= most THEN
    RAISE EXCEPTION 'runs_on % is refused: jobs have asked for % sets of labels already',
      left(labels::text, 200), most
      USING ERRCODE = 'WB003',
        HINT = 'ask for labels that nodes have, not for values that differ from job to job; sets '
          'that exist can still be used';
  END IF;
END $$;

-- Returns the lane of jobs that only nodes with these labels may run. Stores the set of labels if
-- it is new. The lane is random, so that this waits for no other transaction that stores the same
-- set; then the set has two lanes.
CREATE OR REPLACE FUNCTION _make_label_lane(labels jsonb)
RETURNS int
LANGUAGE plpgsql VOLATILE AS $$
#variable_conflict use_variable
DECLARE
  lane int := (SELECT min(s.lane) FROM label_sets s WHERE s.labels = labels);
BEGIN
  IF lane IS NOT NULL THEN RETURN lane; END IF;
  PERFORM _check_label_set_count(labels);
  LOOP
    lane := -1 - floor(random() * 2147483647)::int;
    INSERT INTO label_sets (lane, labels) VALUES (lane, labels) ON CONFLICT DO NOTHING;
    IF FOUND THEN RETURN lane; END IF;
  END LOOP;
END $$;

-- Returns the lane of a job that a schedule makes: the lane of its share if the queue is fair, else
-- 0. An error while the share is computed must not stop the tick of all other schedules, so such a
-- job gets lane 0.
CREATE OR REPLACE FUNCTION _find_slot_lane(queue text, payload jsonb, tenant text, type text)
RETURNS int
LANGUAGE plpgsql STABLE AS $$
BEGIN
  RETURN coalesce((
    SELECT _make_share_lane(_render_key(q.fair_by, payload, tenant, type, 'fair_by', ''))
    FROM queues q
    WHERE q.name = queue
      AND q.lanes = 'share'), 0);
EXCEPTION WHEN SQLSTATE 'WB003' THEN
  RETURN 0;
END $$;
