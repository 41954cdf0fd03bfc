//! Anomalies: what in a run's conduct its tenant and the operator should know of.
//!
//! Pure: `look(conduct, habit)`. Thresholds stand well above what ordinary programs do (a year of them is generated in
//! `tests/it/audit/`), for an alarm that cries often is switched off. Called by `decide/audit.rs`.

use serde::{Deserialize, Serialize};

use super::conduct::{Conduct, Tampering};
use super::habit::{Habit, OCTAVE, Trait, Traits};

/// What is out of order.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
#[serde(rename_all = "snake_case")]
pub enum AnomalyKind {
    /// It felt for the edges of what it may do.
    ProbingLimits,
    /// It changed, or tried to, what stands between it and its devices.
    Tampering,
    /// It does not do what it used to do.
    PatternChanged,
}

impl AnomalyKind {
    pub fn as_str(self) -> &'static str {
        match self {
            AnomalyKind::ProbingLimits => "probing_limits",
            AnomalyKind::Tampering => "tampering",
            AnomalyKind::PatternChanged => "pattern_changed",
        }
    }
}

/// One anomaly and the numbers that make it one.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
pub struct Anomaly {
    pub kind: AnomalyKind,
    pub why: String,
}

/// Different system calls denied in one run. Programs that try for something better and fall back (io_uring,
/// performance counters, keyrings, namespaces) meet a handful.
const DENIED_CALLS_MOST: usize = 10;
/// Calls denied by the guard in each process that opened a device: asking for every known extension is a few dozen.
const DENIALS_MOST: u64 = 100;
/// Refused allocations: a search for the largest batch is some dozens, a full device's server thousands beside its work.
const REFUSALS_MOST: u64 = 200;

/// A run is judged against at least so many before it.
const RUNS_LEAST: usize = 12;
/// How far beyond all remembered runs a trait lies: in octaves, and in times their usual spread.
const LARGE: Far = Far(2, 2);
const LARGER: Far = Far(3, 2);
const HUGE: Far = Far(4, 3);
const VAST: Far = Far(6, 3);
/// The spread is taken for at least this, in parts of an octave.
const SPREAD_LEAST: i32 = OCTAVE / 4;

#[derive(Clone, Copy)]
struct Far(i32, i32);

/// What is out of order in a run of a workload with this habit.
pub fn look(conduct: &Conduct, habit: Option<&Habit>) -> Vec<Anomaly> {
    let anomaly = |kind| move |why| Anomaly { kind, why };
    let mut found: Vec<Anomaly> = Vec::new();
    found.extend(tampering(conduct).map(anomaly(AnomalyKind::Tampering)));
    found.extend(probing(conduct).map(anomaly(AnomalyKind::ProbingLimits)));
    found.extend(
        habit
            .and_then(|habit| changed(conduct, habit))
            .map(anomaly(AnomalyKind::PatternChanged)),
    );
    found
}

fn tampering(conduct: &Conduct) -> Option<String> {
    let mut why: Vec<String> = Vec::new();
    for seen in &conduct.tampering {
        why.push(
            match seen {
                Tampering::PageDamaged => "the page its limits stand on was damaged",
                Tampering::LimitsChanged => "its limits are not those its node set",
                Tampering::CountsWentBack => "counts that only grow went back",
                Tampering::PlaceGone => "its place on its device's page vanished",
            }
            .to_owned(),
        );
    }
    if conduct.malformed > 0 {
        why.push(format!(
            "{} messages to its worker that its own library never sends",
            conduct.malformed
        ));
    }
    if conduct.launches > 0 && conduct.opens == 0 {
        why.push(format!(
            "{} launches on devices that nobody opened",
            conduct.launches
        ));
    }
    (!why.is_empty()).then(|| why.join("; "))
}

fn probing(conduct: &Conduct) -> Option<String> {
    let mut why: Vec<String> = Vec::new();
    let different = conduct.different_denied_calls();
    if different >= DENIED_CALLS_MOST {
        why.push(format!("{different} different system calls were denied"));
    }
    if conduct.denials >= DENIALS_MOST.saturating_mul(conduct.opens.max(1)) {
        why.push(format!(
            "{} calls that would pass the guard by, in {} processes",
            conduct.denials, conduct.opens
        ));
    }
    // Refused far more often than granted, and not on the way to any work.
    if conduct.refusals >= REFUSALS_MOST
        && conduct.refusals > conduct.allocations.saturating_mul(4)
        && conduct.refusals > conduct.launches
    {
        why.push(format!(
            "{} allocations refused, {} granted, {} launches",
            conduct.refusals, conduct.allocations, conduct.launches
        ));
    }
    (!why.is_empty()).then(|| why.join("; "))
}

/// Other kernels alone are an update, more or less of everything is a day like another. Together, or where a program
/// begins to give out what it never did, they are another program, or another master of the same.
fn changed(conduct: &Conduct, habit: &Habit) -> Option<String> {
    let now = Traits::of(conduct)?;
    if habit.runs.len() < RUNS_LEAST {
        return None;
    }
    let moved = |of: Trait| Shift::of(now.get(of), habit.runs.iter().map(|run| run.get(of)).collect());
    let up = |of: Trait, far: Far| {
        moved(of)
            .filter(|shift| shift.by > 0 && shift.is(far))
            .map(|shift| (of, shift))
    };
    let down = |of: Trait, far: Far| {
        moved(of)
            .filter(|shift| shift.by < 0 && shift.is(far))
            .map(|shift| (of, shift))
    };
    let both = |one: Option<Moved>, other: Option<Moved>| Some(vec![one?, other?]);
    let given_out = |far| both(up(Trait::OutPerSecond, far), up(Trait::OutPerLaunch, far));
    let in_old_kernels = || given_out(HUGE);
    // Fewer, longer launches move more each, and more, shorter ones less: only the opposite is strange.
    let in_new_kernels = || {
        let busier = || up(Trait::BusyPerLaunch, LARGE);
        given_out(LARGER)
            .or_else(|| both(busier(), down(Trait::InPerLaunch, LARGE)))
            .or_else(|| both(busier(), down(Trait::OutPerLaunch, LARGE)))
            .or_else(|| both(down(Trait::InPerLaunch, VAST), down(Trait::OutPerLaunch, VAST)))
            .or_else(|| both(up(Trait::PeakBytes, LARGE), up(Trait::LaunchesPerSecond, LARGE)))
            .or_else(|| {
                Some(vec![
                    up(Trait::BusyPerLaunch, VAST).or_else(|| down(Trait::BusyPerLaunch, VAST))?,
                ])
            })
    };
    let (new, shifts) = match in_old_kernels() {
        Some(shifts) => (false, shifts),
        None if mostly_new(conduct, habit) => (true, in_new_kernels()?),
        None => return None,
    };
    let words = shifts.iter().map(|(of, shift)| {
        let way = if shift.by < 0 { "down" } else { "up" };
        let times = 1u64 << (shift.by.abs() / OCTAVE).min(62);
        format!("{} {way} {times} times", of.words())
    });
    let kernels = new.then(|| "most launches are of kernels it never used".to_owned());
    let why: Vec<String> = words.chain(kernels).collect();
    Some(format!(
        "against its last {} runs: {}",
        habit.runs.len(),
        why.join(", ")
    ))
}

fn mostly_new(conduct: &Conduct, habit: &Habit) -> bool {
    let launches = |of: &dyn Fn(u64) -> bool| {
        let counted = conduct.kernels.iter().filter(|used| of(used.hash.0));
        counted.fold(0u64, |sum, used| sum.saturating_add(used.launches))
    };
    launches(&|hash| !habit.knows(hash)) > launches(&|_| true) / 2
}

type Moved = (Trait, Shift);

/// Where a trait lies against what was.
struct Shift {
    /// From the middle, in parts of an octave.
    by: i32,
    /// Beyond the farthest remembered run.
    beyond: i32,
    spread: i32,
}

impl Shift {
    fn of(now: i32, mut before: Vec<i32>) -> Option<Shift> {
        before.sort_unstable();
        let (least, most) = (*before.first()?, *before.last()?);
        let middle = before[before.len() / 2];
        let mut apart: Vec<i32> = before.iter().map(|value| (value - middle).abs()).collect();
        apart.sort_unstable();
        Some(Shift {
            by: now - middle,
            beyond: (now - most).max(least - now),
            // Of a normal spread the middle deviation is two thirds of the standard one.
            spread: (apart[apart.len() / 2] * 3 / 2).max(SPREAD_LEAST),
        })
    }

    fn is(&self, Far(octaves, spreads): Far) -> bool {
        self.beyond >= octaves * OCTAVE && self.beyond >= spreads * self.spread
    }
}
