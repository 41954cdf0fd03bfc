//! Receipts of scrubs: each noted once; a device that could not be cleaned gets no work until it is released, also
//! when it was away meanwhile.

use tenure_domain::id::{AllocationId, NodeId};
use tenure_domain::schedule::receipt::Receipt;
use tenure_domain::tenancy::role::Role;
use tenure_domain::workload::spec::Isolation;
use tenure_domain::{Actor, Code, Event, Wish};

use crate::world::{World, digest, gpu, inventory, slice, spec};

fn receipt(number: u64, device: &str, fault: Option<&str>) -> Box<Receipt> {
    Box::new(Receipt {
        number,
        device: device.into(),
        from: ["ten_a".to_owned()].into(),
        to: "ten_b".into(),
        allocation: AllocationId(1),
        at_ms: 0,
        took_ms: 1,
        bytes: 1,
        local_bytes: 1,
        compute_units: 1,
        missed_bytes: 0,
        fault: fault.map(str::to_owned),
        key: digest(1),
        public_key: "04".into(),
        signature: "30".into(),
    })
}

fn kinds(events: &[Event]) -> Vec<&str> {
    events.iter().map(Event::kind).collect()
}

fn with_one_card() -> (World, NodeId) {
    let mut world = World::new();
    let node = world.node("n", inventory(8000, 65_536, vec![card()]));
    (world, node)
}

fn card() -> tenure_domain::schedule::fleet::GpuFacts {
    gpu("card", "T4", 16_000, &[Isolation::Guarded, Isolation::Fenced])
}

#[test]
fn each_is_noted_once() {
    let (mut world, node) = with_one_card();
    let note = |receipt| Wish::NoteScrub { node, receipt };
    let first = world
        .act(Actor::Node(node), note(receipt(1, "card", None)))
        .unwrap();
    assert_eq!(kinds(&first), ["DeviceScrubbed"]);
    for number in [1, 0] {
        let again = world.act(Actor::Node(node), note(receipt(number, "card", None)));
        assert!(again.is_err() || again.unwrap().is_empty(), "{number}");
    }
    let third = world
        .act(Actor::Node(node), note(receipt(3, "card", None)))
        .unwrap();
    assert_eq!(kinds(&third), ["DeviceScrubbed"], "one may be lost");
    let absent = world.act(Actor::Node(node), note(receipt(4, "other", None)));
    assert_eq!(absent.unwrap_err().code, Code::NotFound);
    let mut forged = receipt(5, "card", None);
    forged.to = "ten_b\nclean".into();
    assert_eq!(
        world.act(Actor::Node(node), note(forged)).unwrap_err().code,
        Code::InvalidField
    );
    let stranger = world.node("m", inventory(8000, 65_536, vec![]));
    let told = world.act(Actor::Node(stranger), note(receipt(6, "card", None)));
    assert_eq!(told.unwrap_err().code, Code::NotFound, "a node speaks for itself");
}

#[test]
fn what_cannot_be_cleaned_gets_no_work_until_it_is_released() {
    let (mut world, node) = with_one_card();
    let acme = world.tenant("acme");
    let ada = world.user(acme, "ada", Some(Role::Member));
    let failed = Wish::NoteScrub {
        node,
        receipt: receipt(1, "card", Some("stuck")),
    };
    let events = world.act(Actor::Node(node), failed).unwrap();
    assert_eq!(kinds(&events), ["DeviceScrubbed", "GpuQuarantined"]);
    let job = world.submit(ada, spec("j", slice(300, 1000), 60)).unwrap();
    assert_eq!(world.allocation(job), None);
    // Away and back again, it is the same device.
    for gpus in [vec![], vec![card()]] {
        let seen = inventory(8000, 65_536, gpus);
        let wish = Wish::ReportInventory {
            node,
            inventory: seen,
        };
        world.act(Actor::Node(node), wish).unwrap();
    }
    world.schedule();
    assert_eq!(world.allocation(job), None);
    let card = world.state.fleet.node(node).unwrap().gpus[0].id;
    let refused = world.by(ada, Wish::ReleaseGpu { gpu: card });
    assert!(refused.is_err(), "not for a tenant to say");
    let released = world.root(Wish::ReleaseGpu { gpu: card }).unwrap();
    assert_eq!(kinds(&released), ["GpuReleased"]);
    assert_eq!(world.root(Wish::ReleaseGpu { gpu: card }).unwrap(), []);
    world.schedule();
    assert!(world.allocation(job).is_some());
}
