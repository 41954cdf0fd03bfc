//! The same layer on other implementations: Intel's CPU runtime and rusticl, put there by `scripts/setup-devices`.

use tenure_limits::SliceSpec;

use crate::bench::{Bench, MIB, Vendor, spec};
use crate::memory::check_paths;
use crate::share::{Program, in_three, median, run, tolerance};

fn shares(vendor: Vendor, judge_by_kernels: bool) {
    let wrong = in_three(|| shares_once(vendor, judge_by_kernels));
    assert!(wrong.is_empty(), "{wrong:?}");
}

fn shares_once(vendor: Vendor, judge_by_kernels: bool) -> Vec<String> {
    let bench = Bench::on(vendor, &[spec(1, 100 * MIB, 300), spec(2, 100 * MIB, 700)]);
    let programs = [1, 2].map(|slice| Program {
        slice,
        micros: 4_000,
        depth: 1,
    });
    let achieved = median(&format!("{vendor:?} 30/70"), &bench, &programs, &[0.3, 0.7]);
    // A driver whose profiling is no measure is judged by what it completed: all kernels are alike.
    let shares = if judge_by_kernels {
        &achieved.counted
    } else {
        &achieved.shares
    };
    println!("{vendor:?} 30/70: {shares:.3?}, busy {:.3}", achieved.busy);
    let (most, ..) = tolerance();
    let mut wrong = Vec::new();
    if (shares[0] - 0.3).abs() > most {
        wrong.push(format!("30/70 gave {shares:?}"));
    }
    let capped = SliceSpec {
        cap_per_mille: Some(250),
        ..spec(1, 100 * MIB, 500)
    };
    let bench = Bench::on(vendor, &[capped]);
    run(&bench, &programs[..1], 3_000);
    let busy = bench.counter(1, tenure_limits::Counter::BusyNs) as f64 / 3e9;
    println!("{vendor:?} cap of 25 % alone: {busy:.3} charged");
    if (busy - 0.25).abs() > most {
        wrong.push(format!("a cap of 25 % gave {busy}"));
    }
    wrong
}

#[test]
fn intel_allocates_within_the_slice() {
    let _turn = crate::bench::turn();
    check_paths(&Bench::on(Vendor::Intel, &[spec(1, 100 * MIB, 500)]));
}

#[test]
fn intel_shares_follow_weights() {
    let _turn = crate::bench::turn();
    shares(Vendor::Intel, false);
}

#[test]
fn rusticl_allocates_within_the_slice() {
    let _turn = crate::bench::turn();
    check_paths(&Bench::on(Vendor::Rusticl, &[spec(1, 100 * MIB, 500)]));
}

#[test]
fn rusticl_shares_follow_weights() {
    let _turn = crate::bench::turn();
    shares(Vendor::Rusticl, true);
}
