-- The parts of a run's state that a decision writes only when it changes them: a field of the state's document (number 0),
-- or one entry of a list in it, from 1. The head, with everything else, stays in run_state. A state without parts is one
-- document, as releases before wrote it. Large values are
-- compressed (store/src/packed.rs), and so are large inputs of steps. The key serves: the parts of a run, in their order.
CREATE TABLE run_part (
    run_id BIGINT NOT NULL,
    field  TEXT COLLATE "C"    NOT NULL,
    number BIGINT NOT NULL,
    value  TEXT COLLATE "C"    NOT NULL,
    PRIMARY KEY (run_id, field, number)
) WITH (fillfactor = 70);
