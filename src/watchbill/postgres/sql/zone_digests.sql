-- A digest of each zone's row: see ZoneRow.digest in src/watchbill/postgres/zones.py.
SELECT name, md5(starts::text || '|' || offsets::text || '|' || highs::text || '|' || horizon)
FROM {zones}
