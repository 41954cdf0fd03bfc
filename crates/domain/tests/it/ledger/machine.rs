//! The ledger as a machine: random work, reports that come late, twice, out of order and after a crash, books, credits,
//! refunds, budgets and invoices by many hands. After every step postings sum to zero, no hold and no budget is passed
//! (`limit.rs`), no account is below what those allow, and every interval was billed once; at the end the invoices, the rows and
//! the accounts say the same. What dies comes back from a snapshot of some time ago and the events since.
//!
//! `TENURE_LEDGER_OPS` says how many steps, `TENURE_LEDGER_SEED` replays from a seed.

mod limit;

use std::collections::BTreeMap;

use tenure_domain::command::{Observation, Ran};
use tenure_domain::id::{AllocationId, JobId, NodeId, UserId};
use tenure_domain::ledger::account::AccountId;
use tenure_domain::ledger::adjust::AdjustmentKind;
use tenure_domain::ledger::bill::{self, BillRow, Eye};
use tenure_domain::ledger::book::Book;
use tenure_domain::ledger::clause::{DayWindow, Tier};
use tenure_domain::ledger::sheaf;
use tenure_domain::money::Micros;
use tenure_domain::tenancy::role::Role;
use tenure_domain::tenancy::scope::ScopeId;
use tenure_domain::workload::job::{Job, Phase, StopReason};
use tenure_domain::{Actor, Code, Command, Event, State, Time, Wish, decide};

use self::limit::Limits;
use super::{House, draft, house, subscriber, tenant};
use crate::chance::{Chance, number_from_env};
use crate::world::{spec, whole};

const CLIENTS: usize = 64;
const PER_RUN: u64 = 5_000;

struct Machine {
    house: House,
    chance: Chance,
    users: Vec<UserId>,
    /// Everything that was ever placed, for reports that come late.
    placed: Vec<(AllocationId, NodeId, Time)>,
    /// How far each allocation was billed.
    billed: BTreeMap<AllocationId, u64>,
    /// The events, for another fold of them.
    journal: Vec<(Time, Event)>,
    rows: Vec<(String, BillRow)>,
    issued: BTreeMap<ScopeId, Time>,
    limits: Limits,
    /// The last snapshot, and how many events it has.
    saved: Option<(String, usize)>,
    done: BTreeMap<&'static str, u64>,
}

impl Machine {
    fn new(seed: u64) -> Machine {
        let mut house = house(Default::default());
        // Whether a snapshot of it is faithful is for others to see; sixty-four users a run would be most of the run.
        house.world.thorough = false;
        let users = (0..CLIENTS).map(|n| {
            let parent = if n % 3 == 0 { house.acme } else { house.lab };
            house
                .world
                .user(parent, &format!("client-{n}"), Some(Role::Member))
        });
        let users = users.collect();
        Machine {
            house,
            chance: Chance::new(seed),
            users,
            placed: vec![],
            billed: BTreeMap::new(),
            journal: vec![],
            rows: vec![],
            issued: BTreeMap::new(),
            limits: Limits::default(),
            saved: None,
            done: BTreeMap::new(),
        }
    }

    fn act(&mut self, name: &'static str, by: Actor, wish: Wish) {
        let world = &mut self.house.world;
        let command = Command {
            at: world.now,
            by,
            ids: world.next,
            wish,
        };
        world.next += tenure_domain::id::Ids::BLOCK;
        let events = match decide(&world.state, &command) {
            Ok(events) => events,
            Err(refusal) => {
                if matches!(refusal.code, Code::ExceedsBudget | Code::BudgetHeld) {
                    *self.done.entry("kept by a budget").or_default() += 1;
                }
                return;
            }
        };
        *self.done.entry(name).or_default() += 1;
        for event in events {
            let rows = bill::rows(&self.house.world.state, self.house.world.now, &event);
            for placed in rows {
                let each = sheaf::read(&sheaf::write(&placed.rows)).expect("as it was written");
                assert_eq!(each, placed.rows);
                for row in each {
                    self.limits.row(&self.house, &placed.path, &row);
                    self.rows.push((placed.path.clone(), row));
                }
            }
            self.limits.event(&self.house, &event);
            let world = &mut self.house.world;
            world.state.apply(world.now, &event);
            assert_eq!(world.state.accounts.sum(), 0, "postings sum to zero");
            match &event {
                Event::UsageMetered { charges, .. } => {
                    for charge in charges {
                        let billed = self.billed.entry(charge.allocation).or_default();
                        assert_eq!(*billed, charge.from_ms, "no gap, no overlap");
                        assert!(charge.to_ms >= charge.from_ms && charge.cost.money.0 >= 0);
                        *billed = charge.to_ms;
                    }
                }
                Event::JobPlaced { allocation, .. } => {
                    self.placed.push((allocation.id, allocation.node, world.now))
                }
                _ => {}
            }
            self.journal.push((world.now, event));
        }
        for (account, balance) in self.house.world.state.accounts.iter() {
            assert!(balance.held.0 >= 0, "{account} holds less than nothing");
        }
        self.limits.hold(&self.house);
    }

    /// One that has its place.
    fn live(&mut self) -> Option<(JobId, AllocationId, NodeId)> {
        let (_, placed) = self.jobs();
        let job = *self.chance.pick(&placed)?;
        let (allocation, node) = self.house.world.allocation(job)?;
        Some((job, allocation, node))
    }

    /// Those that wait, and those that have their place.
    fn jobs(&self) -> (Vec<JobId>, Vec<JobId>) {
        let all = self.house.world.state.jobs.values();
        let (waiting, placed): (Vec<_>, Vec<_>) = all.partition(|job| job.phase == Phase::Queued);
        let ids = |jobs: Vec<&Job>| jobs.into_iter().map(|job| job.id).collect();
        (ids(waiting), ids(placed))
    }

    /// One more; but where as many wait as there are clients, one of those starts, or gives up. A queue that only grew
    /// would be most of what is written down and read back at each restart, and most steps would find nothing that runs.
    fn submit(&mut self) {
        let (waiting, _) = self.jobs();
        if waiting.len() >= CLIENTS {
            let job = *self.chance.pick(&waiting).expect("they wait");
            self.act("schedule", Actor::System, Wish::Schedule { job });
            if self.house.world.allocation(job).is_none() {
                let reason = StopReason::Cancelled;
                self.act("give up", Actor::System, Wish::Stop { job, reason });
            }
            return;
        }
        let user = *self.chance.pick(&self.users).expect("clients");
        let mut work = spec("work", whole(1), 1 + self.chance.below(7200));
        work.demand.compute_permille = self.chance.of(&[1000, 500, 333, 100]);
        work.demand.vram_mib = 1 + self.chance.below(8000);
        if work.demand.compute_permille < 1000 {
            work.demand.cpu_milli = 1 + self.chance.below(500) as u32;
        }
        let wish = Wish::Submit {
            owner: user,
            spec: work.into(),
            trace: None,
        };
        self.act("submit", Actor::user(user), wish);
    }

    fn step(&mut self) {
        match self.chance.below(20) {
            0..6 => self.submit(),
            6..8 => {
                if let Some((_, allocation, node)) = self.live() {
                    let wish = Wish::Observe {
                        node,
                        allocation,
                        observation: Observation::Running,
                    };
                    self.act("running", Actor::Node(node), wish);
                }
            }
            8..12 => self.meter(),
            12..15 => self.exit(),
            15 => {
                if let Some((job, ..)) = self.live() {
                    let reason = self.chance.of(&[StopReason::Cancelled, StopReason::Evicted]);
                    self.act("stop", Actor::System, Wish::Stop { job, reason });
                }
            }
            16 if self.chance.one_in(2) => self.budget(),
            16 => self.book(),
            17 => self.adjust(),
            18 => self.invoice(),
            _ => {
                self.house.world.pass_s(self.chance.below(3000));
                if self.chance.one_in(3) {
                    self.restart();
                }
            }
        }
    }

    /// What ran so far, or less, or more than can be, of allocations that live or ended long ago.
    fn meter(&mut self) {
        let mut ran = vec![];
        let mut of = None;
        for _ in 0..1 + self.chance.below(4) {
            let Some(&(allocation, node, since)) = self.chance.pick(&self.placed) else {
                return;
            };
            let passed = self.house.world.now.since_ms(since);
            let ran_ms = match self.chance.below(5) {
                0 => u64::MAX,
                1 => passed / 2,
                2 => 0,
                _ => passed,
            };
            of = Some(node);
            ran.push(Ran {
                allocation,
                ran_ms,
                usage: None,
            });
        }
        if let Some(node) = of {
            let again = ran.clone();
            self.act("meter", Actor::Node(node), Wish::Meter { node, ran });
            if self.chance.one_in(3) {
                self.act("meter again", Actor::Node(node), Wish::Meter { node, ran: again });
            }
        }
    }

    fn exit(&mut self) {
        let Some((_, allocation, node)) = self.live() else {
            return;
        };
        let observation = match self.chance.below(4) {
            0 => Observation::Vanished,
            _ => Observation::Exited {
                exit_code: Some(self.chance.below(2) as i32),
                signal: None,
                ran_ms: self.chance.below(4_000_000),
                by: None,
                usage: None,
            },
        };
        let wish = Wish::Observe {
            node,
            allocation,
            observation,
        };
        self.act("exit", Actor::Node(node), wish);
    }

    fn book(&mut self) {
        if !self.chance.one_in(10) {
            return;
        }
        let clock = |minute: u64| tenure_domain::ledger::clause::Clock(minute as u16);
        let seller = self.chance.of(&[ScopeId::Platform, self.house.acme]);
        let book = Book {
            markup_permille: 500 + self.chance.below(1500) as u32,
            zone: Some(
                self.chance
                    .of(&["Europe/Berlin", "America/New_York", "Asia/Kathmandu"])
                    .into(),
            ),
            windows: vec![DayWindow {
                from: clock(self.chance.below(1440)),
                to: clock(self.chance.below(1440)),
                permille: self.chance.below(3000) as u32,
            }],
            tiers: vec![Tier {
                from_gpu_hours: 1 + self.chance.below(200),
                permille: self.chance.below(1000) as u32,
            }],
            minimum_micros: self.chance.below(5000) as i64,
            fee_permille: match seller {
                ScopeId::Platform => self.chance.below(1001) as u32,
                _ => 0,
            },
            ..Book::default()
        };
        let by = match seller {
            ScopeId::Platform => self.house.world.root,
            _ => self.house.boss,
        };
        let wish = Wish::SetBook {
            seller,
            buyer: None,
            from: None,
            book: Box::new(book),
        };
        self.act("book", Actor::user(by), wish);
    }

    fn seller(&self, scope: ScopeId) -> Actor {
        Actor::user(match scope {
            ScopeId::Tenant(_) => self.house.world.root,
            _ => self.house.boss,
        })
    }

    fn adjust(&mut self) {
        let scope = self.chance.of(&[self.house.acme, self.house.lab]);
        let kind = self.chance.of(&[
            AdjustmentKind::Credit,
            AdjustmentKind::Refund,
            AdjustmentKind::Correction,
        ]);
        let invoices: Vec<_> = self.house.world.state.invoices.iter().map(|one| one.id).collect();
        let invoice = self.chance.pick(&invoices).copied();
        let amount = self.chance.below(2_000_000) as i64 - 500_000;
        let wish = Wish::Adjust {
            scope,
            kind,
            amount: Micros(amount),
            invoice: invoice.filter(|_| kind == AdjustmentKind::Refund),
            reason: "by chance".into(),
        };
        self.act("adjust", self.seller(scope), wish);
    }

    fn invoice(&mut self) {
        let scope = self.chance.of(&[self.house.acme, self.house.lab]);
        let unpaid = self
            .house
            .world
            .state
            .invoices
            .iter()
            .find(|one| one.paid.is_none());
        if let Some(invoice) = unpaid.filter(|one| one.draft.scope == scope) {
            let wish = Wish::PayInvoice {
                invoice: invoice.id,
                reference: "wire".into(),
            };
            self.act("pay", self.seller(scope), wish);
        }
        let from = self.issued.get(&scope).copied().unwrap_or(Time(0));
        let until = self.house.world.now;
        if from < until {
            let wish = Wish::IssueInvoice {
                draft: Box::new(draft(scope, from, until, &self.rows_of(scope, from))),
            };
            self.act("issue", self.seller(scope), wish);
            self.issued.insert(scope, until);
        }
    }

    /// Since then; rows lie in the order of time.
    fn rows_of(&self, scope: ScopeId, since: Time) -> Vec<BillRow> {
        let path = self.house.world.state.tree.path(scope);
        let below = format!("{path}/");
        let within = |of: &str| of == path || of.starts_with(&below);
        let begin = self.rows.partition_point(|(_, row)| row.at < since);
        let own = self.rows[begin..].iter().filter(|(of, _)| within(of));
        own.map(|(_, row)| row.clone()).collect()
    }

    /// The process died: what comes back is the last snapshot and the events since, and that is what was.
    fn restart(&mut self) {
        let state = &self.house.world.state;
        let saved = self.saved.take().unwrap_or_else(|| self.snapshot());
        let mut back: State = serde_json::from_str(&saved.0).expect("read again");
        back.rebuild_indexes();
        for (at, event) in &self.journal[saved.1..] {
            back.apply(*at, event);
        }
        assert_eq!(back.accounts, state.accounts, "money comes back");
        assert!(
            back == *state,
            "what comes back is not what was, {} events after a snapshot",
            self.journal.len() - saved.1
        );
        self.house.world.state = back;
        // The next one is of now, or of before.
        self.saved = Some(if self.chance.one_in(2) {
            self.snapshot()
        } else {
            saved
        });
        *self.done.entry("restart").or_default() += 1;
    }

    fn snapshot(&self) -> (String, usize) {
        let text = serde_json::to_string(&self.house.world.state).expect("a snapshot");
        (text, self.journal.len())
    }

    /// What is owed by every account is what its rows say, less what was paid; and the whole bill was issued once.
    fn settle(&self) {
        let state = &self.house.world.state;
        for (scope, account) in [
            (self.house.acme, AccountId::Tenant(tenant(self.house.acme))),
            (self.house.lab, AccountId::Subscriber(subscriber(self.house.lab))),
        ] {
            let own: Vec<_> = state
                .invoices
                .iter()
                .filter(|one| one.draft.scope == scope)
                .collect();
            let paid: i64 = own
                .iter()
                .filter(|one| one.paid.is_some())
                .map(|one| one.draft.total.0)
                .sum();
            let rows = self.rows_of(scope, Time(0));
            let seen = |row: &BillRow| row.seen(Eye::of(scope)).map_or(0, |amount| amount.0);
            let owed: i64 = rows.iter().map(seen).sum();
            assert_eq!(state.accounts.get(account).posted.0, paid - owed, "{account}");
            let until = self.issued.get(&scope).copied().unwrap_or(Time(0));
            let issued: i64 = own.iter().map(|one| one.draft.total.0).sum();
            let before: i64 = rows.iter().filter(|row| row.at < until).map(seen).sum();
            assert_eq!(issued, before, "every row is on one invoice");
        }
    }
}

#[test]
fn the_ledger_holds_whatever_happens() {
    let ops = number_from_env("TENURE_LEDGER_OPS", 100_000);
    let first = number_from_env("TENURE_LEDGER_SEED", 1);
    let mut done: BTreeMap<&'static str, u64> = BTreeMap::new();
    for seed in first..first + ops.div_ceil(PER_RUN) {
        let mut machine = Machine::new(seed);
        let founded = machine.house.world.state.clone();
        for _ in 0..PER_RUN.min(ops) {
            machine.step();
        }
        machine.settle();
        let mut replayed = founded;
        for (at, event) in &machine.journal {
            replayed.apply(*at, event);
        }
        let state = &machine.house.world.state;
        assert_eq!(
            replayed.accounts, state.accounts,
            "seed {seed}: a replay gives the same accounts"
        );
        assert!(
            state
                .jobs
                .values()
                .all(|job| job.phase != Phase::Running || job.admission.is_some())
        );
        for (name, count) in machine.done {
            *done.entry(name).or_default() += count;
        }
    }
    for name in [
        "submit",
        "schedule",
        "give up",
        "running",
        "meter",
        "meter again",
        "exit",
        "book",
        "adjust",
        "issue",
        "pay",
        "budget",
        "kept by a budget",
        "restart",
    ] {
        assert!(
            done.get(name).is_some_and(|count| *count > 0),
            "{name} never happened: {done:?}"
        );
    }
}
