//! A platform in memory: decide and apply, with nodes that do as they are told.

use tenure_domain::booking::record::{BookingSpec, Size};
use tenure_domain::booking::recurrence::Recurrence;
use tenure_domain::booking::zone::{Wall, Zone};
use tenure_domain::id::{Ids, NodeId, UserId};
use tenure_domain::schedule::fleet::{GpuFacts, Inventory};
use tenure_domain::tenancy::key::Digest;
use tenure_domain::tenancy::role::Role;
use tenure_domain::tenancy::scope::{ScopeId, UserKind};
use tenure_domain::workload::spec::Isolation;
use tenure_domain::{Actor, Command, Event, Refusal, State, Time, Wish, decide};

pub const CLASS: &str = "H100";
/// Thursday, 1 January 2026.
pub const YEAR: Time = Time(1_767_225_600_000);

pub struct Cell {
    pub state: State,
    pub at: Time,
    ids: u64,
    pub users: Vec<UserId>,
    pub nodes: Vec<NodeId>,
}

impl Cell {
    /// So many nodes of eight GPUs, and users of ten tenants.
    pub fn new(nodes: usize, users: usize) -> Cell {
        let mut cell = Cell {
            state: State::default(),
            at: YEAR,
            ids: 1 << 22,
            users: Vec::new(),
            nodes: Vec::new(),
        };
        cell.system(Wish::Found {
            platform: "cell".into(),
            owner: "root".into(),
            key: Digest([1; 32]),
            prices: Default::default(),
        });
        let tenants: Vec<ScopeId> = (0..10)
            .filter_map(|tenant| {
                cell.scope(Wish::CreateTenant {
                    name: format!("tenant-{tenant}"),
                })
            })
            .collect();
        for user in 0..users {
            let made = cell.scope(Wish::CreateUser {
                parent: tenants[user % tenants.len()],
                name: format!("user-{user}"),
                kind: UserKind::Person,
                identity: None,
                role: Some(Role::Member),
            });
            if let Some(ScopeId::User(user)) = made {
                cell.users.push(user);
            }
        }
        for node in 0..nodes {
            cell.join(node);
        }
        cell
    }

    fn join(&mut self, number: usize) {
        let mut digest = [2; 32];
        digest[..8].copy_from_slice(&(number as u64).to_le_bytes());
        let (token, key) = (Digest(digest), Digest(digest.map(|byte| byte ^ 0x80)));
        let expires = self.at.plus_ms(60_000);
        self.system(Wish::CreateJoinToken {
            digest: token,
            expires,
            tenant: None,
        });
        let joined = self.system(Wish::JoinNode {
            token,
            name: format!("node-{number}"),
            key,
        });
        let Some(Event::NodeJoined { node, .. }) = joined.first() else {
            return;
        };
        let gpu = |gpu: usize| GpuFacts {
            uuid: format!("{number}-{gpu}"),
            vendor: "acme".into(),
            model: CLASS.into(),
            class: CLASS.into(),
            vram_mib: 81_920,
            isolation: [(Isolation::Exclusive, "a whole device".to_owned())].into(),
            hardware: None,
        };
        let inventory = Inventory {
            cpu_milli: 128_000,
            memory_mib: 1 << 20,
            gpus: (0..8).map(gpu).collect(),
            ..Inventory::default()
        };
        let node = *node;
        self.nodes.push(node);
        self.system(Wish::ReportInventory { node, inventory });
    }

    pub fn act(&mut self, by: Actor, wish: Wish) -> Result<Vec<Event>, Refusal> {
        let command = Command {
            at: self.at,
            by,
            ids: self.ids,
            wish,
        };
        self.ids += Ids::BLOCK;
        let events = decide(&self.state, &command)?;
        for event in &events {
            self.state.apply(self.at, event);
        }
        Ok(events)
    }

    /// What nobody refuses.
    pub fn system(&mut self, wish: Wish) -> Vec<Event> {
        self.act(Actor::System, wish).unwrap_or_default()
    }

    fn scope(&mut self, wish: Wish) -> Option<ScopeId> {
        self.system(wish).iter().find_map(|event| match event {
            Event::ScopeCreated { scope, .. } => Some(*scope),
            _ => None,
        })
    }
}

pub fn zone(name: &str) -> Option<Zone> {
    Zone::bundled(name).ok()
}

/// A booking of GPUs that begins so many minutes into the year.
pub fn gpus(
    name: String,
    size: Size,
    minute: u64,
    length_min: u64,
    rule: Option<&str>,
) -> Option<BookingSpec> {
    let zone = zone("UTC")?;
    let wall = |minute: u64| zone.wall(YEAR.plus_ms(minute * 60_000)).map(Wall);
    Some(BookingSpec {
        name: name.into(),
        class: CLASS.into(),
        size,
        region: None,
        recurrence: Recurrence {
            rule: rule.and_then(|rule| rule.parse().ok()),
            ..Recurrence::once(wall(minute)?)
        },
        end: wall(minute + length_min)?,
    })
}

/// Xorshift64*, so that a run is replayed by its seed alone.
pub struct Chance(pub u64);

impl Chance {
    pub fn below(&mut self, n: u64) -> u64 {
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        (self.0.wrapping_mul(0x2545_f491_4f6c_dd1d) >> 11) % n.max(1)
    }
}
