//! What every engine must do, as tests over `dyn Engine`.
//!
//! Each function is one promise and panics when it is broken. A fixture supplies the engine with one node and
//! the means to see how often something ran and to make answers get lost. Run by the tests of each engine.

mod registry;
mod watcher;

use std::time::Duration;

use async_trait::async_trait;
use tenure_api::channel::{Order, RunState};
use tenure_domain::id::{AllocationId, NodeId};
use tenure_domain::workload::job::StopReason;

use crate::{Engine, EngineError};
pub use registry::MemoryRegistry;
pub use watcher::Watcher;

/// What an order is to do.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Work {
    /// Runs and ends by itself with code 0.
    Short,
    /// Runs until it is stopped.
    Long,
}

/// An engine with one node that takes work.
#[async_trait]
pub trait Fixture: Send + Sync {
    fn engine(&self) -> &dyn Engine;
    fn node(&self) -> NodeId;
    /// An allocation id that was never used.
    fn fresh(&self) -> AllocationId;
    /// An order whose every run is counted.
    fn order(&self, allocation: AllocationId, work: Work) -> Order;
    async fn runs(&self, allocation: AllocationId) -> u32;
    /// Breaks the way to the node, losing what is under way. It mends by itself.
    async fn interrupt(&self);
}

/// Says it until the engine takes it: what a reconcile loop does.
async fn insist<F: Future<Output = Result<(), EngineError>>>(mut say: impl FnMut() -> F) {
    for _ in 0..600 {
        match say().await {
            Ok(()) => return,
            Err(error) => assert!(error.is_passing(), "{error}"),
        }
        tokio::time::sleep(Duration::from_millis(25)).await;
    }
    panic!("the engine never took it");
}

async fn start(fixture: &dyn Fixture, allocation: AllocationId, work: Work) {
    insist(|| {
        fixture
            .engine()
            .start(fixture.node(), fixture.order(allocation, work))
    })
    .await;
}

async fn stop(fixture: &dyn Fixture, allocation: AllocationId) {
    insist(|| {
        fixture
            .engine()
            .stop(fixture.node(), allocation, StopReason::Cancelled, 1)
    })
    .await;
}

async fn release(fixture: &dyn Fixture, allocation: AllocationId) {
    insist(|| fixture.engine().release(fixture.node(), allocation)).await;
}

/// Waits until its run is counted: a program that runs has not come to its first line yet.
async fn begun(fixture: &dyn Fixture, allocation: AllocationId) {
    for _ in 0..1200 {
        if fixture.runs(allocation).await > 0 {
            return;
        }
        tokio::time::sleep(Duration::from_millis(25)).await;
    }
    panic!("it runs and never begins");
}

fn has_ended(state: &RunState) -> bool {
    matches!(state, RunState::Exited { .. } | RunState::NotStarted { .. })
}

/// Runs all of them, one after the other.
pub async fn all(fixture: &dyn Fixture) {
    runs_once_and_says_how_it_ended(fixture).await;
    started_twice_runs_once(fixture).await;
    stopped_before_its_start_never_runs(fixture).await;
    stopped_it_ends_and_says_why(fixture).await;
    released_it_never_runs_again(fixture).await;
    release_of_a_stranger_is_harmless(fixture).await;
    lost_answers_then_retries_run_once(fixture).await;
    a_new_connection_says_everything_again(fixture).await;
    an_unknown_node_is_not_connected(fixture).await;
}

pub async fn runs_once_and_says_how_it_ended(fixture: &dyn Fixture) {
    let mut watcher = Watcher::of(fixture.engine());
    let id = fixture.fresh();
    start(fixture, id, Work::Short).await;
    let state = watcher.state(id, has_ended).await;
    assert_eq!(
        state,
        RunState::Exited {
            exit_code: Some(0),
            signal: None,
            by: None
        }
    );
    assert_eq!(fixture.runs(id).await, 1);
    release(fixture, id).await;
}

pub async fn started_twice_runs_once(fixture: &dyn Fixture) {
    let mut watcher = Watcher::of(fixture.engine());
    let id = fixture.fresh();
    for _ in 0..3 {
        start(fixture, id, Work::Short).await;
    }
    watcher.state(id, has_ended).await;
    // Said once more after its end, it is answered with how it ended.
    start(fixture, id, Work::Short).await;
    watcher.state(id, has_ended).await;
    assert_eq!(fixture.runs(id).await, 1);
    release(fixture, id).await;
}

pub async fn stopped_before_its_start_never_runs(fixture: &dyn Fixture) {
    let mut watcher = Watcher::of(fixture.engine());
    let id = fixture.fresh();
    stop(fixture, id).await;
    start(fixture, id, Work::Long).await;
    watcher.state(id, has_ended).await;
    assert_eq!(fixture.runs(id).await, 0);
    release(fixture, id).await;
}

pub async fn stopped_it_ends_and_says_why(fixture: &dyn Fixture) {
    let mut watcher = Watcher::of(fixture.engine());
    let id = fixture.fresh();
    start(fixture, id, Work::Long).await;
    watcher.state(id, |state| *state == RunState::Running).await;
    for _ in 0..2 {
        stop(fixture, id).await;
    }
    let state = watcher.state(id, has_ended).await;
    assert!(
        matches!(
            state,
            RunState::Exited {
                by: Some(StopReason::Cancelled),
                ..
            }
        ),
        "{state:?}"
    );
    release(fixture, id).await;
}

pub async fn released_it_never_runs_again(fixture: &dyn Fixture) {
    let mut watcher = Watcher::of(fixture.engine());
    let id = fixture.fresh();
    start(fixture, id, Work::Short).await;
    watcher.state(id, has_ended).await;
    for _ in 0..2 {
        release(fixture, id).await;
    }
    // An order replayed late. Whatever is said of it, it does not run.
    start(fixture, id, Work::Short).await;
    let other = fixture.fresh();
    start(fixture, other, Work::Short).await;
    watcher.state(other, has_ended).await;
    assert_eq!(fixture.runs(id).await, 1);
    release(fixture, other).await;
}

pub async fn release_of_a_stranger_is_harmless(fixture: &dyn Fixture) {
    let mut watcher = Watcher::of(fixture.engine());
    release(fixture, fixture.fresh()).await;
    let id = fixture.fresh();
    start(fixture, id, Work::Long).await;
    watcher.state(id, |state| *state == RunState::Running).await;
    begun(fixture, id).await;
    // Of what still runs, too: it is not forgotten.
    release(fixture, id).await;
    stop(fixture, id).await;
    watcher.state(id, has_ended).await;
    assert_eq!(fixture.runs(id).await, 1);
    release(fixture, id).await;
}

pub async fn lost_answers_then_retries_run_once(fixture: &dyn Fixture) {
    for _ in 0..5 {
        let mut watcher = Watcher::of(fixture.engine());
        let id = fixture.fresh();
        let order = fixture.order(id, Work::Short);
        // Whatever becomes of this one, nobody learns.
        let lost = fixture.engine().start(fixture.node(), order);
        let (_, ()) = tokio::join!(lost, fixture.interrupt());
        start(fixture, id, Work::Short).await;
        watcher.state(id, has_ended).await;
        assert_eq!(fixture.runs(id).await, 1);
        release(fixture, id).await;
    }
}

pub async fn a_new_connection_says_everything_again(fixture: &dyn Fixture) {
    let (mut watcher, mut other) = (Watcher::of(fixture.engine()), Watcher::of(fixture.engine()));
    let (long, short) = (fixture.fresh(), fixture.fresh());
    start(fixture, long, Work::Long).await;
    start(fixture, short, Work::Short).await;
    watcher.state(long, |state| *state == RunState::Running).await;
    other.state(short, has_ended).await;
    let mut watcher = Watcher::of(fixture.engine());
    fixture.interrupt().await;
    let whole = watcher.whole(fixture.node()).await;
    let state = |id| {
        whole
            .iter()
            .find(|report| report.allocation == id)
            .map(|report| report.state.clone())
    };
    assert_eq!(state(long), Some(RunState::Running));
    assert!(
        state(short).is_some_and(|state| has_ended(&state)),
        "an end is told until it is released"
    );
    stop(fixture, long).await;
    watcher.state(long, has_ended).await;
    for id in [long, short] {
        release(fixture, id).await;
    }
}

pub async fn an_unknown_node_is_not_connected(fixture: &dyn Fixture) {
    let nowhere = NodeId(u64::MAX);
    let id = fixture.fresh();
    let engine = fixture.engine();
    let away = Err(EngineError::NotConnected(nowhere));
    assert_eq!(engine.start(nowhere, fixture.order(id, Work::Short)).await, away);
    assert_eq!(engine.stop(nowhere, id, StopReason::Cancelled, 1).await, away);
    assert_eq!(engine.release(nowhere, id).await, away);
}
