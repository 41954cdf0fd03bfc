//! Throttling: one bucket of tokens for each tenant, one for the platform's staff, one for each stranger's
//! network, so that nobody's flood is anybody else's.

use std::collections::HashMap;
use std::net::{IpAddr, Ipv6Addr};
use std::sync::Mutex;
use std::time::Instant;

use axum::http::header;
use tenure_domain::State;
use tenure_domain::id::{TenantId, UserId};
use tenure_domain::tenancy::scope::ScopeId;

use crate::http::fail::{Answer, Fail};

/// Buckets kept; beyond it the full ones are forgotten.
const MAX_BUCKETS: usize = 100_000;

/// Whose bucket a request takes from.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Payer {
    Tenant(TenantId),
    Platform,
    Stranger(IpAddr),
}

impl Payer {
    pub fn of(state: &State, user: UserId) -> Payer {
        state
            .tree
            .tenant_of(ScopeId::User(user))
            .map_or(Payer::Platform, Payer::Tenant)
    }

    /// An IPv6 stranger has a whole network of addresses, so the network pays.
    pub fn stranger(ip: IpAddr) -> Payer {
        match ip.to_canonical() {
            IpAddr::V6(ip) => {
                let [a, b, c, d, ..] = ip.segments();
                Payer::Stranger(Ipv6Addr::new(a, b, c, d, 0, 0, 0, 0).into())
            }
            v4 => Payer::Stranger(v4),
        }
    }
}

#[derive(Debug, Clone, Copy)]
struct Bucket {
    tokens: f64,
    at: Instant,
}

pub struct Throttle {
    rate: f64,
    burst: f64,
    buckets: Mutex<HashMap<Payer, Bucket>>,
}

impl Throttle {
    pub fn new(rate: u32, burst: u32) -> Throttle {
        Throttle {
            rate: f64::from(rate.max(1)),
            burst: f64::from(burst.max(1)),
            buckets: Mutex::default(),
        }
    }

    /// Takes a token, or says when there will be one.
    pub fn take(&self, payer: Payer, now: Instant) -> Answer<()> {
        let mut buckets = self.buckets.lock().expect("short and without panics");
        if buckets.len() >= MAX_BUCKETS && !buckets.contains_key(&payer) {
            buckets.retain(|_, bucket| self.filled(*bucket, now) < self.burst);
        }
        let bucket = buckets.entry(payer).or_insert(Bucket {
            tokens: self.burst,
            at: now,
        });
        let tokens = self.filled(*bucket, now);
        if tokens >= 1.0 {
            *bucket = Bucket {
                tokens: tokens - 1.0,
                at: now,
            };
            return Ok(());
        }
        *bucket = Bucket { tokens, at: now };
        let wait_s = ((1.0 - tokens) / self.rate).ceil().max(1.0) as u64;
        let whose = match payer {
            Payer::Tenant(_) => "the tenant",
            Payer::Platform => "the platform's staff",
            Payer::Stranger(_) => "this address",
        };
        Err(Fail::new(
            429,
            "too_many_requests",
            format!("{whose} made more than {} requests a second", self.rate),
        )
        .hint(format!("try again in {wait_s} s"))
        .header(header::RETRY_AFTER, &wait_s.to_string()))
    }

    fn filled(&self, bucket: Bucket, now: Instant) -> f64 {
        let since = now.saturating_duration_since(bucket.at).as_secs_f64();
        (bucket.tokens + since * self.rate).min(self.burst)
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[test]
    fn a_burst_then_the_rate_and_nobody_else_pays() {
        let (throttle, start) = (Throttle::new(10, 20), Instant::now());
        let (greedy, modest) = (Payer::Tenant(TenantId(1)), Payer::Tenant(TenantId(2)));
        let taken = (0..100).filter(|_| throttle.take(greedy, start).is_ok()).count();
        assert_eq!(taken, 20);
        assert!(throttle.take(modest, start).is_ok());
        let later = start + Duration::from_secs(1);
        let taken = (0..100).filter(|_| throttle.take(greedy, later).is_ok()).count();
        assert_eq!(taken, 10);
    }

    #[test]
    fn a_network_of_strangers_is_one() {
        let one = Payer::stranger("2001:db8:1:2::1".parse().unwrap());
        assert_eq!(one, Payer::stranger("2001:db8:1:2:ffff::9".parse().unwrap()));
        assert_ne!(one, Payer::stranger("2001:db8:1:3::1".parse().unwrap()));
        assert_eq!(
            Payer::stranger("::ffff:10.0.0.1".parse().unwrap()),
            Payer::stranger("10.0.0.1".parse().unwrap())
        );
    }
}
