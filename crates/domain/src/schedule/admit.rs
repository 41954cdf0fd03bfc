//! Admission: does a job fit every quota and budget above it, now or ever?

use super::allocation::{Allocation, Slice};
use super::attach;
use super::calendar::{self, leaves_promised};
use super::order::lend;
use super::pass::Ask;
use super::place::{Place, given};
use crate::event::{Charge, Event};
use crate::id::{BookingId, JobId};
use crate::ledger::hold::Hold;
use crate::ledger::tariff;
use crate::meter::{Amounts, Exceeded, Meter, Of};
use crate::money::Micros;
use crate::refusal::{Code, Refusal};
use crate::state::State;
use crate::tenancy::budget::{self, Cost, OverBudget};
use crate::tenancy::scope::{Scope, ScopeId};
use crate::time::{Period, SECOND_MS, Time};
use crate::workload::Workload;
use crate::workload::job::{Admission, Job};
use crate::workload::spec::{JobSpec, Kind};

/// Refuses at once what could never be admitted as things stand: larger than a quota, dearer than a budget.
pub fn refuse_for_ever(state: &State, owner: ScopeId, spec: &JobSpec, at: Time) -> Result<(), Refusal> {
    let vram_mib = spec.demand.vram_total_mib();
    let amounts = spec.amounts(spec.demand.class.as_deref(), vram_mib);
    for scope in state.tree.chain(owner) {
        if let Some(exceeded) = scope.limits().first_exceeded(&Default::default(), &amounts) {
            return Err(exceeds_quota(state, scope, &exceeded));
        }
    }
    if let Some(class) = &spec.demand.class {
        lend::refuse_for_ever(state, owner, class, spec.demand.gpu_milli())?;
    }
    let admission = admission(
        state,
        owner,
        spec,
        cheapest_class(state, owner, spec, at).as_deref(),
        vram_mib,
        at,
    );
    countable(state, &admission, at)?;
    match first_over_budget(state, owner, &admission, at) {
        Some((scope, over)) if over.for_this_period => Err(exceeds_budget(state, scope, &over, &admission)),
        _ => Ok(()),
    }
}

/// What the job waits for wherever it would go: a suspension, a policy narrowed since it was submitted, or quota
/// over everything and its own class.
pub fn within_limits(state: &State, owner: ScopeId, spec: &JobSpec) -> Result<(), Refusal> {
    allowed(state, owner, spec)?;
    fits_quotas(
        state,
        owner,
        &spec.amounts(spec.demand.class.as_deref(), spec.demand.vram_total_mib()),
    )
}

fn allowed(state: &State, owner: ScopeId, spec: &JobSpec) -> Result<(), Refusal> {
    if let Some(suspended) = state.tree.suspended_above(owner) {
        let title = state.tree.title(suspended.id);
        return Err(
            Refusal::new(Code::ScopeSuspended, format!("{title} is suspended"))
                .hint(format!("it starts when {title} is resumed")),
        );
    }
    for scope in state.tree.chain(owner) {
        scope.policy.refuse(spec, || state.tree.title(scope.id))?;
    }
    Ok(())
}

fn fits_quotas(state: &State, owner: ScopeId, amounts: &Amounts) -> Result<(), Refusal> {
    for scope in state.tree.chain(owner) {
        if let Some(exceeded) = scope.limits().first_exceeded(&scope.used, amounts) {
            return Err(quota_in_use(state, scope, &exceeded));
        }
    }
    Ok(())
}

/// Admits the job on GPUs of `class` with `vram_mib` in all, or says what it waits for.
pub fn admit(
    state: &State,
    owner: ScopeId,
    spec: &JobSpec,
    class: Option<&str>,
    vram_mib: u64,
    at: Time,
) -> Result<Admission, Refusal> {
    allowed(state, owner, spec)?;
    let admission = admission(state, owner, spec, class, vram_mib, at);
    // Where it gets what it named, the same is counted; else what it named is asked first.
    let asked = (spec.demand.class.as_deref(), spec.demand.vram_total_mib());
    if asked != (class, vram_mib) {
        fits_quotas(state, owner, &spec.amounts(asked.0, asked.1))?;
    }
    admitted(state, owner, admission, at)
}

/// The same for what was found to be within limits.
pub(super) fn admit_within_limits(
    state: &State,
    owner: ScopeId,
    spec: &JobSpec,
    class: Option<&str>,
    vram_mib: u64,
    at: Time,
) -> Result<Admission, Refusal> {
    admitted(
        state,
        owner,
        admission(state, owner, spec, class, vram_mib, at),
        at,
    )
}

fn admitted(state: &State, owner: ScopeId, admission: Admission, at: Time) -> Result<Admission, Refusal> {
    let hold = &admission.hold;
    fits_quotas(state, owner, &admission.amounts)?;
    fits_nominal(state, owner, hold.class.as_deref(), hold.gpu_milli)?;
    countable(state, &admission, at)?;
    match first_over_budget(state, owner, &admission, at) {
        None => Ok(admission),
        Some((scope, over)) => Err(budget_held(state, scope, &over, &admission)),
    }
}

/// What the job of a task holds itself, from the first of its tasks that starts to its own end: that it is one job, of its
/// kind, and its frames. None for other jobs, and where it holds that already.
pub(super) fn admit_parent(
    state: &State,
    spec: &JobSpec,
    task: JobId,
    at: Time,
) -> Result<Option<Event>, Refusal> {
    let parent = spec.task.as_ref().and_then(|task| state.jobs.get(&task.of));
    let Some(parent) = parent.filter(|parent| parent.admission.is_none()) else {
        return Ok(None);
    };
    let owner = ScopeId::User(parent.owner);
    let admission = admitted(state, owner, of_tasks(state, parent), at)?;
    leaves_promised(state, task, owner, &admission, at)?;
    Ok(Some(Event::JobAdmitted {
        job: parent.id,
        admission,
    }))
}

pub(super) fn of_tasks(state: &State, parent: &Job) -> Admission {
    let spec = &parent.spec;
    Admission {
        amounts: spec.amounts_of_tasks(),
        hold: Hold {
            account: state.account_of(ScopeId::User(parent.owner)),
            left: Cost {
                frames: spec.frames(),
                ..Cost::default()
            },
            hourly: Micros(0),
            gpu_milli: 0,
            members: 1,
            class: spec.demand.class.as_deref().map(Into::into),
            sku: spec.sku.as_deref().map(Into::into),
            kind: (spec.kind != Kind::Batch).then_some(spec.kind),
            clauses: None,
            resale: None,
        },
        booking: None,
    }
}

/// Refuses at once a job of tasks that is dearer as a whole than some budget has left, though each of its tasks is not.
pub fn refuse_too_dear(
    state: &State,
    owner: ScopeId,
    spec: &JobSpec,
    run_ms: u64,
    at: Time,
) -> Result<(), Refusal> {
    let class = cheapest_class(state, owner, spec, at);
    let mut admission = admission(
        state,
        owner,
        spec,
        class.as_deref(),
        spec.demand.vram_total_mib(),
        at,
    );
    admission.hold.left = Cost {
        frames: spec.frames(),
        ..admission.hold.most_of_all(run_ms)
    };
    set_aside_ends(&mut admission.hold, spec, run_ms);
    match first_over_budget(state, owner, &admission, at) {
        Some((scope, over)) if over.for_this_period => Err(exceeds_budget(state, scope, &over, &admission)),
        _ => Ok(()),
    }
}

/// Admits a job in a booked window: quotas and the price of what is not booked, and nothing of what others lend.
pub(super) fn admit_booked(
    state: &State,
    owner: ScopeId,
    spec: &JobSpec,
    class: Option<&str>,
    vram_mib: u64,
    at: Time,
) -> Result<Admission, Refusal> {
    allowed(state, owner, spec)?;
    let admission = admission(state, owner, spec, class, vram_mib, at);
    fits_quotas(state, owner, &admission.amounts)?;
    countable(state, &admission, at)?;
    match first_over_budget(state, owner, &admission, at) {
        None => Ok(admission),
        Some((scope, over)) => Err(budget_held(state, scope, &over, &admission)),
    }
}

/// Beyond nominal quota only what others lend, within what may be borrowed.
fn fits_nominal(state: &State, owner: ScopeId, class: Option<&str>, ask_milli: u64) -> Result<(), Refusal> {
    class.map_or(Ok(()), |class| {
        lend::footing(state, owner, class, ask_milli).map(drop)
    })
}

/// The admission the job would get with others gone, whatever is promised being taken. Money has to be there before
/// they leave: what of their hold comes back is known only when they have.
pub(super) fn admit_without(
    state: &State,
    ask: &Ask<'_>,
    places: &[Place],
    gone: &[&Job],
    at: Time,
) -> Result<Admission, Refusal> {
    let (given, vram_mib) = given(places, ask.spec);
    let class = places.first().and_then(|place| place.class.as_deref());
    allowed(state, ask.owner, &given)?;
    let admission = admission(state, ask.owner, &given, class, vram_mib, at);
    let used = |scope: &Scope| {
        let mut used = calendar::used(state, scope, ask.job);
        for job in gone.iter().filter(|job| calendar::is_above(state, scope.id, job)) {
            if let Some(held) = &job.admission {
                used.remove(&held.amounts);
            }
        }
        used
    };
    for scope in state.tree.chain(ask.owner) {
        if let Some(exceeded) = scope.limits().first_exceeded(&used(scope), &admission.amounts) {
            return Err(quota_in_use(state, scope, &exceeded));
        }
    }
    if let Some(class) = class {
        lend::footing_by(state, ask.owner, class, admission.hold.gpu_milli, used)?;
    }
    countable(state, &admission, at)?;
    match first_over_budget(state, ask.owner, &admission, at) {
        None => Ok(admission),
        Some((scope, over)) => Err(budget_held(state, scope, &over, &admission)),
    }
}

/// Admits a running job in another size, from `metered_ms` of its run time on; `charge` is for what ran since in the
/// old one. Only what it has more than before has to fit.
pub fn resized(
    state: &State,
    job: &Job,
    spec: &JobSpec,
    slices: &[Slice],
    charge: Option<&Charge>,
    metered_ms: u64,
    at: Time,
) -> Result<Admission, Refusal> {
    let owner = ScopeId::User(job.owner);
    let before = job.admission.as_ref().expect("INVARIANT: what runs is admitted");
    let vram_mib = slices.iter().map(|slice| slice.vram_mib).sum();
    let spec = attach::resized(state, job, spec, slices)?;
    let mut after = admission(state, owner, &spec, before.hold.class.as_deref(), vram_mib, at);
    let metered_ms = charge.map_or(metered_ms, |charge| charge.to_ms);
    let frames = before.hold.left.frames;
    after.hold.left = Cost {
        frames,
        ..after
            .hold
            .most_between(metered_ms, most_ms(&spec).max(metered_ms))
    };
    set_aside_ends(&mut after.hold, &spec, most_ms(&spec).saturating_sub(metered_ms));
    let or_less = |refusal: Refusal| refusal.hint("ask for less, or have the limit raised");
    fits_quotas(state, owner, &after.amounts.beyond(&before.amounts)).map_err(or_less)?;
    let more_milli = after.hold.gpu_milli.saturating_sub(before.hold.gpu_milli);
    fits_nominal(state, owner, before.hold.class.as_deref(), more_milli).map_err(or_less)?;
    let charged = charge.map_or_else(Cost::default, |charge| charge.cost);
    let mut more = after.clone();
    more.hold.left = Cost {
        money: Micros((after.hold.left.money.0 + charged.money.0 - before.hold.left.money.0).max(0)),
        gpu_ms: (after.hold.left.gpu_ms + charged.gpu_ms).saturating_sub(before.hold.left.gpu_ms),
        frames: 0,
    };
    let had = before.hold.resale.as_deref().map_or(0, |resale| resale.left.0);
    let resold = charge.and_then(|charge| charge.resale.as_deref());
    let resold = resold.map_or(0, |resold| resold.posting.amount.0);
    if let Some(resale) = more.hold.resale.as_deref_mut() {
        resale.left = Micros((resale.left.0 + resold - had).max(0));
    }
    countable(state, &more, at)?;
    match first_over_budget(state, owner, &more, at) {
        None => Ok(after),
        Some((scope, over)) => Err(or_less(budget_held(state, scope, &over, &more))),
    }
}

/// A job that a booking pays for from now on, whose members have all run for `metered_ms`; none if it is not admitted.
pub(crate) fn booked_from(
    state: &State,
    job: &Job,
    booking: BookingId,
    vram_mib: u64,
    metered_ms: u64,
    at: Time,
) -> Option<Admission> {
    let before = job.admission.as_ref()?;
    let spec = attach::booked(&job.spec, booking);
    let class = before.hold.class.as_deref();
    let mut after = admission(state, ScopeId::User(job.owner), &spec, class, vram_mib, at);
    let most_ms = most_ms(&job.spec).max(metered_ms);
    after.hold.left = Cost {
        frames: before.hold.left.frames,
        ..after.hold.most_between(metered_ms, most_ms)
    };
    set_aside_ends(&mut after.hold, &spec, most_ms - metered_ms);
    after.amounts = before.amounts.clone();
    Some(after)
}

/// Admits a paused job for the rest of its time, in the size it has.
pub fn resumed(
    state: &State,
    job: &Job,
    allocation: &Allocation,
    class: &str,
    at: Time,
) -> Result<Admission, Refusal> {
    let owner = ScopeId::User(job.owner);
    let vram_mib = allocation.slices.iter().map(|slice| slice.vram_mib).sum();
    let spec = attach::spec_at(state, job, allocation)?;
    let mut admission = admission(state, owner, &spec, Some(class), vram_mib, at);
    let ran_ms = allocation.metered_ms;
    admission.hold.left = Cost {
        frames: job.spec.frames(),
        ..admission
            .hold
            .most_between(ran_ms, most_ms(&job.spec).max(ran_ms))
    };
    set_aside_ends(
        &mut admission.hold,
        &spec,
        most_ms(&job.spec).saturating_sub(ran_ms),
    );
    admitted(state, owner, admission, at)
}

/// The grace period after the run-time limit is the job's too, so it is set aside with the rest.
fn most_ms(spec: &JobSpec) -> u64 {
    (spec.run_time_s + u64::from(spec.grace_s)) * SECOND_MS
}

/// Refuses what the ledger's integers could not count. The platform's running total is the largest sum there
/// is: every other scope, period and account holds a part of it.
fn countable(state: &State, admission: &Admission, at: Time) -> Result<(), Refusal> {
    let total = state
        .tree
        .find(ScopeId::Platform)?
        .spending
        .at(&Of::All, Period::Total, at);
    let cost = admission.hold.left;
    let money = [total.spent.money, total.held.money]
        .into_iter()
        .try_fold(cost.money, Micros::checked_add);
    let gpu_ms = [total.spent.gpu_ms, total.held.gpu_ms]
        .into_iter()
        .try_fold(cost.gpu_ms, u64::checked_add);
    if money.is_some_and(|money| money.0 < i64::MAX) && gpu_ms.is_some() {
        return Ok(());
    }
    Err(Refusal::new(
        Code::ExceedsBudget,
        format!(
            "up to {} would be spent, more than the ledger can count",
            cost.money
        ),
    )
    .field("/run_time_s")
    .hint("ask for a shorter run time or less"))
}

/// What a job would hold on GPUs of a class, whether that fits or not.
pub(super) fn admission(
    state: &State,
    owner: ScopeId,
    spec: &JobSpec,
    class: Option<&str>,
    vram_mib: u64,
    at: Time,
) -> Admission {
    // In a booked window the booking pays for the GPUs, used or not.
    let booked = spec.booking.is_some();
    let ask = tariff::Ask::of(spec, class, vram_mib);
    let (own, resale) = tariff::tariffs(&state.prices, &state.books, &state.tree, owner, &ask, at);
    let mut hold = Hold {
        account: state.account_of(owner),
        left: Default::default(),
        hourly: own.hourly,
        gpu_milli: if booked { 0 } else { spec.demand.gpu_milli() },
        members: spec.demand.nodes,
        class: class.map(Into::into),
        sku: spec.sku.as_deref().map(Into::into),
        kind: (spec.kind != Kind::Batch).then_some(spec.kind),
        clauses: (!own.clauses.is_plain()).then(|| Box::new(own.clauses)),
        resale: resale.map(Box::new),
    };
    let most = hold.most_of_all(most_ms(spec));
    hold.left = Cost {
        frames: spec.frames(),
        ..most
    };
    set_aside_ends(&mut hold, spec, most_ms(spec));
    Admission {
        amounts: spec.amounts(class, vram_mib),
        hold,
        booking: spec.booking,
    }
}

/// What may be due at the job's end, frames and a minimum, is set aside with its time.
fn set_aside_ends(hold: &mut Hold, spec: &JobSpec, ms: u64) {
    let frames = spec.workload.as_deref().map_or(0, Workload::frames);
    if let Some(clauses) = &hold.clauses {
        let due = clauses.due_at_end(hold.left.money, frames);
        hold.left.money.0 = hold.left.money.0.saturating_add(due.0);
    }
    let most = hold.most_resold(ms);
    if let (Some(resale), Some(most)) = (hold.resale.as_deref_mut(), most) {
        let due = resale.clauses.due_at_end(most, frames);
        resale.left = Micros(most.0.saturating_add(due.0));
    }
}

fn first_over_budget<'a>(
    state: &'a State,
    owner: ScopeId,
    admission: &Admission,
    at: Time,
) -> Option<(&'a Scope, OverBudget)> {
    let (hold, ofs) = (&admission.hold, admission.hold.counted_as());
    state
        .tree
        .chain(owner)
        .filter(|scope| !scope.budgets.is_empty())
        .find_map(|scope| {
            budget::first_exceeded(&scope.budgets, &scope.spending, &ofs, hold.left_at(scope.id), at)
                .map(|over| (scope, over))
        })
}

/// The class on which the job would cost least, among those it accepts.
fn cheapest_class(state: &State, owner: ScopeId, spec: &JobSpec, at: Time) -> Option<Box<str>> {
    if spec.demand.gpus == 0 {
        return None;
    }
    if spec.demand.class.is_some() {
        return spec.demand.class.clone();
    }
    let index = state.fleet.index();
    let classes = index.classes().keys();
    let cheapest = classes.min_by_key(|class| {
        let ask = tariff::Ask::of(spec, Some(class), spec.demand.vram_total_mib());
        tariff::own_hourly(&state.prices, &state.books, &state.tree, owner, &ask, at)
    });
    cheapest.cloned()
}

/// A meter as a sentence has it: those of kinds say what they count.
fn said(meter: &Meter) -> String {
    match &meter.of {
        Of::Kind(kind) => format!("{meter} ({})", kind.words()),
        _ => meter.to_string(),
    }
}

fn exceeds_quota(state: &State, scope: &Scope, over: &Exceeded) -> Refusal {
    let title = state.tree.title(scope.id);
    Refusal::new(
        Code::ExceedsQuota,
        format!(
            "{} of {} asked, but {title} may have {} at most",
            over.asked,
            said(&over.meter),
            over.limit
        ),
    )
    .field(match over.meter.of {
        Of::Kind(_) => "/kind".to_owned(),
        _ => format!("/demand/{}", over.meter.resource.as_str()),
    })
    .hint(format!(
        "ask for at most {} of {}, or have the quota of {title} raised",
        over.limit, over.meter
    ))
}

fn quota_in_use(state: &State, scope: &Scope, over: &Exceeded) -> Refusal {
    let title = state.tree.title(scope.id);
    let free = over.limit.saturating_sub(over.used);
    let sentence = if over.used > over.limit {
        format!(
            "{title} uses {} of {}, above its quota of {} since that was cut; nothing new starts until it falls",
            over.used,
            said(&over.meter),
            over.limit
        )
    } else {
        format!(
            "{title} uses {} of its {} of {}; {} more do not fit",
            over.used,
            over.limit,
            said(&over.meter),
            over.asked
        )
    };
    let missing = over.used.saturating_add(over.asked).saturating_sub(over.limit);
    Refusal::new(Code::QuotaInUse, sentence)
        .hint(format!("it starts when {missing} of {} are given back (free now: {free}), or when the quota of {title} is raised", over.meter))
}

fn budget_words(scope: &Scope, over: &OverBudget, admission: &Admission) -> String {
    let of = over.budget.of();
    let of = if of == crate::meter::Of::All {
        String::new()
    } else {
        format!(" for {of}")
    };
    let cost = admission.hold.left_at(scope.id);
    let period = over.budget.period.as_str();
    if over.by_money {
        let limit = over
            .budget
            .money_micros
            .and_then(|limit| i64::try_from(limit).ok())
            .unwrap_or(i64::MAX);
        return format!(
            "up to {} would be spent, of a {period} budget of {}{of} with {} spent and {} held",
            cost.money,
            Micros(limit),
            over.spend.spent.money,
            over.spend.held.money
        );
    }
    if over.by_frames {
        return format!(
            "{} frames would be made, of a {period} budget of {}{of} with {} made and {} under way",
            cost.frames,
            over.budget.frames.unwrap_or(0),
            over.spend.spent.frames,
            over.spend.held.frames
        );
    }
    format!(
        "up to {} GPU-seconds would be used, of a {period} budget of {}{of} with {} used and {} held",
        cost.gpu_ms / 1000,
        over.budget.gpu_seconds.unwrap_or(0),
        over.spend.spent.gpu_ms / 1000,
        over.spend.held.gpu_ms / 1000
    )
}

fn exceeds_budget(state: &State, scope: &Scope, over: &OverBudget, admission: &Admission) -> Refusal {
    let title = state.tree.title(scope.id);
    let when = if over.for_ever {
        ""
    } else {
        ", or wait for the next period"
    };
    Refusal::new(
        Code::ExceedsBudget,
        format!("{title}: {}", budget_words(scope, over, admission)),
    )
    .field(if over.by_frames {
        "/workload"
    } else {
        "/run_time_s"
    })
    .hint(match over.by_frames {
        true => format!("make fewer frames, have the budget of {title} raised{when}"),
        false => format!("ask for a shorter run time or less, have the budget of {title} raised{when}"),
    })
}

fn budget_held(state: &State, scope: &Scope, over: &OverBudget, admission: &Admission) -> Refusal {
    let title = state.tree.title(scope.id);
    Refusal::new(Code::BudgetHeld, format!("{title}: {}", budget_words(scope, over, admission)))
        .hint(format!("it starts when running jobs of {title} end and return what they do not use, or when the budget is raised"))
}
