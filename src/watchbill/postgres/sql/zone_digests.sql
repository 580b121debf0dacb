-- Returns a digest of each zone's row, which ZoneRow.digest in src/watchbill/postgres/zones.py
-- computes in Python.
SELECT name, md5(starts::text || '|' || offsets::text || '|' || highs::text || '|' || horizon)
FROM {zones}
