//! Whether a server on a loopback address may be read without a token: everyone on its machine can connect to it.

use std::net::IpAddr;
use std::os::unix::fs::MetadataExt as _;
use std::path::Path;

use crate::context::Context;

/// First user id of people; those below are of services.
const FIRST_USER: u32 = 1_000;
/// Dynamic user ids of services, and the overflow user id.
const DYNAMIC_USERS: std::ops::RangeInclusive<u32> = 61_184..=65_534;
/// Entries of a folder that are looked at.
const MAX_ENTRIES: usize = 100_000;

/// Who may read without a token, and why.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum OpenReads {
    /// No one, as the configuration says.
    Off,
    /// Everyone on this machine, as the configuration says.
    On,
    /// No one: other people use this machine.
    OffAsShared,
    /// Everyone on this machine: no other people were seen.
    OnAsAlone,
}

impl OpenReads {
    /// What holds on this machine, for a loopback address.
    pub(crate) fn here(context: &Context) -> Self {
        match context.config().server.open_reads {
            Some(true) => Self::On,
            Some(false) => Self::Off,
            None if is_shared_machine() => Self::OffAsShared,
            None => Self::OnAsAlone,
        }
    }

    /// Returns whether a server that listens there may be read without a token.
    pub(crate) fn are_open(self, listens: IpAddr) -> bool {
        listens.is_loopback() && matches!(self, Self::On | Self::OnAsAlone)
    }
}

/// Returns whether other people have processes or sessions on this machine now.
pub(crate) fn is_shared_machine() -> bool {
    let Ok(me) = std::fs::metadata("/proc/self") else { return false };
    let processes = owners(Path::new("/proc"));
    let sessions = owners(Path::new("/run/user"));
    has_others(me.uid(), processes.chain(sessions))
}

fn owners(folder: &Path) -> impl Iterator<Item = u32> {
    let entries = std::fs::read_dir(folder).into_iter().flatten().take(MAX_ENTRIES);
    // A process may be gone by now.
    entries.filter_map(|entry| Some(entry.ok()?.metadata().ok()?.uid()))
}

fn has_others(me: u32, mut owners: impl Iterator<Item = u32>) -> bool {
    owners.any(|uid| uid != me && uid >= FIRST_USER && !DYNAMIC_USERS.contains(&uid))
}

#[cfg(test)]
#[expect(clippy::unwrap_used, reason = "a test fails by panicking")]
mod tests {
    use super::*;

    #[test]
    fn services_and_oneself_do_not_make_a_machine_shared() {
        assert!(!has_others(1_000, [0, 33, 999, 1_000, 61_200, 65_534].into_iter()));
        assert!(has_others(1_000, [0, 1_001].into_iter()));
        assert!(has_others(0, [1_000].into_iter()), "a server of the system is read by its users");
        assert!(has_others(1_000, [1_800_001_234].into_iter()), "users of a directory have large numbers");
    }

    #[test]
    fn nothing_but_loopback_is_ever_read_without_a_token() {
        let network: IpAddr = "10.0.0.1".parse().unwrap();
        let loopback: IpAddr = "127.0.0.1".parse().unwrap();
        for reads in [OpenReads::Off, OpenReads::On, OpenReads::OffAsShared, OpenReads::OnAsAlone] {
            assert!(!reads.are_open(network));
            assert_eq!(reads.are_open(loopback), matches!(reads, OpenReads::On | OpenReads::OnAsAlone));
        }
    }
}
