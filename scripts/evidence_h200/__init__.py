"""The parts of scripts/evidence-h200."""
