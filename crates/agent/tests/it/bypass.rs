//! Ways past the limits, each tried from inside a job that shares its device: with a guarded slice it is refused, or
//! seen from outside and ended; with a fenced one there is nothing to pass, for the job has no driver and no page.
//!
//! PoCL's device is the processor: a driver that a job brings along computes on the job's own processors and in its own
//! memory, both of which the kernel limits. So what must never be is that a job goes on with more device memory than
//! its slice has.

use std::time::{Duration, Instant};

use tenure_api::channel::{LogStream, Order, RunState};
use tenure_domain::workload::job::StopReason;
use tenure_domain::workload::spec::Isolation;

use crate::bench::{Bench, fresh, has_ended};
use crate::neighbour::Pair;
use crate::slice::{SPIN, bench, order};

/// What the slice has, what the job has, and what is tried for, in MiB.
const SLICE: u64 = 64;
const JOB: u64 = 384;

/// Takes device memory in pieces of 16 MiB by whatever functions it is given, says how much it got, and waits to be
/// seen.
const TAKE: &str = r#"
import ctypes, os, sys, time
H = ctypes.c_void_p
PIECE = 16 << 20
content = ctypes.create_string_buffer(PIECE)

def opened(cl):
    count, platform, device, code = ctypes.c_uint(), H(), H(), ctypes.c_int()
    if cl.clGetPlatformIDs(1, ctypes.byref(platform), ctypes.byref(count)) or not count.value:
        print('no platform'); sys.exit()
    if cl.clGetDeviceIDs(platform, ctypes.c_ulong(0xFFFFFFFF), 1, ctypes.byref(device), None):
        print('no device'); sys.exit()
    cl.clCreateContext.restype = H
    context = H(cl.clCreateContext(None, 1, ctypes.byref(device), None, None, ctypes.byref(code)))
    if code.value: print('no context'); sys.exit()
    return context

def take(create, context, most=None):
    got, code = 0, ctypes.c_int()
    for _ in range(most or MOST):
        create.restype = H
        buffer = create(context, ctypes.c_ulong(1 | 32), ctypes.c_size_t(PIECE), content, ctypes.byref(code))
        if not buffer or code.value: break
        got += 16
    return got

def stay(got):
    print('got', got, flush=True)
    begun = time.monotonic()
    while time.monotonic() < begun + 3:
        time.sleep(0.1)
        print('has', got, 'for', int((time.monotonic() - begun) * 1000), flush=True)

def bare(path, **how):
    "A driver's own functions: those it gives a loader by name, and by its table."
    driver, count, platform = ctypes.CDLL(path, **how), ctypes.c_uint(), H()
    driver.clGetExtensionFunctionAddress.restype = H
    class Driver: pass
    ask = ctypes.CFUNCTYPE(ctypes.c_int, ctypes.c_uint, H, H)
    Driver.clGetPlatformIDs = ask(driver.clGetExtensionFunctionAddress(b'clIcdGetPlatformIDsKHR'))
    Driver.clGetPlatformIDs(1, ctypes.byref(platform), ctypes.byref(count))
    table = ctypes.cast(ctypes.cast(platform, ctypes.POINTER(H))[0], ctypes.POINTER(H))
    Driver.clGetDeviceIDs = ctypes.CFUNCTYPE(ctypes.c_int, H, ctypes.c_ulong, ctypes.c_uint, H, H)(table[2])
    Driver.clCreateContext = ctypes.CFUNCTYPE(H, H, ctypes.c_uint, H, H, H, H)(table[4])
    Driver.clCreateBuffer = ctypes.CFUNCTYPE(H, H, ctypes.c_ulong, ctypes.c_size_t, H, H)(table[14])
    return Driver

LOADER = 'libOpenCL.so.1'
DRIVER = '/usr/lib/x86_64-linux-gnu/libpocl.so.2'
"#;

/// The program, from whatever shell line.
const RUN: &str = "/usr/bin/python3 -c \"$TAKE$SOURCE\"";
const PLAIN: &str = "cl = ctypes.CDLL(LOADER); stay(take(cl.clCreateBuffer, opened(cl)))";

/// Runs one try; its end, all it said, and how long it went on after it had what it took.
async fn tried(bench: &Bench, level: Isolation, script: &str, source: &str) -> (RunState, String) {
    let mut order: Order = order(bench, SLICE, &["sh", "-c", script]);
    order.isolation = level;
    order.memory_mib = JOB;
    order.env.push(("TAKE".into(), TAKE.into()));
    // With a guard, as much as the job's own memory holds, so that what ends it is whoever sees it; without, all it can.
    let most = if level == Isolation::Guarded { 8 } else { 64 };
    order
        .env
        .push(("SOURCE".into(), format!("\nMOST = {most}\n{source}")));
    let id = order.allocation;
    let mut watcher = bench.watch().patient(Duration::from_secs(300));
    bench.start(order).await;
    let begun = Instant::now();
    let state = watcher.state(id, has_ended).await;
    let text = bench.log(id, LogStream::Stdout).await + &bench.log(id, LogStream::Stderr).await;
    eprintln!("{level:?}: {state:?} after {:.1?}: {text}", begun.elapsed());
    (state, text)
}

/// What it had for more than a second.
fn stayed(text: &str) -> u64 {
    let held = text.lines().filter_map(|line| {
        let (got, ms) = line.strip_prefix("has ")?.split_once(" for ")?;
        Some((got.parse::<u64>().ok()?, ms.parse::<u64>().ok()?))
    });
    let long = held.filter(|(_, ms)| *ms > 1000).map(|(got, _)| got);
    long.max().unwrap_or(0)
}

/// Whether the try came as far as the wall, and did not fail for a reason of its own.
fn came_to_a_wall(state: &RunState, text: &str) -> bool {
    let walls = [
        "got ",
        "no platform",
        "no device",
        "out of memory: the job may use",
    ];
    // What is not in the job's tree cannot be opened.
    let absent =
        text.contains("cannot open shared object file") || text.contains("No such file or directory");
    was_ended(state) || absent || walls.iter().any(|wall| text.contains(wall))
}

/// The same try where there is no wall at all goes on with more than the slice has: so what held it was the wall.
async fn passes_without_walls(source: &str) {
    let mut bare = tokio::process::Command::new("sh");
    bare.args(["-c", RUN])
        .env("TAKE", TAKE)
        .env("SOURCE", format!("\nMOST = 8\n{source}"))
        .env_remove("OPENCL_LAYERS");
    let output = bare.output().await.unwrap();
    let text = String::from_utf8_lossy(&output.stdout);
    assert!(
        stayed(&text) > SLICE,
        "a try that fails by itself shows nothing: {text}{}",
        String::from_utf8_lossy(&output.stderr)
    );
    let _ = std::fs::remove_file("/tmp/mine.so");
    let _ = std::fs::remove_dir_all("/tmp/pocl");
}

fn was_ended(state: &RunState) -> bool {
    matches!(
        state,
        RunState::Exited {
            by: Some(StopReason::OverLimit),
            ..
        }
    )
}

/// At both levels: it never goes on with more than its slice. `guarded` says how it must end there.
async fn holds(script: &str, source: &str, guarded: fn(&RunState, &str) -> bool) {
    passes_without_walls(source).await;
    let bench = bench().await;
    for level in [Isolation::Guarded, Isolation::Fenced] {
        let (state, text) = tried(&bench, level, script, source).await;
        assert!(stayed(&text) <= SLICE, "{level:?}: {state:?} {text}");
        assert!(came_to_a_wall(&state, &text), "{level:?}: {state:?} {text}");
        if level == Isolation::Guarded {
            assert!(guarded(&state, &text), "{state:?} {text}");
        }
    }
}

/// Ended where the job's own memory is.
fn was_held(state: &RunState, text: &str) -> bool {
    was_ended(state) || text.contains("out of memory: the job may use")
}

/// Refused, or ended from outside.
fn refused_or_ended(state: &RunState, text: &str) -> bool {
    was_ended(state) || text.contains("no platform") || text.contains("no device")
}

#[tokio::test(flavor = "multi_thread")]
async fn the_plain_way_ends_at_the_limit() {
    // So that the others show something: the same program gets its slice, and no more.
    let bench = bench().await;
    for level in [Isolation::Guarded, Isolation::Fenced] {
        let (_, text) = tried(&bench, level, RUN, PLAIN).await;
        assert_eq!(stayed(&text), SLICE, "{level:?}: {text}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_variable_unset() {
    let script = format!("unset OPENCL_LAYERS OCL_ICD_VENDORS; {RUN}");
    holds(&script, PLAIN, refused_or_ended).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn an_empty_environment() {
    holds(&format!("env -i {RUN}"), PLAIN, refused_or_ended).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn the_library_removed() {
    let script = format!(
        "rm -f /run/tenure/*.so && echo removed; OPENCL_LAYERS=/tmp/none.so; export OPENCL_LAYERS; {RUN}"
    );
    holds(&script, PLAIN, |state, text| {
        !text.contains("removed\n") && refused_or_ended(state, text)
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn the_driver_by_a_handle() {
    let source = "cl = bare(DRIVER); stay(take(cl.clCreateBuffer, opened(cl)))";
    holds(RUN, source, refused_or_ended).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn the_driver_bound_deeply() {
    let source = "cl = bare(DRIVER, mode=os.RTLD_NOW | os.RTLD_DEEPBIND)
stay(take(cl.clCreateBuffer, opened(cl)))";
    holds(RUN, source, refused_or_ended).await;
}

/// As a program does that has its loader linked in: it asks the driver itself.
#[tokio::test(flavor = "multi_thread")]
async fn a_loader_of_its_own() {
    let source = "
import glob
for file in glob.glob('/etc/OpenCL/vendors/pocl*.icd') or [DRIVER]:
    name = open(file).read().strip() if file.endswith('.icd') else file
cl = bare(name)
stay(take(cl.clCreateBuffer, opened(cl)))";
    holds(RUN, source, refused_or_ended).await;
}

/// The guard cannot see such a call. The memory is the job's own, and ends where the job's does.
#[tokio::test(flavor = "multi_thread")]
async fn a_call_through_the_dispatch_table() {
    let source = "
cl = ctypes.CDLL(LOADER)
context = opened(cl)
table = ctypes.cast(ctypes.cast(context, ctypes.POINTER(H))[0], ctypes.POINTER(H))
create = ctypes.CFUNCTYPE(H, H, ctypes.c_ulong, ctypes.c_size_t, H, H)(table[14])
stay(take(create, context, 64))";
    holds(RUN, source, was_held).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_copy_of_the_driver() {
    let source = "
import shutil
shutil.copytree('/usr/lib/x86_64-linux-gnu/pocl', '/tmp/pocl', dirs_exist_ok=True)
shutil.copy(DRIVER, '/tmp/mine.so')
cl = bare('/tmp/mine.so'); stay(take(cl.clCreateBuffer, opened(cl), 64))";
    let script = format!(
        "mknod /tmp/nvidia0 c 195 0 && echo a device file; ls /dev | grep -E 'nvidia|dri|kfd' && echo a device; {RUN}"
    );
    holds(&script, source, |state, text| {
        (was_held(state, text) || refused_or_ended(state, text)) && !text.contains("a device")
    })
    .await;
}

/// A file of the job's own is not the guard, whatever it is called and however it is mapped.
#[tokio::test(flavor = "multi_thread")]
async fn a_guard_in_name_alone() {
    let source = "
import mmap
own = os.open('/tmp/libtenure_guard.so', os.O_RDWR | os.O_CREAT)
os.write(own, bytes(4096))
for rights in (mmap.PROT_READ | mmap.PROT_EXEC, mmap.PROT_READ):
    try: kept = mmap.mmap(own, 4096, mmap.MAP_PRIVATE, rights); break
    except OSError: pass
cl = bare(DRIVER); stay(take(cl.clCreateBuffer, opened(cl)))";
    holds(RUN, source, refused_or_ended).await;
    let _ = std::fs::remove_file("/tmp/libtenure_guard.so");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_child_has_no_slice_of_its_own() {
    let source = "
pid = os.fork()
cl = ctypes.CDLL(LOADER)
got = take(cl.clCreateBuffer, opened(cl))
print('one has', got, flush=True)
time.sleep(2)
if pid: os.waitpid(pid, 0)";
    let bench = bench().await;
    for level in [Isolation::Guarded, Isolation::Fenced] {
        let (_, text) = tried(&bench, level, RUN, source).await;
        let all: u64 = text
            .lines()
            .filter_map(|line| line.strip_prefix("one has ")?.parse::<u64>().ok())
            .sum();
        assert_eq!(all, SLICE, "{level:?}: {text}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn new_namespaces_borrowed_rights_and_tracing() {
    let script = "
unshare -Urm true && echo a namespace
unshare -m true && echo a namespace
cp /usr/bin/id /tmp/id && chmod u+s /tmp/id && /tmp/id -u
find /usr/bin -perm -4000 -name su -exec {} -c 'echo a right' \\; </dev/null
/usr/bin/python3 -c 'import ctypes; print(\"traced\") if ctypes.CDLL(None).ptrace(16, 1, 0, 0) == 0 else None'
ls /proc | grep -c '^[0-9]'";
    let bench = bench().await;
    for level in [Isolation::Guarded, Isolation::Fenced] {
        let (_, text) = tried(&bench, level, script, "").await;
        for reached in ["a namespace", "a right", "traced", "\n0\n"] {
            assert!(
                !format!("\n{text}").contains(reached),
                "{level:?} {reached}: {text}"
            );
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn whoever_writes_on_its_page_is_ended_and_a_fenced_job_has_none() {
    let source = "
import mmap, struct
page = os.environ.get('TENURE_GUARD_PAGE')
if not page: print('no page'); sys.exit()
slice = int(os.environ['TENURE_GUARD_SLICE'])
with open(page, 'r+b') as file:
    memory = mmap.mmap(file.fileno(), 0)
    at = memory.find(struct.pack('<Q', slice))
    memory[at + 16:at + 24] = struct.pack('<Q', 1 << 40)
stay(1000)";
    let bench = bench().await;
    let (state, text) = tried(&bench, Isolation::Guarded, RUN, source).await;
    assert!(was_ended(&state) && stayed(&text) == 0, "{state:?} {text}");
    let (_, text) = tried(&bench, Isolation::Fenced, RUN, source).await;
    assert!(text.contains("no page"), "{text}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_fork_bomb_is_the_jobs_own() {
    let bench = Bench::new().await;
    let mut bomb = bench.order(fresh(), "bomb() { bomb | bomb & }; bomb; sleep 2; echo over");
    bomb.run_time_s = 5;
    bomb.memory_mib = 64;
    let neighbour = bench.order(
        fresh(),
        "for i in 1 2 3 4 5; do sh -c true || exit 1; sleep 0.2; done; echo fine",
    );
    let id = neighbour.allocation;
    bench.start(bomb).await;
    let report = bench.run(neighbour).await;
    assert_eq!(
        report.state,
        crate::slice::DONE,
        "{}",
        bench.log(id, LogStream::Stderr).await
    );
}

/// Works on the device, and is stopped by its own child again and again, at last for good.
const STOPPED: &str = r#"
import os, signal, threading, time
if os.fork() == 0:
    parent = os.getppid()
    time.sleep(6)
    for _ in range(6):
        os.kill(parent, signal.SIGSTOP)
        time.sleep(0.12)
        os.kill(parent, signal.SIGCONT)
        time.sleep(0.03)
    os.kill(parent, signal.SIGSTOP)
    print('stopped', flush=True)
    time.sleep(60)
"#;

#[tokio::test(flavor = "multi_thread")]
async fn a_holder_of_the_lease_stops_itself() {
    for level in [Isolation::Guarded, Isolation::Fenced] {
        let pair = Pair::new(level, &format!("{STOPPED}{SPIN}")).await;
        pair.both_work().await;
        pair.says(1, "stopped").await;
        pair.is_untouched().await;
    }
}

/// Speaks to its worker as no program would: nothing, noise of all lengths, descriptors that are something else, and
/// one connection after the other; then uses it as a program does.
const NOISE: &str = r#"
import array, os, random, socket, sys, time
path = '/run/tenure/broker.sock'
if not os.path.exists(path):
    print('nobody to speak to', flush=True)
    time.sleep(60)
random.seed(7)
for turn in range(400):
    speaker = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    speaker.settimeout(2)
    try:
        speaker.connect(path)
        for _ in range(random.randrange(4)):
            text = random.randbytes(random.choice([0, 1, 7, 8, 64, 4096, 65000]))
            files = [os.open(name, os.O_RDONLY) for name in random.choices(['/dev/null', '/etc/passwd', '/proc/self/mem'], k=random.randrange(3))]
            rights = [(socket.SOL_SOCKET, socket.SCM_RIGHTS, array.array('i', files))] if files else []
            speaker.sendmsg([text], rights)
            for file in files: os.close(file)
    except OSError: pass
    speaker.close()
print('said', flush=True)
"#;

#[tokio::test(flavor = "multi_thread")]
async fn messages_that_are_none() {
    let pair = Pair::new(Isolation::Guarded, NOISE).await;
    pair.says(1, "nobody to speak to").await;
    let pair = Pair::new(Isolation::Fenced, &format!("{NOISE}{SPIN}")).await;
    pair.says(1, "said").await;
    pair.is_untouched().await;
    // Its worker is as it was, for whoever speaks as one should.
    pair.both_work().await;
}
