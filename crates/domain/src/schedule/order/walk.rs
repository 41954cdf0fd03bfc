//! A pass over the queue: which waiting job is tried next.
//!
//! First who waited past the bound, oldest first, of all classes from the highest down: nothing starves, whatever
//! comes above it. Then class by class: those for whom others left, and line by line in their order. A line whose
//! first job was refused is not asked again in the pass, nor is any line of equal need under the same limits or, for
//! want of room, under the same policies: nothing a pass does gives back quota or room at once. The first few that
//! found none are promised some. Work between two answers is bounded. A walk is no part of the state and is never
//! stored; it names jobs, and the command `Schedule` decides about each. Driven by the controller.

use std::collections::{BTreeMap, BTreeSet};

use super::aged::{competes, is_kept_for, waited_ms};
use super::key::{Band, cost_gpu_s, rank_of};
use super::lend::is_sure;
use super::standing::{Line, LineAt, Standings};
use crate::command::Wish;
use crate::forecast::history::Signature;
use crate::id::{JobId, UserId};
use crate::refusal::{Code, Refusal};
use crate::schedule::calendar::{self, Promise};
use crate::schedule::evict::{is_for_room, longer_gives_way};
use crate::schedule::queue::Need;
use crate::state::State;
use crate::tenancy::policy::Policy;
use crate::tenancy::scope::{Scope, ScopeId};
use crate::time::Time;
use crate::workload::job::{Job, Phase};
use crate::workload::spec::{Demand, Priority};

/// So many jobs of a pass that found no room are promised some, and for so many that lack quota somebody is looked for who
/// has it, by turns: work is bounded. They are counted apart, or a tenant at its limit would keep others from room.
const FIRST: usize = 32;

/// Lines put in order, or jobs passed over, between two answers.
const AT_ONCE: usize = 64;

/// What the walk says when asked for the next job.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Turn {
    /// Promises that are kept for nothing are to be withdrawn.
    Withdraw,
    /// This job is to be tried.
    Try(JobId),
    /// It found no room, and others are to give way to it, or it is to be promised what there will be.
    Promise(JobId),
    /// Still looking; ask again.
    Looks,
    /// Every job that could start was tried.
    Over,
}

impl Turn {
    /// The command that the turn stands for.
    pub fn wish(self) -> Option<Wish> {
        match self {
            Turn::Withdraw => Some(Wish::Withdraw),
            Turn::Try(job) => Some(Wish::Schedule { job }),
            Turn::Promise(job) => Some(Wish::Promise { job }),
            Turn::Looks | Turn::Over => None,
        }
    }
}

#[derive(Debug, Clone)]
enum Stage {
    /// Past the bound; after this job.
    Aged(Option<JobId>),
    /// Others left for them; after this job.
    Promised(Option<JobId>),
    /// Putting lines in order; after this one.
    Sorts(Option<(UserId, Need)>),
    Lines,
}

/// The job asked about last.
#[derive(Debug, Clone)]
struct Asked {
    job: JobId,
    user: UserId,
    need: Need,
    line: Option<LineAt>,
}

/// A pass that is under way.
#[derive(Debug, Clone)]
pub struct Walk {
    at: Time,
    /// Classes whose aged jobs are to come, the present one last; while there are any, nobody else is asked.
    aged: Vec<Priority>,
    /// Classes to come, the present one last.
    classes: Vec<Priority>,
    stage: Stage,
    standings: Standings,
    /// Needs of this class that were refused, by the scope under which all have the same limits.
    refused: BTreeSet<(ScopeId, Need)>,
    /// Needs that found no room, by the scope under which all have the same policies.
    no_room: BTreeSet<(ScopeId, Need)>,
    /// What aged jobs wait for: nobody behind them gets it.
    kept: Vec<Demand>,
    /// Needs within nominal quota when last looked at, by the scope under which all have the same limits.
    sure: BTreeMap<(ScopeId, Need), bool>,
    ranks: BTreeMap<Signature, u64>,
    asked: Option<Asked>,
    /// The job asked about last is to be promised room.
    promises: Option<JobId>,
    /// Jobs for which room was looked for so far; and those of them that lacked quota.
    for_room: usize,
    for_quota: usize,
    /// Some promise is kept for nothing.
    lapsed: bool,
    /// Jobs asked about so far.
    count: usize,
    /// Some scope has a nominal quota.
    any_sure: bool,
}

impl Walk {
    pub fn begin(state: &State, at: Time) -> Walk {
        Walk {
            at,
            aged: Priority::ALL.to_vec(),
            classes: Priority::ALL.to_vec(),
            stage: Stage::Aged(None),
            standings: Standings::default(),
            refused: BTreeSet::new(),
            no_room: BTreeSet::new(),
            kept: Vec::new(),
            sure: BTreeMap::new(),
            ranks: BTreeMap::new(),
            asked: None,
            promises: None,
            for_room: 0,
            for_quota: 0,
            lapsed: !calendar::lapsed(state, at).is_empty(),
            count: 0,
            any_sure: state
                .tree
                .iter()
                .any(|scope| scope.sure_classes().next().is_some()),
        }
    }

    /// The job to be tried next, what became of the last one being in the state.
    pub fn next(&mut self, state: &State) -> Turn {
        if std::mem::take(&mut self.lapsed) {
            return Turn::Withdraw;
        }
        if let Some(job) = self.promises.take() {
            return Turn::Promise(job);
        }
        self.settle(state);
        let Some(class) = self.class() else {
            return Turn::Over;
        };
        match self.stage.clone() {
            Stage::Aged(after) => self.next_aged(state, class, after),
            Stage::Promised(after) => self.next_promised(state, class, after),
            Stage::Sorts(after) => self.sort_some(state, class, after),
            Stage::Lines => self.next_line(state, class),
        }
    }

    /// The class that is asked now.
    fn class(&self) -> Option<Priority> {
        self.aged.last().or(self.classes.last()).copied()
    }

    /// How many jobs were asked about.
    pub fn asked(&self) -> usize {
        self.count
    }

    /// A job came to wait while the pass is under way. Says whether the pass will come to it, or to one like it.
    pub fn joined(&mut self, state: &State, job: &Job) -> bool {
        let (priority, need) = (job.spec.priority, Need::of(job));
        let Some(&class) = self.classes.last() else {
            return false;
        };
        let passed = match &self.stage {
            Stage::Aged(_) | Stage::Promised(_) => false,
            Stage::Sorts(after) => after
                .as_ref()
                .is_some_and(|last| (job.owner, &need) <= (last.0, &last.1)),
            Stage::Lines => true,
        };
        let is_new = state.queue.head(priority, job.owner, &need) == Some(job.id);
        if priority == class && passed && is_new {
            let first = self.place_of(state, &need, job.id);
            let user = job.owner;
            self.standings.add(state, self.at, Line { user, need }, first);
        }
        priority <= class
    }

    /// The last job was refused.
    pub fn refused(&mut self, state: &State, refusal: &Refusal) {
        let Some(asked) = &self.asked else { return };
        let kept = state.calendar.of(asked.job).is_some_and(Promise::evicts);
        let job = state.jobs.get(&asked.job);
        let queued = job.is_some_and(|job| job.phase == Phase::Queued);
        // Quota comes back at once only if somebody who has it may be asked to leave.
        let for_quota = matches!(refusal.code, Code::QuotaInUse | Code::BorrowLimit | Code::NotLent);
        let in_vain = for_quota
            && !longer_gives_way(state)
            && job.is_some_and(|job| !self.any_sure && !outranks_any(state, job.spec.priority));
        let count = match for_quota {
            true => &mut self.for_quota,
            false => &mut self.for_room,
        };
        if kept || queued && *count < FIRST && is_for_room(refusal) && !in_vain {
            self.promises = Some(asked.job);
            *count += usize::from(!kept);
        }
        if matches!(refusal.code, Code::NoCapacity | Code::NotShared | Code::NoNodes) {
            let under = one_policy(state, asked.user);
            self.no_room.insert((under, asked.need.clone()));
            if asked.line.is_none() && job.is_some_and(|job| is_kept_for(job, state.aged_ms(), self.at)) {
                self.kept.push(asked.need.demand().clone());
            }
        }
    }

    /// Gives the line asked last its new place: behind its next job if the last one went, else out of the pass.
    fn settle(&mut self, state: &State) {
        let Some(asked) = self.asked.take() else { return };
        let class = self.class().expect("a job is asked within its class");
        let still_waits = state
            .jobs
            .get(&asked.job)
            .is_some_and(|job| state.queue.contains(job));
        let next = head(state, class, asked.user, &asked.need);
        // Where others leave for it, the next like it may have others leave too; and one that was promised room may find
        // some where the job asked did not.
        let goes_on = !still_waits
            || state.calendar.of(asked.job).is_some_and(Promise::evicts)
            || next.is_some_and(|next| next != asked.job && state.calendar.of(next).is_some());
        if goes_on && still_waits {
            let under = one_policy(state, asked.user);
            self.no_room.remove(&(under, asked.need.clone()));
        }
        if !goes_on {
            self.refused
                .insert((one_limit(state, asked.user), asked.need.clone()));
        }
        let Some(line) = asked.line else { return };
        let first = next
            .filter(|next| goes_on && *next != asked.job)
            .map(|job| self.place_of(state, &asked.need, job));
        self.standings.set(state, self.at, line, first);
    }

    fn next_promised(&mut self, state: &State, class: Priority, after: Option<JobId>) -> Turn {
        let promises = state.calendar.iter().filter(|promise| promise.evicts());
        let jobs = promises.filter_map(|promise| state.jobs.get(&promise.job));
        let of_class = jobs.filter(|job| job.spec.priority == class && state.queue.contains(job));
        match of_class
            .filter(|job| Some(job.id) > after)
            .min_by_key(|job| job.id)
        {
            Some(job) => {
                self.stage = Stage::Promised(Some(job.id));
                self.ask(job.id, job.owner, Need::of(job), None)
            }
            None => {
                // Who asks within nominal quota may get room that another could not.
                self.no_room.clear();
                self.stage = Stage::Sorts(None);
                Turn::Looks
            }
        }
    }

    fn next_aged(&mut self, state: &State, class: Priority, after: Option<JobId>) -> Turn {
        let bound_ms = state.aged_ms();
        for (looked_at, id) in state.queue.arrivals(class, after).enumerate() {
            let job = &state.jobs[&id];
            if self.at.since_ms(job.submitted) < bound_ms {
                break;
            }
            let need = Need::of(job);
            let kept = state.calendar.of(id).is_some_and(Promise::evicts);
            if waited_ms(job, self.at) >= bound_ms && !kept && !self.is_out(state, job.owner, &need) {
                self.stage = Stage::Aged(Some(id));
                return self.ask(id, job.owner, need, None);
            }
            if looked_at >= AT_ONCE {
                self.stage = Stage::Aged(Some(id));
                return Turn::Looks;
            }
        }
        self.aged.pop();
        self.begin_class(match self.aged.is_empty() {
            true => Stage::Promised(None),
            false => Stage::Aged(None),
        });
        Turn::Looks
    }

    fn sort_some(&mut self, state: &State, class: Priority, after: Option<(UserId, Need)>) -> Turn {
        let from = after.as_ref().map(|(user, need)| (*user, need));
        let some: Vec<(UserId, Need, JobId)> = state
            .queue
            .lines(class, from)
            .take(AT_ONCE)
            .map(|(user, need, head)| (user, need.clone(), head))
            .collect();
        self.stage = match some.last() {
            Some((user, need, _)) if some.len() == AT_ONCE => Stage::Sorts(Some((*user, need.clone()))),
            _ => Stage::Lines,
        };
        for (user, need, head) in some {
            let refused = self.refused.contains(&(one_limit(state, user), need.clone()));
            if !refused || has_promise(state, user, &need) {
                let first = self.place_of(state, &need, head);
                self.standings.add(state, self.at, Line { user, need }, first);
            }
        }
        Turn::Looks
    }

    fn next_line(&mut self, state: &State, class: Priority) -> Turn {
        for _ in 0..AT_ONCE {
            let Some((at, line, band)) = self.standings.first() else {
                self.next_class();
                return Turn::Looks;
            };
            let (user, need) = (line.user, line.need.clone());
            let head = head(state, class, user, &need);
            match head.filter(|_| !self.is_out(state, user, &need)) {
                None => self.standings.set(state, self.at, at, None),
                // Others of its chain may have started since it was looked at.
                Some(job) if band == Band::Nominal && !self.look_again(state, user, &need) => {
                    let rest = (Band::Rest, self.rank(state, &state.jobs[&job]), job);
                    self.standings.set(state, self.at, at, Some(rest));
                }
                Some(job) => return self.ask(job, user, need, Some(at)),
            }
        }
        Turn::Looks
    }

    fn next_class(&mut self) {
        self.classes.pop();
        self.begin_class(Stage::Promised(None));
    }

    fn begin_class(&mut self, stage: Stage) {
        self.stage = stage;
        self.standings = Standings::default();
        self.refused.clear();
        self.no_room.clear();
        self.sure.clear();
    }

    fn ask(&mut self, job: JobId, user: UserId, need: Need, line: Option<LineAt>) -> Turn {
        self.count += 1;
        self.asked = Some(Asked {
            job,
            user,
            need,
            line,
        });
        Turn::Try(job)
    }

    fn is_out(&self, state: &State, user: UserId, need: &Need) -> bool {
        if self.kept.iter().any(|aged| competes(aged, need.demand())) {
            return true;
        }
        let refused = !self.refused.is_empty()
            && self.refused.contains(&(one_limit(state, user), need.clone()))
            || !self.no_room.is_empty() && self.no_room.contains(&(one_policy(state, user), need.clone()));
        refused && !has_promise(state, user, need)
    }

    /// Where a line stands with this job first in it.
    fn place_of(&mut self, state: &State, need: &Need, job: JobId) -> (Band, u64, JobId) {
        let job = &state.jobs[&job];
        let sure = self.any_sure && self.looked_at(state, job.owner, need);
        let band = if sure { Band::Nominal } else { Band::Rest };
        (band, self.rank(state, job), job.id)
    }

    /// Whether the need stands within nominal quota, as far as was seen in this class.
    fn looked_at(&mut self, state: &State, user: UserId, need: &Need) -> bool {
        let key = (one_limit(state, user), need.clone());
        let look = || is_sure(state, ScopeId::User(user), need.demand());
        *self.sure.entry(key).or_insert_with(look)
    }

    fn look_again(&mut self, state: &State, user: UserId, need: &Need) -> bool {
        self.sure.remove(&(one_limit(state, user), need.clone()));
        self.looked_at(state, user, need)
    }

    fn rank(&mut self, state: &State, job: &Job) -> u64 {
        let Some(alike) = job.alike else { return 0 };
        match job.ran_ms {
            0 => {
                let rank = || rank_of(cost_gpu_s(state, job, 0));
                *self.ranks.entry(alike).or_insert_with(rank)
            }
            ran_ms => rank_of(cost_gpu_s(state, job, ran_ms)),
        }
    }
}

/// The job of a line that is asked first: one that was promised what there will be, else the first for which nobody
/// leaves as it is.
fn head(state: &State, class: Priority, user: UserId, need: &Need) -> Option<JobId> {
    if state.calendar.is_empty() {
        return state.queue.head(class, user, need);
    }
    let mut waiting = promised(state, user, need).filter(|job| job.spec.priority == class);
    let first = waiting.next().map(|job| job.id);
    first.or_else(|| {
        let mut line = state.queue.line(class, user, need);
        line.find(|job| state.calendar.of(*job).is_none())
    })
}

/// Whether anything runs that is below this class.
fn outranks_any(state: &State, class: Priority) -> bool {
    state.running.keys().any(|(_, level)| *level < class)
}

/// Jobs of the line that were promised what there will be.
fn promised<'a>(state: &'a State, user: UserId, need: &'a Need) -> impl Iterator<Item = &'a Job> {
    let promises = state.calendar.iter().filter(|promise| !promise.evicts());
    let jobs = promises.filter_map(|promise| state.jobs.get(&promise.job));
    jobs.filter(move |job| job.owner == user && state.queue.contains(job) && Need::of(job) == *need)
}

fn has_promise(state: &State, user: UserId, need: &Need) -> bool {
    promised(state, user, need).next().is_some()
}

/// The lowest scope above the user that has a policy of its own, its tenant if there is none: all users with the same
/// answer are under the same policies, and find room alike.
fn one_policy(state: &State, user: UserId) -> ScopeId {
    lowest(state, user, |scope| scope.policy != Policy::default())
}

/// The lowest scope above the user that has limits of its own, its tenant if there is none: all users with the same answer
/// are admitted alike, and find room alike.
fn one_limit(state: &State, user: UserId) -> ScopeId {
    lowest(state, user, |scope| {
        scope.suspended
            || !scope.quota.is_empty()
            || !scope.budgets.is_empty()
            || scope.sure_classes().next().is_some()
            || scope.policy != Policy::default()
    })
}

fn lowest(state: &State, user: UserId, has: impl Fn(&Scope) -> bool) -> ScopeId {
    let mut above = state.tree.chain(ScopeId::User(user));
    let found = above.find(|scope| has(scope) || matches!(scope.id, ScopeId::Tenant(_)));
    found.map_or(ScopeId::Platform, |scope| scope.id)
}
