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
            if let Some(port) = Self::take(number) {
                return Ok(port);
            }
        }
        Err(PostgresError::NoPort { tries: MAX_TRIES })
    }

    /// Reserves this port. Returns `None` when it is in use.
    fn take(number: u16) -> Option<Self> {
        let name = SocketAddr::from_abstract_name(format!("nightshift-postgres-{number}")).ok()?;
        let reservation = UnixListener::bind_addr(&name).ok()?;
        TcpListener::bind((Ipv4Addr::LOCALHOST, number)).is_ok().then_some(Self { number, _reservation: reservation })
    }
}

fn first_ephemeral() -> Option<u16> {
    let range = std::fs::read_to_string("/proc/sys/net/ipv4/ip_local_port_range").ok()?;
    range.split_whitespace().next()?.parse().ok()
}

#[cfg(test)]
#[expect(clippy::unwrap_used, reason = "a test stops at the first thing that is not as it should be")]
mod tests {
    use std::time::{Duration, Instant};

    use super::*;

    #[test]
    fn a_reserved_port_is_exclusive_until_it_is_dropped() {
        let port = Port::reserve().unwrap();
        let number = port.number;
        assert!(Port::take(number).is_none(), "nothing listens on {number}, and still it is taken");
        drop(port);
        // A process that another test is just starting holds our sockets for a moment, until it becomes its program.
        let began = Instant::now();
        while Port::take(number).is_none() {
            assert!(began.elapsed() < Duration::from_secs(30), "{number} stays taken");
            std::thread::yield_now();
        }
    }

    #[test]
    fn a_port_with_a_listener_is_not_reserved() {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
        assert!(Port::take(listener.local_addr().unwrap().port()).is_none());
    }
}
