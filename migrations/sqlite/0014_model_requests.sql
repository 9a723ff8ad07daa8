-- Open model calls that agents outside of Nightshift answer. A row is made before the step begins to wait, and stays until
-- its run is pruned. Where a request stands follows from its answer, deadline, lease and step.
CREATE TABLE model_request (
    id                INTEGER PRIMARY KEY,
    public_id         TEXT    NOT NULL UNIQUE,
    run_id            INTEGER NOT NULL REFERENCES run (id),
    step_id           INTEGER NOT NULL REFERENCES step (id),
    -- The same question of the same step: as in model_call.
    step_key          TEXT    NOT NULL,
    turn              INTEGER NOT NULL,
    request_hash      TEXT    NOT NULL,
    role              TEXT    NOT NULL,
    model             TEXT    NOT NULL,
    question          TEXT    NOT NULL,
    -- Models that were asked before and could not answer.
    fell_back         TEXT    NOT NULL,
    created_at_ms     INTEGER NOT NULL,
    -- The time that agents have, and when it ends: it begins again when the run is resumed or retried.
    time_ms           INTEGER NOT NULL,
    deadline_ms       INTEGER NOT NULL,
    -- The token of the last lease. It may answer until another one takes its place.
    lease             TEXT,
    holder            TEXT,
    lease_until_ms    INTEGER,
    answer            TEXT,
    answered_at_ms    INTEGER,
    input_tokens      INTEGER,
    output_tokens     INTEGER,
    answered_with     TEXT,
    UNIQUE (run_id, step_key, turn, request_hash)
) STRICT;

-- Serves: requests that wait for an answer, oldest first.
CREATE INDEX model_request_waiting ON model_request (id) WHERE answered_at_ms IS NULL;
-- Serves: requests of a step.
CREATE INDEX model_request_by_step ON model_request (step_id);
