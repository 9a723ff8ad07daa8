//! A port that stays ours while the server is down.

use std::net::{Ipv4Addr, TcpListener};
use std::os::linux::net::SocketAddrExt;
use std::os::unix::net::{SocketAddr, UnixListener};

use super::{PostgresError, random};

/// How many ports are tried.
const MAX_TRIES: u32 = 200;
/// Below are the ports of well-known servers.
const FIRST: u16 = 10_000;
/// Where the kernel's own choices begin when it does not say.
const USUAL_EPHEMERAL: u16 = 32_768;

/// A port of the loopback address, reserved among all test programs of this machine until it is dropped.
#[derive(Debug)]
pub(super) struct Port {
    pub(super) number: u16,
    /// A name in the kernel that only one process can hold, and that goes with the process: while a server is being
    /// restarted nothing listens on its port, and another test program would take it for free.
    _reservation: UnixListener,
}

impl Port {
    /// A free one. It is no port that the kernel hands out to outgoing connections: one of these could sit on it when
    /// the server comes back.
    pub(super) fn reserve() -> Result<Self, PostgresError> {
        let end = first_ephemeral().unwrap_or(USUAL_EPHEMERAL).max(FIRST + 1_000);
        for _ in 0..MAX_TRIES {
            let offset = random() % u64::from(end - FIRST);
            let number = FIRST + u16::try_from(offset).unwrap_or_default();
            let name = format!("nightshift-postgres-{number}");
            let reserved = SocketAddr::from_abstract_name(name).and_then(|name| UnixListener::bind_addr(&name));
            let Ok(reservation) = reserved else { continue };
            if TcpListener::bind((Ipv4Addr::LOCALHOST, number)).is_ok() {
                return Ok(Self { number, _reservation: reservation });
            }
        }
        Err(PostgresError::NoPort { tries: MAX_TRIES })
    }
}

fn first_ephemeral() -> Option<u16> {
    let range = std::fs::read_to_string("/proc/sys/net/ipv4/ip_local_port_range").ok()?;
    range.split_whitespace().next()?.parse().ok()
}

#[cfg(test)]
#[expect(clippy::unwrap_used, reason = "a test stops at the first thing that is not as it should be")]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn a_reserved_port_is_given_to_nobody_else_although_nothing_listens_on_it() {
        let ports: Vec<Port> = (0..100).map(|_| Port::reserve().unwrap()).collect();
        let numbers: BTreeSet<u16> = ports.iter().map(|port| port.number).collect();
        assert_eq!(numbers.len(), ports.len());
        for port in &ports {
            assert!(TcpListener::bind((Ipv4Addr::LOCALHOST, port.number)).is_ok());
        }
    }
}
