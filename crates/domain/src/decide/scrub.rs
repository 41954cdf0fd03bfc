//! Receipts of scrubs, and devices taken out of service because they could not be cleaned.

use super::Case;
use crate::event::Event;
use crate::id::{GpuId, NodeId};
use crate::refusal::Refusal;
use crate::schedule::receipt::Receipt;
use crate::tenancy::role::Action;
use crate::tenancy::scope::ScopeId;

impl Case<'_> {
    /// Taken note of once, in the order of their numbers; one told of again changes nothing.
    pub(super) fn note_scrub(&self, id: NodeId, receipt: &Receipt) -> Result<Vec<Event>, Refusal> {
        let node = self.may_for_node(id)?;
        receipt.check()?;
        if receipt.number <= node.last_receipt {
            return Ok(vec![]);
        }
        let device = node.gpus.iter().find(|gpu| gpu.facts.uuid == receipt.device);
        let gpu = device.ok_or_else(Refusal::not_found)?;
        let mut events = vec![Event::DeviceScrubbed {
            node: id,
            gpu: gpu.id,
            receipt: Box::new(receipt.clone()),
        }];
        if let (Some(fault), None) = (&receipt.fault, &gpu.quarantine) {
            events.push(Event::GpuQuarantined {
                node: id,
                gpu: gpu.id,
                why: format!("it could not be scrubbed: {fault}"),
            });
        }
        Ok(events)
    }

    pub(super) fn release_gpu(&self, id: GpuId) -> Result<Vec<Event>, Refusal> {
        self.may(Action::NodeManage, ScopeId::Platform)?;
        let (node, gpu) = self
            .state
            .fleet
            .nodes()
            .find_map(|node| Some((node, node.gpu(id)?)))
            .ok_or_else(Refusal::not_found)?;
        Ok(if gpu.quarantine.is_some() {
            vec![Event::GpuReleased {
                node: node.id,
                gpu: id,
            }]
        } else {
            vec![]
        })
    }
}
