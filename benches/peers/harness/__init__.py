"""The parts of the side-by-side comparison: one file per idea, nothing outside the standard library."""
