-- The texts of limit keys, by kind: key:NAME and key:NAME:VALUE of a named limit, task:TYPE,
-- tenant:TENANT, order:TYPE:VALUE of an ordered key, queue:QUEUE of a queue with a maximum. All but
-- those of endpoints are inlined where they are called.

CREATE OR REPLACE FUNCTION _queue_key(queue text)
RETURNS text
LANGUAGE sql IMMUTABLE
RETURN 'queue:' || queue;

CREATE OR REPLACE FUNCTION _is_queue_key(key text)
RETURNS boolean
LANGUAGE sql IMMUTABLE
RETURN starts_with(key, 'queue:');

-- The queue of such a key.
CREATE OR REPLACE FUNCTION _key_queue(key text)
RETURNS text
LANGUAGE sql IMMUTABLE
RETURN substr(key, 7);

CREATE OR REPLACE FUNCTION _tenant_key(tenant text)
RETURNS text
LANGUAGE sql IMMUTABLE
RETURN 'tenant:' || tenant;

CREATE OR REPLACE FUNCTION _is_tenant_key(key text)
RETURNS boolean
LANGUAGE sql IMMUTABLE
RETURN starts_with(key, 'tenant:');

-- The tenant of such a key.
CREATE OR REPLACE FUNCTION _key_tenant(key text)
RETURNS text
LANGUAGE sql IMMUTABLE
RETURN substr(key, 8);

CREATE OR REPLACE FUNCTION _is_order_key(key text)
RETURNS boolean
LANGUAGE sql IMMUTABLE
RETURN starts_with(key, 'order:');

-- Returns the name, in the table limits, of the limit that a key belongs to. The key of a named
-- limit is key:NAME or key:NAME:VALUE. A limit of a task or a tenant has the same name as its key.
-- An ordered key has no limit of its own.
CREATE OR REPLACE FUNCTION _limit_name(key text)
RETURNS text
LANGUAGE sql IMMUTABLE
RETURN CASE WHEN starts_with(key, 'key:') THEN split_part(key, ':', 2) ELSE key END;

-- Returns the prefix of all ordered keys of a type, order:TYPE; the keys are order:TYPE:VALUE. A
-- colon in the type is written as %3A, and % as %25, so that the key of type `a:b` with the value
-- `c` differs from the key of type `a` with the value `b:c`.
CREATE OR REPLACE FUNCTION _order_name(type text)
RETURNS text
LANGUAGE sql IMMUTABLE
RETURN 'order:' || replace(replace(type, '%', '%25'), ':', '%3A');

-- Replaces all bytes but letters, digits and ._~- of ASCII by %XX.
CREATE OR REPLACE FUNCTION _percent_encode(given text)
RETURNS text
LANGUAGE sql IMMUTABLE AS $$
  SELECT CASE
      WHEN given ~ '^[A-Za-z0-9._~-]*$' THEN given
      ELSE (
        SELECT string_agg(
          CASE
            WHEN c ~ '[A-Za-z0-9._~-]' THEN c
            ELSE upper(regexp_replace(encode(convert_to(c, 'UTF8'), 'hex'), '(..)', '%\1', 'g'))
          END, '' ORDER BY p)
        FROM regexp_split_to_table(given, '') WITH ORDINALITY s(c, p))
    END
$$;

-- The name of the limit of an endpoint.
CREATE OR REPLACE FUNCTION _endpoint_limit(tenant text, name text)
RETURNS text
LANGUAGE sql IMMUTABLE
RETURN 'endpoint/' || _percent_encode(tenant) || '/' || _percent_encode(name);
