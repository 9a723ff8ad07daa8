//! Model checking of the engine's protocols: every interleaving of a small world is explored.
//!
//! There are three worlds, each small enough for complete exploration and large enough for the relevant races:
//!
//! * [`leases`]: claim, heartbeat, report, expiry, retry, pause and cancel of the steps of one run. Workers crash,
//!   stall and return, and messages are lost, late, duplicated and out of order.
//! * [`ownership`]: replicas of the server that drive one run. Loading, deciding and committing are separate actions.
//!   A stalled replica is declared dead, loses its run and returns.
//! * [`budget`]: parallel steps that reserve before their work and settle after it, under one cap.
//!
//! **What is checked.** Every reachable state and every transition satisfies the rules of its world, which its module
//! lists. From every reachable state, the world can still settle all work without further faults, so it never gets
//! stuck. The examples for which the model exists (a late report, a duplicated report, a lost owner that commits) do
//! occur, so the rules are not satisfied trivially.
//!
//! **Value of a rule.** Each test `..._is_caught` removes one guard and expects the exploration to find the broken
//! rule.
//!
//! **What is not modelled.** The SQL (the conformance suite of the store covers it on every database), the content of
//! inputs and outputs, routes and priorities, the retry of a failed run, more than two steps, workers or replicas at
//! once, and more faults than a world begins with. Every action is one transaction of the real system, and the database
//! guarantees atomicity and durability. Time passes in ticks, a lease lasts two of them, and all times are relative, so
//! that the number of states is finite.
//!
//! **A counterexample** is the shortest path from the beginning to the broken rule, one action per line, with the final
//! state. A failing test prints it. Each exploration prints the number of visited states. To see also the
//! counterexamples of the flaws: `cargo test -p nightshift-engine --test model -- --nocapture --test-threads=1`.
//!
//! The explorer is our own (`explore.rs`), because the available model checkers cannot check whether every state of a
//! cyclic world can still reach its end.

mod budget;
mod explore;
mod leases;
mod ownership;
