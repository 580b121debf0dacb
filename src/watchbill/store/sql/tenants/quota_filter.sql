-- Writes the function _may_have_quota(tenant), which says whether a tenant may have a quota, may be
-- in erasure, or may have moved to another cell. Where it returns false, an enqueue need not read
-- the table of tenants. The function costs nothing while no tenant has a quota, and else about a
-- hundredth of an enqueue; a read of the table costs a twentieth.
--
-- The body of _may_have_quota() is a constant that PostgreSQL inlines: false, or a string with one
-- bit for each hash of a tenant's name. It may return true for a tenant without a quota, but never
-- false for a tenant that has one. _write_quota_filter() is called whenever a tenant gets its first
-- quota or loses its last one; PostgreSQL then makes plans with the new body.
CREATE OR REPLACE FUNCTION _write_quota_filter()
RETURNS void
LANGUAGE plpgsql VOLATILE
AS $$
DECLARE
  names text[] := ARRAY(
    SELECT t.tenant FROM tenants t
    UNION
    SELECT e.tenant FROM erasures e
    UNION
    SELECT m.tenant FROM tenant_moves m);
  -- Uses at least 16 bits for each name, so at most about one in 16 tenants without a quota gets
  -- true.
  bits int := 1024;
  filter text;
BEGIN
  IF cardinality(names) > 0 THEN
    WHILE bits < 16 * cardinality(names) AND bits < 1048576 LOOP bits := bits * 2; END LOOP;
    SELECT string_agg(lpad(to_hex(coalesce(b.value, 0)), 2, '0'), '' ORDER BY i.byte) INTO filter
    FROM generate_series(0, bits / 8 - 1) i(byte)
    LEFT JOIN (
      SELECT h.bit / 8 AS byte, bit_or(1 << h.bit % 8) AS value
      FROM (SELECT hashtext(n COLLATE "C") & bits - 1 AS bit FROM unnest(names) n) h
      GROUP BY 1) b USING (byte);
  END IF;
  EXECUTE format(
    'CREATE OR REPLACE FUNCTION _may_have_quota(tenant text)
    RETURNS boolean
    LANGUAGE sql STABLE
    RETURN %s',
    CASE
      WHEN filter IS NULL THEN 'false'
      ELSE format(
        'get_bit(%L::bytea, hashtext(tenant COLLATE "C") & %s) = 1', '\x' || filter, bits - 1)
    END);
END $$;

DO $$
BEGIN
  PERFORM _write_quota_filter();
END $$;
