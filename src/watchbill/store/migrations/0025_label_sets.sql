-- Lets two transactions store the same set of labels. docs/explanation/schema.md describes it.

-- This index is not unique, because then a producer in a long transaction would make all others
-- wait that need the same new set. Two lanes with the same labels do no harm.
DROP INDEX label_sets_labels;
CREATE INDEX label_sets_labels ON label_sets (labels);
