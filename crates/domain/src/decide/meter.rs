//! Metering: run time as nodes report it becomes charges, each interval once.
//!
//! An allocation's intervals follow one another from its start: what was charged before is not charged again, whatever
//! comes late or twice, and nobody is billed for more time than has passed. Money is rated by the hold's price
//! (`ledger/rate.rs`); what is less than a micro goes on with the allocation, and from its end with the account.

use super::Case;
use crate::command::Ran;
use crate::event::{Charge, Event, Resold};
use crate::id::NodeId;
use crate::ledger::account::{AccountId, Posting};
use crate::ledger::clause::Clauses;
use crate::ledger::hold::Hold;
use crate::ledger::rate::{Crumb, Span, rate, whole};
use crate::ledger::tariff::Resale;
use crate::meter::Of;
use crate::money::Micros;
use crate::refusal::Refusal;
use crate::schedule::allocation::Allocation;
use crate::schedule::relieve::relieve;
use crate::state::State;
use crate::tenancy::budget::Cost;
use crate::tenancy::scope::ScopeId;
use crate::time::{Period, Time};
use crate::workload::Workload;
use crate::workload::job::{Job, Outcome};
use crate::workload::usage::Usage;

/// How far a node's clock may run ahead before a reported run time is not believed.
const CLOCK_SLACK_MS: u64 = 10_000;

impl Case<'_> {
    pub(super) fn meter(&mut self, node: NodeId, ran: &[Ran]) -> Result<Vec<Event>, Refusal> {
        let mut charges: Vec<Charge> = Vec::new();
        for &Ran {
            allocation: id,
            ran_ms,
            usage,
        } in ran
        {
            // A late report of an allocation that ended has been settled already.
            let Ok((allocation, job)) = self.allocation_on(node, id) else {
                continue;
            };
            if charges.iter().any(|charge| charge.allocation == id) {
                continue;
            }
            let charge = self
                .rater()
                .charge_beside(allocation, job, ran_ms, usage, &charges);
            charges.extend(charge);
        }
        if charges.is_empty() {
            return Ok(vec![]);
        }
        let moves = relieve(self.state, &charges, self.command.at);
        let mut events = vec![Event::UsageMetered { node, charges }];
        events.extend(moves);
        Ok(events)
    }

    /// The charge for run time up to `ran_ms`; none for what was charged before. A node cannot bill for more
    /// time than has passed since it was given the work, nor say that devices worked for longer.
    pub(super) fn charge(
        &self,
        allocation: &Allocation,
        job: &Job,
        ran_ms: u64,
        usage: Option<Usage>,
    ) -> Option<Charge> {
        self.rater().charge_beside(allocation, job, ran_ms, usage, &[])
    }

    pub(super) fn rater(&self) -> Rater<'_> {
        Rater {
            state: self.state,
            at: self.command.at,
        }
    }
}

/// Rates run time that is reported at a moment.
pub(crate) struct Rater<'a> {
    pub state: &'a State,
    pub at: Time,
}

impl Rater<'_> {
    /// The charge for run time up to `ran_ms`, where others are being charged already: members share a hold, and what one takes of it the next has
    /// not.
    pub fn charge_beside(
        &self,
        allocation: &Allocation,
        job: &Job,
        ran_ms: u64,
        usage: Option<Usage>,
        others: &[Charge],
    ) -> Option<Charge> {
        let possible_ms = self.at.since_ms(allocation.placed) + CLOCK_SLACK_MS;
        let to_ms = ran_ms.min(possible_ms);
        let hold = &job.admission.as_ref()?.hold;
        if to_ms <= allocation.metered_ms {
            return None;
        }
        let step = Step::new(self.at, allocation, hold, to_ms);
        let of_job = || others.iter().filter(|charge| charge.job == job.id);
        let taken: i64 = of_job().map(|charge| charge.cost.money.0).sum();
        let taken_gpu_ms: u64 = of_job().map(|charge| charge.cost.gpu_ms).sum();
        let (own, crumb) = step.cost(hold.hourly, hold.clauses.as_deref(), allocation.crumb, || {
            self.had_in_month(self.tenant_of(job))
        });
        let room = hold.left.money.0 - taken;
        let money = own.0.min(room);
        let swept = self.swept(hold.account, others, room - money);
        let cost = Cost {
            money: Micros(money + swept.0),
            gpu_ms: hold
                .gpu_ms_between(allocation.metered_ms, to_ms)
                .min(hold.left.gpu_ms - taken_gpu_ms),
            frames: 0,
        };
        let resale = hold
            .resale
            .as_deref()
            .map(|resale| Box::new(self.resold(allocation, job, resale, &step, others)));
        let posting = Posting {
            from: hold.account,
            to: AccountId::Revenue,
            amount: cost.money,
        };
        let used = usage.filter(|_| !allocation.slices.is_empty()).map(|usage| {
            usage
                .within(to_ms, &allocation.slices)
                .since(&allocation.used.unwrap_or_default())
        });
        Some(Charge {
            allocation: allocation.id,
            job: job.id,
            from_ms: allocation.metered_ms,
            to_ms,
            cost,
            posting,
            used,
            crumb: crumb.0,
            swept,
            extra: Micros::ZERO,
            resale,
        })
    }

    /// The same step in the prices of the subscriber, and the platform's part of that.
    fn resold(
        &self,
        allocation: &Allocation,
        job: &Job,
        resale: &Resale,
        step: &Step,
        others: &[Charge],
    ) -> Resold {
        let amounts = others.iter().filter(|charge| charge.job == job.id);
        let taken: i64 = amounts
            .filter_map(|charge| Some(charge.resale.as_deref()?.posting.amount.0))
            .sum();
        let (own, crumb) = step.cost(
            resale.hourly,
            Some(&resale.clauses),
            allocation.resale_crumb,
            || self.had_in_month(self.subscriber_of(job)),
        );
        let room = resale.left.0 - taken;
        let money = own.0.min(room);
        let swept = self.swept(resale.from, others, room - money);
        let posting = Posting {
            from: resale.from,
            to: resale.to,
            amount: Micros(money + swept.0),
        };
        let before = job.resold.unwrap_or_default().0 + taken;
        Resold {
            fee: fee(
                resale,
                self.state.account_of(ScopeId::User(job.owner)),
                before,
                posting.amount,
            ),
            posting,
            crumb: crumb.0,
            swept,
            extra: Micros::ZERO,
        }
    }

    /// Whole micros of what earlier allocations left over, as far as there is room and nobody beside takes them.
    fn swept(&self, account: AccountId, others: &[Charge], room: i64) -> Micros {
        let taken: i64 = others
            .iter()
            .map(|charge| {
                let resold = charge.resale.as_deref();
                let resold = resold.filter(|resold| resold.posting.from == account);
                let own = if charge.posting.from == account {
                    charge.swept.0
                } else {
                    0
                };
                own + resold.map_or(0, |resold| resold.swept.0)
            })
            .sum();
        let there = self.state.accounts.get(account).swept().0 - taken;
        Micros(there.min(room).max(0))
    }

    fn tenant_of(&self, job: &Job) -> Option<ScopeId> {
        let tenant = self.state.tree.tenant_of(ScopeId::User(job.owner));
        tenant.map(ScopeId::Tenant)
    }

    fn subscriber_of(&self, job: &Job) -> Option<ScopeId> {
        let mut above = self.state.tree.chain(ScopeId::User(job.owner));
        above.find_map(|scope| matches!(scope.id, ScopeId::Subscriber(_)).then_some(scope.id))
    }

    fn had_in_month(&self, buyer: Option<ScopeId>) -> u64 {
        let scope = buyer.and_then(|buyer| self.state.tree.get(buyer));
        scope.map_or(0, |scope| {
            let month = scope.spending.at(&Of::All, Period::Month, self.at);
            month.spent.gpu_ms
        })
    }

    /// Adds what is due with the job's end to its last charge: frames that were made, and what is missing to the
    /// minimum of a job that ran.
    pub fn with_ends(
        &self,
        allocation: &Allocation,
        job: &Job,
        charge: Option<Charge>,
        outcome: Option<&Outcome>,
    ) -> Option<Charge> {
        let hold = &job.admission.as_ref()?.hold;
        let Some(outcome) = outcome else { return charge };
        let priced = hold.clauses.is_some() || hold.resale.is_some();
        let ran = charge.is_some() || allocation.metered_ms > 0;
        if !priced || !ran {
            return charge;
        }
        let frames = match outcome {
            Outcome::Succeeded => job.spec.workload.as_deref().map_or(0, Workload::frames),
            _ => 0,
        };
        let mut charge = charge.unwrap_or_else(|| nothing_yet(allocation, job, hold));
        if let Some(clauses) = hold.clauses.as_deref() {
            let so_far = Micros(job.charged.money.0 + charge.cost.money.0);
            let room = hold.left.money.0 - charge.cost.money.0;
            charge.extra = Micros(clauses.due_at_end(so_far, frames).0.min(room));
            charge.cost.money.0 += charge.extra.0;
            charge.posting.amount = charge.cost.money;
        }
        if let (Some(resale), Some(resold)) = (hold.resale.as_deref(), charge.resale.as_deref_mut()) {
            let before = job.resold.unwrap_or_default().0;
            let so_far = Micros(before + resold.posting.amount.0);
            let room = resale.left.0 - resold.posting.amount.0;
            resold.extra = Micros(resale.clauses.due_at_end(so_far, frames).0.min(room));
            resold.posting.amount.0 += resold.extra.0;
            let tenant = self.state.account_of(ScopeId::User(job.owner));
            resold.fee = fee(resale, tenant, before, resold.posting.amount);
        }
        let empty = charge.from_ms == charge.to_ms;
        let adds = charge.extra.0 > 0 || charge.resale.as_deref().is_some_and(|resold| resold.extra.0 > 0);
        (!empty || adds).then_some(charge)
    }
}

/// Nothing since the last interval.
fn nothing_yet(allocation: &Allocation, job: &Job, hold: &Hold) -> Charge {
    let resale = hold.resale.as_deref().map(|resale| {
        Box::new(Resold {
            posting: Posting {
                from: resale.from,
                to: resale.to,
                amount: Micros::ZERO,
            },
            crumb: allocation.resale_crumb,
            swept: Micros::ZERO,
            extra: Micros::ZERO,
            fee: None,
        })
    });
    Charge {
        allocation: allocation.id,
        job: job.id,
        from_ms: allocation.metered_ms,
        to_ms: allocation.metered_ms,
        cost: Cost::default(),
        posting: Posting {
            from: hold.account,
            to: AccountId::Revenue,
            amount: Micros::ZERO,
        },
        used: None,
        crumb: allocation.crumb,
        swept: Micros::ZERO,
        extra: Micros::ZERO,
        resale,
    }
}

/// The platform's part of what was asked up to here, less what it had before: rounded up once a job, however it is cut.
fn fee(resale: &Resale, tenant: AccountId, before: i64, amount: Micros) -> Option<Posting> {
    let of = |micros: i64| (i128::from(micros) * i128::from(resale.fee_permille) + 999) / 1000;
    let part = of(before + amount.0) - of(before);
    (part > 0).then(|| Posting {
        from: tenant,
        to: AccountId::Fee,
        amount: Micros(i64::try_from(part).unwrap_or(i64::MAX)),
    })
}

/// One member's step in time.
struct Step {
    from: Time,
    ms: u64,
    members: i64,
    gpu_milli: u64,
}

impl Step {
    /// It ended when it was reported; what is on the wall counts from there.
    fn new(at: Time, allocation: &Allocation, hold: &Hold, to_ms: u64) -> Step {
        let ms = to_ms - allocation.metered_ms;
        Step {
            from: Time(at.0.saturating_sub_unsigned(ms)),
            ms,
            members: hold.members.into(),
            gpu_milli: hold.gpu_milli / u64::from(hold.members),
        }
    }

    /// What it costs at a job's price, and what is carried on of it.
    fn cost(
        &self,
        hourly: Micros,
        clauses: Option<&Clauses>,
        carried: u64,
        had_gpu_ms: impl FnOnce() -> u64,
    ) -> (Micros, Crumb) {
        let plain = Clauses::default();
        let clauses = clauses.unwrap_or(&plain);
        let span = Span {
            from: self.from,
            ms: self.ms,
            gpu_milli: self.gpu_milli,
            before_gpu_ms: if clauses.tiers.is_empty() { 0 } else { had_gpu_ms() },
        };
        let lines = rate(Micros(hourly.0 / self.members), clauses, &span);
        whole(Crumb(carried), &lines)
    }
}
