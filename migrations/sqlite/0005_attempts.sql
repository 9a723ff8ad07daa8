-- The index of attempts, and the text that is searched. Both are derived from the states of runs and from their artifacts:
-- servers write them after the commit that they follow, and write them anew when their form changes or they are not there.
-- Nothing is decided by them. No references: what is derived must not stand in the way of what it comes from.

-- Counts the changes of the index. Whoever has read up to a number asks for the runs above it. The one row is locked by
-- whoever writes, so that the numbers are seen in their order.
CREATE TABLE attempt_clock (
    id        INTEGER PRIMARY KEY CHECK (id = 1),
    changed   INTEGER NOT NULL,
    -- What was deleted up to this change is forgotten: whoever has read less begins anew.
    forgotten INTEGER NOT NULL
) STRICT;

INSERT INTO attempt_clock (id, changed, forgotten) VALUES (1, 0, 0);

-- A run in the index.
CREATE TABLE attempt_run (
    run_id      INTEGER PRIMARY KEY,
    run         TEXT    NOT NULL,
    campaign    TEXT    NOT NULL,
    task        TEXT    NOT NULL,
    target      TEXT    NOT NULL,
    strategy    TEXT    NOT NULL,
    -- The form in which it was written.
    form        INTEGER NOT NULL,
    -- Up to which event of its log.
    indexed_seq INTEGER NOT NULL,
    -- The change that wrote it last.
    changed     INTEGER NOT NULL,
    -- Whether it was deleted: others have to hear of that.
    is_gone     INTEGER NOT NULL DEFAULT 0 CHECK (is_gone IN (0, 1))
) STRICT;

-- Serves: the runs that changed since a number.
CREATE INDEX attempt_run_by_change ON attempt_run (changed);

-- An attempt as lists show it. The key serves: attempts of some runs; the rows of a page. Lists are filtered, sorted and
-- counted in memory: no index would serve every combination of filters and orders.
CREATE TABLE attempt (
    run_id           INTEGER NOT NULL,
    number           INTEGER NOT NULL,
    stage            TEXT    NOT NULL,
    parent           INTEGER,
    outcome          TEXT    NOT NULL,
    is_best          INTEGER NOT NULL CHECK (is_best IN (0, 1)),
    is_confirmed     INTEGER NOT NULL CHECK (is_confirmed IN (0, 1)),
    -- Speedups and rewards in millionths, times in picoseconds.
    speedup_ppm      INTEGER,
    speedup_low_ppm  INTEGER,
    speedup_high_ppm INTEGER,
    candidate_ps     INTEGER,
    reward_ppm       INTEGER,
    rubric_total     INTEGER,
    bound            TEXT,
    issue            TEXT,
    tokens           INTEGER NOT NULL,
    -- None when the price of a call is not known.
    cost_microusd    INTEGER,
    model            TEXT    NOT NULL,
    device           TEXT,
    source           TEXT,
    created_at_ms    INTEGER NOT NULL,
    finished_at_ms   INTEGER,
    PRIMARY KEY (run_id, number)
) STRICT;

-- A text that is searched, cut to a limit. Attempt 0 stands for the run as a whole.
CREATE TABLE search_document (
    -- Never given twice: a page of results goes on below the last one's number.
    id      INTEGER PRIMARY KEY AUTOINCREMENT,
    run_id  INTEGER NOT NULL,
    attempt INTEGER NOT NULL,
    kind    TEXT    NOT NULL CHECK (kind IN ('source', 'reply', 'diagnosis', 'error', 'finding')),
    -- Which of several of this kind.
    part    INTEGER NOT NULL,
    -- Of what it was made: another one means that it has to be written again.
    digest  TEXT    NOT NULL,
    body    TEXT    NOT NULL,
    at_ms   INTEGER NOT NULL,
    -- Serves: which texts of a run are there?
    UNIQUE (run_id, attempt, kind, part)
) STRICT;

-- The search, kept by the triggers.
CREATE VIRTUAL TABLE search_text USING fts5 (
    body, content = 'search_document', content_rowid = 'id', tokenize = 'unicode61'
);

CREATE TRIGGER search_text_insert AFTER INSERT ON search_document BEGIN
    INSERT INTO search_text (rowid, body) VALUES (new.id, new.body);
END;

CREATE TRIGGER search_text_delete AFTER DELETE ON search_document BEGIN
    INSERT INTO search_text (search_text, rowid, body) VALUES ('delete', old.id, old.body);
END;

CREATE TRIGGER search_text_update AFTER UPDATE ON search_document BEGIN
    INSERT INTO search_text (search_text, rowid, body) VALUES ('delete', old.id, old.body);
    INSERT INTO search_text (rowid, body) VALUES (new.id, new.body);
END;
