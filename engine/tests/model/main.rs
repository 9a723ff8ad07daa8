//! The protocols of the engine as models, in which every interleaving of a small world is tried.
//!
//! Three worlds, each small enough to be walked through completely and large enough for the races that matter:
//!
//! * [`leases`]: claim, heartbeat, report, expiry, retry, pause and cancel of the steps of one run, with workers that
//!   crash, stall and come back, and messages that are lost, late, doubled and out of order.
//! * [`ownership`]: replicas of the server that drive one run: loading, deciding and committing are separate actions,
//!   and a replica that stalls is declared dead, loses its run and comes back.
//! * [`budget`]: steps side by side that reserve before their work and settle after it, under one cap.
//!
//! **What is checked.** In every state that can be reached: the rules of that world, listed in its module, about
//! states and about single actions. Then: from every one of these states the world can still end with all work settled
//! although no further fault happens, so nothing is ever stuck. And: the situations for which the model exists
//! (a late report, a doubled report, a lost owner that commits) do occur, so the rules are not kept by idleness.
//!
//! **What a rule is worth** is shown by the flaws: each test `..._is_caught` takes one guard away and expects the
//! walk to find the rule that then breaks.
//!
//! **What is not modelled.** The SQL (the conformance suite of the store runs it, on every database), the content of
//! inputs and outputs, routes and priorities, the retry of a failed run by a person, more than two steps, workers or
//! replicas at once, and faults beyond the number that a world begins with. Every action here is one transaction there:
//! that a transaction is atomic and durable is the database's promise. Time passes in ticks, a lease lasts two of
//! them, and every moment is told as what is left until it, so that a world has no end of time.
//!
//! **A counterexample** is the shortest way from the beginning to the rule that broke, one action a line, with the
//! state at its end. A test that fails prints it. Each walk prints how many states it visited. To see also the
//! counterexamples of the flaws: `cargo test -p nightshift-engine --test model -- --nocapture --test-threads=1`.
//!
//! The explorer is our own (`explore.rs`), because "the end stays within reach" is a question about every reachable
//! state of a world full of cycles, which the model checkers at hand do not answer.

mod budget;
mod explore;
mod leases;
mod ownership;
