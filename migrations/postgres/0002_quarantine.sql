-- Devices of workers on which nothing may run: what was wrong, and whether somebody wants them to be tried again. Kept
-- apart from what a worker offers: it outlives the worker's process. Few rows, read whole.
CREATE TABLE quarantine (
    -- The driver's name of the device.
    device         TEXT COLLATE "C"    PRIMARY KEY,
    -- Public id: workers are forgotten, what is wrong with their devices is not.
    worker         TEXT COLLATE "C"    NOT NULL,
    worker_name    TEXT COLLATE "C"    NOT NULL,
    -- The device's number on that worker, and its model.
    number         BIGINT NOT NULL,
    device_name    TEXT COLLATE "C"    NOT NULL,
    -- Tells it from earlier ones of the same worker.
    incident       BIGINT NOT NULL,
    code           TEXT COLLATE "C"    NOT NULL,
    reason         TEXT COLLATE "C"    NOT NULL,
    since_ms       BIGINT NOT NULL,
    released_at_ms BIGINT,
    released_by    TEXT COLLATE "C"
);
