//! Conduct of allocations: taken note of once each, and looked at for what is out of order.

use super::Case;
use crate::audit::anomaly::{AnomalyKind, look};
use crate::audit::conduct::SignedConduct;
use crate::audit::habit::WorkloadKey;
use crate::event::Event;
use crate::id::NodeId;
use crate::refusal::{Code, Refusal};

impl Case<'_> {
    /// Said by the allocation's node when it ended, once or more often. The record is the node's word: it is kept as it
    /// was signed, whatever it says.
    pub(super) fn note_conduct(
        &mut self,
        node: NodeId,
        record: &SignedConduct,
    ) -> Result<Vec<Event>, Refusal> {
        let conduct = &record.conduct;
        let (allocation, job) = self.allocation_on(node, conduct.allocation)?;
        record.check()?;
        if conduct.job != job.id {
            return Err(
                Refusal::new(Code::ContradictoryReport, "the allocation is of another job")
                    .field("/conduct/job"),
            );
        }
        let known = self.state.fleet.node(node).map(|node| node.keys.as_slice());
        if !known.unwrap_or_default().contains(&record.key) {
            return Err(Refusal::new(
                Code::ContradictoryReport,
                "the record is signed with a key that is not the node's",
            )
            .field("/key"));
        }
        if job.audit.has(allocation.id) {
            return Ok(vec![]);
        }
        let workload = WorkloadKey::of(job.owner, &job.spec);
        let found = look(conduct, self.state.habits.get(workload));
        let strange = found
            .iter()
            .any(|anomaly| anomaly.kind == AnomalyKind::PatternChanged);
        let noted = Event::ConductNoted {
            job: job.id,
            node,
            record: Box::new(record.clone()),
            strange,
        };
        let found = found.into_iter().map(|anomaly| Event::AnomalyFound {
            job: job.id,
            allocation: allocation.id,
            anomaly,
        });
        Ok([noted].into_iter().chain(found).collect())
    }
}
