//! One file per page: protocol types in, HTML out.

pub(crate) mod attempt;
pub(crate) mod campaign;
pub(crate) mod campaigns;
pub(crate) mod failure;
pub(crate) mod run;
pub(crate) mod sign_in;
