//! Names of the resources that a budget limits.

use nightshift_protocol::budget::Resource;

/// Name of a resource for people.
pub(crate) fn resource_name(resource: Resource) -> &'static str {
    match resource {
        Resource::CostMicrousd => "Price of model calls",
        Resource::Tokens => "Tokens",
        Resource::DeviceMs => "Time on devices",
        Resource::Attempts => "Attempts",
        Resource::WallMs => "Time since the beginning",
    }
}
