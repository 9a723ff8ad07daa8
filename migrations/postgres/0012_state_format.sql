-- The format in which a server writes the states of runs, and the highest one that it reads.
ALTER TABLE server ADD COLUMN state_format BIGINT NOT NULL DEFAULT 1;

-- The format of a run's state: that of the last server that owned the run. Servers with a lower one leave the run alone.
ALTER TABLE run ADD COLUMN state_format BIGINT NOT NULL DEFAULT 1;

-- Functions have a version in their names, so that servers of two releases on one database call their own. This is the
-- one that releases without versions call, under its new name; those go on with the old one.
DO $$
BEGIN
    EXECUTE replace(pg_get_functiondef('hot_load'::regproc), '.hot_load(', '.hot_load_v1(');
END
$$;
