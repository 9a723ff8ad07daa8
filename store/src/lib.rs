//! The only SQL: the engine's Store port over sqlx and sea-query.
