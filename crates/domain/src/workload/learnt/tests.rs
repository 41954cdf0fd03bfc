use proptest::prelude::*;

use super::*;
use crate::workload::inference::Inference;
use crate::workload::picture::Rendering;

fn vram(mib: u64) -> Run {
    Run {
        vram_mib: Some(mib),
        ..Run::default()
    }
}

fn usage(peak_vram_mib: u64) -> Usage {
    Usage {
        peak_vram_mib,
        ..Usage::default()
    }
}

#[test]
fn nothing_is_said_of_too_few_runs_and_nothing_to_others() {
    let mut learnt = Learnt::default();
    let (acme, beta) = (TenantId(1), TenantId(2));
    for (run, mib) in [100, 300, 200].into_iter().enumerate() {
        assert_eq!(learnt.measured(acme, "a"), None, "after {run}");
        learnt.note(acme, "a".into(), vram(mib));
    }
    let measured = learnt.measured(acme, "a").and_then(|measured| measured.vram_mib);
    let told = Quantiles {
        runs: 3,
        p50: 200,
        p90: 300,
        most: 300,
    };
    assert_eq!(measured, Some(told));
    assert_eq!(learnt.measured(acme, "b"), None);
    assert_eq!(
        learnt.measured(beta, "a"),
        None,
        "no tenant's history informs another's"
    );
    learnt.forget(acme);
    assert_eq!(learnt.measured(acme, "a"), None);
}

#[test]
fn a_program_that_takes_all_it_is_given_is_not_given_more_each_time() {
    let workload = Workload::Inference(Inference::of("7B"));
    let mut given = 10_000;
    for _ in 0..10 {
        let run = Run::of(&workload, &Outcome::Cancelled, Some(&usage(given)), given, 1000);
        given = run.and_then(|run| run.vram_mib).expect("measured");
    }
    assert_eq!(given, 10_000);
    let run = Run::of(&workload, &Outcome::Succeeded, Some(&usage(5000)), given, 1000);
    assert_eq!(
        run.and_then(|run| run.vram_mib),
        Some(5500),
        "a tenth more than the peak"
    );
}

#[test]
fn what_failed_tells_nothing_and_what_was_stopped_nothing_of_time() {
    let workload = Workload::Rendering(Rendering {
        frames: "1-10".parse().expect("frames"),
        scene: None,
        each_ms: None,
        vram_mib: None,
    });
    let failed = Outcome::Failed {
        exit_code: Some(1),
        signal: None,
        member: None,
    };
    assert_eq!(Run::of(&workload, &failed, Some(&usage(10)), 20, 1000), None);
    assert_eq!(
        Run::of(&workload, &Outcome::OverLimit, Some(&usage(20)), 20, 1000),
        None
    );
    let stopped = Run::of(&workload, &Outcome::TimedOut, Some(&usage(10)), 20, 1000).expect("memory");
    assert_eq!(
        (stopped.vram_mib, stopped.run_ms, stopped.each_ms),
        (Some(11), None, None)
    );
    let done = Run::of(&workload, &Outcome::Succeeded, None, 0, 1001).expect("time");
    assert_eq!(
        (done.vram_mib, done.run_ms, done.each_ms),
        (None, Some(1001), Some(101))
    );
}

#[test]
fn signatures_are_of_what_memory_follows_from() {
    let of = |model: &str, context: u32| {
        let inference = Inference {
            context,
            ..Inference::of(model)
        };
        signature(&Workload::Inference(inference), "job")
    };
    assert_eq!(of("meta-llama/Llama-2-7b-hf", 4096), of("llama-2-7b", 4096));
    assert_ne!(of("llama-2-7b", 4096), of("llama-2-7b", 8192));
    assert_ne!(of("llama-2-7b", 4096), of("llama-2-13b", 4096));
}

proptest! {
    #[test]
    fn memory_is_bounded_and_quantiles_are_of_the_last_runs(values in prop::collection::vec(1_u64..10_000, 1..80)) {
        let mut learnt = Learnt::default();
        for &value in &values {
            learnt.note(TenantId(7), "x".into(), vram(value));
        }
        let kept = &values[values.len().saturating_sub(RUNS)..];
        let told = learnt.measured(TenantId(7), "x").and_then(|measured| measured.vram_mib);
        prop_assert_eq!(told.is_some(), values.len() >= RUNS_LEAST as usize);
        if let Some(told) = told {
            prop_assert_eq!(told.runs as usize, kept.len());
            prop_assert_eq!(Some(told.most), kept.iter().max().copied());
            for (quantile, tenths) in [(told.p50, 5), (told.p90, 9)] {
                let below = kept.iter().filter(|value| **value < quantile).count();
                let within = kept.iter().filter(|value| **value <= quantile).count();
                prop_assert!(kept.contains(&quantile) && within * 10 >= kept.len() * tenths);
                prop_assert!(below * 10 < kept.len() * tenths);
            }
        }
    }
}

#[test]
fn the_signature_that_ran_longest_ago_is_forgotten_first() {
    let mut learnt = Learnt::default();
    for round in 0..3 {
        for number in 0..=SIGNATURES {
            // The first is never long ago.
            learnt.note(TenantId(1), "first".into(), vram(round));
            learnt.note(TenantId(1), format!("{number}"), vram(1));
        }
    }
    let of = &learnt.tenants[&TenantId(1)];
    assert_eq!(of.runs.len(), SIGNATURES);
    assert_eq!(of.runs["first"].last.len(), RUNS);
    assert!(!of.runs.contains_key("0") && of.runs.contains_key(&SIGNATURES.to_string()));
}
