-- How the devices of a worker are, as it told last; apart from what it offers, because it changes every few seconds.
CREATE TABLE worker_reading (
    worker_id INTEGER PRIMARY KEY REFERENCES worker (id),
    at_ms     INTEGER NOT NULL,
    -- A JSON list, one entry for each device.
    devices   TEXT NOT NULL
) STRICT;

-- For how long steps of an attempt were on a device.
ALTER TABLE attempt ADD COLUMN device_ms INTEGER NOT NULL DEFAULT 0;

-- Serves: when the last run of a campaign ended.
CREATE INDEX run_by_campaign_and_end ON run (campaign_id, finished_at_ms);
