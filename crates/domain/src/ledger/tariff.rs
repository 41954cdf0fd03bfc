//! What a job costs by the hour, at each level: the price list, then the platform's book for the tenant, then the
//! tenant's book for the subscriber. Pure; fixed for a job when it is admitted.
//!
//! Absent: what an interval costs (`rate.rs`), and whether there is money for it (admission).

use serde::{Deserialize, Serialize};

use super::account::AccountId;
use super::book::{Book, Books, KindPrice};
use super::clause::Clauses;
use super::price::Prices;
use crate::kind::Kind;
use crate::money::Micros;
use crate::tenancy::scope::ScopeId;
use crate::tenancy::tree::Tree;
use crate::time::Time;
use crate::workload::spec::{Demand, Isolation, JobSpec, Priority};

/// What a price depends on.
#[derive(Debug, Clone, Copy)]
pub struct Ask<'a> {
    pub demand: &'a Demand,
    /// GPUs of which class, with how much device memory in all; none where a booking pays for them.
    pub class: Option<&'a str>,
    pub vram_mib: u64,
    pub sku: Option<&'a str>,
    pub kind: Kind,
    pub priority: Priority,
}

impl<'a> Ask<'a> {
    pub fn of(spec: &'a JobSpec, class: Option<&'a str>, vram_mib: u64) -> Ask<'a> {
        Ask {
            demand: &spec.demand,
            class: class.filter(|_| spec.booking.is_none()),
            vram_mib,
            sku: spec.sku.as_deref().filter(|_| spec.booking.is_none()),
            kind: spec.kind,
            priority: spec.priority,
        }
    }

    fn isolation(&self) -> Isolation {
        self.demand.isolation
    }
}

/// A price by the hour for all members, and what of it depends on when and how much.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Tariff {
    pub hourly: Micros,
    pub clauses: Clauses,
}

/// What a subscriber pays its tenant for a job, beside what the tenant pays the platform.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Resale {
    pub from: AccountId,
    pub to: AccountId,
    /// Of the whole job.
    pub hourly: Micros,
    /// Set aside at the subscriber and below, in its prices.
    pub left: Micros,
    #[serde(default, skip_serializing_if = "Clauses::is_plain")]
    pub clauses: Clauses,
    /// The platform's part of it, which the tenant pays.
    #[serde(default, skip_serializing_if = "is_none")]
    pub fee_permille: u32,
}

fn is_none(permille: &u32) -> bool {
    *permille == 0
}

/// What one member costs by the hour: its host's part and its GPUs'.
#[derive(Debug, Clone, Copy)]
struct Parts {
    host: Micros,
    gpu: Micros,
}

impl Parts {
    fn listed(prices: &Prices, ask: &Ask<'_>) -> Parts {
        let cpu = Micros(prices.cpu_hour_micros).times_milli(ask.demand.cpu_milli.into());
        let memory = Micros(prices.memory_gib_hour_micros).times_milli(ask.demand.memory_mib * 1000 / 1024);
        let (milli, vram_mib) = gpus_of_one(ask);
        let gpu = class_of(ask).map(|class| prices.hourly_of_gpus(class, milli, vram_mib));
        Parts {
            host: Micros(cpu.0.saturating_add(memory.0)),
            gpu: gpu.unwrap_or_default(),
        }
    }

    /// By a book: what it names instead of what it does not, and its factors.
    fn by(self, book: &Book, ask: &Ask<'_>) -> Parts {
        let work = match book.kinds.get(&ask.kind) {
            Some(KindPrice::SecondPermille(permille)) => *permille,
            _ => 1000,
        };
        let spot = match ask.priority {
            Priority::Low => book.spot_permille,
            _ => 1000,
        };
        let isolation = book.isolation.get(&ask.isolation()).copied().unwrap_or(1000);
        let all = Factor::NONE.times(work).times(spot).times(isolation);
        if let Some(&micros) = ask.sku.and_then(|sku| book.skus.get(sku)) {
            return Parts {
                host: Micros::ZERO,
                gpu: all.of(Micros(micros)),
            };
        }
        let own = class_of(ask).and_then(|class| book.classes.get(class));
        let (milli, vram_mib) = gpus_of_one(ask);
        Parts {
            host: all.times(book.markup_permille).of(self.host),
            gpu: match own {
                Some(price) => all.of(price.hourly(milli, vram_mib)),
                None => all.times(book.markup_permille).of(self.gpu),
            },
        }
    }

    fn of_all(self, ask: &Ask<'_>) -> Micros {
        let members = i64::from(ask.demand.nodes.max(1));
        Micros(self.host.0.saturating_add(self.gpu.0).saturating_mul(members))
    }
}

fn class_of<'a>(ask: &Ask<'a>) -> Option<&'a str> {
    ask.class.filter(|_| ask.demand.gpus > 0)
}

fn gpus_of_one(ask: &Ask<'_>) -> (u64, u64) {
    let milli = u64::from(ask.demand.gpus) * u64::from(ask.demand.compute_permille);
    (milli, ask.vram_mib / u64::from(ask.demand.nodes.max(1)))
}

/// A product of factors in thousandths, rounded once and up, so that nothing is free by rounding.
#[derive(Debug, Clone, Copy)]
pub(super) struct Factor(i128);

impl Factor {
    const ONE: i128 = 1_000_000_000_000_000;
    pub(super) const NONE: Factor = Factor(Self::ONE);

    /// There are five at most, each of at most a hundred.
    pub(super) fn times(self, permille: u32) -> Factor {
        Factor((self.0 * i128::from(permille) + 999) / 1000)
    }

    pub(super) fn of(self, price: Micros) -> Micros {
        let total = (i128::from(price.0).saturating_mul(self.0)).saturating_add(Self::ONE - 1) / Self::ONE;
        Micros(i64::try_from(total).unwrap_or(i64::MAX))
    }
}

/// What the tenant of `owner` pays the platform, and what `owner`'s subscriber pays that tenant, if it has a book.
pub fn tariffs(
    prices: &Prices,
    books: &Books,
    tree: &Tree,
    owner: ScopeId,
    ask: &Ask<'_>,
    at: Time,
) -> (Tariff, Option<Resale>) {
    let listed = Parts::listed(prices, ask);
    let plain = |parts: Parts| Tariff {
        hourly: parts.of_all(ask),
        clauses: Clauses::default(),
    };
    if books.is_empty() {
        return (plain(listed), None);
    }
    let Some(tenant) = tree.tenant_of(owner) else {
        return (plain(listed), None);
    };
    let platform_book = books.at(ScopeId::Platform, ScopeId::Tenant(tenant), at);
    let paid = platform_book.map_or(listed, |book| listed.by(book, ask));
    let tariff = Tariff {
        hourly: paid.of_all(ask),
        clauses: platform_book.map_or_else(Clauses::default, |book| book.clauses(ask.kind)),
    };
    let subscriber = tree.chain(owner).find_map(|scope| match scope.id {
        ScopeId::Subscriber(id) => Some(id),
        _ => None,
    });
    let resale = subscriber.and_then(|id| {
        let book = books.at(ScopeId::Tenant(tenant), ScopeId::Subscriber(id), at)?;
        Some(Resale {
            from: AccountId::Subscriber(id),
            to: AccountId::Resale(tenant),
            hourly: paid.by(book, ask).of_all(ask),
            left: Micros::ZERO,
            clauses: book.clauses(ask.kind),
            fee_permille: platform_book.map_or(0, |book| book.fee_permille),
        })
    });
    (tariff, resale)
}

/// What whoever owns the work pays by the hour, in the prices of its own level.
pub fn own_hourly(
    prices: &Prices,
    books: &Books,
    tree: &Tree,
    owner: ScopeId,
    ask: &Ask<'_>,
    at: Time,
) -> Micros {
    let (tariff, resale) = tariffs(prices, books, tree, owner, ask, at);
    resale.map_or(tariff.hourly, |resale| resale.hourly)
}

/// What a booked window costs its tenant by the hour, `listed` being its price by the list. Of a class that the book
/// prices itself, GPUs count and their memory does not.
pub fn booked_hourly(
    books: &Books,
    tree: &Tree,
    owner: ScopeId,
    class: &str,
    gpu_milli: u64,
    listed: Micros,
    at: Time,
) -> Micros {
    let tenant = tree.tenant_of(owner).filter(|_| !books.is_empty());
    let book = tenant.and_then(|tenant| books.at(ScopeId::Platform, ScopeId::Tenant(tenant), at));
    let Some(book) = book else { return listed };
    let booked = Factor::NONE.times(book.booking_permille);
    match book.classes.get(class) {
        Some(price) => booked.of(price.hourly(gpu_milli, 0)),
        None => booked.times(book.markup_permille).of(listed),
    }
}
