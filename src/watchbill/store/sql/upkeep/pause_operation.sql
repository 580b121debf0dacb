-- Pauses a bulk operation. A step that is under way ends first, and what it has done stays done.
-- Returns the new state of the operation, which is its old one if it does not run; NULL if there is
-- no such operation, or none that the caller may see.
CREATE OR REPLACE FUNCTION pause_operation(id bigint, now timestamptz DEFAULT NULL)
RETURNS text
LANGUAGE plpgsql VOLATILE AS $$
BEGIN
  RETURN _change_operation(id, 'paused', '{running}', _clock(now));
END $$;

-- Gives an operation that is in one of the states `before` another state. Locks its row.
CREATE OR REPLACE FUNCTION _change_operation(
  id bigint, wanted text, before text[], t timestamptz
)
RETURNS text
LANGUAGE plpgsql VOLATILE AS $$
#variable_conflict use_variable
DECLARE
  op bulk_operations;
BEGIN
  SELECT * INTO op FROM bulk_operations o WHERE o.id = id FOR UPDATE;
  IF op.state = ANY (before) THEN
    UPDATE bulk_operations o
    SET state = wanted,
      next_at = t,
      error = NULL,
      ended_at = CASE WHEN wanted = 'canceled' THEN t END
    WHERE o.id = id;
    PERFORM _audit(
      CASE wanted WHEN 'paused' THEN 'pause' WHEN 'running' THEN 'resume' ELSE 'cancel' END
      || '_operation', 'operation ' || id, op.tenant, NULL, t);
    RETURN wanted;
  END IF;
  RETURN op.state;
END $$;
