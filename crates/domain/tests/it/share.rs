//! Shares: who may set them, what they may say, and stories of quotas per class, lending and waiting, with recorded
//! output in `tests/scenarios/`.

use tenure_domain::id::{JobId, UserId};
use tenure_domain::tenancy::role::Role;
use tenure_domain::tenancy::scope::ScopeId;
use tenure_domain::tenancy::share::{Nominal, Share};
use tenure_domain::time::HOUR_MS;
use tenure_domain::workload::spec::{Demand, Isolation};
use tenure_domain::{Code, Event, Refusal, Wish};

use crate::story::Story;
use crate::world::{World, gpu, inventory, spec, whole};

const WHOLE: [Isolation; 1] = [Isolation::Exclusive];

fn sure(gpus: u64, borrow: Option<u64>, lend: Option<u64>) -> Share {
    let nominal = Nominal {
        gpu_milli: gpus * 1000,
        borrow_milli: borrow.map(|gpus| gpus * 1000),
        lend_milli: lend.map(|gpus| gpus * 1000),
    };
    Share {
        nominal: [("H100".into(), nominal)].into(),
        ..Share::default()
    }
}

fn set(scope: ScopeId, share: Share) -> Wish {
    Wish::SetShare {
        scope,
        share,
        revision: None,
    }
}

fn on(class: &str, gpus: u32) -> Demand {
    Demand {
        class: Some(class.into()),
        ..whole(gpus)
    }
}

/// A cell of some H100 and L40S.
fn cell(h100: usize, l40s: usize) -> World {
    let mut world = World::new();
    let cards = |class: &'static str, vram, count| {
        (0..count).map(move |n| gpu(&format!("{class}-{n}"), class, vram, &WHOLE))
    };
    let all = cards("H100", 80_000, h100).chain(cards("L40S", 48_000, l40s));
    world.node("alpha", inventory(64_000, 256_000, all.collect()));
    world
}

fn refused(answer: Result<Vec<Event>, Refusal>) -> Refusal {
    answer.expect_err("it is refused")
}

#[test]
fn a_share_is_set_from_above_and_on_what_was_read() {
    let mut world = cell(2, 0);
    let acme = world.tenant("acme");
    let (boss, ada) = (
        world.user(acme, "boss", Some(Role::Owner)),
        world.user(acme, "ada", Some(Role::Member)),
    );
    assert_eq!(
        refused(world.by(boss, set(acme, sure(2, None, None)))).code,
        Code::NotFound,
        "nobody raises itself"
    );
    assert!(
        world
            .by(ada, set(ScopeId::User(ada), sure(1, None, None)))
            .is_err()
    );
    world
        .by(boss, set(ScopeId::User(ada), sure(1, None, None)))
        .expect("its child's");
    let revision = world.state.tree.get(acme).expect("acme").revision;
    let stale = Wish::SetShare {
        scope: acme,
        share: sure(2, None, None),
        revision: Some(revision - 1),
    };
    assert_eq!(refused(world.root(stale)).code, Code::RevisionMismatch);
    world.root(set(acme, sure(2, None, None))).expect("set");
    assert_eq!(
        world.root(set(acme, sure(2, None, None))),
        Ok(vec![]),
        "nothing new is no event"
    );
}

#[test]
fn a_share_says_what_can_be() {
    let mut world = cell(2, 0);
    let acme = world.tenant("acme");
    let with = |change: fn(&mut Share)| {
        let mut share = sure(1, None, None);
        change(&mut share);
        share
    };
    for (share, field) in [
        (with(|share| share.weight = 0), "/weight"),
        (with(|share| share.weight = u32::MAX), "/weight"),
        (
            with(|share| share.nominal = [("a b".into(), Nominal::default())].into()),
            "/nominal",
        ),
        (
            with(|share| share.nominal.get_mut("H100").expect("it").gpu_milli = u64::MAX),
            "/nominal/H100",
        ),
        (with(|share| share.half_life_s = Some(3600)), "/half_life_s"),
        (with(|share| share.aged_s = Some(3600)), "/aged_s"),
    ] {
        let refusal = refused(world.root(set(acme, share)));
        assert_eq!(
            (refusal.code, refusal.field.as_deref()),
            (Code::InvalidField, Some(field))
        );
    }
    let spans = |half_life_s, aged_s| Share {
        half_life_s,
        aged_s,
        ..Share::default()
    };
    for bad in [
        spans(Some(0), None),
        spans(None, Some(59)),
        spans(Some(u64::MAX), None),
    ] {
        assert!(world.root(set(ScopeId::Platform, bad)).is_err());
    }
    world
        .root(set(ScopeId::Platform, spans(Some(3600), Some(7200))))
        .expect("of the platform");
    assert_eq!(
        (world.state.half_life_ms(), world.state.aged_ms()),
        (HOUR_MS, 2 * HOUR_MS)
    );
}

#[test]
fn children_are_never_sure_of_more_than_their_parent() {
    let mut world = cell(8, 0);
    let acme = world.tenant("acme");
    let (left, right) = (world.subscriber(acme, "left"), world.subscriber(acme, "right"));
    world
        .root(set(left, sure(5, None, None)))
        .expect("a parent without a quota bounds nobody");
    let refusal = refused(world.root(set(acme, sure(4, None, None))));
    assert_eq!(refusal.code, Code::ExceedsQuota);
    assert!(
        refusal.sentence.contains("1000 gpu_milli of H100 more"),
        "{refusal}"
    );
    world.root(set(acme, sure(8, None, None))).expect("enough");
    let refusal = refused(world.root(set(right, sure(5, None, None))));
    assert!(
        refusal.sentence.contains("2000 gpu_milli of H100 more"),
        "{refusal}"
    );
    world.root(set(right, sure(3, None, None))).expect("the rest");
    let other = world.tenant("other");
    let lab = world.subscriber(other, "lab");
    let ada = world.user(lab, "ada", None);
    world
        .root(set(ScopeId::User(ada), sure(1, None, None)))
        .expect("set");
    let into = Wish::Move {
        scope: ScopeId::User(ada),
        parent: acme,
    };
    let refusal = refused(world.root(into));
    assert_eq!(
        (refusal.code, refusal.field.as_deref()),
        (Code::ExceedsQuota, Some("/parent"))
    );
}

#[test]
fn what_was_used_lately_is_kept_by_every_scope_above_fades_and_moves_along() {
    let mut world = cell(2, 0);
    let acme = world.tenant("acme");
    let (left, right) = (world.subscriber(acme, "left"), world.subscriber(acme, "right"));
    let ada = world.user(left, "ada", Some(Role::Member));
    let job = world
        .submit(ada, spec("train", on("H100", 2), 7200))
        .expect("taken");
    world.pass_s(3600);
    world.exit(job, 3600);
    let used = |world: &World, scope| {
        let scope = world.state.tree.get(scope).expect("a scope");
        scope.lately.gpu_ms(world.state.half_life_ms(), world.now)
    };
    let user = ScopeId::User(ada);
    for scope in [user, left, acme, ScopeId::Platform] {
        assert_eq!(used(&world, scope), 2 * HOUR_MS, "{scope}");
    }
    world
        .root(Wish::Move {
            scope: user,
            parent: right,
        })
        .expect("moved");
    assert_eq!(
        (used(&world, user), used(&world, right)),
        (2 * HOUR_MS, 0),
        "it takes its own along"
    );
    world.pass_s(7 * 24 * 3600);
    assert_eq!(used(&world, user), HOUR_MS, "half of it after a week");
}

#[test]
fn growing_and_going_on_stay_within_what_is_lent() {
    let mut world = cell(4, 0);
    let (acme, beta) = (world.tenant("acme"), world.tenant("beta"));
    let ada = world.user(acme, "ada", Some(Role::Member));
    world.root(set(acme, sure(1, Some(0), None))).expect("set");
    world.root(set(beta, sure(3, None, None))).expect("set");
    let refusal = world
        .submit(ada, spec("two", on("H100", 2), 600))
        .expect_err("for ever too large");
    assert_eq!(refusal.code, Code::ExceedsQuota);
    let first = world.submit(ada, spec("one", on("H100", 1), 600)).expect("taken");
    assert!(world.allocation(first).is_some());
    let any = world.submit(ada, spec("any", whole(1), 600)).expect("taken");
    assert!(
        world.allocation(any).is_none(),
        "no class of its own asked, and H100 all there is"
    );
}

/// users.md row 3: quotas per GPU type in one queue.
#[test]
fn quota_per_class_in_one_queue() {
    let mut world = cell(4, 2);
    let (acme, beta) = (world.tenant("acme"), world.tenant("beta"));
    let ada = world.user(acme, "ada", Some(Role::Member));
    let mut story = Story::new(world);
    story.root(
        "acme is sure of 1 H100 and borrows none; of L40S nothing is said",
        set(acme, sure(1, Some(0), None)),
    );
    story.root("beta is sure of the other three", set(beta, sure(3, None, None)));
    story.say("the first H100 is its own; the next ones wait for quota, although GPUs are free");
    let first = story
        .submit(ada, spec("h-1", on("H100", 1), 3600))
        .expect("taken");
    story.submit(ada, spec("h-2", on("H100", 1), 3600));
    story.submit(ada, spec("h-3", on("H100", 1), 3600));
    story.say("jobs for L40S behind them in the same queue are not held up");
    story.submit(ada, spec("l-1", on("L40S", 1), 3600));
    story.submit(ada, spec("l-2", on("L40S", 1), 3600));
    story.submit(ada, spec("l-3", on("L40S", 1), 3600));
    story.schedule();
    story.say("an H100 comes back");
    story.world.pass_s(600);
    story.exit(first, 600);
    story.schedule();
    story.check("quota_per_class_in_one_queue");
}

fn one_h100(story: &mut Story, owner: UserId, name: &str) -> Option<JobId> {
    story.submit(owner, spec(name, on("H100", 1), 3600))
}

/// Kueue 804: two queues admitted at once against the same idle quota.
#[test]
fn lent_once_not_to_two_at_once() {
    let mut world = cell(4, 0);
    let (lender, left, right) = (
        world.tenant("lender"),
        world.tenant("left"),
        world.tenant("right"),
    );
    let (ada, bob) = (
        world.user(left, "ada", Some(Role::Member)),
        world.user(right, "bob", Some(Role::Member)),
    );
    // Nothing runs before the quotas are set: both wait, and are asked in the same pass.
    world.root(Wish::Suspend { scope: left }).expect("suspended");
    let mut story = Story::new(world);
    story.root(
        "the lender is sure of 2 H100 and lends one of them",
        set(lender, sure(2, None, Some(1))),
    );
    story.root("left is sure of none", set(left, sure(0, None, None)));
    story.root("right is sure of none", set(right, sure(0, None, None)));
    story.root("left goes on", Wish::Resume { scope: left });
    story.say("both want the one H100 that is lent");
    let first = one_h100(&mut story, ada, "left-1").expect("taken");
    one_h100(&mut story, bob, "right-1");
    story.schedule();
    story.say("it comes back, and goes to the one who used less");
    story.world.pass_s(1800);
    one_h100(&mut story, ada, "left-2");
    story.exit(first, 1800);
    story.schedule();
    story.check("lent_once_not_to_two_at_once");
}

/// Kueue 14609: after a limit was cut, what is lent was counted twice.
#[test]
fn a_cut_lends_nothing_twice() {
    let mut world = cell(8, 0);
    let (lender, left, right) = (
        world.tenant("lender"),
        world.tenant("left"),
        world.tenant("right"),
    );
    let (ada, bob, eve) = (
        world.user(left, "ada", Some(Role::Member)),
        world.user(right, "bob", Some(Role::Member)),
        world.user(lender, "eve", Some(Role::Member)),
    );
    world.root(set(left, sure(0, None, None))).expect("set");
    world.root(set(right, sure(0, None, None))).expect("set");
    let mut story = Story::new(world);
    story.root(
        "the lender is sure of 4 H100 and lends all that is idle",
        set(lender, sure(4, None, None)),
    );
    let first = one_h100(&mut story, ada, "left-1").expect("taken");
    one_h100(&mut story, ada, "left-2");
    one_h100(&mut story, bob, "right-1");
    story.say("its quota is cut to 2: three are out, so nothing more is lent");
    story.root("the lender is sure of 2", set(lender, sure(2, None, None)));
    one_h100(&mut story, bob, "right-2");
    story.say("one comes back: still as much is out as is lent");
    story.world.pass_s(600);
    story.exit(first, 600);
    story.schedule();
    story.say("the lender takes its own, whatever is out, and lends nothing any more");
    one_h100(&mut story, eve, "own-1");
    one_h100(&mut story, eve, "own-2");
    one_h100(&mut story, eve, "own-3");
    one_h100(&mut story, ada, "left-3");
    story.schedule();
    story.check("a_cut_lends_nothing_twice");
}

/// A big job behind small ones for ever: it is promised the cell from when their limits end, and only those that end
/// before may come meanwhile. It starts when the last of them did, well before the bound.
#[test]
fn small_jobs_for_ever_before_a_big_one() {
    let mut world = cell(2, 0);
    let acme = world.tenant("acme");
    let ada = world.user(acme, "ada", Some(Role::Member));
    let bounded = Share {
        aged_s: Some(3600),
        ..Share::default()
    };
    world.root(set(ScopeId::Platform, bounded)).expect("set");
    let mut story = Story::new(world);
    story.say("small jobs of ten minutes take turns; the big one needs the whole cell");
    let mut running = vec![
        one_h100(&mut story, ada, "small-1").expect("taken"),
        one_h100(&mut story, ada, "small-2").expect("taken"),
    ];
    let big = story
        .submit(ada, spec("big", on("H100", 2), 3600))
        .expect("taken");
    let mut number = 2;
    while story.world.allocation(big).is_none() && number < 40 {
        story.world.pass_s(300);
        let ends = running.remove(0);
        story.exit(ends, 300);
        number += 1;
        running.extend(one_h100(&mut story, ada, &format!("small-{number}")));
        story.schedule();
    }
    story.check("small_jobs_for_ever_before_a_big_one");
}
