//! One file per page: protocol types in, HTML out.

pub(crate) mod admin;
pub(crate) mod as_of;
pub(crate) mod attempt;
pub(crate) mod attempts;
pub(crate) mod campaign;
pub(crate) mod campaign_name;
pub(crate) mod campaigns;
pub(crate) mod compare;
pub(crate) mod components;
pub(crate) mod files;
pub(crate) mod glossary;
pub(crate) mod health;
pub(crate) mod models;
pub(crate) mod requests;
pub(crate) mod resource;
pub(crate) mod retrieved;
pub(crate) mod run;
#[cfg(test)]
pub(crate) mod sample;
pub(crate) mod search;
pub(crate) mod short_id;
pub(crate) mod sign_in;
pub(crate) mod tasks;
pub(crate) mod views;
pub(crate) mod webhooks;
pub(crate) mod workers;
