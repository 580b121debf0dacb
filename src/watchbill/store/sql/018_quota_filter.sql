-- Whether a tenant may have a quota or be in erasure. If not, an enqueue need not look: this costs
-- nothing while no tenant has a quota, and about a hundredth of an enqueue otherwise, where a look
-- into the table takes a twentieth.
--
-- The body of _may_have_quota() is a constant that PostgreSQL inlines: false, or a bit for each
-- hash of a name. _write_quota_filter() writes it anew whenever a tenant gets its first quota or
-- loses its last one; plans that contain the old body are then invalid. The answer may be true for
-- a tenant without a quota, and is never false for one that has one.
CREATE OR REPLACE FUNCTION _write_quota_filter()
RETURNS void
LANGUAGE plpgsql VOLATILE
SET search_path FROM CURRENT
AS $$
DECLARE
  names text[] := ARRAY(SELECT t.tenant FROM tenants t UNION SELECT e.tenant FROM erasures e);
  -- At least 16 for each name, so the answer is true for about one in 16 tenants without a quota.
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
