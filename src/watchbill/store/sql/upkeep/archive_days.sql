-- after: prune_history
-- Reads some pages of a detached day, each row as JSON. Nothing else writes to such a table.
CREATE OR REPLACE FUNCTION _read_detached_day(name text, first_page bigint, pages int)
RETURNS SETOF jsonb
LANGUAGE plpgsql STABLE AS $$
BEGIN
  IF NOT EXISTS (SELECT FROM _list_detached_days() d WHERE d.name = _read_detached_day.name) THEN
    RAISE EXCEPTION '% is not a day that waits to be archived', quote_literal(name)
      USING ERRCODE = 'WB003', HINT = 'another node may have archived it';
  END IF;
  RETURN QUERY EXECUTE format(
    'SELECT to_jsonb(t) FROM %I t WHERE t.ctid >= %L::tid AND t.ctid < %L::tid',
    name, format('(%s,0)', first_page), format('(%s,0)', first_page + pages));
END $$;

-- Records that a detached day is in a file, and drops its table. Returns false if another node has
-- done so.
CREATE OR REPLACE FUNCTION _end_archive(
  name text, place text, rows bigint, bytes bigint, sha256 bytea, now timestamptz DEFAULT NULL
)
RETURNS boolean
LANGUAGE plpgsql VOLATILE AS $$
DECLARE
  t timestamptz := _clock(now);
BEGIN
  PERFORM _take_lock(_lock_class_partitions(), 'jobs'::regclass::oid::int);
  IF NOT EXISTS (SELECT FROM _list_detached_days() d WHERE d.name = _end_archive.name) THEN
    RETURN false;
  END IF;
  INSERT INTO archives (partition, place, rows, bytes, sha256, at)
  VALUES (name, place, rows, bytes, sha256, t)
  ON CONFLICT DO NOTHING;
  EXECUTE format('DROP TABLE %I', name);
  RETURN true;
END $$;

-- Whether a node has archived a day within a week. A node without `archive_to` then drops none.
CREATE OR REPLACE FUNCTION _is_archiving(now timestamptz DEFAULT NULL)
RETURNS boolean
LANGUAGE plpgsql STABLE AS $$
BEGIN
  RETURN EXISTS (SELECT FROM _list_detached_days())
    OR EXISTS (SELECT FROM archives a WHERE a.at > _clock(now) - interval '7 days');
END $$;
