-- Notes about how programs become faster: built in, and of folders that people name. Replaced source by source.
CREATE TABLE note (
    id            TEXT    PRIMARY KEY NOT NULL,
    source        TEXT    NOT NULL,
    title         TEXT    NOT NULL,
    body          TEXT    NOT NULL,
    -- Lists with commas; empty for any.
    bounds        TEXT    NOT NULL,
    operators     TEXT    NOT NULL,
    architectures TEXT    NOT NULL,
    -- What is searched: title and tags, and the text; small letters, blanks between the words.
    title_words   TEXT    NOT NULL,
    body_words    TEXT    NOT NULL,
    stored_at_ms  INTEGER NOT NULL
) STRICT;

-- The search over notes, kept by the triggers.
CREATE VIRTUAL TABLE note_text USING fts5 (id UNINDEXED, title_words, body_words, tokenize = 'porter unicode61');

CREATE TRIGGER note_text_insert AFTER INSERT ON note BEGIN
    INSERT INTO note_text (id, title_words, body_words) VALUES (new.id, new.title_words, new.body_words);
END;

CREATE TRIGGER note_text_delete AFTER DELETE ON note BEGIN
    DELETE FROM note_text WHERE id = old.id;
END;

CREATE TRIGGER note_text_update AFTER UPDATE ON note BEGIN
    DELETE FROM note_text WHERE id = old.id;
    INSERT INTO note_text (id, title_words, body_words) VALUES (new.id, new.title_words, new.body_words);
END;

-- What changes to programs brought, for later runs. Outlives the run that learned it: its public id is kept.
CREATE TABLE lesson (
    run            TEXT    NOT NULL,
    attempt        INTEGER NOT NULL,
    task           TEXT    NOT NULL,
    operator_class TEXT    NOT NULL,
    bound          TEXT    NOT NULL,
    device         TEXT    NOT NULL,
    change         TEXT    NOT NULL,
    -- Speed after over speed before, in millionths.
    gain_ppm       INTEGER NOT NULL,
    certain        INTEGER NOT NULL CHECK (certain IN (0, 1)),
    at_ms          INTEGER NOT NULL,
    PRIMARY KEY (run, attempt)
) STRICT;
-- Serves: what was learned about operators of a class?
CREATE INDEX lesson_of_class ON lesson (operator_class, at_ms);

-- What a step was given of notes and lessons. The first try decides: a later one renders the same prompt.
CREATE TABLE retrieval (
    run_id   INTEGER NOT NULL REFERENCES run (id),
    step_key TEXT    NOT NULL,
    items    TEXT    NOT NULL,
    at_ms    INTEGER NOT NULL,
    PRIMARY KEY (run_id, step_key)
) STRICT;

-- Scores of attempts that were computed later, by another formula or by newer rules; the latest of each formula.
CREATE TABLE attempt_score (
    run_id  INTEGER NOT NULL REFERENCES run (id),
    attempt INTEGER NOT NULL,
    formula TEXT    NOT NULL,
    score   TEXT    NOT NULL,
    at_ms   INTEGER NOT NULL,
    PRIMARY KEY (run_id, attempt, formula)
) STRICT;
