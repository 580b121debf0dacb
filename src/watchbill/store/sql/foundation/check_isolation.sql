-- Raises unless the transaction is READ COMMITTED, where each statement sees what others have
-- committed before it.
CREATE OR REPLACE FUNCTION _check_isolation(verb text)
RETURNS void
LANGUAGE plpgsql STABLE AS $$
BEGIN
  IF current_setting('transaction_isolation') <> 'read committed' THEN
    RAISE EXCEPTION '% needs READ COMMITTED, this transaction is %',
      verb, upper(current_setting('transaction_isolation'))
      USING ERRCODE = 'WB005', HINT = 'start it with BEGIN ISOLATION LEVEL READ COMMITTED';
  END IF;
END $$;
