//! Volumes: making, growing and removing them, and what nodes say of their erasure.

use super::Case;
use crate::actor::Actor;
use crate::event::Event;
use crate::id::{NodeId, VolumeId};
use crate::name;
use crate::refusal::{Code, Refusal};
use crate::storage::volume::{MAX_PER_SCOPE, MAX_SIZE_MIB, MIN_SIZE_MIB, Volume, VolumeUse, amounts};
use crate::tenancy::role::Action;
use crate::tenancy::scope::{Level, ScopeId};

impl Case<'_> {
    /// Whoever may submit a user's jobs may do with the user's volumes what the jobs could.
    fn may_keep_volumes(&self, scope: ScopeId) -> Result<(), Refusal> {
        let action = if scope.level() == Level::User {
            Action::JobSubmit
        } else {
            Action::VolumeManage
        };
        self.may(action, scope)
    }

    fn may_for_volume(&self, id: VolumeId) -> Result<&Volume, Refusal> {
        let volume = self.state.volumes.find(id)?;
        self.may_keep_volumes(volume.scope)?;
        Ok(volume)
    }

    pub(super) fn create_volume(
        &mut self,
        scope: ScopeId,
        name: &str,
        size_mib: u64,
    ) -> Result<Vec<Event>, Refusal> {
        self.may_keep_volumes(scope)?;
        name::check(name, "/name")?;
        check_size(size_mib)?;
        if scope == ScopeId::Platform {
            return Err(Refusal::invalid(
                "/scope",
                "a volume belongs to a tenant, a subscriber or a user",
            ));
        }
        if self.state.volumes.named(scope, name).is_some() {
            return Err(Refusal::new(
                Code::NameTaken,
                format!("{} has a volume {name} already", self.state.tree.title(scope)),
            )
            .field("/name"));
        }
        if self.state.volumes.of(scope).count() >= MAX_PER_SCOPE {
            return Err(Refusal::new(
                Code::WrongPhase,
                format!(
                    "{} has {MAX_PER_SCOPE} volumes already",
                    self.state.tree.title(scope)
                ),
            )
            .hint("remove some first"));
        }
        self.fits_volume_quotas(scope, size_mib)?;
        Ok(vec![Event::VolumeCreated {
            volume: VolumeId(self.ids.take()),
            scope,
            name: name.into(),
            size_mib,
        }])
    }

    pub(super) fn grow_volume(
        &self,
        id: VolumeId,
        size_mib: u64,
        revision: Option<u64>,
    ) -> Result<Vec<Event>, Refusal> {
        let volume = self.may_for_volume(id)?;
        if revision.is_some_and(|read| read != volume.revision) {
            return Err(
                Refusal::new(Code::RevisionMismatch, "the volume was changed since you read it")
                    .hint("read it again and repeat the change"),
            );
        }
        check_size(size_mib)?;
        if size_mib < volume.size_mib {
            return Err(Refusal::invalid(
                "/size_mib",
                format!("a volume only grows, and this one has {} MiB", volume.size_mib),
            )
            .hint("make a smaller one and copy what is to be kept"));
        }
        let more = size_mib - volume.size_mib;
        if more == 0 {
            return Ok(vec![]);
        }
        self.fits_volume_quotas(volume.scope, more)?;
        if let Some(node) = volume.node.and_then(|node| self.state.fleet.node(node))
            && node.free_volume_mib() < more
        {
            return Err(Refusal::new(
                Code::NoCapacity,
                format!(
                    "volume {} is on node {}, which has {} MiB left for volumes; {more} more do not fit",
                    volume.name,
                    node.name,
                    node.free_volume_mib()
                ),
            )
            .field("/size_mib")
            .hint("ask for less, or remove other volumes of that node"));
        }
        Ok(vec![Event::VolumeGrown {
            volume: id,
            scope: volume.scope,
            size_mib,
        }])
    }

    pub(super) fn remove_volume(&self, id: VolumeId) -> Result<Vec<Event>, Refusal> {
        let volume = self.may_for_volume(id)?;
        self.unused(volume)?;
        Ok(vec![Event::VolumeRemoved {
            volume: id,
            scope: volume.scope,
        }])
    }

    /// Refuses while a job that has not ended names it.
    pub(crate) fn unused(&self, volume: &Volume) -> Result<(), Refusal> {
        let mut jobs = self.state.volumes.jobs_of(volume.id);
        let Some(first) = jobs.next() else {
            return Ok(());
        };
        let more = match jobs.count() {
            0 => String::new(),
            more => format!(" and {more} more"),
        };
        Err(Refusal::new(
            Code::JobsStillLive,
            format!("job {first}{more} named volume {} and has not ended", volume.name),
        )
        .hint("stop the jobs, or wait for them to end"))
    }

    /// The node has nothing of it any more. Said again at will; only the first time is news.
    pub(super) fn note_volume_erased(&self, node: NodeId, id: VolumeId) -> Result<Vec<Event>, Refusal> {
        match &self.command.by {
            Actor::System => {}
            Actor::Node(by) if *by == node => {}
            Actor::Node(_) | Actor::User { .. } => return Err(Refusal::not_found()),
        }
        let erased = self
            .state
            .volumes
            .get(id)
            .filter(|volume| volume.removed && volume.node == Some(node));
        Ok(erased
            .map(|volume| Event::VolumeErased {
                volume: id,
                scope: volume.scope,
                node,
            })
            .into_iter()
            .collect())
    }

    fn fits_volume_quotas(&self, scope: ScopeId, more_mib: u64) -> Result<(), Refusal> {
        let tree = &self.state.tree;
        if let Some(suspended) = tree.suspended_above(scope) {
            return Err(Refusal::new(
                Code::Suspended,
                format!("{} is suspended", tree.title(suspended.id)),
            ));
        }
        let asked = amounts(more_mib);
        for place in tree.chain(scope) {
            let Some(over) = place.quota.first_exceeded(&place.used, &asked) else {
                continue;
            };
            let title = tree.title(place.id);
            let never = over.asked > over.limit;
            let code = if never {
                Code::ExceedsQuota
            } else {
                Code::QuotaInUse
            };
            return Err(Refusal::new(
                code,
                format!(
                    "{title} uses {} of its {} of {}; {more_mib} more do not fit",
                    over.used, over.limit, over.meter
                ),
            )
            .field("/size_mib")
            .hint(format!(
                "ask for less, remove volumes of {title}, or have its quota raised"
            )));
        }
        // INVARIANT: the platform's sum is the largest there is, so no other passes what can be counted.
        let platform = tree.find(ScopeId::Platform)?;
        let sum: u64 = platform
            .used
            .get(&crate::meter::Meter::all(crate::meter::Resource::VolumeMib))
            .unwrap_or(0);
        if sum.checked_add(more_mib).is_none() {
            return Err(Refusal::invalid("/size_mib", "more than can be counted"));
        }
        Ok(())
    }

    /// The volumes a job of `owner` means, in the order it names them.
    pub(super) fn meant_volumes(&self, owner: ScopeId, uses: &[VolumeUse]) -> Result<Vec<VolumeId>, Refusal> {
        let (tree, volumes) = (&self.state.tree, &self.state.volumes);
        uses.iter()
            .enumerate()
            .map(|(which, wanted)| {
                let meant = volumes.meant(tree, owner, &wanted.name);
                meant.map(|volume| volume.id).ok_or_else(|| {
                    Refusal::invalid(
                        format!("/volumes/{which}/name"),
                        format!("there is no volume named {}", wanted.name),
                    )
                    .hint("make it with `tenure volume create`; a job sees its user's, its subscriber's and its tenant's")
                })
            })
            .collect()
    }
}

fn check_size(size_mib: u64) -> Result<(), Refusal> {
    if (MIN_SIZE_MIB..=MAX_SIZE_MIB).contains(&size_mib) {
        return Ok(());
    }
    Err(Refusal::invalid(
        "/size_mib",
        format!("a volume has {MIN_SIZE_MIB} to {MAX_SIZE_MIB} MiB"),
    ))
}
