//! What jobs do at their devices' boundary, as their node signs it: a prober, a tamperer with its hands in the page and
//! one with its hands in the socket are each found by their record; programs nobody here wrote are not.

use std::time::Duration;

use tenure_api::channel::{AllocationReport, LogStream, Order};
use tenure_api::seal;
use tenure_domain::audit::anomaly::{AnomalyKind, look};
use tenure_domain::audit::conduct::{Conduct, Tampering};
use tenure_domain::workload::spec::Isolation;

use crate::bench::{Bench, fresh, has_ended};
use crate::slice::{bench, opencl_dir, order};

/// Runs it to its end; what its node signed of it, and all it said.
async fn conduct(bench: &Bench, order: Order) -> (Conduct, String) {
    let id = order.allocation;
    let mut watcher = bench.watch().patient(Duration::from_secs(900));
    bench.start(order).await;
    let report: AllocationReport = watcher.report(id, has_ended).await;
    let text = bench.log(id, LogStream::Stdout).await + &bench.log(id, LogStream::Stderr).await;
    let record = report.conduct.unwrap_or_else(|| panic!("no record: {text}"));
    assert_eq!(seal::check(&record), Ok(()), "the node signed it");
    assert_eq!(record.conduct.allocation, id);
    (record.conduct, text)
}

fn kinds(conduct: &Conduct) -> Vec<AnomalyKind> {
    look(conduct, None)
        .into_iter()
        .map(|anomaly| anomaly.kind)
        .collect()
}

fn python(source: &str) -> [String; 3] {
    ["/usr/bin/python3", "-c", source].map(str::to_owned)
}

/// Tries what no job may, and says what it got.
const PROBE: &str = "
import ctypes, os
libc = ctypes.CDLL(None, use_errno=True)
answers = set()
for call in [155, 161, 163, 165, 166, 167, 170, 175, 246, 248, 250, 272, 298, 304, 308, 321, 323, 425]:
    for _ in range(3):
        answers.add((libc.syscall(call, 0, 0, 0, 0, 0, 0), ctypes.get_errno()))
print(answers)
";

#[tokio::test(flavor = "multi_thread")]
async fn denied_system_calls_are_counted_and_a_prober_is_found() {
    let bench = Bench::new().await;
    let mut prober = bench.order(fresh(), "");
    prober.command = python(PROBE).into();
    let (found, text) = conduct(&bench, prober).await;
    assert!(text.contains("{(-1, 1)}"), "each is not permitted: {text}");
    let denied = found.denied_calls.as_ref().expect("counted here");
    let of = |call| {
        denied
            .iter()
            .find(|denied| denied.call == call)
            .map(|denied| denied.times)
    };
    assert_eq!(
        (of(165), of(308), of(425)),
        (Some(3), Some(3), Some(3)),
        "{denied:?}"
    );
    assert_eq!(kinds(&found), [AnomalyKind::ProbingLimits]);

    let (quiet, text) = conduct(
        &bench,
        bench.order(fresh(), "ls / >/dev/null; python3 -c 'print(1)'"),
    )
    .await;
    assert_eq!(kinds(&quiet), [], "{text}");
    assert!(quiet.different_denied_calls() < 5, "{quiet:?}");
    assert!(quiet.ran_ms > 0);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_flood_of_denied_calls_neither_hangs_nor_outlives_its_job() {
    let bench = Bench::new().await;
    let flood = "
import ctypes, os, threading
libc = ctypes.CDLL(None)
def ask():
    for _ in range(2000): libc.syscall(165, 0, 0, 0, 0, 0, 0)
threads = [threading.Thread(target=ask) for _ in range(4)]
for thread in threads: thread.start()
for thread in threads: thread.join()
if os.fork() == 0:
    while True: libc.syscall(272, 0)
";
    let mut order = bench.order(fresh(), "");
    order.command = python(flood).into();
    let (found, _) = conduct(&bench, order).await;
    let denied = found.denied_calls.as_ref().expect("counted here");
    let mounts = denied
        .iter()
        .find(|denied| denied.call == 165)
        .map_or(0, |denied| denied.times);
    // A signal may make the kernel ask anew.
    assert!(mounts >= 8000, "{denied:?}");
    assert_eq!(kinds(&found), [], "one call, however often, is no probing");
}

/// Gives itself more memory than its node did.
const GREEDY: &str = "
import mmap, os, struct, time
page = os.environ['TENURE_GUARD_PAGE'].split(';')[0]
slice = int(os.environ['TENURE_GUARD_SLICE'].split(';')[0])
with open(page, 'r+b') as file:
    memory = mmap.mmap(file.fileno(), 0)
    at = memory.find(struct.pack('<Q', slice))
    memory[at + 16:at + 24] = struct.pack('<Q', 1 << 40)
time.sleep(0.2)
";
/// Sets back the clock by which its turns are charged, so that the next are its own.
const THIEF: &str = "
import mmap, os, struct, time
page = os.environ['TENURE_GUARD_PAGE'].split(';')[0]
slice = int(os.environ['TENURE_GUARD_SLICE'].split(';')[0])
with open(page, 'r+b') as file:
    memory = mmap.mmap(file.fileno(), 0)
    at = memory.find(struct.pack('<Q', slice)) + 192
    tag = struct.unpack('<Q', memory[at:at + 8])[0]
    memory[at:at + 8] = struct.pack('<Q', (tag - 10**9) % 2**64)
time.sleep(0.2)
";
/// Makes the page no page, once it is done with it.
const DESTRUCTIVE: &str = "
import mmap, os, time
with open(os.environ['TENURE_GUARD_PAGE'].split(';')[0], 'r+b') as file:
    mmap.mmap(file.fileno(), 0)[0:8] = bytes(8)
";

#[tokio::test(flavor = "multi_thread")]
async fn who_writes_into_the_page_is_found() {
    let bench = bench().await;
    let (honest, text) = conduct(&bench, order(&bench, 64, &["clpeak", "--global-bandwidth"])).await;
    assert_eq!(kinds(&honest), [], "{text} {honest:?}");
    assert!(honest.launches > 10 && honest.allocations > 0 && honest.bytes_out + honest.bytes_in > 0);
    assert_eq!((honest.devices, honest.devices_opened), (1, 1));
    assert!(!honest.kernels.is_empty(), "{honest:?}");
    for (source, kind) in [
        (GREEDY, Tampering::LimitsChanged),
        (DESTRUCTIVE, Tampering::PageDamaged),
        (THIEF, Tampering::CountsWentBack),
        (GREEDY, Tampering::LimitsChanged),
    ] {
        let mut tamperer = order(&bench, 64, &[]);
        tamperer.command = python(source).into();
        let (found, text) = conduct(&bench, tamperer).await;
        assert!(found.tampering.contains(&kind), "{found:?} {text}");
        assert_eq!(kinds(&found), [AnomalyKind::Tampering]);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn programs_nobody_here_wrote_raise_nothing() {
    let bench = bench().await;
    let attack = "hashcat -m 0 -a 3 --potfile-disable --force --self-test-disable -w 1 b52340b4de4566b804c9880aa0b4af5f ?d?d?d?d";
    let film = "ffmpeg -hide_banner -loglevel error -y -init_hw_device opencl=gpu:0.0 -filter_hw_device gpu -f lavfi \
        -i testsrc2=size=320x240:rate=25:duration=1 -vf format=yuv420p,hwupload,avgblur_opencl=sizeX=5,hwdownload,format=yuv420p -f md5 -";
    // Each where it has room, and in the middle of nothing.
    for (program, mib) in [
        ("clinfo", 512),
        (attack, 2048),
        (attack, 512),
        (film, 256),
        (film, 4),
    ] {
        let (found, text) = conduct(&bench, order(&bench, mib, &["sh", "-c", program])).await;
        assert_eq!(kinds(&found), [], "{program} in {mib} MiB: {found:?} {text}");
        assert!(found.opens > 0, "{program}: {found:?}");
        eprintln!(
            "{:.12} in {mib} MiB: {} denials, {} refusals of {}, {} launches of {} kernels, system calls {:?}",
            program,
            found.denials,
            found.refusals,
            found.allocations + found.refusals,
            found.launches,
            found.kernels.len(),
            found.denied_calls
        );
    }
}

/// Speaks to its worker without our library.
const GARBAGE: &str = "
import os, socket, struct, time
worker = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
worker.connect(os.environ['TENURE_BROKER_SOCKET'])
worker.send(struct.pack('<QQQ', 0x54454e55, 1, 0))
print(len(worker.recv(4096)))
worker.send(b'nothing our library says')
print(worker.recv(4096))
time.sleep(0.2)
";

#[tokio::test(flavor = "multi_thread")]
async fn who_sends_its_worker_garbage_is_found() {
    let bench = bench().await;
    let fenced = |mut order: Order| {
        order.isolation = Isolation::Fenced;
        order.env.push(("PYOPENCL_NO_CACHE".into(), "1".into()));
        order
    };
    let (honest, text) = conduct(&bench, fenced(order(&bench, 512, &["clinfo", "--raw"]))).await;
    assert_eq!(kinds(&honest), [], "{text} {honest:?}");
    assert_eq!(honest.malformed, 0);
    let work = "
import numpy, pyopencl as cl
context = cl.create_some_context(interactive=False)
queue = cl.CommandQueue(context)
program = cl.Program(context, '__kernel void f(__global int *a) { a[get_global_id(0)] *= 3; }').build()
data = numpy.arange(1 << 20, dtype=numpy.int32)
buffer = cl.Buffer(context, cl.mem_flags.READ_WRITE, size=data.nbytes)
cl.enqueue_copy(queue, buffer, data)
for _ in range(5): program.f(queue, data.shape, None, buffer)
cl.enqueue_copy(queue, data, buffer)
";
    let python_cl = opencl_dir().join("venv/bin/python").display().to_string();
    let (works, text) = conduct(&bench, fenced(order(&bench, 512, &[&python_cl, "-c", work]))).await;
    assert_eq!(kinds(&works), [], "{text} {works:?}");
    assert_eq!(
        works.kernels.iter().map(|used| used.launches).collect::<Vec<_>>(),
        [5],
        "{text}"
    );
    assert_eq!((works.bytes_in, works.bytes_out), (4 << 20, 4 << 20));
    let mut tamperer = fenced(order(&bench, 64, &[]));
    tamperer.command = python(GARBAGE).into();
    let (found, text) = conduct(&bench, tamperer).await;
    assert!(found.malformed > 0, "{found:?} {text}");
    assert_eq!(kinds(&found), [AnomalyKind::Tampering]);
}
