-- What the chaos run keeps in the database beside Watchbill's schema.

-- What producers have written, each in one transaction with the enqueue of a unique job.
CREATE TABLE changes (n bigint GENERATED ALWAYS AS IDENTITY, account int NOT NULL);

-- When each fence was given to a job, and when the job lost it. Watchbill forgets both when a job
-- has ended. The times are read before the commit.
CREATE TABLE claim_log (job_id uuid, fence bigint, epoch bigint, at timestamptz);
CREATE TABLE release_log (job_id uuid, fence bigint, at timestamptz);

CREATE FUNCTION log_claim() RETURNS trigger
LANGUAGE plpgsql
AS $$
BEGIN
  INSERT INTO public.claim_log (job_id, fence, epoch, at)
  SELECT x, NEW.fence, NEW.epoch, NEW.at FROM unnest(NEW.job_ids) x;
  RETURN NULL;
END $$;
CREATE TRIGGER log_claim AFTER INSERT ON watchbill.claims
FOR EACH ROW EXECUTE FUNCTION log_claim();

CREATE FUNCTION log_release() RETURNS trigger
LANGUAGE plpgsql
AS $$
BEGIN
  INSERT INTO public.release_log (job_id, fence, at)
  VALUES (OLD.id, OLD.fence, clock_timestamp());
  RETURN NULL;
END $$;
CREATE TRIGGER log_release AFTER UPDATE OF fence ON watchbill.jobs
FOR EACH ROW WHEN (OLD.fence <> 0 AND NEW.fence <> OLD.fence) EXECUTE FUNCTION log_release();
CREATE TRIGGER log_deletion AFTER DELETE ON watchbill.jobs
FOR EACH ROW WHEN (OLD.fence <> 0) EXECUTE FUNCTION log_release();
