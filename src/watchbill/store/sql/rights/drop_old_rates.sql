-- Drops the columns that rates had before they were windows, in the transaction that replaces the
-- functions which read them, and in the last room, because it locks both tables until the end. The
-- last start of a key is a step before the time that was stored as its next arrival.
DO $$
BEGIN
  IF EXISTS (
    SELECT
    FROM pg_attribute a
    WHERE a.attrelid = 'limit_states'::regclass
      AND a.attname = 'arrival') THEN
    UPDATE limit_states s
    SET
      windows = ARRAY[ROW(x.per, ARRAY['-infinity', x.last], ARRAY[0, 1])::rate_window],
      counts_until = x.last + x.per
    FROM (
      SELECT
        o.key,
        r.per,
        least(
          now(),
          o.arrival - ceil(extract(epoch FROM l.per) * 1000000 / greatest(l.count - l.burst, 1))
            * interval '1 microsecond') AS last
      FROM limit_states o
      JOIN limits l ON l.name = o.name
      CROSS JOIN LATERAL unnest(l.rates) r
      WHERE o.arrival IS NOT NULL) x
    WHERE s.key = x.key;
    ALTER TABLE limit_states DROP COLUMN arrival;
    ALTER TABLE limits DROP COLUMN count, DROP COLUMN per, DROP COLUMN burst;
  END IF;
END $$;
