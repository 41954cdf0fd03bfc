//! What one tenant's worker does, its neighbour does not notice: it crashes, hangs while the device is its, or takes
//! all the memory it may; the neighbour's results stay the same to the byte, and its share stays its own.

use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};
use tenure_api::channel::{LogStream, Order};
use tenure_domain::id::AllocationId;
use tenure_domain::workload::spec::Isolation;
use tenure_engine::Engine;
use tenure_engine::conformance::Watcher;
use tenure_limits::Counter;

use crate::bench::{Bench, has_ended, is_running};
use crate::fence::{fenced, python, workers};
use crate::slice::{SPIN, bench, order, reader, slice};
use crate::turn::{self, Turn};

/// For what a driver compiles on a loaded machine.
const PATIENCE: Duration = Duration::from_secs(300);

/// By when a neighbour has what it is due.
const FAIR_WITHIN: Duration = Duration::from_secs(40);

/// Computes the same again and again, and ends at the first byte that differs.
const SAME: &str = r#"
import sys, numpy, pyopencl
context = pyopencl.create_some_context(interactive=False)
queue = pyopencl.CommandQueue(context)
program = pyopencl.Program(context, '''
kernel void f(global float *out) {
    float x = get_global_id(0);
    for (int i = 0; i < 20000; i++) x = x * 0.999f + i;
    out[get_global_id(0)] = x;
}''').build()
out = numpy.empty(4096, numpy.float32)
buffer = pyopencl.Buffer(context, pyopencl.mem_flags.READ_WRITE, out.nbytes)
first, rounds = None, 0
while True:
    program.f(queue, out.shape, None, buffer)
    pyopencl.enqueue_copy(queue, out, buffer)
    first = first or out.tobytes()
    if out.tobytes() != first:
        print('differs', flush=True)
        sys.exit(3)
    rounds += 1
    if rounds % 4 == 0:
        print(rounds, flush=True)
"#;

/// Has its worker compile what doubles with each line.
const EXHAUST: &str = r"
import pyopencl
context = pyopencl.create_some_context(interactive=False)
lines = ['#define A0 x += 1;'] + [f'#define A{i} A{i-1} A{i-1}' for i in range(1, 40)]
pyopencl.Program(context, '\n'.join(lines) + '\nkernel void f(global int *p) { int x = 0; A39 *p = x; }').build()
";

pub struct Pair {
    pub bench: Bench,
    pub watcher: Watcher,
    /// The one that must not notice, and the other.
    pub ids: [AllocationId; 2],
    _turn: Turn,
}

impl Pair {
    pub async fn new(level: Isolation, other: &str) -> Pair {
        let turn = turn::alone().await;
        let bench = bench().await;
        let order = |program: &str, tenant: &str| -> Order {
            let mut order = fenced(order(&bench, 64, &[&python(), "-c", program]));
            order.devices = vec![slice(&bench, 64, 500)];
            order.tenant = tenant.into();
            order.isolation = level;
            order
        };
        let orders = [order(SAME, "ten_a"), order(other, "ten_b")];
        let ids = orders.each_ref().map(|order| order.allocation);
        let mut watcher = bench.watch().patient(PATIENCE);
        for order in orders {
            let id = order.allocation;
            bench.start(order).await;
            watcher.state(id, is_running).await;
        }
        Pair {
            bench,
            watcher,
            ids,
            _turn: turn,
        }
    }

    fn busy_ns(&self, which: usize) -> u64 {
        let snapshot = reader(&self.bench).snapshot().unwrap();
        let slice = snapshot.slice(self.ids[which].0);
        slice.map_or(0, |slice| slice.counter(Counter::BusyNs))
    }

    pub async fn both_work(&self) {
        self.works(0).await;
        self.works(1).await;
    }

    /// Waits until it uses the device: its driver compiles first, for long on a loaded machine.
    async fn works(&self, which: usize) {
        let deadline = Instant::now() + PATIENCE;
        while self.busy_ns(which) == 0 {
            assert!(Instant::now() < deadline, "it does not use the device");
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    }

    fn kill_worker(&self, signal: Signal) {
        let (pid, _) = workers(&self.bench, self.ids[1])[0];
        kill_process(Pid::from_raw(pid).unwrap(), signal).unwrap();
    }

    /// The neighbour has its half of what both use, and goes on using the device; its results are what they were. Counted
    /// from one moment on until it holds: turns are fair over seconds, and one kernel of a processor that thousands of
    /// its own job's processes slow down may be long. Who is starved never comes to it.
    pub async fn is_untouched(&self) {
        self.works(0).await;
        let (begun, before) = (Instant::now(), [0, 1].map(|which| self.busy_ns(which)));
        let rounds = self.rounds().await;
        loop {
            tokio::time::sleep(Duration::from_secs(4)).await;
            // The other's slice may be gone by now.
            let used = [0, 1].map(|which| self.busy_ns(which).saturating_sub(before[which]) as f64);
            let took = begun.elapsed();
            let (of_both, of_time) = (used[0] / (used[0] + used[1]), used[0] / took.as_nanos() as f64);
            println!(
                "the neighbour has {of_both:.3} of what both use, {of_time:.3} of the time, after {took:?}"
            );
            if of_both > 0.4 && of_time > 0.2 && self.rounds().await > rounds {
                return;
            }
            assert!(took < FAIR_WITHIN, "{of_both:.3}, {of_time:.3}");
        }
    }

    async fn rounds(&self) -> usize {
        let text = self.said(0).await;
        assert!(!text.contains("differs"), "{text}");
        text.lines().count()
    }

    /// Waits until one of them has said this.
    pub async fn says(&self, which: usize, word: &str) {
        let deadline = Instant::now() + PATIENCE;
        while !self.said(which).await.contains(word) {
            assert!(
                Instant::now() < deadline,
                "it never said {word}: {}",
                self.said(which).await
            );
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    }

    pub async fn said(&self, which: usize) -> String {
        let (hub, id) = (self.bench.hub(), self.ids[which]);
        let chunk = hub.read_log(self.bench.node, id, LogStream::Stdout, 0, 65536, 0);
        String::from_utf8(chunk.await.unwrap().bytes).unwrap()
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_worker_that_crashes_is_its_own_tenants_loss() {
    let mut pair = Pair::new(Isolation::Fenced, SPIN).await;
    pair.both_work().await;
    pair.kill_worker(Signal::KILL);
    pair.is_untouched().await;
    pair.watcher.state(pair.ids[1], has_ended).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_worker_that_hangs_holds_nobody_up() {
    let pair = Pair::new(Isolation::Fenced, SPIN).await;
    pair.both_work().await;
    // Whether or not the lease is its just then: stopped again and again it will have been.
    for _ in 0..5 {
        pair.kill_worker(Signal::STOP);
        tokio::time::sleep(Duration::from_millis(120)).await;
        pair.kill_worker(Signal::CONT);
        tokio::time::sleep(Duration::from_millis(30)).await;
    }
    pair.kill_worker(Signal::STOP);
    pair.is_untouched().await;
    pair.kill_worker(Signal::CONT);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_worker_that_takes_all_memory_is_ended_alone() {
    let mut pair = Pair::new(Isolation::Fenced, EXHAUST).await;
    pair.works(0).await;
    let begun = Instant::now();
    pair.is_untouched().await;
    let ended = pair.watcher.state(pair.ids[1], has_ended).await;
    println!("ended after {:?}: {ended:?}", begun.elapsed());
    let log = pair.bench.log(pair.ids[1], LogStream::Stderr).await;
    assert!(!log.is_empty(), "the program is told");
    let worker = pair
        .bench
        .state_dir()
        .join("workers")
        .join(pair.ids[1].to_string());
    // The worker's parent says so when it has swept up, after the program has heard that its worker is gone.
    let deadline = Instant::now() + PATIENCE;
    loop {
        let said = std::fs::read_to_string(worker.join("stderr")).unwrap_or_default();
        if said.contains("out of memory") {
            break;
        }
        assert!(Instant::now() < deadline, "{said}");
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    pair.is_untouched().await;
}
