-- The names stand in the functions themselves: see src/foliot/postgres/zones.py.
CREATE OR REPLACE FUNCTION zone_names() RETURNS text[] LANGUAGE plpgsql IMMUTABLE PARALLEL SAFE SET search_path FROM CURRENT AS $$
BEGIN
  RETURN {names};
END $$;

CREATE OR REPLACE FUNCTION zone_number(name text) RETURNS int LANGUAGE plpgsql IMMUTABLE STRICT PARALLEL SAFE SET search_path FROM CURRENT AS $$
DECLARE
  i int := width_bucket(name COLLATE "C", {sorted_names}::text[]);
BEGIN
  IF name COLLATE "C" = ({sorted_names}::text[])[i] THEN
    RETURN ({numbers}::int[])[i];
  END IF;
  RETURN NULL;
END $$;
