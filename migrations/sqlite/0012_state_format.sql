-- The format in which a server writes the states of runs, and the highest one that it reads.
ALTER TABLE server ADD COLUMN state_format INTEGER NOT NULL DEFAULT 1;

-- The format of a run's state: that of the last server that owned the run. Servers with a lower one leave the run alone.
ALTER TABLE run ADD COLUMN state_format INTEGER NOT NULL DEFAULT 1;
