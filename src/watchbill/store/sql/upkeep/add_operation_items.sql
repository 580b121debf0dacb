-- Adds items to an operation of the kind `enqueue` that has not begun: a JSON array of objects as
-- enqueue_many() takes them, each with `type` and `payload`. Returns how many items it has now.
-- resume_operation() begins it. An item with an idempotency key is enqueued once, whatever fails
-- and however often it is given.
CREATE OR REPLACE FUNCTION add_operation_items(id bigint, items jsonb)
RETURNS bigint
LANGUAGE plpgsql VOLATILE AS $$
#variable_conflict use_variable
DECLARE
  op bulk_operations;
  held bigint;
BEGIN
  SELECT * INTO op FROM bulk_operations o WHERE o.id = id FOR UPDATE;
  IF op.kind IS DISTINCT FROM 'enqueue' OR op.state <> 'pending' THEN
    RAISE EXCEPTION 'operation % takes no items', coalesce(id::text, 'NULL')
      USING ERRCODE = 'WB003',
        HINT = 'start_operation(''enqueue'', ''[]'') starts one that does, until it is resumed';
  END IF;
  IF jsonb_typeof(items) IS DISTINCT FROM 'array'
      OR jsonb_path_exists(
        items, 'strict $[*] ? (@.type() != "object")', silent => true) THEN
    RAISE EXCEPTION 'items are invalid: they must be a JSON array of objects'
      USING ERRCODE = 'WB003';
  END IF;
  held := (
    SELECT coalesce(max(i.number), 0)
    FROM bulk_items i
    WHERE i.operation = id);
  INSERT INTO bulk_items (operation, number, tenant, job)
  SELECT id, held + i.number, op.arguments->>'tenant', i.job
  FROM jsonb_array_elements(items) WITH ORDINALITY i(job, number);
  RETURN held + jsonb_array_length(items);
END $$;

-- Enqueues the next items of an operation, and deletes them. An item that is refused is counted
-- with the reason, and stops no other.
CREATE OR REPLACE FUNCTION _enqueue_items(op bulk_operations, most int)
RETURNS bulk_operations
LANGUAGE plpgsql VOLATILE AS $$
#variable_conflict use_variable
DECLARE
  began timestamptz := clock_timestamp();
  seen_before bigint := op.seen;
  reached bigint;
  i record;
  a record;
BEGIN
  FOR i IN
    SELECT x.number, x.job
    FROM bulk_items x
    WHERE x.operation = op.id
    ORDER BY x.number
    LIMIT most
  LOOP
    EXIT WHEN clock_timestamp() > began + interval '200 ms' AND op.seen > seen_before;
    SELECT * INTO a FROM _enqueue_item(op, i.job);
    IF a.outcome = 'stopped' THEN
      op.state := 'paused';
      op.error := a.reason;
      EXIT;
    END IF;
    reached := i.number;
    op := _count_outcome(op, a.outcome, a.reason);
  END LOOP;
  DELETE FROM bulk_items x WHERE x.operation = op.id AND x.number <= reached;
  IF op.state = 'running'
    AND NOT EXISTS (SELECT FROM bulk_items x WHERE x.operation = op.id) THEN
    op.state := 'done';
  END IF;
  RETURN op;
END $$;

-- Enqueues one item, in the tenant and the name of the operation's creator. `outcome` is as that of
-- _act_on_job(). An error undoes only this item.
CREATE OR REPLACE FUNCTION _enqueue_item(
  op bulk_operations, job jsonb, OUT outcome text, OUT reason text
)
LANGUAGE plpgsql VOLATILE AS $$
DECLARE
  made record;
BEGIN
  SELECT *
  INTO made
  FROM enqueue_many(jsonb_build_array(job || jsonb_build_object(
    'tenant', op.arguments->>'tenant', 'created_by', op.created_by)));
  outcome := CASE WHEN made.created THEN 'done' ELSE 'skipped' END;
  reason := CASE
      WHEN made.payload_differs THEN 'a job has its key and another payload'
      WHEN NOT made.created THEN 'a job has its key'
    END;
EXCEPTION
  WHEN SQLSTATE 'WB015' THEN
    outcome := 'stopped';
    reason := SQLERRM;
  WHEN OTHERS THEN
    outcome := 'failed';
    reason := left(SQLERRM, 200);
END $$;
