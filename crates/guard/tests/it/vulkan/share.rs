//! Compute shares between two slices on lavapipe, counted in submissions of equal work.

use std::time::{Duration, Instant};

use tenure_limits::Counter;

use super::desk::Desk;
use super::vk::Vk;
use crate::bench::{MIB, spec};
use crate::share::in_three;
use crate::worker::{Worker, heard, own, say, setting};

const BYTES: u64 = 4 * MIB;

/// Part: submits fills of a buffer, two ahead, and says how many.
pub fn work() {
    let vk = Vk::open().unwrap();
    let (buffer, _) = vk.buffer(BYTES);
    let commands = [vk.fills(buffer, BYTES, 8), vk.fills(buffer, BYTES, 8)];
    say("ready", "");
    heard("go");
    let until = Instant::now() + Duration::from_millis(setting("MILLIS"));
    let mut done = 0u64;
    while Instant::now() < until {
        for commands in commands {
            assert_eq!(vk.submit(commands), 0);
        }
        vk.wait();
        done += 2;
    }
    say("done", done);
}

fn run(desk: &Desk, millis: u64) -> Vec<f64> {
    let start = |slice| {
        Worker::start(
            desk.command(slice, own()),
            "vulkan-share",
            &[("MILLIS", millis.to_string())],
        )
    };
    let mut workers = [start(1), start(2)];
    workers
        .iter_mut()
        .for_each(|worker| drop(worker.line("ready").unwrap()));
    workers.iter_mut().for_each(|worker| worker.tell("go"));
    workers
        .iter_mut()
        .map(|worker| worker.line("done").unwrap().parse().unwrap())
        .collect()
}

#[test]
fn two_slices_share_by_weight() {
    let _turn = crate::bench::turn();
    let wrong = in_three(|| {
        let desk = Desk::new(&[spec(1, 64 * MIB, 300), spec(2, 64 * MIB, 700)]);
        let done = run(&desk, 4_000);
        let share = done[0] / (done[0] + done[1]);
        let busy = |slice| desk.bench.counter(slice, Counter::BusyNs) as f64;
        let by_time = busy(1) / (busy(1) + busy(2));
        println!(
            "30/70: {:.2} % of submissions, {:.2} % of time",
            share * 100.0,
            by_time * 100.0
        );
        // By time the gate divides; by work only as evenly as the machine runs.
        match (by_time - 0.3).abs() < 0.04 && (share - 0.3).abs() < 0.08 {
            true => Vec::new(),
            false => vec![format!("{share} of submissions, {by_time} of time")],
        }
    });
    assert!(wrong.is_empty(), "{wrong:?}");
}
