//! What the volumes of a job say of the node it goes to: where they are, or where new ones have room.

use super::fleet::{Node, NodeStatus};
use crate::event::Event;
use crate::id::{NodeId, VolumeId};
use crate::refusal::{Code, Refusal};
use crate::state::State;
use crate::storage::volume::Volume;

/// The volumes of one job, taken together.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct VolumeNeeds {
    /// Where those are that were used before, and one of them.
    bound: Option<(NodeId, VolumeId)>,
    /// Room for those that were not.
    fresh_mib: u64,
}

impl VolumeNeeds {
    /// Refuses when no node can have them all.
    pub fn of(state: &State, volumes: &[VolumeId]) -> Result<VolumeNeeds, Refusal> {
        let mut needs = VolumeNeeds::default();
        for volume in volumes.iter().filter_map(|id| state.volumes.get(*id)) {
            match (volume.node, needs.bound) {
                (None, _) => needs.fresh_mib = needs.fresh_mib.saturating_add(volume.size_mib),
                (Some(node), None) => needs.bound = Some((node, volume.id)),
                (Some(node), Some((there, other))) if node != there => {
                    return Err(apart(state, volume, other, there));
                }
                _ => {}
            }
        }
        Ok(needs)
    }

    /// The node they are on already.
    pub(super) fn node(&self) -> Option<NodeId> {
        self.bound.map(|(node, _)| node)
    }

    pub(super) fn is_empty(&self) -> bool {
        *self == VolumeNeeds::default()
    }

    /// Room for those that are on no node yet.
    pub(super) fn fresh_mib(&self) -> u64 {
        self.fresh_mib
    }

    /// The node has them, and room for the new ones now.
    pub(super) fn are_met_by(&self, node: &Node) -> bool {
        self.bound.is_none_or(|(there, _)| there == node.id) && self.fresh_mib <= node.free_volume_mib()
    }

    /// The node could have them if it were empty of others.
    pub(super) fn could_be_met_by(&self, node: &Node) -> bool {
        self.bound.is_none_or(|(there, _)| there == node.id) && self.fresh_mib <= node.volume_mib
    }

    /// What the job waits for on their account; none when it is something else.
    pub(super) fn explain(&self, state: &State) -> Option<Refusal> {
        let unavailable =
            |sentence: String, hint: String| Some(Refusal::new(Code::VolumeUnavailable, sentence).hint(hint));
        if let Some((id, volume)) = self.bound {
            let (volume, node) = (state.volumes.get(volume)?, state.fleet.node(id)?);
            let (name, title) = (&volume.name, &node.name);
            let (why, hint) = match node.status {
                NodeStatus::Lost => ("is lost", format!("it starts when node {title} returns")),
                NodeStatus::Cordoned => (
                    "is taken out of service",
                    format!("it starts when node {title} is uncordoned"),
                ),
                NodeStatus::Up if self.fresh_mib > node.free_volume_mib() => (
                    "has no room for the job's new volumes",
                    format!("remove other volumes of node {title}, or give the job fewer"),
                ),
                NodeStatus::Up => (
                    "has not what the job needs free now",
                    format!("it starts when jobs on node {title} end"),
                ),
            };
            return unavailable(format!("volume {name} is on node {title}, which {why}"), hint);
        }
        let roomy = |node: &Node| node.status == NodeStatus::Up && self.are_met_by(node);
        if self.fresh_mib == 0 || state.fleet.nodes().any(roomy) {
            return None;
        }
        if state.fleet.nodes().all(|node| node.status != NodeStatus::Up) {
            return None;
        }
        unavailable(
            format!("no node has {} MiB free for new volumes", self.fresh_mib),
            "it starts when volumes are removed, or when a node with space for them joins".to_owned(),
        )
    }

    /// Why no node, empty, could take the job, where that is on their account.
    pub(super) fn refuse_beyond_fleet(&self, state: &State, fits: impl Fn(&Node) -> bool) -> Option<Refusal> {
        let elsewhere = state.fleet.nodes().any(fits);
        if let (Some((node, volume)), true) = (self.bound, elsewhere) {
            let (volume, node) = (state.volumes.get(volume)?, state.fleet.node(node)?);
            return Some(
                Refusal::new(
                    Code::ExceedsFleet,
                    format!(
                        "volume {} is on node {}, which never has what the job needs",
                        volume.name, node.name
                    ),
                )
                .field("/volumes")
                .hint("ask for less, or copy the files to a new volume"),
            );
        }
        elsewhere.then(|| {
            Refusal::new(
                Code::ExceedsFleet,
                format!(
                    "no node that fits the job has {} MiB for new volumes",
                    self.fresh_mib
                ),
            )
            .field("/volumes")
            .hint("name smaller volumes; `tenure node list` shows what there is")
        })
    }
}

fn apart(state: &State, volume: &Volume, other: VolumeId, there: NodeId) -> Refusal {
    let node = |id: Option<NodeId>| {
        id.and_then(|id| state.fleet.node(id))
            .map_or_else(|| "another".to_owned(), |node| node.name.to_string())
    };
    let first = state.volumes.get(other).map_or("another", |other| &other.name);
    Refusal::new(
        Code::VolumesApart,
        format!(
            "volume {first} is on node {} and volume {} on node {}; a job runs on one",
            node(Some(there)),
            volume.name,
            node(volume.node)
        ),
    )
    .hint("copy what is needed to a new volume on one of them")
}

/// Binds the job's new volumes to the node it was given.
pub(super) fn bind(state: &State, volumes: &[VolumeId], node: NodeId) -> impl Iterator<Item = Event> {
    volumes
        .iter()
        .filter_map(|id| state.volumes.get(*id))
        .filter(|volume| volume.node.is_none())
        .map(move |volume| Event::VolumeBound {
            volume: volume.id,
            scope: volume.scope,
            node,
        })
}
