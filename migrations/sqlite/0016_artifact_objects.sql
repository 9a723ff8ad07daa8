-- Pieces of artifacts that are in the object store. A row exists before its object is written and until it is deleted, so
-- no object is ever forgotten and none has to be searched for.
CREATE TABLE artifact_object (
    -- Part of the object's name, therefore never used again.
    id           INTEGER PRIMARY KEY AUTOINCREMENT,
    hash         TEXT    NOT NULL,
    -- The artifact that has this piece; none while the object is being written or deleted.
    artifact_id  INTEGER REFERENCES artifact (id),
    offset_bytes INTEGER NOT NULL,
    size_bytes   INTEGER NOT NULL,
    state        TEXT    NOT NULL CHECK (state IN ('writing', 'stored', 'deleting')),
    -- When the object was begun.
    at_ms        INTEGER NOT NULL
) STRICT;

-- Serves: the pieces of a range of an artifact.
CREATE UNIQUE INDEX artifact_object_by_place ON artifact_object (artifact_id, offset_bytes);
-- Serves: objects that no artifact has, to be deleted.
CREATE INDEX artifact_object_to_delete ON artifact_object (state, at_ms) WHERE artifact_id IS NULL;
