//! A street with two traders: a studio with eight H100 of its own quota, and a startup with none.

use tenure_domain::booking::zone::Zone;
use tenure_domain::command::Observation;
use tenure_domain::id::{BidId, JobId, LeaseId, NodeId, OfferId, TenantId, UserId};
use tenure_domain::ledger::account::AccountId;
use tenure_domain::market::bid::{BidKind, BidSpec};
use tenure_domain::market::offer::{OfferSpec, Source};
use tenure_domain::market::window::Windows;
use tenure_domain::money::Micros;
use tenure_domain::tenancy::role::Role;
use tenure_domain::tenancy::scope::ScopeId;
use tenure_domain::workload::job::{Phase, StopReason};
use tenure_domain::workload::spec::{Demand, Isolation};
use tenure_domain::{Event, Refusal, Time, Wish};

use crate::world::{World, gpu, inventory, whole};

pub const HOUR_S: u64 = 3_600;

pub fn zone(name: &str) -> Option<Zone> {
    Zone::bundled(name).ok()
}

pub fn at(text: &str) -> Time {
    Time::parse_rfc3339(text).expect("a moment")
}

pub struct Trader {
    pub tenant: TenantId,
    pub user: UserId,
}

impl Trader {
    pub fn scope(&self) -> ScopeId {
        ScopeId::Tenant(self.tenant)
    }
}

pub struct Street {
    pub world: World,
    pub studio: Trader,
    pub startup: Trader,
    pub nodes: Vec<NodeId>,
}

pub const LEVELS: [Isolation; 3] = [Isolation::Guarded, Isolation::Fenced, Isolation::Exclusive];

/// What an offer has that says nothing else: half a unit by the hour, half an hour to eight, ten minutes' notice.
pub fn offer(gpu_milli: u64) -> OfferSpec {
    OfferSpec {
        class: "H100".into(),
        source: Source::Quota,
        gpu_milli,
        region: None,
        windows: Windows::Always,
        price: Micros(500_000),
        min_lease_s: HOUR_S / 2,
        max_lease_s: 8 * HOUR_S,
        notice_s: 600,
        buyers: None,
        isolation: Isolation::Fenced,
    }
}

/// Two hours at once, at a unit by the hour at most.
pub fn instant(gpu_milli: u64) -> BidSpec {
    BidSpec {
        class: "H100".into(),
        gpu_milli,
        duration_s: 2 * HOUR_S,
        price: Micros(1_000_000),
        kind: BidKind::Now { partial: false },
        region: None,
        min_isolation: None,
        min_reliability_permille: 0,
    }
}

pub fn demand(count: u32) -> Demand {
    Demand {
        class: Some("H100".into()),
        ..whole(count)
    }
}

impl Street {
    /// Two nodes of four GPUs; it is Monday, 2 March 2026, 09:00 UTC.
    pub fn new() -> Street {
        let mut world = World::new();
        let mut nodes = Vec::new();
        for name in ["one", "two"] {
            let gpus = (0..4).map(|n| gpu(&format!("{name}-{n}"), "H100", 80_000, &LEVELS));
            nodes.push(world.node(name, inventory(64_000, 512_000, gpus.collect())));
        }
        let studio = trader(&mut world, "studio", 8000);
        let startup = trader(&mut world, "startup", 0);
        Street {
            world,
            studio,
            startup,
            nodes,
        }
    }

    pub fn trader(&mut self, name: &str, gpu_milli: u64) -> Trader {
        trader(&mut self.world, name, gpu_milli)
    }

    pub fn offer(&mut self, by: UserId, seller: TenantId, spec: OfferSpec) -> Result<OfferId, Refusal> {
        let zone = match &spec.windows {
            Windows::Daily { zone: name, .. } => zone(name).map(Box::new),
            _ => None,
        };
        let spec = Box::new(spec);
        let events = self.world.by(by, Wish::MakeOffer { seller, spec, zone })?;
        match events.first() {
            Some(Event::OfferMade { offer }) => Ok(offer.id),
            other => panic!("nothing was offered: {other:?}"),
        }
    }

    pub fn studio_offers(&mut self, spec: OfferSpec) -> Result<OfferId, Refusal> {
        let Trader { tenant, user } = self.studio;
        self.offer(user, tenant, spec)
    }

    pub fn bid(&mut self, by: UserId, scope: ScopeId, spec: BidSpec) -> Result<Vec<Event>, Refusal> {
        let spec = Box::new(spec);
        self.world.by(by, Wish::PlaceBid { scope, spec })
    }

    pub fn startup_bids(&mut self, spec: BidSpec) -> Result<Vec<Event>, Refusal> {
        let (user, scope) = (self.startup.user, self.startup.scope());
        self.bid(user, scope, spec)
    }

    /// Second by second as the server has it; nodes do as they are told.
    pub fn until(&mut self, text: &str) -> Vec<Event> {
        let end = at(text);
        let mut all = Vec::new();
        while self.world.now < end {
            let far = end.since_ms(self.world.now) > 1_200_000;
            self.world.pass_s(if far { 60 } else { 1 });
            all.extend(self.tick());
        }
        all
    }

    pub fn tick(&mut self) -> Vec<Event> {
        let mut events = self
            .world
            .system(Wish::AdvanceMarket { zones: zone })
            .expect("nothing refuses time");
        self.obey();
        events.extend(self.world.schedule());
        events
    }

    fn obey(&mut self) {
        let jobs = self.world.state.jobs.values();
        let leaving = jobs.filter(|job| matches!(job.phase, Phase::Stopping | Phase::Pausing));
        let leaving: Vec<_> = leaving
            .map(|job| (job.id, job.phase, job.members.len() as u32))
            .collect();
        for (job, phase, members) in leaving {
            for member in 0..members {
                let Some((id, _)) = self.world.member(job, member) else {
                    continue;
                };
                let placed = self.world.state.fleet.allocation(id).map(|a| a.placed);
                let ran_ms = self.world.now.since_ms(placed.unwrap_or(self.world.now));
                let observation = match phase {
                    Phase::Pausing => Observation::Paused { ran_ms, usage: None },
                    _ => Observation::Exited {
                        exit_code: None,
                        signal: Some(15),
                        ran_ms,
                        by: Some(StopReason::Evicted),
                        usage: None,
                    },
                };
                self.world
                    .observe_member(job, member, observation)
                    .expect("taken");
            }
        }
    }

    pub fn runs(&mut self, job: JobId) {
        let members = self.world.state.jobs[&job].members.len() as u32;
        for member in 0..members {
            self.world
                .observe_member(job, member, Observation::Running)
                .expect("taken");
        }
    }

    pub fn phase(&self, job: JobId) -> Phase {
        self.world.state.jobs[&job].phase
    }

    /// What an account has, in micros.
    pub fn has(&self, account: AccountId) -> i64 {
        self.world.state.accounts.get(account).posted.0
    }

    pub fn of(&self, tenant: TenantId) -> i64 {
        self.has(AccountId::Tenant(tenant))
    }
}

fn trader(world: &mut World, name: &str, gpu_milli: u64) -> Trader {
    let scope = world.tenant(name);
    world.quota(scope, &[("gpu_milli@class:H100", gpu_milli)]);
    let user = world.user(scope, &format!("{name}-op"), Some(Role::Operator));
    match scope {
        ScopeId::Tenant(tenant) => Trader { tenant, user },
        other => panic!("{other} is not a tenant"),
    }
}

pub fn leases(events: &[Event]) -> Vec<LeaseId> {
    let began = events.iter().filter_map(|event| match event {
        Event::LeaseBegan { lease, .. } => Some(lease.id),
        _ => None,
    });
    began.collect()
}

pub fn bid_of(events: &[Event]) -> BidId {
    match events.first() {
        Some(Event::BidPlaced { bid }) => bid.id,
        other => panic!("no bid waits: {other:?}"),
    }
}
