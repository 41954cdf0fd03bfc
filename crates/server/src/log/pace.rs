//! How fast logs are collected, so that what one job or tenant writes costs the others nothing. Who wrote much is asked
//! again later; until then its node keeps what it wrote.

use std::collections::HashMap;
use std::time::Duration;

use tokio::time::Instant;

/// Bytes a second, of each.
#[derive(Debug, Clone, Copy)]
pub(super) struct Rates {
    pub job: u64,
    pub tenant: u64,
    pub platform: u64,
}

/// What was taken and not yet earned again.
#[derive(Debug, Clone, Copy)]
struct Debt {
    bytes: f64,
    at: Instant,
}

impl Debt {
    fn now(self, rate: u64, now: Instant) -> f64 {
        let earned = now.saturating_duration_since(self.at).as_secs_f64() * rate as f64;
        (self.bytes - earned).max(0.0)
    }
}

pub(super) struct Pace {
    rates: Rates,
    platform: Debt,
    tenants: HashMap<String, Debt>,
    jobs: HashMap<String, Debt>,
}

impl Pace {
    pub fn new(rates: Rates, now: Instant) -> Pace {
        Pace {
            rates,
            platform: Debt { bytes: 0.0, at: now },
            tenants: HashMap::new(),
            jobs: HashMap::new(),
        }
    }

    /// Notes what was taken, and says how long its source waits for it.
    pub fn took(&mut self, tenant: &str, job: &str, bytes: u64, now: Instant) -> Duration {
        let rates = self.rates;
        let owes = |debt: &mut Debt, rate: u64| {
            let bytes = debt.now(rate, now) + bytes as f64;
            *debt = Debt { bytes, at: now };
            Duration::from_secs_f64((bytes / rate as f64).min(3600.0))
        };
        let none = Debt { bytes: 0.0, at: now };
        let of_tenant = self.tenants.entry(tenant.to_owned()).or_insert(none);
        let of_job = self.jobs.entry(job.to_owned()).or_insert(none);
        let wait = owes(of_tenant, rates.tenant).max(owes(of_job, rates.job));
        // Together they may take what the platform can, and share it as they ask.
        let beyond = owes(&mut self.platform, rates.platform).saturating_sub(Duration::from_secs(1));
        wait.max(beyond)
    }

    /// Forgets who owes nothing.
    pub fn forget(&mut self, now: Instant) {
        let rates = self.rates;
        self.tenants.retain(|_, debt| debt.now(rates.tenant, now) > 0.0);
        self.jobs.retain(|_, debt| debt.now(rates.job, now) > 0.0);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const RATES: Rates = Rates {
        job: 100,
        tenant: 300,
        platform: 10_000,
    };

    #[test]
    fn who_writes_much_waits_and_nobody_else_does() {
        let start = Instant::now();
        let mut pace = Pace::new(RATES, start);
        assert_eq!(pace.took("loud", "a", 1000, start), Duration::from_secs(10));
        // Another job of the tenant waits for the tenant's part alone, and another tenant for nobody.
        assert_eq!(pace.took("loud", "b", 50, start).as_millis(), 3500);
        assert_eq!(pace.took("calm", "c", 10, start).as_millis(), 100);
        let later = start + Duration::from_secs(60);
        assert_eq!(pace.took("loud", "a", 10, later).as_millis(), 100);
        pace.forget(later + Duration::from_secs(60));
        assert!(pace.jobs.is_empty() && pace.tenants.is_empty());
    }

    #[test]
    fn all_together_take_no_more_than_the_platform_can() {
        let start = Instant::now();
        let mut pace = Pace::new(RATES, start);
        let waits = (0..100).map(|n| pace.took(&format!("t{n}"), &format!("j{n}"), 300, start));
        assert_eq!(waits.max(), Some(Duration::from_secs(3)));
    }
}
