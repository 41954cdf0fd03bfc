//! What a start took, told of a job that belongs to a trace, and of no other.

use std::time::Duration;

use tenure_api::channel::{AllocationReport, LogStream, RunState, StartStep, Took};
use tenure_domain::id::AllocationId;
use tenure_engine::Seen;

use crate::bench::{Bench, fresh};

const PARENT: &str = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-";

/// What was told of a start, and whether before it was said to run.
async fn told(bench: &Bench, allocation: AllocationId, flags: Option<&str>) -> Option<Vec<Took>> {
    let mut watcher = bench.watch();
    let mut order = bench.order(allocation, "sleep 0.2; echo $TRACEPARENT");
    let parent = flags.map(|flags| ("TRACEPARENT".to_owned(), format!("{PARENT}{flags}")));
    order.env.extend(parent);
    bench.start(order).await;
    let mut steps = None;
    loop {
        match watcher.next().await {
            Seen::Started {
                allocation: of,
                steps: said,
                ..
            } if of == allocation => {
                assert!(steps.is_none(), "it is said once");
                steps = Some(said);
            }
            Seen::Report { allocations, .. } => {
                let of = |report: &&AllocationReport| report.allocation == allocation;
                match allocations.iter().find(of).map(|report| &report.state) {
                    Some(RunState::Running) if flags == Some("01") => {
                        assert!(steps.is_some(), "the steps come first")
                    }
                    Some(RunState::Exited { .. }) => break,
                    _ => {}
                }
            }
            _ => {}
        }
    }
    let more = watcher.within(Duration::from_millis(300)).await;
    assert!(!more.iter().any(|seen| matches!(seen, Seen::Started { .. })));
    steps
}

#[tokio::test(flavor = "multi_thread")]
async fn a_start_in_a_trace_is_told_of_step_by_step() {
    let bench = Bench::new().await;
    let id = fresh();
    let steps = told(&bench, id, Some("01")).await.expect("steps");
    let names: Vec<StartStep> = steps.iter().map(|took| took.step).collect();
    assert_eq!(names, [StartStep::Devices, StartStep::Sandbox, StartStep::Exec]);
    let began = |took: &Took| took.ended_ago_us + took.took_us;
    for pair in steps.windows(2) {
        assert!(began(&pair[0]) >= began(&pair[1]), "{steps:?}");
    }
    // From its walls on it is one after the other.
    assert_eq!(steps[1].ended_ago_us, began(&steps[2]));
    assert!(
        began(&steps[0]) < 60_000_000,
        "a start takes no minute: {steps:?}"
    );
    let log = bench.log(id, LogStream::Stdout).await;
    assert_eq!(log, format!("{PARENT}01\n"));
    assert_eq!(told(&bench, fresh(), None).await, None);
    assert_eq!(told(&bench, fresh(), Some("00")).await, None, "not to be told of");
}
