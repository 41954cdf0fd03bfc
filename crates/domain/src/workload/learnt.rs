//! What runs of the same workload took before, by tenant: device memory, run time, time of a frame.
//!
//! The last runs of each signature are kept as they were measured, so quantiles are exact, and bounded: so many runs of so
//! many signatures of each tenant, the one that ran longest ago being forgotten first. Integers only, so the fold gives
//! the same everywhere. Absent: what is made of it (`derive`).

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use super::Workload;
use super::job::Outcome;
use super::model;
use super::usage::Usage;
use crate::id::TenantId;

/// Runs kept of one signature.
pub const RUNS: usize = 32;
/// Signatures kept of one tenant.
pub const SIGNATURES: usize = 256;
/// Fewer say nothing.
pub const RUNS_LEAST: u32 = 3;

/// Which runs are alike: everything of a workload that its memory and time follow from.
pub fn signature(workload: &Workload, job_name: &str) -> String {
    let model = |name: &str| {
        let found = model::find(name, "");
        found.map_or_else(|_| name.to_owned(), |model| model.name.into_owned())
    };
    match workload {
        Workload::Inference(i) => {
            let kv = i.kv_dtype.unwrap_or(i.dtype.of_cache()).as_str();
            let split = (i.split.data, i.split.tensor, i.split.pipeline);
            format!(
                "inference {} {}/{kv} {}x{} {split:?}",
                model(&i.model),
                i.dtype.as_str(),
                i.context,
                i.sequences
            )
        }
        Workload::FineTune(t) | Workload::Training(t) => {
            let split = (t.split.data, t.split.tensor, t.split.pipeline, t.zero);
            format!(
                "{} {} {} {} {} {:?} {} {}x{} {} {split:?}",
                workload.kind().as_str(),
                model(&t.model),
                t.method.as_str(),
                t.precision.as_str(),
                t.optimizer.as_str(),
                (t.dtype.map(|dtype| dtype.as_str()), t.fp32_gradients),
                t.recompute.as_str(),
                t.sequence,
                t.batch,
                t.rank
            )
        }
        Workload::Rendering(r) => format!("rendering {}", r.scene.as_deref().unwrap_or(job_name)),
        Workload::Video(v) => {
            let each = v.segments.map_or(0, |segments| segments.segment_s);
            format!("video {each} {}", v.scene.as_deref().unwrap_or(job_name))
        }
    }
}

/// What one run took; none of what it does not tell.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Run {
    /// Device memory on each GPU that would have been enough.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub vram_mib: Option<u64>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub run_ms: Option<u64>,
    /// Of one frame or segment.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub each_ms: Option<u64>,
}

impl Run {
    /// What a run tells, whose slices had `given_mib` each. A tenth more than the peak is enough, and what it had was:
    /// so a program that takes all it is given is not given more each time.
    pub fn of(
        workload: &Workload,
        outcome: &Outcome,
        usage: Option<&Usage>,
        given_mib: u64,
        ran_ms: u64,
    ) -> Option<Run> {
        // What failed may have been on its way to more; who was stopped had what was needed until then.
        let told = matches!(
            outcome,
            Outcome::Succeeded | Outcome::Cancelled | Outcome::TimedOut
        );
        let whole = matches!(outcome, Outcome::Succeeded);
        let peak_mib = usage.map_or(0, |usage| usage.peak_vram_mib);
        let enough = |peak: u64| (peak + peak.div_ceil(10)).min(given_mib.max(peak));
        let pieces = workload.pieces().filter(|&pieces| pieces > 0);
        let run = Run {
            vram_mib: (told && peak_mib > 0).then(|| enough(peak_mib)),
            run_ms: (whole && ran_ms > 0).then_some(ran_ms),
            each_ms: pieces
                .filter(|_| whole && ran_ms > 0)
                .map(|pieces| ran_ms.div_ceil(pieces)),
        };
        (run != Run::default()).then_some(run)
    }
}

/// The middle, nine tenths, and the most of what was measured.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
pub struct Quantiles {
    /// How many runs tell of it.
    pub runs: u32,
    pub p50: u64,
    pub p90: u64,
    pub most: u64,
}

impl Quantiles {
    /// The smallest value that so large a part of all does not pass; none of fewer than says anything.
    fn of(values: impl Iterator<Item = u64>) -> Option<Quantiles> {
        let mut values: Vec<u64> = values.collect();
        values.sort_unstable();
        let runs = u32::try_from(values.len()).unwrap_or(u32::MAX);
        let at = |tenths: usize| values[(values.len() * tenths).div_ceil(10) - 1];
        (runs >= RUNS_LEAST).then(|| Quantiles {
            runs,
            p50: at(5),
            p90: at(9),
            most: at(10),
        })
    }
}

/// What was measured of one signature.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
pub struct Measured {
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub vram_mib: Option<Quantiles>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub run_ms: Option<Quantiles>,
    /// Of one frame or segment.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub each_ms: Option<Quantiles>,
}

#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
struct Runs {
    /// Oldest first.
    last: Vec<Run>,
    /// The how-manyth of the tenant's runs the last was.
    tick: u64,
}

#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
struct OfTenant {
    tick: u64,
    runs: BTreeMap<String, Runs>,
}

/// Everything learnt of workloads. INVARIANT: an estimate reads the entry of its own tenant alone.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Learnt {
    tenants: BTreeMap<TenantId, OfTenant>,
}

impl Learnt {
    pub(crate) fn is_empty(&self) -> bool {
        self.tenants.is_empty()
    }

    pub fn note(&mut self, tenant: TenantId, signature: String, run: Run) {
        let of = self.tenants.entry(tenant).or_default();
        of.tick += 1;
        let runs = of.runs.entry(signature).or_default();
        runs.tick = of.tick;
        if runs.last.len() == RUNS {
            runs.last.remove(0);
        }
        runs.last.push(run);
        if of.runs.len() > SIGNATURES {
            let oldest = of.runs.iter().min_by_key(|(_, runs)| runs.tick);
            let oldest = oldest.map(|(signature, _)| signature.clone());
            oldest.and_then(|signature| of.runs.remove(&signature));
        }
    }

    /// None where too few runs say anything.
    pub fn measured(&self, tenant: TenantId, signature: &str) -> Option<Measured> {
        let runs = &self.tenants.get(&tenant)?.runs.get(signature)?.last;
        let measured = Measured {
            vram_mib: Quantiles::of(runs.iter().filter_map(|run| run.vram_mib)),
            run_ms: Quantiles::of(runs.iter().filter_map(|run| run.run_ms)),
            each_ms: Quantiles::of(runs.iter().filter_map(|run| run.each_ms)),
        };
        (measured != Measured::default()).then_some(measured)
    }

    /// A tenant is gone.
    pub fn forget(&mut self, tenant: TenantId) {
        self.tenants.remove(&tenant);
    }
}

#[cfg(test)]
mod tests;
