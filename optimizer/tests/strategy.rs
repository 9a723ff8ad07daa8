//! The strategies, driven over made-up and over recorded histories.

mod strategy {
    pub(crate) mod agent;
    pub(crate) mod asked;
    pub(crate) mod baselines;
    pub(crate) mod beam;
    pub(crate) mod examples;
    pub(crate) mod facts;
    pub(crate) mod failures;
    pub(crate) mod fix_turns;
    pub(crate) mod forge;
    pub(crate) mod group;
    pub(crate) mod memory;
    pub(crate) mod order;
    pub(crate) mod people;
    pub(crate) mod random;
    pub(crate) mod recorded;
    pub(crate) mod routes;
    pub(crate) mod sanitize;
    pub(crate) mod script;
    pub(crate) mod searches;
    pub(crate) mod simulator;
    pub(crate) mod stored;
    pub(crate) mod tune;
}
