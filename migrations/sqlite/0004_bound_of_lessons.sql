-- Who said what limited the program before: the diagnosis of that program, or, where there was none, the plan.
ALTER TABLE lesson ADD COLUMN bound_from TEXT NOT NULL DEFAULT 'plan' CHECK (bound_from IN ('diagnosis', 'plan'));
