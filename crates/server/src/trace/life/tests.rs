//! Lives of jobs made of events by hand, and the spans that come of them.

use serde_json::json;
use tenure_domain::refusal::Code;
use tenure_domain::workload::job::{Outcome, PauseReason};

use super::super::setting::Sampler;
use super::*;

const JOB: JobId = JobId(7);

struct Told {
    lives: Lives,
    spans: Vec<Span>,
}

impl Told {
    fn new() -> Told {
        let mut told = Told::empty();
        told.submitted(JOB);
        told
    }

    fn empty() -> Told {
        let ids = Arc::new(Ids::new("plt_1", Sampler::default()));
        Told {
            lives: Lives::new(ids, Duration::ZERO),
            spans: Vec::new(),
        }
    }

    fn submitted(&mut self, job: JobId) {
        let spec = json!({ "name": "train", "command": ["true"] });
        self.hear(
            1000,
            Event::JobSubmitted {
                job,
                owner: UserId(3),
                spec: serde_json::from_value(spec).unwrap(),
                volumes: Vec::new(),
                derivation: None,
                trace: None,
            },
        );
    }

    fn hear(&mut self, at: i64, event: Event) {
        self.lives
            .take(&State::default(), Time(at), &event, &mut self.spans);
    }

    fn placed(&mut self, at: i64, attempt: u32) {
        let allocation = json!({
            "id": tenure_domain::id::AllocationId(u64::from(attempt)), "job": JOB, "node": tenure_domain::id::NodeId(1),
            "attempt": attempt, "slices": [], "cpu_milli": 1, "memory_mib": 1, "isolation": "guarded",
            "isolation_why": "", "placed": at, "metered_ms": 0,
        });
        self.hear(
            at,
            Event::JobPlaced {
                job: JOB,
                allocation: serde_json::from_value(allocation).unwrap(),
                others: Vec::new(),
            },
        );
    }

    /// Name, beginning and end of each, in milliseconds.
    fn said(&self) -> Vec<(&'static str, u64, u64)> {
        let ms = |ns: u64| ns / super::super::span::NS_PER_MS;
        let said = self.spans.iter();
        said.map(|span| (span.name, ms(span.began_ns), ms(span.ended_ns)))
            .collect()
    }
}

#[test]
fn a_job_that_is_paused_and_resumed_is_told_of_stage_by_stage() {
    let mut told = Told::new();
    told.placed(1100, 1);
    told.hear(1150, Event::JobStarting { job: JOB });
    told.hear(1200, Event::JobRunning { job: JOB });
    let reason = PauseReason::Preempted;
    told.hear(2000, Event::JobPausing { job: JOB, reason });
    // Said once more, it is no other stage.
    told.hear(2050, Event::JobPausing { job: JOB, reason });
    told.hear(2100, Event::JobPaused { job: JOB });
    told.hear(2500, Event::JobWanted { job: JOB });
    let hold = json!({
        "account": "ten_0000000040400", "left": { "money": 0, "gpu_ms": 0 }, "hourly": 0, "gpu_milli": 0,
        "class": null, "sku": null,
    });
    let admission = serde_json::from_value(json!({ "amounts": {}, "hold": hold })).unwrap();
    told.hear(
        3000,
        Event::JobResuming {
            job: JOB,
            admission,
            slices: Vec::new(),
        },
    );
    told.hear(3100, Event::JobRunning { job: JOB });
    told.hear(
        4000,
        Event::JobEnded {
            job: JOB,
            outcome: Outcome::TimedOut,
        },
    );
    assert_eq!(
        told.said(),
        [
            ("queued", 1000, 1100),
            ("starting", 1100, 1200),
            ("running", 1200, 2000),
            ("pausing", 2000, 2100),
            ("paused", 2100, 3000),
            ("resuming", 3000, 3100),
            ("running", 3100, 4000),
            ("attempt", 1100, 4000),
            ("job", 1000, 4000),
        ]
    );
    let ids: std::collections::BTreeSet<_> = told.spans.iter().map(|span| span.id).collect();
    assert_eq!(ids.len(), 9, "each stretch of running is a span of its own");
    let attempt = &told.spans[7];
    assert_eq!(attempt.moments.len(), 2);
    assert!(told.spans[4].moments.iter().any(|moment| moment.name == "wanted"));
    assert_eq!(attempt.error.as_deref(), Some("it reached its run-time limit"));
    assert!(told.lives.live.is_empty());
}

#[test]
fn a_cancel_outranks_an_eviction_and_moments_are_bounded() {
    let mut told = Told::new();
    told.placed(1100, 1);
    told.hear(1200, Event::JobRunning { job: JOB });
    let stop = |reason| Event::JobStopping { job: JOB, reason };
    told.hear(1300, stop(StopReason::Evicted));
    for at in 0..100 {
        told.hear(1310 + at, stop(StopReason::Cancelled));
    }
    told.hear(
        1500,
        Event::JobEnded {
            job: JOB,
            outcome: Outcome::Cancelled,
        },
    );
    let stopping = told.spans.iter().find(|span| span.name == "stopping").unwrap();
    assert_eq!(stopping.moments.len(), MAX_MOMENTS);
    assert!(
        told.spans.iter().all(|span| span.error.is_none()),
        "nothing went wrong"
    );
}

#[test]
fn an_attempt_that_is_lost_is_one_of_several_and_what_it_waits_for_is_said_when_it_changes() {
    let mut told = Told::new();
    let later = Instant::now() + Duration::from_secs(1);
    assert_eq!(told.lives.next_to_ask(later), Some(JOB));
    let reason = |sentence: &str| Refusal::new(Code::NoCapacity, sentence.to_owned());
    for (at, sentence) in [(1010, "no room"), (1020, "no room"), (1030, "no money")] {
        told.lives.waits_for(JOB, Time(at), &reason(sentence));
    }
    // Who was asked does not stand before who was not.
    let other = JobId(8);
    told.submitted(other);
    assert_eq!(told.lives.next_to_ask(later), Some(other));
    assert_eq!(told.lives.next_to_ask(later), None);
    told.placed(1100, 1);
    assert_eq!(
        told.lives.next_to_ask(later + ASK_AGAIN),
        None,
        "it waits no longer"
    );
    assert_eq!(told.spans[0].moments.len(), 2);
    assert!(
        told.spans[0]
            .attributes
            .contains(&("tenure.waiting.reason", Value::text("no money")))
    );
    told.hear(1200, Event::JobRunning { job: JOB });
    told.hear(
        1300,
        Event::JobRequeued {
            job: JOB,
            why: "its node fell silent while it ran hush".into(),
            vram_mib: None,
        },
    );
    told.placed(1400, 2);
    told.hear(
        1500,
        Event::JobEnded {
            job: JOB,
            outcome: Outcome::NotStarted {
                why: "hush: no such file".into(),
                member: None,
            },
        },
    );
    let said = told.said();
    assert_eq!(said[3..5], [("attempt", 1100, 1300), ("queued", 1300, 1400)]);
    assert_eq!(
        said[5..],
        [
            ("starting", 1400, 1500),
            ("attempt", 1400, 1500),
            ("job", 1000, 1500)
        ]
    );
    let all: String = told.spans.iter().map(Span::json).collect();
    assert!(!all.contains("hush"), "{all}");
}
