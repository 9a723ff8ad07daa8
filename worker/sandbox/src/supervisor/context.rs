//! What the supervisor hands to init, and init to the program.

use std::os::fd::OwnedFd;

use nightshift_protocol::machine::SandboxMeans;

use crate::isolation::namespaces::{Namespaces, OuterProcfs};
use crate::plan::{HostedMain, Launch};

/// What init needs.
pub(super) struct Init {
    pub(super) control: OwnedFd,
    pub(super) launch: Launch,
    pub(super) descriptors: Vec<OwnedFd>,
    pub(super) means: Vec<SandboxMeans>,
    pub(super) namespaces: Namespaces,
    pub(super) base_bytes: u64,
    pub(super) hosted: HostedMain,
    pub(super) procfs: Option<OuterProcfs>,
    pub(super) cgroup_procs: Option<Result<OwnedFd, String>>,
}
