//! (in the works)
