//! The Stitch strategy, driven over made-up and over recorded histories.

mod strategy {
    pub mod facts;
    pub mod failures;
    pub mod order;
    pub mod random;
    pub mod recorded;
    pub mod routes;
    pub mod script;
    pub mod simulator;
}
