use super::*;
use crate::workload::inference::Inference;
use crate::workload::learnt::{Learnt, Run};
use crate::workload::picture::Rendering;
use crate::workload::split::Split;
use crate::workload::train::{Method, Train};

fn job(workload: Workload) -> JobSpec {
    let mut spec: JobSpec = serde_json::from_str(r#"{"name":"a","command":["a"]}"#).expect("a job");
    spec.workload = Some(Box::new(workload));
    spec
}

fn filled(mut spec: JobSpec, measured: Option<Measured>) -> (JobSpec, Derivation) {
    let workload = spec.workload.clone().expect("said");
    let mut derivation = Derivation::of(&workload, measured).expect("known");
    derivation.fill(&mut spec).expect("filled");
    (spec, derivation)
}

fn inference(split: Split) -> Workload {
    Workload::Inference(Inference {
        split,
        ..Inference::of("llama-2-13b")
    })
}

fn rendering(each_ms: Option<u64>, vram_mib: Option<u64>) -> Workload {
    Workload::Rendering(Rendering {
        frames: "1-240x2".parse().expect("frames"),
        scene: None,
        each_ms,
        vram_mib,
    })
}

#[test]
fn what_was_not_asked_for_is_filled_in() {
    let (spec, derivation) = filled(job(inference(Split::default())), None);
    assert_eq!((spec.demand.gpus, spec.demand.nodes), (1, 1));
    assert_eq!(spec.demand.vram_mib, derivation.estimate.vram_mib());
    assert!(spec.demand.vram_mib > 27 * 1024 && spec.demand.vram_mib < 29 * 1024);
    assert_eq!(spec.demand.memory_mib, 2048 + 5120);
    assert_eq!(
        (derivation.basis, derivation.differs),
        (DemandBasis::Rule, vec![])
    );
    assert_eq!(
        spec.run_time_s, DEFAULT_RUN_TIME_S,
        "nothing tells how long it runs"
    );
}

#[test]
fn what_was_asked_for_wins_and_the_difference_is_told() {
    let mut asked = job(inference(Split::default()));
    (asked.demand.gpus, asked.demand.vram_mib, asked.demand.memory_mib) = (2, 20_000, 777);
    let (spec, derivation) = filled(asked.clone(), None);
    assert_eq!(spec.demand, asked.demand);
    assert_eq!(derivation.differs.len(), 2, "{:?}", derivation.differs);
    assert!(derivation.differs[1].contains("less than it is expected to need"));
}

#[test]
fn a_split_becomes_members_with_what_belongs_together_on_one_node() {
    let members = |data, tensor, pipeline, nodes| {
        let split = Split {
            data,
            tensor,
            pipeline,
        };
        let mut spec = job(inference(split));
        spec.demand.nodes = nodes;
        let workload = spec.workload.clone().expect("said");
        let mut derivation = Derivation::of(&workload, None).expect("known");
        derivation
            .fill(&mut spec)
            .map(|()| (spec.demand.nodes, spec.demand.gpus))
    };
    assert_eq!(members(1, 4, 1, 1), Ok((1, 4)));
    assert_eq!(members(2, 4, 1, 1), Ok((1, 8)));
    assert_eq!(members(4, 4, 1, 1), Ok((2, 8)));
    assert_eq!(members(3, 4, 1, 1), Ok((3, 4)), "12 GPUs, four together");
    assert_eq!(
        members(1, 20, 2, 1),
        Ok((2, 20)),
        "more together than a node is taken to have"
    );
    assert_eq!(members(2, 4, 1, 2), Ok((2, 4)));
    assert!(
        members(2, 4, 1, 4).is_err(),
        "two of what belongs together on each"
    );
    assert!(members(2, 4, 1, 3).is_err());
}

#[test]
fn frames_tell_how_long_it_runs() {
    let (spec, derivation) = filled(job(rendering(Some(30_000), Some(6000))), None);
    assert_eq!((spec.demand.gpus, spec.demand.vram_mib), (1, 6000));
    assert_eq!(derivation.run_ms, Some(120 * 30_000));
    assert_eq!(spec.run_time_s, 5400 + 60);
    let mut short = job(rendering(Some(30_000), Some(6000)));
    short.run_time_s = 100;
    let (spec, derivation) = filled(short, None);
    assert_eq!(spec.run_time_s, 100);
    assert!(
        derivation.differs[0].contains("3600 s"),
        "{:?}",
        derivation.differs
    );
    let (spec, derivation) = filled(job(rendering(None, None)), None);
    assert_eq!((spec.demand.gpus, derivation.vram_mib), (0, None));
    assert_eq!(derivation.differs.len(), 1);
}

#[test]
fn runs_measured_go_before_the_rule() {
    let mut learnt = Learnt::default();
    let tenant = crate::id::TenantId(1);
    for vram_mib in [7000, 9000, 8000] {
        let run = Run {
            vram_mib: Some(vram_mib),
            run_ms: Some(120_000),
            each_ms: Some(1000),
        };
        learnt.note(tenant, "x".into(), run);
    }
    let measured = learnt.measured(tenant, "x");
    let (spec, derivation) = filled(job(rendering(Some(30_000), Some(6000))), measured);
    assert_eq!(spec.demand.vram_mib, 9000);
    assert_eq!(derivation.run_ms, Some(120_000));
    assert_eq!(derivation.basis.words(), "measured over 3 runs");
    assert_eq!(derivation.estimate.vram_mib(), 6000, "the rule is told beside it");
}

#[test]
fn a_named_size_is_as_it_is() {
    let mut spec = job(Workload::FineTune(Train::of("7B", Method::Lora)));
    spec.sku = Some("small".into());
    (spec.demand.gpus, spec.demand.vram_mib) = (1, 8000);
    let (after, derivation) = filled(spec.clone(), None);
    assert_eq!(after.demand, spec.demand);
    assert!(derivation.differs[0].contains("less than"));
}
