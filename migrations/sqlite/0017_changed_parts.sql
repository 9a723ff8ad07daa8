-- The revision of the run with which a part was written last; 0 for parts that earlier releases wrote. The index of attempts
-- reads the parts that changed after a revision.
ALTER TABLE run_part ADD COLUMN revision INTEGER NOT NULL DEFAULT 0;

-- Serves: the parts of a run that changed after a revision.
CREATE INDEX run_part_by_revision ON run_part (run_id, revision);
