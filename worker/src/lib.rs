//! A machine: leases steps, sandboxes programs, builds, checks, measures.
