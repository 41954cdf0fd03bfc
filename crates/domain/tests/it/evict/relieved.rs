//! A crowded GPU is relieved: measured waiting, on end, of two who both want it, and idle GPUs elsewhere.

use tenure_domain::command::Ran;
use tenure_domain::id::{JobId, NodeId};
use tenure_domain::workload::job::Phase;
use tenure_domain::workload::spec::JobSpec;
use tenure_domain::workload::usage::Usage;
use tenure_domain::{Actor, Wish};

use super::{GUARDED, left, run, setting};
use crate::story::Story;
use crate::world::{slice, spec, whole};

/// Two halves of one GPU; the other GPUs of the cell are idle.
struct Crowd {
    story: Story,
    node: NodeId,
    jobs: [JobId; 2],
    ran_s: u64,
    used: [Usage; 2],
}

impl Crowd {
    fn of(restartable: bool, run_time_s: u64) -> Crowd {
        let (mut story, _, ada) = setting(&["alpha"], &GUARDED);
        let half = |name: &str| JobSpec {
            restartable,
            ..spec(name, slice(500, 10_000), run_time_s)
        };
        let jobs = ["one", "other"].map(|name| run(&mut story, ada, half(name)));
        let gpus = jobs.map(|job| story.world.state.jobs[&job].sole_allocation().expect("placed"));
        let gpus = gpus.map(|id| story.world.state.fleet.allocation(id).expect("there").slices[0].gpu);
        assert_eq!(gpus[0], gpus[1], "they share one");
        let node = story.world.allocation(jobs[0]).expect("placed").1;
        Crowd {
            story,
            node,
            jobs,
            ran_s: 0,
            used: [Usage::default(); 2],
        }
    }

    /// A minute in which each worked and waited so many seconds.
    fn minute(&mut self, worked_waited_s: [(u64, u64); 2]) {
        self.ran_s += 60;
        self.story.world.pass_s(60);
        for (used, (worked_s, waited_s)) in self.used.iter_mut().zip(worked_waited_s) {
            used.busy_ms += worked_s * 1000;
            used.waited_ms += waited_s * 1000;
        }
        let ran = self.jobs.iter().zip(self.used).filter_map(|(job, usage)| {
            let (allocation, _) = self.story.world.allocation(*job)?;
            Some(Ran {
                allocation,
                ran_ms: self.ran_s * 1000,
                usage: Some(usage),
            })
        });
        let (node, ran) = (self.node, ran.collect());
        self.story
            .tell("alpha meters", Actor::Node(node), Wish::Meter { node, ran });
    }

    fn movers(&self) -> Vec<JobId> {
        let leaves = |job: &JobId| self.story.world.state.jobs[job].phase == Phase::Stopping;
        self.jobs.into_iter().filter(leaves).collect()
    }
}

const BOTH_WANT_IT: [(u64, u64); 2] = [(28, 30), (28, 31)];

#[test]
fn crowded_gpu_is_relieved() {
    let mut crowd = Crowd::of(true, 7200);
    crowd
        .story
        .say("two halves of a GPU, both always wanting it; the other GPU is idle");
    for _ in 0..4 {
        crowd.minute(BOTH_WANT_IT);
        assert!(crowd.movers().is_empty(), "minutes on end");
    }
    crowd.minute(BOTH_WANT_IT);
    let movers = crowd.movers();
    assert_eq!(movers.len(), 1, "one of the two");
    let mut story = crowd.story;
    story.world.pass_s(5);
    left(&mut story, movers[0], 305);
    story.schedule();
    let on = |story: &Story, job: JobId| {
        let id = story.world.state.jobs[&job].sole_allocation().expect("it runs");
        story.world.state.fleet.allocation(id).expect("there").slices[0].gpu
    };
    assert_ne!(on(&story, crowd.jobs[0]), on(&story, crowd.jobs[1]));
    story.check("crowded_gpu_is_relieved");
}

fn nobody_moves(mut crowd: Crowd, minutes: &[[(u64, u64); 2]]) {
    for minute in minutes {
        crowd.minute(*minute);
    }
    assert!(crowd.movers().is_empty());
}

#[test]
fn one_who_waits_beside_who_does_not_stays() {
    nobody_moves(Crowd::of(true, 7200), &[[(28, 30), (50, 2)]; 9]);
}

#[test]
fn a_quiet_minute_begins_the_count_anew() {
    let mut minutes = vec![BOTH_WANT_IT; 4];
    minutes.push([(20, 5), (20, 5)]);
    minutes.extend([BOTH_WANT_IT; 4]);
    nobody_moves(Crowd::of(true, 7200), &minutes);
}

#[test]
fn who_did_not_say_it_may_be_restarted_stays() {
    nobody_moves(Crowd::of(false, 7200), &[BOTH_WANT_IT; 9]);
}

#[test]
fn nobody_moves_for_the_last_minutes() {
    nobody_moves(Crowd::of(true, 480), &[BOTH_WANT_IT; 7]);
}

#[test]
fn nobody_moves_where_nothing_is_idle() {
    let mut crowd = Crowd::of(true, 7200);
    let ada = crowd.story.world.state.jobs[&crowd.jobs[0]].owner;
    run(&mut crowd.story, ada, spec("fills", whole(1), 7200));
    nobody_moves(crowd, &[BOTH_WANT_IT; 9]);
}
