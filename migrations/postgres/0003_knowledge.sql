-- Notes about how programs become faster: built in, and of folders that people name. Replaced source by source.
CREATE TABLE note (
    id            TEXT COLLATE "C"    PRIMARY KEY,
    source        TEXT COLLATE "C"    NOT NULL,
    title         TEXT COLLATE "C"    NOT NULL,
    body          TEXT COLLATE "C"    NOT NULL,
    -- Lists with commas; empty for any.
    bounds        TEXT COLLATE "C"    NOT NULL,
    operators     TEXT COLLATE "C"    NOT NULL,
    architectures TEXT COLLATE "C"    NOT NULL,
    -- What is searched: title and tags, and the text; small letters, blanks between the words.
    title_words   TEXT COLLATE "C"    NOT NULL,
    body_words    TEXT COLLATE "C"    NOT NULL,
    stored_at_ms  BIGINT NOT NULL
);

-- The search over notes.
CREATE INDEX note_text ON note USING gin (to_tsvector('english', title_words || ' ' || body_words));

-- What changes to programs brought, for later runs. Outlives the run that learned it: its public id is kept.
CREATE TABLE lesson (
    run            TEXT COLLATE "C"    NOT NULL,
    attempt        BIGINT NOT NULL,
    task           TEXT COLLATE "C"    NOT NULL,
    operator_class TEXT COLLATE "C"    NOT NULL,
    bound          TEXT COLLATE "C"    NOT NULL,
    device         TEXT COLLATE "C"    NOT NULL,
    change         TEXT COLLATE "C"    NOT NULL,
    -- Speed after over speed before, in millionths.
    gain_ppm       BIGINT NOT NULL,
    certain        BIGINT NOT NULL CHECK (certain IN (0, 1)),
    at_ms          BIGINT NOT NULL,
    PRIMARY KEY (run, attempt)
);
-- Serves: what was learned about operators of a class?
CREATE INDEX lesson_of_class ON lesson (operator_class, at_ms);

-- What a step was given of notes and lessons. The first try decides: a later one renders the same prompt.
CREATE TABLE retrieval (
    run_id   BIGINT NOT NULL REFERENCES run (id),
    step_key TEXT COLLATE "C"    NOT NULL,
    items    TEXT COLLATE "C"    NOT NULL,
    at_ms    BIGINT NOT NULL,
    PRIMARY KEY (run_id, step_key)
);

-- Scores of attempts that were computed later, by another formula or by newer rules; the latest of each formula.
CREATE TABLE attempt_score (
    run_id  BIGINT NOT NULL REFERENCES run (id),
    attempt BIGINT NOT NULL,
    formula TEXT COLLATE "C"    NOT NULL,
    score   TEXT COLLATE "C"    NOT NULL,
    at_ms   BIGINT NOT NULL,
    PRIMARY KEY (run_id, attempt, formula)
);
