//! The Stitch strategy, driven over made-up and over recorded histories.

mod strategy {
    pub(crate) mod examples;
    pub(crate) mod facts;
    pub(crate) mod failures;
    pub(crate) mod order;
    pub(crate) mod people;
    pub(crate) mod random;
    pub(crate) mod recorded;
    pub(crate) mod routes;
    pub(crate) mod sanitize;
    pub(crate) mod script;
    pub(crate) mod simulator;
}
