//! A GPU shows what it is when its node is asked: measured for real, again when asked again, out of the way of whoever
//! works; what claims more than it has is found out, and what cannot be measured is said to be so.

use std::time::Duration;

use serde_json::json;
use tenure_api::channel::{GpuQuestion, RunState};
use tenure_domain::id::GpuId;
use tenure_domain::market::check::{Finding, GpuReport, Untried};
use tenure_domain::market::terms::MarketTerms;
use tenure_domain::schedule::fleet::{GpuFacts, Inventory};
use tenure_domain::workload::job::StopReason;
use tenure_engine::conformance::Watcher;
use tenure_engine::{Engine, Seen};

use crate::bench::{Bench, eventually, has_ended, is_running};
use crate::machine::{Machine, double};
use crate::slice::{DONE, SPIN, bench, opencl_dir, order, uuid};

/// What the agent says the machine has.
async fn inventory(bench: &mut Bench) -> Inventory {
    let mut watcher = bench.watch();
    bench.kill_agent();
    bench.start_agent();
    let told = watcher.until(|seen| match seen {
        Seen::Inventory { inventory, .. } if inventory.cpu_milli > 0 => Some(inventory.clone()),
        _ => None,
    });
    let told = told.await;
    bench.settled().await;
    told
}

async fn asks(bench: &Bench, number: u64, claim: &GpuFacts) {
    let question = GpuQuestion {
        gpu: GpuId(7),
        number,
        uuid: claim.uuid.clone(),
        memory_mib: claim.vram_mib,
    };
    bench.hub().check_gpu(bench.node, question).await.unwrap();
}

async fn answer(watcher: &mut Watcher, to: u64) -> GpuReport {
    let answered = watcher.until(|seen| match seen {
        Seen::Checked {
            gpu: GpuId(7),
            number,
            report,
            ..
        } if *number == to => Some((**report).clone()),
        _ => None,
    });
    answered.await
}

fn device<'a>(inventory: &'a Inventory, uuid: &str) -> &'a GpuFacts {
    let mut gpus = inventory.gpus.iter();
    gpus.find(|facts| facts.uuid == uuid).expect("the device")
}

/// Whether this agent's check is at work.
fn is_at_work(bench: &Bench) -> bool {
    let own = bench.state_dir().display().to_string();
    let all = std::fs::read_dir("/proc").unwrap().flatten();
    let mut checks = all.filter(|entry| {
        let text = |file: &str| {
            let bytes = std::fs::read(entry.path().join(file)).unwrap_or_default();
            String::from_utf8_lossy(&bytes).into_owned()
        };
        text("cmdline").contains("tenure-broker\0check\0") && text("environ").contains(&own)
    });
    checks.next().is_some()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_gpu_shows_what_it_is_as_often_as_it_is_asked() {
    let mut bench = bench().await;
    let inventory = inventory(&mut bench).await;
    let claim = device(&inventory, &uuid(&bench)).clone();
    let mut watcher = bench.watch().patient(Duration::from_secs(300));
    asks(&bench, 11, &claim).await;
    let report = answer(&mut watcher, 11).await;
    eprintln!("{report:?}");
    assert_eq!(report.finding(&claim, &MarketTerms::default()), Finding::Passed);
    assert!(
        report.speed > 1 && report.memory_mib <= claim.vram_mib,
        "{report:?}"
    );
    // Asked again, for its answer may have been lost, it is what was measured.
    asks(&bench, 11, &claim).await;
    assert_eq!(answer(&mut watcher, 11).await, report);
    // A slower class than it claims to be of.
    let mut terms = MarketTerms::default();
    terms.least_speed.insert(claim.class.clone(), report.speed * 4);
    assert!(matches!(report.finding(&claim, &terms), Finding::Lie(_)));
    // An agent that is started anew has forgotten, and measures anew.
    bench.kill_agent();
    let mut watcher = bench.watch().patient(Duration::from_secs(300));
    bench.start_agent();
    watcher.whole(bench.node).await;
    bench.settled().await;
    asks(&bench, 11, &claim).await;
    let anew = answer(&mut watcher, 11).await;
    assert_eq!((&anew.uuid, anew.untried), (&report.uuid, None));
    // Of what is not here nothing can be said.
    let gone = GpuFacts {
        uuid: "GPU-gone".into(),
        ..claim.clone()
    };
    asks(&bench, 12, &gone).await;
    let gone = answer(&mut watcher, 12).await;
    assert_eq!(gone.untried, Some(Untried::Because("it is not here".into())));
}

#[tokio::test(flavor = "multi_thread")]
async fn nobody_is_disturbed() {
    let mut bench = bench().await;
    let inventory = inventory(&mut bench).await;
    let claim = device(&inventory, &uuid(&bench)).clone();
    let python = opencl_dir().join("venv/bin/python").display().to_string();
    let mut watcher = bench.watch().patient(Duration::from_secs(300));
    // Who comes while it is checked has it at once.
    asks(&bench, 1, &claim).await;
    eventually("the check is at work", || is_at_work(&bench)).await;
    let mut spinning = order(&bench, 64, &[&python, "-c", SPIN]);
    spinning.env.push(("PYOPENCL_NO_CACHE".into(), "1".into()));
    let id = spinning.allocation;
    bench.start(spinning).await;
    let report = answer(&mut watcher, 1).await;
    assert_eq!(report.untried, Some(Untried::InUse));
    assert!(!is_at_work(&bench), "it left");
    watcher.state(id, is_running).await;
    // While somebody works there only its identity is said, and what its driver says of memory.
    asks(&bench, 2, &claim).await;
    let report = answer(&mut watcher, 2).await;
    assert_eq!(report.untried, Some(Untried::InUse));
    assert_eq!((&report.uuid, report.memory_mib), (&claim.uuid, claim.vram_mib));
    assert_eq!(report.finding(&claim, &MarketTerms::default()), Finding::PutOff);
    let stop = bench.hub().stop(bench.node, id, StopReason::Cancelled, 0);
    stop.await.unwrap();
    watcher.state(id, has_ended).await;
    // The same question, once it is free.
    loop {
        asks(&bench, 2, &claim).await;
        let report = answer(&mut watcher, 2).await;
        if report.untried.is_none() {
            assert_eq!(report.finding(&claim, &MarketTerms::default()), Finding::Passed);
            break;
        }
        tokio::time::sleep(Duration::from_millis(200)).await;
    }
    // What was checked is handed on as ever.
    let (state, text) = crate::slice::ran(&bench, order(&bench, 64, &["clinfo", "-l"])).await;
    assert_eq!(state, DONE, "{text}");
    assert_ne!(state, RunState::Running);
}

#[tokio::test(flavor = "multi_thread")]
async fn who_claims_more_memory_than_there_is_is_found_out() {
    let liar = double("opencl_liar").display().to_string();
    let variables = [("TENURE_OPENCL_LIBRARY", liar)];
    let mut bench = Bench::on(Duration::from_secs(60), &[], &variables).await;
    let inventory = inventory(&mut bench).await;
    let claim = device(&inventory, &uuid(&bench)).clone();
    let mut watcher = bench.watch().patient(Duration::from_secs(300));
    asks(&bench, 1, &claim).await;
    let report = answer(&mut watcher, 1).await;
    assert!(
        report.memory_mib <= claim.vram_mib / 2 + 1,
        "{report:?} of {claim:?}"
    );
    let Finding::Lie(lie) = report.finding(&claim, &MarketTerms::default()) else {
        panic!("it lies: {report:?}");
    };
    assert!(lie.contains(&format!("and not {}", claim.vram_mib)), "{lie}");
}

#[tokio::test(flavor = "multi_thread")]
async fn without_a_driver_to_measure_with_that_is_said() {
    let machine = Machine::new();
    machine.nvml(&json!({"driver": "570.86.15", "devices": [
        {"model": "A100-40GB", "uuid": "GPU-a", "bus": 7},
    ]}));
    let mut bench = Bench::on(Duration::from_secs(60), &[], &machine.variables()).await;
    let inventory = inventory(&mut bench).await;
    let claim = device(&inventory, "GPU-a").clone();
    let mut watcher = bench.watch().patient(Duration::from_secs(120));
    asks(&bench, 1, &claim).await;
    let report = answer(&mut watcher, 1).await;
    assert_eq!((report.uuid.as_str(), report.memory_mib), ("GPU-a", 40_960));
    let Finding::Unknown(why) = report.finding(&claim, &MarketTerms::default()) else {
        panic!("nobody can say: {report:?}");
    };
    assert!(why.contains("no OpenCL driver serves it"), "{why}");
    // Its driver's word is enough to find out who claims more than that.
    let larger = GpuFacts {
        vram_mib: 81_920,
        ..claim
    };
    asks(&bench, 2, &larger).await;
    let report = answer(&mut watcher, 2).await;
    assert!(matches!(
        report.finding(&larger, &MarketTerms::default()),
        Finding::Lie(_)
    ));
}
