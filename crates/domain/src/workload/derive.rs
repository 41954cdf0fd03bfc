//! From a workload to a demand: what the user did not ask for is filled in, and what was asked otherwise is said.
//!
//! A field at its default was not asked for. Runs measured before go before the rule. Called when a job is submitted, and
//! by `schedule/fit`, which submits nothing.

use serde::{Deserialize, Serialize};

use super::Workload;
use super::estimate::{Estimate, TermName};
use super::learnt::Measured;
use super::spec::{DEFAULT_RUN_TIME_S, Demand, JobSpec, MAX_NODES, MAX_RUN_TIME_S};
use crate::refusal::Refusal;

/// GPUs that one node is taken to have, where a split says nothing of nodes.
const NODE_GPUS: u32 = 8;
/// Host memory beside what is being loaded, and the largest piece that is loaded at a time.
const HOST_MIB: u64 = 2048;
const LOADED_MIB: u64 = 5120;
/// Run time set aside beyond what is expected: half as much again, and a minute to begin with.
const LONGER_PERCENT: u64 = 150;
const BEGIN_MS: u64 = 60_000;

/// What a figure rests on.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
#[serde(rename_all = "snake_case")]
pub enum DemandBasis {
    Rule,
    Measured { runs: u32 },
}

impl DemandBasis {
    pub fn words(self) -> String {
        match self {
            DemandBasis::Rule => "rule".into(),
            DemandBasis::Measured { runs } => format!("measured over {runs} runs"),
        }
    }
}

/// How a job's demand came about.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
pub struct Derivation {
    pub estimate: Estimate,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub measured: Option<Measured>,
    /// Device memory it needs on each GPU; none where nothing tells.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub vram_mib: Option<u64>,
    pub basis: DemandBasis,
    /// How long it is expected to run; none where nothing tells.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub run_ms: Option<u64>,
    /// Where the job asks for something else than that.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub differs: Vec<String>,
}

impl Derivation {
    pub fn of(workload: &Workload, measured: Option<Measured>) -> Result<Derivation, Refusal> {
        let estimate = workload.estimate()?;
        let seen = measured.and_then(|measured| measured.vram_mib);
        let ruled = Some(estimate.vram_mib()).filter(|_| !estimate.terms.is_empty());
        let each = measured.and_then(|measured| measured.each_ms);
        let pieces = workload.pieces();
        let seen_ms = each
            .zip(pieces)
            .map(|(each, pieces)| each.p50.saturating_mul(pieces));
        let basis = match (seen, each) {
            (Some(seen), _) => DemandBasis::Measured { runs: seen.runs },
            (None, Some(each)) if ruled.is_none() => DemandBasis::Measured { runs: each.runs },
            _ => DemandBasis::Rule,
        };
        Ok(Derivation {
            vram_mib: seen.map(|seen| seen.most).or(ruled),
            run_ms: seen_ms.or(estimate.run_ms),
            basis,
            estimate,
            measured,
            differs: Vec::new(),
        })
    }

    /// Fills in what the job does not ask for, and notes where it asks for something else.
    pub fn fill(&mut self, spec: &mut JobSpec) -> Result<(), Refusal> {
        // A size with a name is as it is.
        let fixed = spec.sku.is_some();
        let Some(vram_mib) = self.vram_mib else {
            if spec.demand.gpus == 0 {
                self.differs
                    .push("nothing tells what it takes of a GPU, so it gets none".into());
            }
            self.fill_time(spec);
            return Ok(());
        };
        let demand = &mut spec.demand;
        if demand.gpus == 0 && !fixed {
            (demand.nodes, demand.gpus) = self.members(demand)?;
        } else if demand.gpus_total() != u64::from(self.estimate.gpus) {
            self.differs.push(format!(
                "it asks for {} GPUs, and is split over {}",
                demand.gpus_total(),
                self.estimate.gpus
            ));
        }
        match demand.vram_mib {
            0 if !fixed => demand.vram_mib = vram_mib,
            0 => {}
            asked if asked < vram_mib => self.differs.push(format!(
                "it asks for {asked} MiB of VRAM on each GPU, {} MiB less than it is expected to need",
                vram_mib - asked
            )),
            asked if asked > vram_mib => self.differs.push(format!(
                "it asks for {asked} MiB of VRAM on each GPU, {} MiB more than it is expected to need",
                asked - vram_mib
            )),
            _ => {}
        }
        let weights_mib = self.estimate.bytes_of(TermName::Weights) >> 20;
        if !fixed && weights_mib > 0 && demand.memory_mib == Demand::default().memory_mib {
            let loaded = weights_mib.saturating_mul(demand.gpus.into());
            demand.memory_mib = HOST_MIB + loaded.min(LOADED_MIB);
        }
        self.fill_time(spec);
        Ok(())
    }

    fn fill_time(&mut self, spec: &mut JobSpec) {
        // Of a job of tasks the run time is that of each.
        let Some(run_ms) = self.run_ms.map(|run_ms| spec.share_of_task(run_ms)) else {
            return;
        };
        let expected_s = run_ms.div_ceil(1000);
        if spec.run_time_s == DEFAULT_RUN_TIME_S {
            let longest_ms = run_ms.saturating_mul(LONGER_PERCENT) / 100 + BEGIN_MS;
            spec.run_time_s = longest_ms.div_ceil(1000).min(MAX_RUN_TIME_S);
        } else if spec.run_time_s < expected_s {
            let it = if spec.tasks.is_some() { "each task" } else { "it" };
            self.differs.push(format!(
                "{it} ends after {} s, and is expected to run for {expected_s} s",
                spec.run_time_s
            ));
        }
    }

    /// How many members with how many GPUs each, so that what belongs together is on one node.
    fn members(&self, demand: &Demand) -> Result<(u32, u32), Refusal> {
        let (gpus, together) = (self.estimate.gpus, self.estimate.together);
        if demand.nodes > 1 {
            let each = gpus / demand.nodes;
            if !gpus.is_multiple_of(demand.nodes) || !each.is_multiple_of(together) {
                return Err(Refusal::invalid(
                    "/demand/nodes",
                    format!(
                        "{gpus} GPUs, {together} of them together, cannot be shared by {} members",
                        demand.nodes
                    ),
                )
                .hint("change the split, or the number of members"));
            }
            return Ok((demand.nodes, each));
        }
        if gpus <= NODE_GPUS {
            return Ok((1, gpus));
        }
        let even = |each: &u32| gpus.is_multiple_of(*each) && each.is_multiple_of(together);
        let each = (1..=NODE_GPUS).rev().find(even).unwrap_or(together);
        if gpus / each > MAX_NODES {
            return Err(
                Refusal::invalid("/demand/nodes", format!("a job has at most {MAX_NODES} members"))
                    .hint("say how many GPUs each member has"),
            );
        }
        Ok((gpus / each, each))
    }
}

#[cfg(test)]
mod tests;
