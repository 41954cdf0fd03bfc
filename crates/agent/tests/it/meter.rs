//! What tenants are metered for is what their devices counted, and what the kernel says a processor did that is one.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

use serde_json::json;
use tenure_api::channel::{AllocationReport, DeviceSlice};
use tenure_domain::id::AllocationId;
use tenure_domain::workload::job::StopReason;
use tenure_domain::workload::spec::Isolation;
use tenure_engine::conformance::Watcher;
use tenure_engine::{Engine, Seen};
use tenure_limits::{Counter, Reader};

use crate::bench::{Bench, fresh, has_ended, is_running};
use crate::fence::{fenced, processes, python, workers};
use crate::machine::Machine;
use crate::slice::{bench, order, reader, slice};
use crate::turn;

/// What NVML's double counts of energy, from now on.
fn counts(machine: &Machine, used_mj: [u64; 2]) {
    let all = json!({ "GPU-a": used_mj[0], "GPU-b": used_mj[1] });
    machine.file("energy.new", all.to_string());
    let root = machine.root.path();
    std::fs::rename(root.join("energy.new"), root.join("energy.json")).unwrap();
}

/// Waits until an allocation was told to have used so much.
async fn has_used(watcher: &mut Watcher, id: AllocationId, energy_mj: u64) {
    let is_told = |report: &AllocationReport| {
        let usage = report.usage.filter(|usage| usage.energy_mj == energy_mj);
        report.allocation == id && usage.is_some()
    };
    let told = watcher.until(|seen| match seen {
        Seen::Report { allocations, .. } if allocations.iter().any(is_told) => Some(()),
        _ => None,
    });
    told.await;
}

#[tokio::test(flavor = "multi_thread")]
async fn energy_is_what_nvml_counted_to_the_millijoule() {
    let machine = Machine::new();
    let gauges = json!({
        "busy_percent": 50, "used_mib": 10, "temperature_c": 50, "power_mw": 100_000, "energy_mj": 0,
        "throttle_reasons": 0, "corrected": 0,
    });
    machine.nvml(&json!({"driver": "570.86.15", "devices": [
        {"model": "L40S", "uuid": "GPU-a", "bus": 1, "gauges": gauges},
        {"model": "L40S", "uuid": "GPU-b", "bus": 2, "gauges": gauges},
    ]}));
    let begun = [1_000_000, 77];
    counts(&machine, begun);
    let mut bench = Bench::on(Duration::from_secs(60), &[], &machine.variables()).await;
    let mut measured = bench.hub().subscribe_readings();
    // Looked at before anybody came: what was used until then is nobody's.
    let look = async {
        loop {
            let seen = measured.recv().await.expect("the hub stands");
            if seen
                .devices
                .iter()
                .any(|device| device.gauges.energy_mj.is_some())
            {
                break;
            }
        }
    };
    tokio::time::timeout(Duration::from_secs(120), look)
        .await
        .expect("no reading came");
    let orders = [("ten_a", "GPU-a"), ("ten_b", "GPU-b")].map(|(tenant, uuid)| {
        let mut order = bench.order(fresh(), "sleep 600");
        order.tenant = tenant.into();
        order.isolation = Isolation::Exclusive;
        order.run_time_s = 900;
        order.devices = vec![DeviceSlice {
            uuid: uuid.into(),
            vram_mib: 1024,
            compute_permille: 1000,
            capped: false,
            part: None,
        }];
        order
    });
    let mut watcher = bench.watch().patient(Duration::from_secs(120));
    for order in orders.clone() {
        bench.start(order).await;
    }
    let ids = orders.map(|order| order.allocation);
    for id in ids {
        watcher.state(id, is_running).await;
    }
    counts(&machine, [1_000_000 + 123_457, 77 + 1]);
    has_used(&mut watcher, ids[0], 123_457).await;
    // What was used while no agent looked is metered by the next one.
    bench.kill_agent();
    counts(&machine, [1_000_000 + 200_001, 77 + 4_242]);
    let mut watcher = bench.watch().patient(Duration::from_secs(120));
    bench.start_agent();
    has_used(&mut watcher, ids[0], 200_001).await;
    bench.settled().await;
    counts(&machine, [1_000_000 + 300_003, 77 + 5_000]);
    // A reading of the driver is a quarter of a second old at most, and a stop that comes sooner finds an older one.
    tokio::time::sleep(Duration::from_secs(3)).await;
    let mut sum = 0;
    for id in ids {
        let stop = bench.hub().stop(bench.node, id, StopReason::Cancelled, 0);
        stop.await.unwrap();
        sum += watcher
            .report(id, has_ended)
            .await
            .usage
            .expect("it used energy")
            .energy_mj;
    }
    assert_eq!(sum, 300_003 + 5_000, "as NVML's counters have it");
}

/// Kernels of some tens of milliseconds, each of one work group and so on one of the driver's threads at a time: the
/// device's time is that thread's. Works in rounds, from `go-N` to `stop-N`, and says when nothing of one is left.
const ROUNDS: &str = "
import os, sys, time, numpy, pyopencl as cl
context = cl.create_some_context(interactive=False)
queue = cl.CommandQueue(context)
program = cl.Program(context, '__kernel void f(__global float *a) { float x = a[get_global_id(0)]; for (int i = 0; i < 3000000; i++) x = x * 1.0001f + 0.5f; a[get_global_id(0)] = x; }').build()
buffer = cl.Buffer(context, cl.mem_flags.READ_WRITE, size=1 << 20)
mark = lambda word, round: f'/tmp/{word}-{round}'
there = os.path.exists
round = 0
while True:
    while not there(mark('go', round)): time.sleep(0.01)
    while not there(mark('stop', round)):
        program.f(queue, (16,), (16,), buffer)
        queue.finish()
    open(mark('idle', round), 'w')
    round += 1
";

/// Time on a processor and time waited for one.
#[derive(Clone, Copy, Default)]
struct Spent {
    on_ns: u64,
    waited_ns: u64,
}

impl Spent {
    fn of_thread(task: &Path) -> Spent {
        // One that has ended counts no more; what it did would be missing below.
        let Ok(text) = std::fs::read_to_string(task.join("schedstat")) else {
            return Spent::default();
        };
        let mut fields = text.split_whitespace().map(|field| field.parse().unwrap());
        Spent {
            on_ns: fields.next().unwrap(),
            waited_ns: fields.next().unwrap(),
        }
    }

    fn and(self, other: Spent) -> Spent {
        Spent {
            on_ns: self.on_ns + other.on_ns,
            waited_ns: self.waited_ns + other.waited_ns,
        }
    }

    fn since(self, before: Spent) -> Spent {
        Spent {
            on_ns: self.on_ns.saturating_sub(before.on_ns),
            waited_ns: self.waited_ns.saturating_sub(before.waited_ns),
        }
    }

    fn ms(self) -> [f64; 2] {
        [self.on_ns, self.waited_ns].map(|ns| ns as f64 / 1e6)
    }
}

/// The threads of a worker, told apart: those its driver made, which run kernels and have no name of their own, and all
/// that are ours. Those of the driver come before everything else on a processor from now on, so that what they waited
/// for one is no part of the time between a launch and its kernel, nor of a thread that wakes to find nothing to do.
struct Threads {
    kernels: Vec<PathBuf>,
    others: Vec<PathBuf>,
}

impl Threads {
    fn of(worker: i32) -> Threads {
        let all = std::fs::read_dir(format!("/proc/{worker}/task")).unwrap();
        let is_drivers = |task: &PathBuf| {
            let name = std::fs::read_to_string(task.join("comm")).unwrap_or_default();
            name.trim() == "tenure-broker" && !task.ends_with(worker.to_string())
        };
        let (kernels, others) = all.map(|task| task.unwrap().path()).partition(is_drivers);
        let threads = Threads { kernels, others };
        assert!(!threads.kernels.is_empty(), "the driver has threads");
        for task in &threads.kernels {
            let thread = task.file_name().unwrap();
            let mut change = Command::new("renice");
            let changed = change
                .args(["--priority", "-20", "--pid"])
                .arg(thread)
                .output()
                .unwrap();
            assert!(
                changed.status.success(),
                "a thread is put before others: {changed:?}"
            );
        }
        threads
    }

    fn spent(tasks: &[PathBuf]) -> Spent {
        tasks
            .iter()
            .map(|task| Spent::of_thread(task))
            .fold(Spent::default(), Spent::and)
    }
}

async fn patiently(what: &str, mut done: impl FnMut() -> bool) {
    let deadline = Instant::now() + Duration::from_secs(180);
    while !done() {
        assert!(Instant::now() < deadline, "{what}: it never was so");
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}

/// Two tenants whose programs work on the processor, in rounds.
struct Rounds {
    bench: Bench,
    reader: Reader,
    ids: [AllocationId; 2],
    /// The `/tmp` of each, as root sees it.
    tmp: [PathBuf; 2],
    next: u32,
}

impl Rounds {
    fn busy_ns(&self, id: AllocationId) -> u64 {
        let snapshot = self.reader.snapshot().unwrap();
        let slice = snapshot.slice(id.0);
        slice.map_or(0, |slice| slice.counter(Counter::BusyNs))
    }

    /// Works until each has had the device for so long, and until nothing is left on it.
    async fn work(&mut self, each_ns: u64) {
        let round = self.next;
        let mark = |tmp: &PathBuf, word: &str| tmp.join(format!("{word}-{round}"));
        let all = |word: &str| {
            self.tmp
                .iter()
                .for_each(|tmp| std::fs::write(mark(tmp, word), "").unwrap())
        };
        let before = self.ids.map(|id| self.busy_ns(id));
        all("go");
        patiently("both have the device", || {
            let used = [0, 1].map(|which| self.busy_ns(self.ids[which]) - before[which]);
            used.iter().all(|used| *used >= each_ns)
        })
        .await;
        all("stop");
        patiently("both have stopped", || {
            self.tmp.iter().all(|tmp| mark(tmp, "idle").exists())
        })
        .await;
        self.next += 1;
    }

    /// What each was metered for so far, as its node reports it, with nothing of theirs left on the device.
    async fn metered_ms(&self) -> [u64; 2] {
        let mut watcher = self.bench.watch().patient(Duration::from_secs(120));
        let mut told = [0, 0];
        while told != self.ids.map(|id| self.busy_ns(id) / 1_000_000) {
            let reports = watcher.until(|seen| match seen {
                Seen::Report { allocations, .. } => Some(allocations.clone()),
                _ => None,
            });
            for report in reports.await {
                let which = self.ids.iter().position(|id| *id == report.allocation);
                if let (Some(which), Some(usage)) = (which, report.usage) {
                    told[which] = usage.busy_ms;
                }
            }
        }
        told
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn what_two_tenants_are_metered_for_is_what_the_kernel_says_the_processor_did() {
    let _turn = turn::alone().await;
    let bench = bench().await;
    let names = ["a", "b"].map(|name| format!("rounds-{}-{name}", std::process::id()));
    let orders = [(300, &names[0]), (700, &names[1])].map(|(share, name)| {
        let mut order = fenced(order(&bench, 64, &[&python(), "-c", ROUNDS, name]));
        order.devices = vec![slice(&bench, 64, share)];
        order.tenant = format!("tenant-{name}");
        order
    });
    let ids = orders.each_ref().map(|order| order.allocation);
    let mut watcher = bench.watch().patient(Duration::from_secs(180));
    for order in orders {
        let id = order.allocation;
        bench.start(order).await;
        watcher.state(id, is_running).await;
    }
    let mut tmp = [PathBuf::new(), PathBuf::new()];
    for (tmp, name) in tmp.iter_mut().zip(&names) {
        patiently("the program runs", || !processes(name).is_empty()).await;
        let (pid, _) = processes(name)[0];
        *tmp = PathBuf::from(format!("/proc/{pid}/root/tmp"));
    }
    let reader = reader(&bench);
    let mut rounds = Rounds {
        bench,
        reader,
        ids,
        tmp,
        next: 0,
    };
    // Compiled by the driver's threads, and believed or not by the guard, before anything is compared.
    rounds.work(1_000_000_000).await;
    let threads = ids.map(|id| Threads::of(workers(&rounds.bench, id)[0].0));
    let mut rounds_off = Vec::new();
    for _ in 0..3 {
        let read = || threads.each_ref().map(|threads| Threads::spent(&threads.kernels));
        let read_others = || threads.each_ref().map(|threads| Threads::spent(&threads.others));
        let (metered, spent, others) = (rounds.metered_ms().await, read(), read_others());
        rounds.work(1_500_000_000).await;
        let (metered_now, spent_now, others_now) = (rounds.metered_ms().await, read(), read_others());
        let metered = [0, 1].map(|which| (metered_now[which] - metered[which]) as f64);
        let spent = [0, 1].map(|which| spent_now[which].since(spent[which]).ms());
        let others = [0, 1].map(|which| others_now[which].since(others[which]).ms());
        let both = [0, 1].map(|of| spent[0][of] + spent[1][of]);
        let told = [
            (metered[0], spent[0]),
            (metered[1], spent[1]),
            (metered[0] + metered[1], both),
        ];
        let off = told.map(|(metered, spent)| beyond(metered, spent));
        println!(
            "metered {metered:.0?} ms; on a processor, and waiting for one, kernels {spent:.1?} ms and other threads {others:.1?} ms: \
             metered {:.4} of the time on a processor, {off:.4?} beyond what the kernel says",
            (metered[0] + metered[1]) / both[0]
        );
        rounds_off.push(off);
    }
    for which in 0..3 {
        let mut of_rounds: Vec<f64> = rounds_off.iter().map(|off| off[which]).collect();
        of_rounds.sort_by(f64::total_cmp);
        assert!(of_rounds[1] <= 0.02, "{rounds_off:.4?}");
    }
}

/// How far, as a part of it, metered time is from what the kernel says: not less than its threads were on a processor,
/// and not more than that and what they waited for one, some of it in the middle of a kernel.
fn beyond(metered: f64, [on, waited]: [f64; 2]) -> f64 {
    let (short, over) = (1.0 - metered / on, metered / (on + waited) - 1.0);
    short.max(over).max(0.0)
}
