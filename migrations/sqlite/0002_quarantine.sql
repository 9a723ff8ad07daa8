-- Devices of workers on which nothing may run: what was wrong, and whether somebody wants them to be tried again. Kept
-- apart from what a worker offers: it outlives the worker's process. Few rows, read whole.
CREATE TABLE quarantine (
    -- The driver's name of the device.
    device         TEXT    PRIMARY KEY NOT NULL,
    -- Public id: workers are forgotten, what is wrong with their devices is not.
    worker         TEXT    NOT NULL,
    worker_name    TEXT    NOT NULL,
    -- The device's number on that worker, and its model.
    number         INTEGER NOT NULL,
    device_name    TEXT    NOT NULL,
    -- Tells it from earlier ones of the same worker.
    incident       INTEGER NOT NULL,
    code           TEXT    NOT NULL,
    reason         TEXT    NOT NULL,
    since_ms       INTEGER NOT NULL,
    released_at_ms INTEGER,
    released_by    TEXT
) STRICT;
