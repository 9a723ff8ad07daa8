//! A typed HTTP client over the protocol, for worker, command line and dashboard.
