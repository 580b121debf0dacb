-- One number for all that a zone's row says: see ZoneRow.digest in src/watchbill/postgres/zones.py.
SELECT name, md5(starts::text || '|' || offsets::text || '|' || highs::text || '|' || horizon) FROM {zones}
