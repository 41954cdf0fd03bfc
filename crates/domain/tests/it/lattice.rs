//! Nobody gains by a grant what the grantor lacked, and nobody learns of what is not theirs.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use tenure_domain::command::{Observation, Ran};
use tenure_domain::id::{
    AllocationId, JobId, KeyId, NodeId, SecretId, SessionId, SubscriberId, TenantId, UserId, VolumeId,
};
use tenure_domain::tenancy::authorize::effective;
use tenure_domain::tenancy::role::{Action, Role, permitted};
use tenure_domain::tenancy::scope::{Identity, ScopeId, UserKind};
use tenure_domain::workload::job::StopReason;
use tenure_domain::workload::session::{SessionEnd, SessionKind};
use tenure_domain::{Actor, Command, Event, State, Wish, decide};

use crate::chance::{Chance, Replay, number_from_env};
use crate::world::{World, amounts, cpu, digest, gpu, inventory, spec};

fn bit(action: Action) -> u32 {
    1 << (action as u32)
}

fn bits(actions: &BTreeSet<Action>) -> u32 {
    actions.iter().fold(0, |sum, &action| sum | bit(action))
}

/// By roles alone, walking up by hand: what each user may do at each scope.
fn rights(state: &State, masks: &[u32]) -> BTreeMap<(UserId, ScopeId), u32> {
    let mut all = BTreeMap::new();
    for scope in state.tree.iter() {
        let mut next = Some(scope.id);
        while let Some(place) = next.and_then(|id| state.tree.get(id)) {
            for (user, roles) in &place.roles {
                *all.entry((*user, scope.id)).or_default() |=
                    roles.iter().fold(0, |sum, &role| sum | masks[role as usize]);
            }
            next = place.parent;
        }
    }
    all
}

fn right(rights: &BTreeMap<(UserId, ScopeId), u32>, user: UserId, scope: ScopeId) -> u32 {
    rights.get(&(user, scope)).copied().unwrap_or(0)
}

fn start() -> World {
    let mut world = World::new();
    world.thorough = false;
    for (tenant, sub) in [("acme", "lab"), ("brio", "ops")] {
        let tenant = world.tenant(tenant);
        let sub = world.subscriber(tenant, sub);
        world.user(tenant, "owner", Some(Role::Owner));
        world.user(tenant, "operator", Some(Role::Operator));
        world.user(sub, "head", Some(Role::Operator));
        world.user(sub, "member", Some(Role::Member));
    }
    world.user(ScopeId::Platform, "staff", Some(Role::Operator));
    world.user(ScopeId::Platform, "books", Some(Role::Billing));
    world
}

fn random_wish(world: &World, chance: &mut Chance, n: u64) -> (Actor, Wish) {
    let scopes: Vec<ScopeId> = world.state.tree.iter().map(|scope| scope.id).collect();
    let users: Vec<UserId> = scopes
        .iter()
        .filter_map(|id| {
            if let ScopeId::User(user) = id {
                Some(*user)
            } else {
                None
            }
        })
        .collect();
    let (scope, user, role) = (chance.of(&scopes), chance.of(&users), chance.of(Role::ALL));
    let allow: Option<BTreeSet<Action>> = chance
        .one_in(4)
        .then(|| Action::ALL.iter().copied().filter(|_| chance.one_in(2)).collect());
    let by = Actor::User {
        user: chance.of(&users),
        key: None,
        allow,
    };
    let wish = match chance.below(10) {
        0..3 => Wish::GrantRole { scope, user, role },
        3 => {
            let held: Vec<_> = world
                .state
                .tree
                .iter()
                .flat_map(|s| {
                    s.roles
                        .iter()
                        .flat_map(move |(user, roles)| roles.iter().map(move |role| (s.id, *user, *role)))
                })
                .collect();
            let (scope, user, role) = chance.of(&held);
            Wish::RevokeRole { scope, user, role }
        }
        4 | 5 => Wish::CreateUser {
            parent: scope,
            name: format!("u{n}"),
            kind: UserKind::Service,
            identity: None,
            role: Some(role),
        },
        6 => Wish::CreateKey {
            user,
            label: "k".into(),
            digest: digest(1000 + n),
            expires: None,
            allow: chance
                .one_in(2)
                .then(|| [Action::ScopeRead, Action::KeyManage].into()),
        },
        7 => Wish::SetIdentity {
            user,
            identity: Some(Identity {
                issuer: "https://id".into(),
                subject: "me".into(),
            }),
        },
        _ => Wish::Move {
            scope,
            parent: chance.of(&scopes),
        },
    };
    (by, wish)
}

#[test]
fn nobody_gains_what_the_grantor_lacked() {
    let sequences = number_from_env("TENURE_PROPERTY_SEQUENCES", 10_000);
    let first = number_from_env("TENURE_PROPERTY_SEED", 1);
    let masks: Vec<u32> = Role::ALL.iter().map(|&role| bits(permitted(role))).collect();
    let template = start();
    let mut accepted = BTreeMap::<&str, u64>::new();
    for seed in first..first + sequences {
        let mut replay = Replay { seed, step: 0 };
        let mut chance = Chance::new(seed);
        let mut world = World {
            state: template.state.clone(),
            now: template.now,
            next: template.next,
            blind: None,
            thorough: false,
            retired: vec![],
            root: template.root,
            had: Default::default(),
        };
        let mut before = rights(&world.state, &masks);
        for step in 0..10 {
            replay.step = step;
            let (by, wish) = random_wish(&world, &mut chance, step);
            let Some(actor) = by.user_id() else { continue };
            let Actor::User { allow, .. } = &by else { continue };
            let key = allow.as_ref().map_or(u32::MAX, bits);
            let known: BTreeSet<ScopeId> = world.state.tree.iter().map(|scope| scope.id).collect();
            if world.act(by.clone(), wish.clone()).is_err() {
                continue;
            }
            let after = rights(&world.state, &masks);
            for ((user, scope), has) in &after {
                // At a scope that is new, what reaches it from its parent is nobody's gain.
                let held = match &wish {
                    Wish::CreateUser { parent, .. } if !known.contains(scope) => {
                        right(&before, *user, *parent)
                    }
                    _ => right(&before, *user, *scope),
                };
                let gained = has & !held;
                let Wish::Move { parent, .. } = &wish else {
                    let there = if known.contains(scope) {
                        *scope
                    } else {
                        world
                            .state
                            .tree
                            .get(*scope)
                            .and_then(|scope| scope.parent)
                            .unwrap_or(*scope)
                    };
                    let lacked = gained & !(right(&before, actor, there) & key);
                    assert_eq!(
                        lacked, 0,
                        "{user} gained {lacked:#b} at {scope}, which {actor} lacked: {wish:?}"
                    );
                    continue;
                };
                // A moved scope comes under those who are above its new place, and under nobody else.
                assert_eq!(
                    gained & !right(&before, *user, *parent),
                    0,
                    "{user} gained at {scope} by a move: {wish:?}"
                );
            }
            if let Wish::CreateKey { user, .. } | Wish::SetIdentity { user, .. } = &wish {
                for ((whose, scope), has) in before.iter().filter(|_| *user != actor) {
                    assert!(
                        whose != user || has & !right(&before, actor, *scope) == 0,
                        "{actor} became {user}, who may more at {scope}"
                    );
                }
                assert!(
                    within_key(&wish, key),
                    "a limited key made something wider: {wish:?}"
                );
            }
            let name = match &wish {
                Wish::GrantRole { .. } => "grant",
                Wish::RevokeRole { .. } => "revoke",
                Wish::CreateUser { .. } => "user",
                Wish::CreateKey { .. } => "key",
                Wish::SetIdentity { .. } => "identity",
                _ => "move",
            };
            *accepted.entry(name).or_default() += 1;
            before = after;
        }
    }
    println!("{sequences} sequences, accepted: {accepted:?}");
    assert!(
        sequences < 1000 || (accepted.len() == 6 && accepted.values().all(|&n| n > sequences / 100)),
        "{accepted:?}"
    );
}

fn within_key(wish: &Wish, key: u32) -> bool {
    match wish {
        Wish::CreateKey {
            allow: Some(asked), ..
        } => bits(asked) & !key == 0,
        _ => key == u32::MAX,
    }
}

#[test]
fn effective_is_roles_above_and_oneself() {
    let world = start();
    let masks: Vec<u32> = Role::ALL.iter().map(|&role| bits(permitted(role))).collect();
    let all = rights(&world.state, &masks);
    let own = bits(
        &[
            Action::ScopeRead,
            Action::KeyManage,
            Action::JobRead,
            Action::JobStop,
            Action::JobAttach,
            Action::JobExec,
            Action::JobPort,
            Action::ServiceUse,
            Action::CostRead,
            Action::SecretWrite,
            Action::MetricRead,
        ]
        .into(),
    );
    for scope in world.state.tree.iter() {
        for user in world.state.tree.iter().filter_map(|s| {
            if let ScopeId::User(user) = s.id {
                Some(user)
            } else {
                None
            }
        }) {
            let own = if scope.id == ScopeId::User(user) { own } else { 0 };
            assert_eq!(
                bits(&effective(&world.state.tree, user, scope.id)),
                right(&all, user, scope.id) | own
            );
        }
    }
}

/// Everything in a tenant that another tenant's owner must not learn of.
struct Ids {
    tenant: ScopeId,
    sub: ScopeId,
    user: UserId,
    key: KeyId,
    job: JobId,
    node: NodeId,
    allocation: AllocationId,
    volume: VolumeId,
}

fn wishes(ids: &Ids, mine: ScopeId, me: UserId) -> Vec<Wish> {
    let home = ScopeId::User(ids.user);
    let (node, role) = (ids.node, Role::Member);
    let identity = Some(Identity {
        issuer: "https://id".into(),
        subject: "x".into(),
    });
    let mut all = vec![
        Wish::CreateSubscriber {
            tenant: ids.tenant,
            name: "x".into(),
        },
        Wish::SetIdentity {
            user: ids.user,
            identity,
        },
        Wish::GrantRole {
            scope: mine,
            user: ids.user,
            role,
        },
        Wish::RevokeRole {
            scope: mine,
            user: ids.user,
            role,
        },
        Wish::CreateKey {
            user: ids.user,
            label: "k".into(),
            digest: digest(9),
            expires: None,
            allow: None,
        },
        Wish::RevokeKey { key: ids.key },
        Wish::Move {
            scope: ScopeId::User(me),
            parent: ids.tenant,
        },
        Wish::ReportInventory {
            node,
            inventory: inventory(1000, 1000, vec![]),
        },
        Wish::LoseNode { node },
        Wish::ReturnNode { node },
        Wish::CordonNode { node },
        Wish::UncordonNode { node },
        Wish::AddNodeKey { node, key: digest(7) },
        Wish::RevokeNodeKey { node, key: digest(7) },
        Wish::RemoveNode { node },
        Wish::Submit {
            owner: ids.user,
            spec: Arc::new(spec("x", cpu(100), 10)),
            trace: None,
        },
        Wish::Stop {
            job: ids.job,
            reason: StopReason::Cancelled,
        },
        Wish::Resize {
            job: ids.job,
            compute_permille: Some(100),
            vram_mib: Some(100),
        },
        Wish::OpenSession {
            job: ids.job,
            member: 0,
            kind: SessionKind::Attach,
            from: "192.0.2.1".into(),
        },
        Wish::EndSession {
            session: SessionId(1),
            end: SessionEnd {
                bytes_in: 0,
                bytes_out: 0,
                exit_code: None,
                signal: None,
                why: "gone".into(),
            },
        },
        Wish::GrowVolume {
            volume: ids.volume,
            size_mib: 64,
            revision: None,
        },
        Wish::RemoveVolume { volume: ids.volume },
        Wish::NoteVolumeErased {
            node,
            volume: ids.volume,
        },
        Wish::Observe {
            node,
            allocation: ids.allocation,
            observation: Observation::Running,
        },
        Wish::Meter {
            node,
            ran: vec![Ran {
                allocation: ids.allocation,
                ran_ms: 5000,
                usage: None,
            }],
        },
    ];
    for scope in [ids.tenant, ids.sub, home] {
        all.extend([
            Wish::CreateUser {
                parent: scope,
                name: "x".into(),
                kind: UserKind::Person,
                identity: None,
                role: Some(role),
            },
            Wish::Suspend { scope },
            Wish::Resume { scope },
            Wish::Move { scope, parent: mine },
            Wish::Close { scope },
            Wish::GrantRole {
                scope,
                user: me,
                role,
            },
            Wish::RevokeRole {
                scope,
                user: me,
                role,
            },
            Wish::SetQuota {
                scope,
                quota: amounts(&[("jobs", 1)]),
                revision: None,
            },
            Wish::SetBudgets {
                scope,
                budgets: vec![],
                revision: Some(1),
            },
            Wish::SetPolicy {
                scope,
                policy: Default::default(),
                revision: None,
            },
            Wish::SetRules {
                scope,
                rules: String::new(),
                revision: None,
            },
            Wish::StoreSecret {
                scope,
                name: "token".into(),
                secret: SecretId(5),
            },
            Wish::EraseSecret {
                scope,
                name: "token".into(),
            },
            Wish::CreateVolume {
                scope,
                name: "data".into(),
                size_mib: 64,
            },
        ]);
    }
    all
}

fn name_of(wish: &Wish) -> String {
    format!("{wish:?}")
        .split([' ', '{'])
        .next()
        .unwrap_or_default()
        .to_owned()
}

#[test]
fn foreign_objects_answer_like_absent_ones() {
    let mut world = start();
    let tenant = world.tenant("third");
    let sub = world.subscriber(tenant, "unit");
    let user = world.user(sub, "victim", Some(Role::Owner));
    let node = world.node("n1", inventory(8000, 8000, vec![gpu("u1", "A10", 24_000, &[])]));
    let job = world.submit(user, spec("theirs", cpu(100), 100)).expect("a job");
    let (allocation, _) = world.allocation(job).expect("it started");
    let made = world
        .by(
            user,
            Wish::CreateKey {
                user,
                label: "k".into(),
                digest: digest(55),
                expires: None,
                allow: None,
            },
        )
        .expect("a key");
    let Some(Event::KeyCreated { key }) = made.first() else {
        panic!("no key")
    };
    world
        .by(
            user,
            Wish::StoreSecret {
                scope: ScopeId::User(user),
                name: "token".into(),
                secret: SecretId(world.next),
            },
        )
        .expect("a secret");
    let made = world
        .root(Wish::CreateVolume {
            scope: tenant,
            name: "theirs".into(),
            size_mib: 32,
        })
        .expect("a volume");
    let Event::VolumeCreated { volume, .. } = made[0] else {
        panic!("no volume")
    };
    let foreign = Ids {
        tenant,
        sub,
        user,
        key: key.id,
        job,
        node,
        allocation,
        volume,
    };
    let absent = Ids {
        tenant: ScopeId::Tenant(TenantId(11)),
        sub: ScopeId::Subscriber(SubscriberId(12)),
        user: UserId(13),
        key: KeyId(14),
        job: JobId(15),
        node: NodeId(16),
        allocation: AllocationId(17),
        volume: VolumeId(18),
    };
    let mine = world
        .state
        .tree
        .child_named(ScopeId::Platform, "acme")
        .expect("a tenant");
    let actors = ["owner", "operator"].map(|name| world.state.tree.child_named(mine, name).expect("a user"));
    let mut named = BTreeSet::new();
    for actor in actors {
        let ScopeId::User(me) = actor else {
            panic!("not a user")
        };
        let limited = Actor::User {
            user: me,
            key: None,
            allow: Some([Action::ScopeRead, Action::JobStop].into()),
        };
        for by in [Actor::user(me), limited, Actor::Node(NodeId(99))] {
            for (theirs, nobodys) in wishes(&foreign, mine, me)
                .into_iter()
                .zip(wishes(&absent, mine, me))
            {
                named.insert(name_of(&theirs));
                let ask = |wish: Wish| {
                    decide(
                        &world.state,
                        &Command {
                            at: world.now,
                            by: by.clone(),
                            ids: world.next,
                            wish,
                        },
                    )
                };
                let shown = format!("{theirs:?}");
                let (there, nowhere) = (ask(theirs), ask(nobodys));
                assert_eq!(there, nowhere, "{by}: {shown}");
                assert!(
                    there.as_ref().err().is_some() || there == Ok(vec![]),
                    "{by}: {shown}"
                );
            }
        }
    }
    // Every wish that takes an id is asked above.
    let source = include_str!("../../src/command.rs");
    let source = &source[source.find("pub enum Wish").expect("the wishes")
        ..source.find("pub enum Observation").expect("the observations")];
    let takes_id = |line: &&str| {
        line.contains(" { ")
            && ["ScopeId", "UserId", "KeyId", "JobId", "NodeId", "AllocationId"]
                .iter()
                .any(|id| line.contains(id))
    };
    for line in source.lines().filter(takes_id) {
        let name = line.trim().split(' ').next().unwrap_or_default();
        assert!(named.contains(name), "{name} is asked with a foreign id");
    }
}

#[test]
fn a_node_speaks_for_itself_alone() {
    let mut world = start();
    let node = world.node("n1", inventory(8000, 8000, vec![]));
    let other = world.node("n2", inventory(8000, 8000, vec![]));
    let refused = [
        Wish::CreateTenant { name: "mine".into() },
        Wish::SetPrices {
            prices: Default::default(),
        },
        Wish::CordonNode { node },
        Wish::RemoveNode { node },
        Wish::LoseNode { node: other },
        Wish::ReportInventory {
            node: other,
            inventory: inventory(1, 1, vec![]),
        },
        Wish::Schedule { job: JobId(1) },
        Wish::Promise { job: JobId(1) },
        Wish::Withdraw,
        Wish::AdvanceBookings { zones: |_| None },
        Wish::ResolveBookings {
            zones: |_| None,
            edition: "2026a",
        },
        Wish::CountRefusals { counts: vec![] },
        Wish::GrantRole {
            scope: ScopeId::Platform,
            user: world.root,
            role: Role::Owner,
        },
    ];
    for wish in refused {
        assert!(world.act(Actor::Node(node), wish.clone()).is_err(), "{wish:?}");
    }
    // Of another node's work it may say nothing, whether it names that node or itself.
    let lab = world.tenant("third");
    let user = world.user(lab, "ada", Some(Role::Member));
    let job = world.submit(user, spec("theirs", cpu(100), 100)).expect("taken");
    let (allocation, home) = world.allocation(job).expect("it started");
    let stranger = if home == node { other } else { node };
    world.pass_s(5);
    for named in [home, stranger] {
        let observe = Wish::Observe {
            node: named,
            allocation,
            observation: Observation::Vanished,
        };
        assert_eq!(
            world.act(Actor::Node(stranger), observe),
            Err(tenure_domain::Refusal::not_found())
        );
        let meter = Wish::Meter {
            node: named,
            ran: vec![Ran {
                allocation,
                ran_ms: 5000,
                usage: None,
            }],
        };
        assert_eq!(world.act(Actor::Node(stranger), meter), Ok(vec![]));
    }
    let owner = world.root;
    for wish in [
        Wish::Schedule { job: JobId(1) },
        Wish::Promise { job: JobId(1) },
        Wish::Withdraw,
        Wish::AdvanceBookings { zones: |_| None },
        Wish::ResolveBookings {
            zones: |_| None,
            edition: "2026a",
        },
        Wish::CountRefusals { counts: vec![] },
    ] {
        assert!(world.by(owner, wish.clone()).is_err(), "{wish:?}");
    }
}
