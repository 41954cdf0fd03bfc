//! The conformance suite over the hub and the real agent.

use async_trait::async_trait;
use tenure_api::channel::Order;
use tenure_domain::id::{AllocationId, NodeId};
use tenure_engine::Engine;
use tenure_engine::conformance::{self, Fixture, Work};

use crate::bench::{Bench, MARK, fresh};

struct Real(Bench);

#[async_trait]
impl Fixture for Real {
    fn engine(&self) -> &dyn Engine {
        self.0.hub()
    }

    fn node(&self) -> NodeId {
        self.0.node
    }

    fn fresh(&self) -> AllocationId {
        fresh()
    }

    fn order(&self, allocation: AllocationId, work: Work) -> Order {
        self.0.order(
            allocation,
            &match work {
                Work::Short => MARK.to_owned(),
                Work::Long => format!("{MARK}; sleep 60"),
            },
        )
    }

    async fn runs(&self, allocation: AllocationId) -> u32 {
        self.0.marks(allocation) as u32
    }

    async fn interrupt(&self) {
        self.0.hub().disconnect(self.0.node, "for a test");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn the_agent_keeps_every_promise() {
    conformance::all(&Real(Bench::new().await)).await;
}
