//! Records of conduct that came with a node's report: checked for who signed them, then noted, before the end they
//! belong to is.

use futures_util::future::join_all;
use tenure_api::channel::AllocationReport;
use tenure_api::seal;
use tenure_domain::id::NodeId;
use tenure_domain::{Actor, State, Wish};

use super::Reconciler;

impl Reconciler {
    /// A record that its node did not sign is refused and said in the log; the end it came with is taken all the same.
    pub(super) async fn note_conduct(&self, node: NodeId, reports: &[AllocationReport]) {
        let due: Vec<_> = {
            let state = self.controller.view().read();
            let records = reports.iter().filter_map(|report| report.conduct.as_deref());
            records
                .filter(|record| is_news(&state, node, record.conduct.allocation))
                .cloned()
                .collect()
        };
        let sound = due.into_iter().filter(|record| match seal::check(record) {
            Ok(()) => true,
            Err(error) => {
                let allocation = record.conduct.allocation;
                tracing::warn!(%node, %allocation, %error, "a record of conduct is not what its node signed");
                false
            }
        });
        let wishes = sound.map(|record| {
            let record = Box::new(record);
            let wish = Wish::NoteConduct { node, record };
            self.wish(Actor::Node(node), wish, "a record of conduct was not taken")
        });
        join_all(wishes).await;
    }
}

fn is_news(state: &State, node: NodeId, id: tenure_domain::id::AllocationId) -> bool {
    let here = state
        .fleet
        .allocation(id)
        .filter(|allocation| allocation.node == node);
    here.and_then(|allocation| state.jobs.get(&allocation.job))
        .is_some_and(|job| !job.audit.has(id))
}
