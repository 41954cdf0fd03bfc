//! The ledger from outside: what each level pays, what is never gained by rounding, what is given back, and what is
//! refused. The machine of random operations is in `ledger/machine.rs`.

mod alert;
mod analysis;
mod focus;
mod machine;

use tenure_domain::command::{Observation, Ran};
use tenure_domain::id::{InvoiceId, SubscriberId, TenantId, UserId};
use tenure_domain::ledger::account::AccountId;
use tenure_domain::ledger::adjust::AdjustmentKind;
use tenure_domain::ledger::bill::{self, BillRow, Eye};
use tenure_domain::ledger::book::{Book, KindPrice};
use tenure_domain::ledger::clause::{DayWindow, Tier};
use tenure_domain::ledger::invoice::{Count, Draft};
use tenure_domain::ledger::price::{ClassPrice, Prices};
use tenure_domain::money::Micros;
use tenure_domain::tenancy::role::Role;
use tenure_domain::tenancy::scope::ScopeId;
use tenure_domain::workload::Workload;
use tenure_domain::workload::picture::Rendering;
use tenure_domain::workload::spec::{Isolation, Kind};
use tenure_domain::{Actor, Code, Event, Time, Wish};

use crate::chance::number_from_env;
use crate::world::{World, digest, gpu, inventory, plain_prices, slice, spec, whole};

pub struct House {
    pub world: World,
    pub acme: ScopeId,
    pub lab: ScopeId,
    /// Owner of the tenant.
    pub boss: UserId,
    /// A user of the subscriber.
    pub ada: UserId,
}

/// A tenant with a subscriber and one node of eight GPUs.
pub fn house(prices: Prices) -> House {
    let mut world = World::priced(prices);
    let acme = world.tenant("acme");
    let lab = world.subscriber(acme, "lab");
    let boss = world.user(acme, "boss", Some(Role::Owner));
    let ada = world.user(lab, "ada", Some(Role::Member));
    let gpus = (0..8).map(|n| gpu(&format!("h100-{n}"), "H100", 80_000, &[Isolation::Guarded]));
    world.node("alpha", inventory(64_000, 640_000, gpus.collect()));
    House {
        world,
        acme,
        lab,
        boss,
        ada,
    }
}

pub fn tenant(scope: ScopeId) -> TenantId {
    match scope {
        ScopeId::Tenant(id) => id,
        other => panic!("{other:?} is no tenant"),
    }
}

pub fn subscriber(scope: ScopeId) -> SubscriberId {
    match scope {
        ScopeId::Subscriber(id) => id,
        other => panic!("{other:?} is no subscriber"),
    }
}

impl House {
    pub fn posted(&self, account: AccountId) -> i64 {
        self.world.state.accounts.get(account).posted.0
    }

    pub fn book(&mut self, seller: ScopeId, book: Book) -> Result<Vec<Event>, tenure_domain::Refusal> {
        let by = match seller {
            ScopeId::Platform => self.world.root,
            _ => self.boss,
        };
        let wish = Wish::SetBook {
            seller,
            buyer: None,
            from: None,
            book: Box::new(book),
        };
        self.world.by(by, wish)
    }

    /// Runs a job for so many seconds and gives its charge at each level.
    pub fn ran(&mut self, owner: UserId, seconds: u64) -> (i64, Option<i64>) {
        let job = self
            .world
            .submit(owner, spec("train", whole(1), seconds.max(1)))
            .expect("taken");
        self.world.observe(job, Observation::Running).expect("it runs");
        self.world.pass_s(seconds);
        let events = self.world.exit(job, seconds);
        charged(&events)
    }
}

fn charged(events: &[Event]) -> (i64, Option<i64>) {
    let charges = events.iter().filter_map(|event| match event {
        Event::UsageMetered { charges, .. } => Some(charges),
        _ => None,
    });
    let charge = charges.flatten().next().expect("a charge");
    let resold = charge.resale.as_deref().map(|resold| resold.posting.amount.0);
    (charge.cost.money.0, resold)
}

fn marked_up(markup_permille: u32) -> Book {
    Book {
        markup_permille,
        ..Book::default()
    }
}

#[test]
fn each_level_pays_its_own_price() {
    let mut house = house(plain_prices());
    let (acme, ada, boss) = (house.acme, house.ada, house.boss);
    let fee = Book {
        fee_permille: 100,
        ..marked_up(1200)
    };
    house.book(ScopeId::Platform, fee).expect("set");
    house.book(acme, marked_up(1500)).expect("set");
    assert_eq!(house.ran(ada, 3600), (1_200_000, Some(1_800_000)));
    let (acme, lab) = (tenant(acme), subscriber(house.lab));
    assert_eq!(house.posted(AccountId::Revenue), 1_200_000);
    assert_eq!(house.posted(AccountId::Tenant(acme)), -1_200_000 - 180_000);
    assert_eq!(
        house.posted(AccountId::Fee),
        180_000,
        "a tenth of what the tenant asks"
    );
    assert_eq!(house.posted(AccountId::Subscriber(lab)), -1_800_000);
    assert_eq!(house.posted(AccountId::Resale(acme)), 1_800_000);
    // Whoever is the tenant's own pays what the tenant does.
    assert_eq!(house.ran(boss, 3600), (1_200_000, None));
    // Budgets count what is paid there.
    let spent = |scope| {
        let scope = house.world.state.tree.get(scope).expect("a scope");
        let of = "jobs".parse::<tenure_domain::meter::Meter>().expect("a meter").of;
        let spend = scope
            .spending
            .at(&of, tenure_domain::time::Period::Total, house.world.now);
        spend.spent.money.0
    };
    assert_eq!((spent(house.lab), spent(house.acme)), (1_800_000, 2_400_000));
}

#[test]
fn a_tenants_prices_are_its_own() {
    let mut house = house(plain_prices());
    let acme = house.acme;
    let set = |book: Book| Wish::SetBook {
        seller: acme,
        buyer: None,
        from: None,
        book: Box::new(book),
    };
    let refused = house
        .world
        .root(set(marked_up(1500)))
        .expect_err("not the platform's");
    assert_eq!(refused.code, Code::NotFound);
    let ada = house.ada;
    assert!(
        house.world.by(ada, set(marked_up(1))).is_err(),
        "nor a subscriber's"
    );
    let boss = house.boss;
    assert!(house.world.by(boss, set(marked_up(1500))).is_ok());
    let own = Wish::SetBook {
        seller: ScopeId::Platform,
        buyer: Some(acme),
        from: None,
        book: Box::new(marked_up(1)),
    };
    assert!(house.world.by(boss, own).is_err(), "nobody sets what they pay");
}

#[test]
fn prices_do_not_reach_back() {
    let mut house = house(plain_prices());
    let now = house.world.now;
    let back = Wish::SetBook {
        seller: ScopeId::Platform,
        buyer: None,
        from: Some(Time(now.0 - 1)),
        book: Box::new(marked_up(2000)),
    };
    let refused = house.world.root(back).expect_err("refused");
    assert_eq!(refused.field.as_deref(), Some("/from"));
    // A job that runs keeps its price; one that comes later has the new one.
    let ada = house.ada;
    let job = house
        .world
        .submit(ada, spec("old", whole(1), 3600))
        .expect("taken");
    house.world.observe(job, Observation::Running).expect("it runs");
    house.world.pass_s(1800);
    house.book(ScopeId::Platform, marked_up(2000)).expect("set");
    house.world.pass_s(1800);
    let events = house.world.exit(job, 3600);
    assert_eq!(charged(&events).0, 1_000_000);
    assert_eq!(house.ran(ada, 3600).0, 2_000_000);
}

#[test]
fn books_tell_classes_skus_walls_kinds_and_hours_apart() {
    let mut house = house(plain_prices());
    let clock = |text: &str| text.parse().expect("a time of day");
    let book = Book {
        classes: [(
            "H100".into(),
            ClassPrice {
                gpu_hour_micros: 3_000_000,
                vram_gib_hour_micros: 0,
            },
        )]
        .into(),
        isolation: [(Isolation::Guarded, 900)].into(),
        // 09:00 UTC is 10:00 in Berlin.
        zone: Some("Europe/Berlin".into()),
        windows: vec![DayWindow {
            from: clock("10:30"),
            to: clock("12:00"),
            permille: 2000,
        }],
        tiers: vec![Tier {
            from_gpu_hours: 1,
            permille: 500,
        }],
        minimum_micros: 100_000,
        ..Book::default()
    };
    house.book(ScopeId::Platform, book).expect("set");
    let ada = house.ada;
    // Half an hour at 2.70, half an hour at twice that.
    assert_eq!(house.ran(ada, 3600).0, 1_350_000 + 2_700_000);
    // From the second hour of the month on at half price.
    assert_eq!(house.ran(ada, 1800).0, 1_350_000);
    assert_eq!(house.ran(ada, 1).0, 100_000, "the minimum");
}

#[test]
fn frames_cost_what_they_cost_however_long_they_take() {
    let mut house = house(plain_prices());
    let book = Book {
        kinds: [(Kind::Rendering, KindPrice::FrameMicros(7_000))].into(),
        ..Book::default()
    };
    house.book(ScopeId::Platform, book).expect("set");
    let rendering = Rendering {
        frames: "1-10".parse().expect("frames"),
        ..serde_json::from_str(r#"{"frames":"1-10"}"#).expect("a rendering")
    };
    let mut render = spec("scene", whole(1), 600);
    render.workload = Some(Box::new(Workload::Rendering(rendering)));
    let ada = house.ada;
    let job = house.world.submit(ada, render).expect("taken");
    let of = house
        .world
        .state
        .jobs
        .values()
        .find(|of| of.parent() == Some(job));
    let job = of.map_or(job, |task| task.id);
    if house.world.allocation(job).is_none() {
        house.world.schedule();
    }
    house.world.observe(job, Observation::Running).expect("it runs");
    house.world.pass_s(300);
    assert_eq!(
        charged(&house.world.exit(job, 300)).0,
        7_000,
        "a task of one frame"
    );
}

/// Short jobs, each of which costs a part of a micro: together they cost what one long job does.
#[test]
fn rounding_is_not_farmed() {
    let jobs = number_from_env("TENURE_FARM_JOBS", 3_000);
    let odd = Prices {
        other: ClassPrice {
            gpu_hour_micros: 1_201,
            vram_gib_hour_micros: 0,
        },
        ..plain_prices()
    };
    let mut house = house(odd);
    let (acme, ada) = (house.acme, house.ada);
    house.book(acme, marked_up(1333)).expect("set");
    house.world.thorough = false;
    for _ in 0..jobs {
        house.ran(ada, 1);
    }
    let resold_hourly = (1_201_u64 * 1333).div_ceil(1000);
    let exact = |hourly: u64| (hourly * jobs / 3600) as i64;
    let (acme, lab) = (tenant(acme), subscriber(house.lab));
    let paid = -house.posted(AccountId::Tenant(acme));
    let resold = -house.posted(AccountId::Subscriber(lab));
    assert!((exact(1_201) - paid).abs() <= 1, "{paid} of {}", exact(1_201));
    assert!(
        (exact(resold_hourly) - resold).abs() <= 1,
        "{resold} of {}",
        exact(resold_hourly)
    );
}

pub fn draft(scope: ScopeId, from: Time, until: Time, rows: &[BillRow]) -> Draft {
    let mut count = Count::default();
    for row in rows.iter().filter(|row| row.at >= from && row.at < until) {
        count.add(row, Eye::of(scope));
    }
    Draft {
        scope,
        from,
        until,
        total: count.total(),
        rows: count.rows,
        root: digest(7),
        lines: count.lines(),
    }
}

#[test]
fn an_invoice_is_issued_once_paid_once_and_refunded_no_further() {
    let mut house = house(plain_prices());
    let (acme, boss, root) = (house.acme, house.boss, house.world.root);
    let from = house.world.now;
    house.ran(boss, 3600);
    house.world.pass_s(1);
    let until = house.world.now;
    let mut rows = vec![];
    let mut owed = draft(acme, from, until, &rows);
    owed.total = Micros(1_000_000);
    let issue = |draft: &Draft| Wish::IssueInvoice {
        draft: Box::new(draft.clone()),
    };
    assert!(
        house.world.by(boss, issue(&owed)).is_err(),
        "nobody bills themselves"
    );
    let future = Draft {
        until: Time(until.0 + 1),
        ..owed.clone()
    };
    assert!(
        house.world.by(root, issue(&future)).is_err(),
        "the span is not over"
    );
    let events = house.world.by(root, issue(&owed)).expect("issued");
    let Event::InvoiceIssued { invoice } = &events[0] else {
        panic!("no invoice")
    };
    let id = invoice.id;
    let twice = house.world.by(root, issue(&owed)).expect_err("billed before");
    assert_eq!(twice.code, Code::WrongPhase);
    let refund = |amount: i64, invoice: Option<InvoiceId>| Wish::Adjust {
        scope: acme,
        kind: AdjustmentKind::Refund,
        amount: Micros(amount),
        invoice,
        reason: "the node was slow".into(),
    };
    for (amount, of) in [
        (0, Some(id)),
        (-1, Some(id)),
        (1_000_001, Some(id)),
        (i64::MAX, Some(id)),
        (i64::MIN, Some(id)),
        (1, None),
        (1, Some(InvoiceId(77))),
    ] {
        assert!(
            house.world.by(root, refund(amount, of)).is_err(),
            "{amount} of {of:?}"
        );
    }
    rows.extend(bill_of(&mut house.world, root, refund(600_000, Some(id))));
    assert!(
        house.world.by(root, refund(600_000, Some(id))).is_err(),
        "no more than it was for"
    );
    rows.extend(bill_of(&mut house.world, root, refund(400_000, Some(id))));
    assert!(house.world.by(root, refund(1, Some(id))).is_err());
    assert!(house.world.by(boss, refund(1, Some(id))).is_err());
    // A correction of it is no refund, whichever way; and nobody's of another's.
    let correct = |scope: ScopeId, amount: i64, id: InvoiceId| Wish::Adjust {
        scope,
        kind: AdjustmentKind::Correction,
        amount: Micros(amount),
        invoice: Some(id),
        reason: "the wrong class".into(),
    };
    for amount in [-5, 5] {
        house
            .world
            .by(root, correct(acme, amount, id))
            .expect("corrected");
    }
    let refunded = house.world.state.invoices.get(id).map(|invoice| invoice.refunded);
    assert_eq!(refunded, Some(Micros(1_000_000)));
    for (by, wish) in [
        (boss, correct(house.lab, 5, id)),
        (root, correct(acme, 5, InvoiceId(77))),
    ] {
        assert_eq!(
            house.world.by(by, wish).expect_err("not theirs").code,
            Code::NotFound
        );
    }
    let pay = || Wish::PayInvoice {
        invoice: id,
        reference: "wire 17".into(),
    };
    assert!(house.world.by(boss, pay()).is_err());
    house.world.by(root, pay()).expect("paid");
    assert!(house.world.by(root, pay()).is_err(), "once");
    assert_eq!(house.posted(AccountId::Tenant(tenant(acme))), 1_000_000);
    // What went back stands on the next invoice.
    house.world.pass_s(1);
    let next = draft(acme, until, house.world.now, &rows);
    assert_eq!((next.total, next.rows), (Micros(-1_000_000), 2));
    let closed = Wish::Adjust {
        scope: ScopeId::Tenant(TenantId(99)),
        kind: AdjustmentKind::Credit,
        amount: Micros(1),
        invoice: None,
        reason: "gone".into(),
    };
    assert_eq!(
        house.world.by(root, closed).expect_err("no such tenant").code,
        Code::NotFound
    );
}

/// Acts, and gives the rows that come of it.
pub fn bill_of(world: &mut World, by: UserId, wish: Wish) -> Vec<BillRow> {
    let before = world.state.clone();
    let events = world.by(by, wish).expect("done");
    let rows = events
        .iter()
        .flat_map(|event| bill::rows(&before, world.now, event));
    rows.flat_map(|placed| placed.rows).collect()
}

#[test]
fn usage_late_doubled_reordered_or_beyond_is_billed_once() {
    let mut house = house(plain_prices());
    let ada = house.ada;
    let job = house
        .world
        .submit(ada, spec("long", slice(500, 8000), 40 * 86_400))
        .expect("taken");
    house.world.observe(job, Observation::Running).expect("it runs");
    let (allocation, node) = house.world.allocation(job).expect("placed");
    let started = house.world.now;
    let mut told = vec![];
    for (at_s, ran_s) in [
        (60, 60),
        (60, 60),
        (120, 30),
        (30 * 86_400, 180),
        (30 * 86_400, u64::MAX / 1000),
        (30 * 86_400, 0),
    ] {
        house.world.now = started.plus_ms(at_s * 1000);
        let ran = Ran {
            allocation,
            ran_ms: ran_s * 1000,
            usage: None,
        };
        let events = house
            .world
            .act(
                Actor::Node(node),
                Wish::Meter {
                    node,
                    ran: vec![ran.clone(), ran],
                },
            )
            .expect("heard");
        for event in &events {
            if let Event::UsageMetered { charges, .. } = event {
                told.extend(
                    charges
                        .iter()
                        .map(|charge| (charge.from_ms / 1000, charge.to_ms / 1000)),
                );
            }
        }
    }
    assert_eq!(told, [(0, 60), (60, 180), (180, 30 * 86_400 + 10)]);
    let foreign = house.world.act(
        Actor::Node(tenure_domain::id::NodeId(5)),
        Wish::Meter { node, ran: vec![] },
    );
    assert_eq!(foreign, Ok(vec![]), "nothing is nobody's");
}
