//! Rate limits: sign-ins and look-ups of credentials by address, all other calls by caller, role and address.

use std::hash::Hash;
use std::net::IpAddr;
use std::num::NonZeroU32;
use std::time::Duration;

use axum::http::StatusCode;
use governor::clock::{Clock as _, DefaultClock};
use governor::state::keyed::HashMapStateStore;
use governor::{Quota, RateLimiter};
use nightshift_protocol::access::Role;

use crate::caller::Caller;
use crate::error::ApiFailure;

/// Sign-in attempts of an address at once, and again per minute.
const SIGN_INS: NonZeroU32 = NonZeroU32::MIN.saturating_add(29);
/// Maximum number of keys of a limiter. Beyond it, idle keys are removed.
const MAX_KEYS: usize = 10_000;

/// A rate: a burst, and one more call per interval.
#[derive(Debug, Clone, Copy)]
pub struct Rate {
    /// Calls at once.
    pub burst: NonZeroU32,
    /// Interval for one more call; not zero.
    pub every: Duration,
}

impl Rate {
    const fn per_second(burst: u32, calls: u32) -> Self {
        let burst = NonZeroU32::MIN.saturating_add(burst.saturating_sub(1));
        Self { burst, every: Duration::from_nanos(1_000_000_000 / calls as u64) }
    }

    fn quota(self) -> Quota {
        let every = if self.every.is_zero() { Duration::from_nanos(1) } else { self.every };
        // None only for a period of zero.
        Quota::with_period(every).unwrap_or(Quota::per_second(self.burst)).allow_burst(self.burst)
    }
}

/// Rate limits of a caller at one address.
#[derive(Debug, Clone, Copy)]
pub struct Rates {
    /// Viewers, operators, and callers without a token where reading needs none.
    pub people: Rate,
    /// Workers and administrators: a fleet may share one token, and so may an administrator's scripts.
    pub machines: Rate,
}

impl Default for Rates {
    /// Far above the needs of pages, commands and workers, and below the rate of a loop without a pause.
    fn default() -> Self {
        Self { people: Rate::per_second(2_000, 200), machines: Rate::per_second(20_000, 5_000) }
    }
}

/// The remote address of a connection. `connections.rs` adds it to the extensions of each request.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Peer(pub(crate) IpAddr);

struct Limiter<K: Hash + Eq + Clone>(RateLimiter<K, HashMapStateStore<K>, DefaultClock>);

impl<K: Hash + Eq + Clone> Limiter<K> {
    fn new(quota: Quota) -> Self {
        Self(RateLimiter::hashmap(quota))
    }

    /// Counts a call, or returns the time until the next permitted call.
    fn count(&self, key: &K) -> Result<(), Duration> {
        if self.0.len() > MAX_KEYS {
            self.0.retain_recent();
        }
        self.0.check_key(key).map_err(|refusal| refusal.wait_time_from(DefaultClock::default().now()))
    }
}

/// Counts sign-ins and look-ups of credentials by address, and calls by address, role and name of the caller.
pub(crate) struct RateLimits {
    sign_ins: Limiter<IpAddr>,
    look_ups: Limiter<IpAddr>,
    people: Limiter<(IpAddr, Role, String)>,
    machines: Limiter<(IpAddr, Role, String)>,
}

impl RateLimits {
    pub(crate) fn new(rates: Rates) -> Self {
        Self {
            sign_ins: Limiter::new(Quota::per_minute(SIGN_INS)),
            look_ups: Limiter::new(rates.people.quota()),
            people: Limiter::new(rates.people.quota()),
            machines: Limiter::new(rates.machines.quota()),
        }
    }

    /// Counts a sign-in from this address.
    pub(crate) fn count_sign_in(&self, address: IpAddr) -> Result<(), ApiFailure> {
        self.sign_ins.count(&address).map_err(|wait| {
            let message = format!("an address may sign in at most {SIGN_INS} times a minute: wait a minute");
            too_many("auth.too_many_tries", &message, wait)
        })
    }

    /// Counts a look-up in the store of a token, cookie or link that this server has not found before.
    pub(crate) fn count_look_up(&self, peer: Option<Peer>) -> Result<(), ApiFailure> {
        let Some(Peer(address)) = peer else { return Ok(()) };
        self.look_ups.count(&address).map_err(|wait| {
            let message = "this address presented too many unknown tokens or cookies: wait, and call less often";
            too_many("request.too_many", message, wait)
        })
    }

    /// Counts a call of this caller. The worker of this process is part of the server and is not counted.
    pub(crate) fn count_call(&self, peer: Option<Peer>, caller: Option<&Caller>) -> Result<(), ApiFailure> {
        let Some(Peer(address)) = peer else { return Ok(()) };
        let (role, name) = caller.map_or((Role::Viewer, ""), |caller| (caller.role, caller.name.as_str()));
        if caller.is_some_and(|caller| caller.embedded) {
            return Ok(());
        }
        let limiter = match role {
            Role::Viewer | Role::Operator => &self.people,
            Role::Worker | Role::Admin => &self.machines,
        };
        limiter.count(&(address, role, name.to_owned())).map_err(|wait| {
            too_many("request.too_many", "this caller exceeded its rate limit: wait, and call less often", wait)
        })
    }
}

fn too_many(code: &str, message: &str, wait: Duration) -> ApiFailure {
    ApiFailure::new(StatusCode::TOO_MANY_REQUESTS, code, message).after(wait)
}
