//! The means of isolation. A process puts each of them in force for itself and reports whether the kernel confirmed it.
//!
//! Kernels and containers differ in what they allow, so each means is tried on its own. Files are isolated by a private
//! root in a mount namespace, by Landlock, or by both.

pub(crate) mod landlock_rules;
#[expect(unsafe_code, reason = "the kernel's interface for mounts has no safe wrapper")]
mod mount_attributes;
#[expect(unsafe_code, reason = "the kernel's interface for namespaces has no safe wrapper")]
pub(crate) mod namespaces;
pub(crate) mod own_procfs;
pub(crate) mod private_root;
pub(crate) mod privileges;
pub(crate) mod resource_limits;
pub(crate) mod system_calls;
pub(crate) mod visible_paths;
