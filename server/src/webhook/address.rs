//! Detects addresses that this server must not call for callers from outside: of this machine, of its network, and of
//! cloud metadata services.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

use reqwest::dns::{Addrs, Name, Resolve, Resolving};

/// Resolves names, without private addresses.
#[derive(Debug, Clone, Copy)]
pub(super) struct PublicAddresses;

/// A name that resolves only to private addresses.
#[derive(Debug, thiserror::Error)]
#[error("the name resolves to a private address, which this webhook may not call")]
struct PrivateName;

impl Resolve for PublicAddresses {
    fn resolve(&self, name: Name) -> Resolving {
        Box::pin(async move {
            let found = tokio::net::lookup_host((name.as_str(), 0)).await?;
            let public: Vec<SocketAddr> = found.filter(|address| !is_private(address.ip())).collect();
            if public.is_empty() {
                return Err(PrivateName.into());
            }
            Ok(Box::new(public.into_iter()) as Addrs)
        })
    }
}

/// Returns whether an address is not in the public internet.
pub(crate) fn is_private(address: IpAddr) -> bool {
    match address {
        IpAddr::V4(address) => is_private_v4(address),
        IpAddr::V6(address) => match address.to_ipv4_mapped() {
            Some(mapped) => is_private_v4(mapped),
            None => is_private_v6(address),
        },
    }
}

fn is_private_v4(address: Ipv4Addr) -> bool {
    let [first, second, ..] = address.octets();
    address.is_loopback()
        || address.is_private()
        || address.is_link_local()
        || address.is_multicast()
        || address.is_broadcast()
        || address.is_documentation()
        || first == 0
        // Shared by customers of a provider (RFC 6598), and benchmark networks.
        || (first == 100 && (64..128).contains(&second))
        || (first == 198 && (18..20).contains(&second))
        || first >= 240
}

fn is_private_v6(address: Ipv6Addr) -> bool {
    let [first, second, ..] = address.segments();
    let translated = address.octets();
    address.is_loopback()
        || address.is_unspecified()
        || address.is_multicast()
        || address.is_unique_local()
        || address.is_unicast_link_local()
        // Embedded IPv4 addresses: 64:ff9b::/96 and 2002::/16.
        || (first == 0x64
            && second == 0xff9b
            && is_private_v4(Ipv4Addr::new(translated[12], translated[13], translated[14], translated[15])))
        || (first == 0x2002
            && is_private_v4(Ipv4Addr::new(translated[2], translated[3], translated[4], translated[5])))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn private(text: &str) -> bool {
        text.parse().is_ok_and(is_private)
    }

    #[test]
    fn private_addresses_are_known_however_they_are_written() {
        for text in [
            "127.0.0.1",
            "0.0.0.0",
            "10.1.2.3",
            "172.16.0.1",
            "192.168.1.1",
            "169.254.169.254",
            "100.64.0.1",
            "224.0.0.1",
            "255.255.255.255",
            "::1",
            "::",
            "fe80::1",
            "fd00::1",
            "ff02::1",
            "::ffff:127.0.0.1",
            "::ffff:169.254.169.254",
            "64:ff9b::7f00:1",
            "2002:a9fe:a9fe::1",
        ] {
            assert!(private(text), "{text}");
        }
        for text in
            ["1.1.1.1", "172.32.0.1", "100.128.0.1", "2606:4700:4700::1111", "::ffff:1.1.1.1", "64:ff9b::101:101"]
        {
            assert!(!private(text), "{text}");
        }
    }
}
