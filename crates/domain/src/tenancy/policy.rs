//! Policy: what is allowed at all. Each scope may narrow; a request must satisfy every scope above it.

use std::collections::BTreeSet;

use serde::{Deserialize, Serialize};

use super::trade::TradePolicy;
use crate::id::TenantId;
use crate::refusal::{Code, Refusal};
use crate::workload::job::Evictions;
use crate::workload::spec::{Isolation, JobSpec, Kind, Priority};

/// A policy is kept in the journal, so it is bounded.
const SHARE_WITH_MAX: usize = 1000;
/// What was lent comes back within a day.
const GUARANTEED_RUN_MAX_S: u64 = 86_400;

/// What jobs of a scope may ask for. An absent field says nothing.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
#[serde(deny_unknown_fields, default)]
pub struct Policy {
    #[serde(skip_serializing_if = "Option::is_none")]
    pub kinds: Option<BTreeSet<Kind>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub priorities: Option<BTreeSet<Priority>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "schema", schema(value_type = Option<std::collections::BTreeSet<String>>))]
    pub classes: Option<BTreeSet<Box<str>>>,
    /// No job here runs, and no neighbour is accepted, below this level.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub min_isolation: Option<Isolation>,
    /// Consent to share a device with other tenants at `guarded`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub share_guarded: Option<bool>,
    /// The other tenants whose jobs may be on a device with ours, whatever the level; none for an empty list.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "schema", schema(value_type = Option<std::collections::BTreeSet<String>>))]
    pub share_with: Option<BTreeSet<TenantId>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub max_run_time_s: Option<u64>,
    /// The largest share of one GPU a slice may have.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub max_compute_permille: Option<u16>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub max_vram_mib_per_job: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub max_gpus_per_job: Option<u32>,
    /// How many tasks of one job there are at once.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub max_parallel_tasks: Option<u32>,
    /// What jobs reach outside their tenant's own network.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub egress: Option<Egress>,
    /// How much they send and receive there, all of a tenant's jobs on a node together.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub max_egress_mbit: Option<u32>,
    /// A job here runs at least this long each time it starts before it gives way to others of this scope; 300 where nothing
    /// is said, a day at most.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub guaranteed_run_s: Option<u64>,
    /// How often a job here gives way to others of this scope within an hour; 4 where nothing is said, 16 at most.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub max_evictions_per_hour: Option<u32>,
    /// How often in its whole life; 256 where nothing is said.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub max_evictions_per_job: Option<u32>,
    /// Said of the platform: jobs give way to those of other tenants with a higher priority, too.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub preempt_tenants: Option<bool>,
    /// Said of the platform: within a priority class, jobs that lose nothing by leaving give way to those expected to be
    /// done much sooner.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub preempt_longer: Option<bool>,
    /// What of the exchange.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub trade: Option<Box<TradePolicy>>,
}

/// What a job reaches outside its tenant's own network, least first.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
#[serde(rename_all = "snake_case")]
pub enum Egress {
    None,
    /// Public addresses; never the node, its neighbours or a cloud's metadata service.
    #[default]
    Internet,
}

/// What all policies above a scope together say of its jobs' network.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Network {
    pub egress: Egress,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub max_mbit: Option<u32>,
}

impl Network {
    /// The narrowest of all.
    pub fn of<'a>(policies: impl Iterator<Item = &'a Policy>) -> Network {
        policies.fold(Network::default(), |network, policy| Network {
            egress: network.egress.min(policy.egress.unwrap_or_default()),
            max_mbit: [network.max_mbit, policy.max_egress_mbit]
                .into_iter()
                .flatten()
                .min(),
        })
    }
}

impl Policy {
    pub fn check(&self) -> Result<(), Refusal> {
        for class in self.classes.iter().flatten() {
            crate::name::check(class, "/classes")?;
        }
        self.trade.as_ref().map_or(Ok(()), |trade| trade.check())?;
        if self
            .share_with
            .as_ref()
            .is_some_and(|tenants| tenants.len() > SHARE_WITH_MAX)
        {
            return Err(Refusal::invalid(
                "/share_with",
                format!("a policy names at most {SHARE_WITH_MAX} tenants"),
            ));
        }
        if self
            .max_compute_permille
            .is_some_and(|share| share == 0 || share > 1000)
        {
            return Err(Refusal::invalid(
                "/max_compute_permille",
                "a share is 1 to 1000 thousandths of a GPU",
            ));
        }
        if self
            .guaranteed_run_s
            .is_some_and(|run_s| run_s > GUARANTEED_RUN_MAX_S)
        {
            return Err(Refusal::invalid(
                "/guaranteed_run_s",
                format!("a job is left alone for at most {GUARANTEED_RUN_MAX_S} s each time it starts"),
            ));
        }
        let hourly_max = u32::try_from(Evictions::KEPT).unwrap_or(u32::MAX);
        if self.max_evictions_per_hour.is_some_and(|most| most > hourly_max) {
            return Err(Refusal::invalid(
                "/max_evictions_per_hour",
                format!("a job gives way at most {hourly_max} times an hour"),
            ));
        }
        if self.max_parallel_tasks == Some(0) {
            return Err(Refusal::invalid(
                "/max_parallel_tasks",
                "no tasks at once would allow no rendering; leave the kind out of `kinds` instead",
            ));
        }
        if self.max_egress_mbit == Some(0) {
            return Err(Refusal::invalid(
                "/max_egress_mbit",
                "a rate of zero lets nothing through; set `egress` to `none` instead",
            ));
        }
        if self.max_run_time_s == Some(0) {
            return Err(Refusal::invalid(
                "/max_run_time_s",
                "a run-time limit of zero would allow no job; suspend the scope instead",
            ));
        }
        Ok(())
    }

    /// What in the job this policy excludes, as field and sentence.
    pub fn excludes(&self, spec: &JobSpec) -> Option<(&'static str, String)> {
        let demand = &spec.demand;
        if self
            .kinds
            .as_ref()
            .is_some_and(|kinds| !kinds.contains(&spec.kind))
        {
            return Some((
                "/kind",
                format!("jobs of kind {} are not allowed", spec.kind.as_str()),
            ));
        }
        if self
            .priorities
            .as_ref()
            .is_some_and(|all| !all.contains(&spec.priority))
        {
            return Some((
                "/priority",
                format!("priority {} is not allowed", spec.priority.as_str()),
            ));
        }
        if let (Some(classes), Some(class)) = (&self.classes, &demand.class)
            && !classes.contains(class)
        {
            return Some(("/demand/class", format!("GPU class {class} is not allowed")));
        }
        if let (Some(max), limit) = (self.max_run_time_s, spec.run_time_s)
            && limit > max
        {
            return Some((
                "/run_time_s",
                format!("a run time of {limit} s is above the {max} s allowed"),
            ));
        }
        if let Some(max) = self.max_compute_permille
            && demand.gpus > 0
            && demand.compute_permille > max
        {
            return Some((
                "/demand/compute_permille",
                format!(
                    "{} ‰ of a GPU is above the {max} ‰ allowed",
                    demand.compute_permille
                ),
            ));
        }
        if let Some(max) = self.max_vram_mib_per_job
            && demand.vram_total_mib() > max
        {
            return Some((
                "/demand/vram_mib",
                format!(
                    "{} MiB of VRAM is above the {max} MiB allowed per job",
                    demand.vram_total_mib()
                ),
            ));
        }
        if let Some(max) = self.max_gpus_per_job
            && demand.gpus_total() > u64::from(max)
        {
            return Some((
                "/demand/gpus",
                format!("{} GPUs are above the {max} allowed per job", demand.gpus_total()),
            ));
        }
        if let (Some(max), Some(asked)) = (
            self.max_parallel_tasks,
            spec.tasks.as_ref().and_then(|cut| cut.parallel),
        ) && asked > max
        {
            return Some((
                "/tasks/parallel",
                format!("{asked} tasks at once are above the {max} allowed per job"),
            ));
        }
        None
    }

    pub(crate) fn refuse(&self, spec: &JobSpec, whose: impl FnOnce() -> String) -> Result<(), Refusal> {
        let Some((field, sentence)) = self.excludes(spec) else {
            return Ok(());
        };
        let whose = whose();
        Err(Refusal::new(
            Code::PolicyExcludes,
            format!("{sentence} by the policy of {whose}"),
        )
        .field(field)
        .hint(format!(
            "ask for less, or ask an operator of {whose} to widen its policy"
        )))
    }
}
