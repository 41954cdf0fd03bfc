//! Compute shares between two slices on the double, whose kernels last as long as they say.

use std::time::{Duration, Instant};

use tenure_limits::{Counter, SliceSpec};

use super::cu::Cu;
use super::desk::Desk;
use crate::bench::{MIB, spec};
use crate::share::in_three;
use crate::worker::{Worker, heard, own, say, setting};

/// Part: launches kernels of `MICROS`, `DEPTH` ahead, and says how many ran.
pub fn work() {
    let cu = Cu::open();
    let spin = cu.kernel(c"spin");
    let stream = cu.stream();
    let (micros, depth) = (setting("MICROS") as u32, setting("DEPTH"));
    say("ready", "");
    heard("go");
    let until = Instant::now() + Duration::from_millis(setting("MILLIS"));
    let mut ran = 0u64;
    while Instant::now() < until {
        for _ in 0..depth {
            cu.spin(spin, stream, micros);
        }
        cu.wait(stream);
        ran += depth;
    }
    say("ran", ran);
}

/// Microseconds of kernels each program had.
fn run(desk: &Desk, programs: &[(u64, u64, u64)], millis: u64) -> Vec<f64> {
    let start = |(slice, micros, depth): &(u64, u64, u64)| {
        let settings = [
            ("MICROS", micros.to_string()),
            ("DEPTH", depth.to_string()),
            ("MILLIS", millis.to_string()),
        ];
        Worker::start(desk.command(*slice, own()), "cuda-share", &settings)
    };
    let mut workers: Vec<Worker> = programs.iter().map(start).collect();
    workers
        .iter_mut()
        .for_each(|worker| drop(worker.line("ready").unwrap()));
    workers.iter_mut().for_each(|worker| worker.tell("go"));
    let ran = |(worker, (_, micros, _)): (&mut Worker, &(u64, u64, u64))| {
        worker.line("ran").unwrap().parse::<f64>().unwrap() * *micros as f64
    };
    workers.iter_mut().zip(programs).map(ran).collect()
}

#[test]
fn two_slices_share_by_weight() {
    let _turn = crate::bench::turn();
    for depth in [1, 4] {
        let wrong = in_three(|| {
            let desk = Desk::new(&[spec(1, 64 * MIB, 300), spec(2, 64 * MIB, 700)]);
            let had = run(&desk, &[(1, 4_000, depth), (2, 4_000, depth)], 4_000);
            let all: f64 = had.iter().sum();
            let (share, busy) = (had[0] / all, all / 4_000_000.0);
            println!(
                "30/70, {depth} ahead: {:.2} %, busy {:.1} %",
                share * 100.0,
                busy * 100.0
            );
            let mut wrong = Vec::new();
            if (share - 0.3).abs() > 0.03 {
                wrong.push(format!("{depth} ahead: a share of {share}"));
            }
            // More than the whole device would mean that both had it at once.
            if !(0.8..=1.05).contains(&busy) {
                wrong.push(format!("{depth} ahead: busy {busy}"));
            }
            wrong
        });
        assert!(wrong.is_empty(), "{wrong:?}");
    }
}

#[test]
fn alone_under_a_cap_a_slice_gets_the_cap() {
    let _turn = crate::bench::turn();
    let wrong = in_three(|| {
        let capped = SliceSpec {
            cap_per_mille: Some(250),
            ..spec(1, 64 * MIB, 500)
        };
        let desk = Desk::new(&[capped]);
        let had = run(&desk, &[(1, 4_000, 1)], 3_000);
        let busy = had[0] / 3_000_000.0;
        println!("a cap of 25 %: {:.1} %", busy * 100.0);
        let throttled = desk.bench.counter(1, Counter::ThrottledNs);
        match (busy - 0.25).abs() < 0.03 && throttled > 500_000_000 {
            true => Vec::new(),
            false => vec![format!("busy {busy}, throttled for {throttled} ns")],
        }
    });
    assert!(wrong.is_empty(), "{wrong:?}");
}
