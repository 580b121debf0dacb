-- Notes something that charts show as a line, such as a deploy. Returns its id.
CREATE OR REPLACE FUNCTION add_chart_mark(
  text text,
  at timestamptz DEFAULT NULL,
  now timestamptz DEFAULT NULL
)
RETURNS bigint
LANGUAGE plpgsql VOLATILE AS $$
#variable_conflict use_variable
DECLARE
  t timestamptz := _clock(now);
  mark bigint;
BEGIN
  PERFORM _check_shared_change('add_chart_mark');
  IF coalesce(length(text), 0) NOT BETWEEN 1 AND 200 THEN
    RAISE EXCEPTION 'text is invalid' USING ERRCODE = 'WB003', HINT = 'give 1 to 200 characters';
  END IF;
  INSERT INTO chart_marks AS m (at, text, created_by)
  VALUES (coalesce(at, t), text, _actor())
  RETURNING m.id INTO mark;
  RETURN mark;
END $$;
