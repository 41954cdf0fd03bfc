//! A volume: so many bytes of a scope's own, on the node where a job first used it.
//!
//! It is bound to that node with the decision that places the job, and stays there. A removed one is kept until
//! its node has erased it, for until then it takes up space there.

use std::collections::{BTreeMap, BTreeSet};

use serde::{Deserialize, Serialize};

use crate::id::{JobId, NodeId, VolumeId};
use crate::meter::{Amounts, Meter, Resource};
use crate::name;
use crate::refusal::Refusal;
use crate::tenancy::scope::ScopeId;
use crate::tenancy::tree::Tree;
use crate::time::Time;

/// Below this a file system is mostly its own bookkeeping; above it no file can hold one.
pub const MIN_SIZE_MIB: u64 = 16;
pub const MAX_SIZE_MIB: u64 = 16 << 20;
pub const MAX_PER_SCOPE: usize = 1000;
pub const MAX_PER_JOB: usize = 16;

/// A volume of a job, by the name its owner knows it by.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
#[serde(deny_unknown_fields)]
pub struct VolumeUse {
    /// The job sees it at `/volumes/NAME`.
    pub name: String,
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub read_only: bool,
}

/// Refuses names that could never be found, or one place for two volumes.
pub(crate) fn check_uses(uses: &[VolumeUse]) -> Result<(), Refusal> {
    if uses.len() > MAX_PER_JOB {
        return Err(Refusal::invalid(
            "/volumes",
            format!("a job has at most {MAX_PER_JOB} volumes"),
        ));
    }
    let mut names = BTreeSet::new();
    for volume in uses {
        name::check(&volume.name, "/volumes")?;
        if !names.insert(&volume.name) {
            return Err(Refusal::invalid(
                "/volumes",
                format!("volume {} is named twice", volume.name),
            ));
        }
    }
    Ok(())
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Volume {
    pub id: VolumeId,
    /// The tenant, subscriber or user it belongs to.
    pub scope: ScopeId,
    pub name: String,
    pub size_mib: u64,
    pub created: Time,
    /// Where its files are; none before its first use.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub node: Option<NodeId>,
    /// Nobody's any more, and not yet erased.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub removed: bool,
    pub revision: u64,
}

/// So much volume space, as quotas count it.
pub fn amounts(size_mib: u64) -> Amounts {
    Amounts::from([(Meter::all(Resource::VolumeMib), size_mib)])
}

/// All volumes, with the indexes that find them.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(from = "Vec<Volume>", into = "Vec<Volume>")]
pub struct Volumes {
    all: BTreeMap<VolumeId, Volume>,
    /// Of those not removed.
    names: BTreeMap<(ScopeId, String), VolumeId>,
    /// Live jobs that name it.
    jobs: BTreeMap<VolumeId, BTreeSet<JobId>>,
}

impl From<Vec<Volume>> for Volumes {
    fn from(rows: Vec<Volume>) -> Volumes {
        let mut volumes = Volumes::default();
        rows.into_iter().for_each(|volume| volumes.insert(volume));
        volumes
    }
}

impl From<Volumes> for Vec<Volume> {
    fn from(volumes: Volumes) -> Vec<Volume> {
        volumes.all.into_values().collect()
    }
}

impl Volumes {
    pub fn get(&self, id: VolumeId) -> Option<&Volume> {
        self.all.get(&id)
    }

    /// One that is still somebody's, or the same answer that a foreign one gets.
    pub fn find(&self, id: VolumeId) -> Result<&Volume, Refusal> {
        self.get(id)
            .filter(|volume| !volume.removed)
            .ok_or_else(Refusal::not_found)
    }

    pub fn iter(&self) -> impl Iterator<Item = &Volume> {
        self.all.values()
    }

    /// Those of one scope, by name.
    pub fn of(&self, scope: ScopeId) -> impl Iterator<Item = &Volume> {
        self.names
            .range((scope, String::new())..)
            .take_while(move |((of, _), _)| *of == scope)
            .filter_map(|(_, id)| self.get(*id))
    }

    pub fn named(&self, scope: ScopeId, name: &str) -> Option<&Volume> {
        self.get(*self.names.get(&(scope, name.to_owned()))?)
    }

    /// The volume a scope means by a name: its own, else the nearest one above.
    pub fn meant(&self, tree: &Tree, scope: ScopeId, name: &str) -> Option<&Volume> {
        tree.chain(scope).find_map(|place| self.named(place.id, name))
    }

    /// Live jobs that name it.
    pub fn jobs_of(&self, id: VolumeId) -> impl Iterator<Item = JobId> {
        self.jobs.get(&id).into_iter().flatten().copied()
    }

    /// Those whose files a node has, removed ones too.
    pub fn on(&self, node: NodeId) -> impl Iterator<Item = &Volume> {
        self.iter().filter(move |volume| volume.node == Some(node))
    }

    pub(crate) fn insert(&mut self, volume: Volume) {
        if !volume.removed {
            self.names.insert((volume.scope, volume.name.clone()), volume.id);
        }
        self.all.insert(volume.id, volume);
    }

    pub(crate) fn change(&mut self, id: VolumeId, change: impl FnOnce(&mut Volume)) -> &Volume {
        let volume = self
            .all
            .get_mut(&id)
            .expect("INVARIANT: events name known volumes");
        change(volume);
        volume.revision += 1;
        volume
    }

    /// Takes its name away; one that was never used is forgotten at once.
    pub(crate) fn remove(&mut self, id: VolumeId) -> Volume {
        let removed = self.change(id, |volume| volume.removed = true).clone();
        self.names.remove(&(removed.scope, removed.name.clone()));
        if removed.node.is_none() {
            self.all.remove(&id);
        }
        removed
    }

    pub(crate) fn forget(&mut self, id: VolumeId) -> Volume {
        self.all
            .remove(&id)
            .expect("INVARIANT: events name known volumes")
    }

    pub(crate) fn clear_jobs(&mut self) {
        self.jobs.clear();
    }

    pub(crate) fn add_job(&mut self, job: JobId, volumes: &[VolumeId]) {
        for volume in volumes {
            self.jobs.entry(*volume).or_default().insert(job);
        }
    }

    pub(crate) fn remove_job(&mut self, job: JobId, volumes: &[VolumeId]) {
        for volume in volumes {
            if let Some(jobs) = self.jobs.get_mut(volume) {
                jobs.remove(&job);
                if jobs.is_empty() {
                    self.jobs.remove(volume);
                }
            }
        }
    }
}
