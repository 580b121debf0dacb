-- oldest_compatible: 27
-- Adds which results of other jobs a job takes. docs/explanation/schema.md describes it. Programs
-- of older releases copy jobs with rare options into a table of the type new_job, which has one
-- more column now.

-- `arguments`: the parameters of the child that take the result of the parent, each with its
-- position in a list, or with null. `result`: that result, if retention has removed the parent.
ALTER TABLE dependencies ADD COLUMN arguments jsonb, ADD COLUMN result jsonb;
