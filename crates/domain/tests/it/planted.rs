//! The checks that every test of this room runs catch a scheduler that is blind to a limit: each property with its bug.
//! A bug is planted by letting decisions see a state without the limit; gangs in part are in `gang`, starving in `fair`.

use serde_json::Value;
use tenure_domain::id::UserId;
use tenure_domain::state::State;
use tenure_domain::tenancy::role::Role;
use tenure_domain::tenancy::scope::ScopeId;
use tenure_domain::workload::spec::{Demand, Isolation, JobSpec};

use crate::world::{World, gpu, inventory, slice, spec, whole};

/// One node of one GPU, and a user each of two tenants.
fn setting(levels: &[Isolation]) -> (World, [ScopeId; 2], [UserId; 2]) {
    let mut world = World::new();
    let tenants = ["acme", "bolt"].map(|name| world.tenant(name));
    let users = tenants.map(|tenant| world.user(tenant, "ada", Some(Role::Member)));
    let gpus = vec![gpu("one", "A10", 24_000, levels)];
    world.node("alpha", inventory(16_000, 64_000, gpus));
    (world, tenants, users)
}

/// The state, had every field of this name another value.
fn with(state: &State, field: &str, value: &Value) -> State {
    fn set(of: &mut Value, field: &str, value: &Value) {
        match of {
            Value::Object(fields) => fields.iter_mut().for_each(|(name, inner)| match name == field {
                true => *inner = value.clone(),
                false => set(inner, field, value),
            }),
            Value::Array(items) => items.iter_mut().for_each(|item| set(item, field, value)),
            _ => {}
        }
    }
    let mut text = serde_json::to_value(state).expect("a state encodes");
    set(&mut text, field, value);
    let mut seen: State = serde_json::from_value(text).expect("a state decodes");
    seen.rebuild_indexes();
    seen
}

fn at(isolation: Isolation, demand: Demand) -> JobSpec {
    spec("job", Demand { isolation, ..demand }, 600)
}

fn over_committed(blind: Option<fn(&State) -> State>) {
    let (mut world, _, [ada, _]) = setting(&[Isolation::Guarded]);
    world
        .submit(ada, at(Isolation::Guarded, slice(600, 8_000)))
        .expect("taken");
    world.blind = blind;
    let second = world
        .submit(ada, at(Isolation::Guarded, slice(600, 8_000)))
        .expect("taken");
    assert!(world.allocation(second).is_none());
}

#[test]
fn a_gpu_is_given_once() {
    over_committed(None);
}

#[test]
#[should_panic(expected = "over-committed")]
fn blind_to_use() {
    over_committed(Some(|state| with(state, "used_permille", &0.into())));
}

fn over_quota(blind: Option<fn(&State) -> State>) {
    let (mut world, [acme, _], [ada, _]) = setting(&[Isolation::Guarded]);
    world.quota(acme, &[("gpu_milli", 500)]);
    world.blind = blind;
    let job = world.submit(ada, at(Isolation::Guarded, slice(600, 8_000)));
    assert!(job.is_err());
}

#[test]
fn a_quota_is_not_passed() {
    over_quota(None);
}

#[test]
#[should_panic(expected = "is over its quota of gpu_milli")]
fn blind_to_quotas() {
    over_quota(Some(|state| with(state, "quota", &serde_json::json!({}))));
}

fn beside_another(first: Isolation, blind: Option<fn(&State) -> State>) {
    let (mut world, _, [ada, bob]) = setting(&[Isolation::Guarded, Isolation::Fenced, Isolation::Exclusive]);
    let demand = if first == Isolation::Exclusive {
        whole(1)
    } else {
        slice(300, 4_000)
    };
    world.submit(ada, at(first, demand)).expect("taken");
    world.blind = blind;
    let second = world
        .submit(bob, at(Isolation::Guarded, slice(300, 4_000)))
        .expect("taken");
    let placed = world
        .allocation(second)
        .and_then(|(id, _)| world.state.fleet.allocation(id));
    assert!(
        placed.is_none_or(|placed| first != Isolation::Exclusive && placed.isolation >= Isolation::Fenced)
    );
}

#[test]
fn exclusive_means_exclusive() {
    beside_another(Isolation::Exclusive, None);
}

#[test]
#[should_panic(expected = "over-committed")]
fn blind_to_the_exclusive() {
    beside_another(
        Isolation::Exclusive,
        Some(|state| {
            let seen = with(state, "holders", &serde_json::json!([]));
            let seen = with(&seen, "used_vram_mib", &0.into());
            with(&seen, "used_permille", &0.into())
        }),
    );
}

fn without_walls(blind: Option<fn(&State) -> State>) {
    let (mut world, _, [ada, bob]) = setting(&[Isolation::Guarded]);
    world
        .submit(ada, at(Isolation::Guarded, slice(300, 4_000)))
        .expect("taken");
    world.blind = blind;
    let second = world
        .submit(bob, at(Isolation::Guarded, slice(300, 4_000)))
        .expect("taken");
    assert!(world.allocation(second).is_none());
}

#[test]
fn tenants_meet_behind_walls_alone() {
    without_walls(None);
}

#[test]
#[should_panic(expected = "without walls or consent")]
fn blind_to_consent() {
    without_walls(Some(|state| {
        with(state, "policy", &serde_json::json!({ "share_guarded": true }))
    }));
}
