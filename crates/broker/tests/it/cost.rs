//! What the broker costs: the same program bare and brokered in one run, and clpeak in turns.

// The same program as the guard's test and `tenure-bench guard` run.
#[path = "../../../guard/tests/it/cost/measure.rs"]
mod measure;

use crate::bench::{Bench, Vendor, count, spec, turn};
use crate::cl::Cl;
use crate::part::{Part, own, say};

const WORDS: [&str; 10] = [
    "ask",
    "enqueue",
    "copy",
    "argument",
    "finish",
    "read-4k",
    "write-64m",
    "read-64m",
    "memcpy-64m",
    "allocate-4k",
];

/// Says what each call costs.
pub fn measure() {
    measure::measure(&Cl::open().unwrap(), say);
}

#[test]
fn the_broker_costs_little() {
    let _turn = turn();
    let bench = Bench::on(Vendor::Pocl, &[spec(1, 400)]);
    let served = bench.serve(1);
    let numbers = |mut part: Part| WORDS.map(|word| part.line(word).unwrap().parse::<u64>().unwrap());
    let bare = numbers(Part::start(bench.bare(own()), "cost", &[]));
    let brokered = numbers(Part::start(bench.command(&served, own()), "cost", &[]));
    println!(
        "{:12} {:>10} {:>10}   (ns, least of many)",
        "call", "bare", "brokered"
    );
    for (word, (bare, brokered)) in WORDS.iter().zip(bare.iter().zip(&brokered)) {
        println!("{word:12} {bare:>10} {brokered:>10}");
    }
    let memcpy = brokered[8] as f64;
    println!(
        "of memcpy: write {:.0} %, read {:.0} %; bare write {:.0} %, read {:.0} %",
        100.0 * memcpy / brokered[6] as f64,
        100.0 * memcpy / brokered[7] as f64,
        100.0 * memcpy / bare[6] as f64,
        100.0 * memcpy / bare[7] as f64,
    );
    // The goals are 5 µs, 1 µs and 80 % in an optimised build on a quiet machine; this catches what is broken, not slow.
    assert!(brokered[0] < 200_000, "a call with an answer costs too much");
    assert!(brokered[1] < 50_000, "an enqueue costs too much");
}

/// The best of clpeak's figures of one kind.
fn peak(mut clpeak: std::process::Command, test: &str) -> f64 {
    let output = clpeak.arg(test).output().unwrap();
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    assert!(output.status.success(), "{text}");
    text.lines()
        .filter(|line| line.trim_start().starts_with("float"))
        .filter_map(|line| line.split(':').nth(1)?.trim().parse::<f64>().ok())
        .fold(0.0, f64::max)
}

/// Ten pairs when asked for: each takes half a minute.
#[test]
fn clpeak_in_turns() {
    let _turn = turn();
    let pairs = count("TENURE_CLPEAK_PAIRS", 0);
    for test in ["--compute-sp", "--global-bandwidth"] {
        let bench = Bench::on(Vendor::Pocl, &[spec(1, 1024)]);
        let served = bench.serve(1);
        let mut ratios: Vec<f64> = (0..pairs)
            .map(|_| {
                let bare = peak(bench.bare("clpeak"), test);
                peak(bench.command(&served, "clpeak"), test) / bare
            })
            .collect();
        ratios.sort_by(f64::total_cmp);
        if let (Some(least), Some(most)) = (ratios.first(), ratios.last()) {
            println!(
                "{test}: brokered/bare median {:.3}, {least:.3} to {most:.3} over {pairs} pairs",
                ratios[ratios.len() / 2]
            );
        }
    }
}
