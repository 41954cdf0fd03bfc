//! Ways past the limits, each tried from inside a job that shares its device: with a guarded slice it is refused, or
//! seen from outside and ended; with a fenced one there is nothing to pass, for the job has no driver and no page.
//!
//! PoCL's device is the processor: a driver that a job brings along computes on the job's own processors and in its own
//! memory, both of which the kernel limits. So what must never be is that a job goes on with more device memory than
//! its slice has.

mod native;
mod vendor;

use std::os::unix::process::CommandExt;
use std::process::Command;
use std::time::{Duration, Instant};

use tenure_api::channel::{LogStream, Order, RunState};
use tenure_domain::workload::job::StopReason;
use tenure_domain::workload::spec::Isolation;

use crate::bench::{Bench, fresh, has_ended};
use crate::neighbour::Pair;
use crate::slice::{SPIN, bench, order, ran, reader};

/// What the slice has, what the job has, and what is tried for, in MiB.
const SLICE: u64 = 64;
const JOB: u64 = 384;
/// Pieces it is to take with a guard: as much as the job's own memory holds, so that what ends it is whoever sees it.
const MOST: u64 = 8;

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
    // Without a guard, all it can.
    let most = if level == Isolation::Guarded { MOST } else { 64 };
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

/// The same program where there is no wall at all, and all it said.
async fn without_walls(source: &str, variables: &[(&str, String)]) -> String {
    let mut bare = tokio::process::Command::new("sh");
    bare.args(["-c", RUN])
        .env("TAKE", TAKE)
        .env("SOURCE", format!("\nMOST = {MOST}\n{source}"))
        .env_remove("OPENCL_LAYERS")
        .envs(variables.iter().cloned());
    let output = bare.output().await.unwrap();
    [output.stdout, output.stderr]
        .map(|said| String::from_utf8_lossy(&said).into_owned())
        .concat()
}

/// The same try where there is no wall at all goes on with more than the slice has: so what held it was the wall.
async fn passes_without_walls(source: &str) {
    let text = without_walls(source, &[]).await;
    assert!(
        stayed(&text) > SLICE,
        "a try that fails by itself shows nothing: {text}"
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

/// The kernel's list of what a process has mapped is then no text.
#[tokio::test(flavor = "multi_thread")]
async fn a_mapping_whose_name_is_no_text() {
    let source = "
import mmap
own = os.open(b'/tmp/\\xff', os.O_RDWR | os.O_CREAT)
os.write(own, bytes(4096))
kept = mmap.mmap(own, 4096, mmap.MAP_PRIVATE, mmap.PROT_READ)
cl = bare(DRIVER); stay(take(cl.clCreateBuffer, opened(cl)))";
    holds(RUN, source, refused_or_ended).await;
    use std::os::unix::ffi::OsStrExt;
    let _ = std::fs::remove_file(std::ffi::OsStr::from_bytes(b"/tmp/\xff"));
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
    let all = |text: &str| -> u64 {
        let each = text.lines().filter_map(|line| line.strip_prefix("one has "));
        each.filter_map(|got| got.parse::<u64>().ok()).sum()
    };
    let text = without_walls(source, &[]).await;
    assert_eq!(
        all(&text),
        2 * 16 * MOST,
        "bare, each has all it asks for: {text}"
    );
    let bench = bench().await;
    for level in [Isolation::Guarded, Isolation::Fenced] {
        let (_, text) = tried(&bench, level, RUN, source).await;
        assert_eq!(all(&text), SLICE, "{level:?}: {text}");
    }
}

/// Says what it reached: rights it was not given, and processes that are another's.
const REACH: &str = r#"
unshare -Urm true && echo a namespace
unshare -m true && echo mounts of its own
test "$($SETUID -u)" = 0 && echo a right
grep -q "$WORD" /proc/$VICTIM/cmdline && echo a process
/usr/bin/python3 -c "
import ctypes, os
seize = lambda pid: ctypes.CDLL(None).ptrace(0x4206, int(pid), 0, 0) == 0
if any(seize(pid) for pid in os.environ['TRACED'].split()): print('a trace')
""#;

#[tokio::test(flavor = "multi_thread")]
async fn new_namespaces_borrowed_rights_and_tracing() {
    let bench = bench().await;
    // The real one: root's own, on a file system that honours it, shown to every job.
    let setuid = bench.root.path().join("marks/id");
    std::fs::copy("/usr/bin/id", &setuid).unwrap();
    crate::bench::open_to_all(&setuid, 0o4755);
    let word = format!("8{}", std::process::id());
    let mut victim = Command::new("sleep").arg(&word).spawn().unwrap();
    let pid = victim.id().to_string();
    let told = |traced: &str| {
        [
            ("SETUID", setuid.display().to_string()),
            ("WORD", word.clone()),
            ("VICTIM", pid.clone()),
            ("TRACED", traced.to_owned()),
        ]
    };
    // Bare on the host each reaches something; only rights that are root's anyway are tried as somebody else.
    let bare = |user| {
        let mut bare = Command::new("sh");
        bare.args(["-c", REACH]).envs(told(&pid)).uid(user).gid(user);
        String::from_utf8(bare.output().unwrap().stdout).unwrap()
    };
    let (root, nobody) = (bare(0), bare(65_534));
    for reached in ["a namespace", "mounts of its own", "a process", "a trace"] {
        assert!(root.contains(reached), "{reached}: {root}");
    }
    assert!(nobody.contains("a right"), "{nobody}");
    let inside = told(&format!("1 {pid}"));
    for level in [Isolation::Guarded, Isolation::Fenced] {
        let mut order = order(&bench, SLICE, &["sh", "-c", &format!("{REACH}; echo tried")]);
        order.isolation = level;
        let inside = inside.clone().map(|(name, value)| (name.to_owned(), value));
        order.env.extend(inside);
        let id = order.allocation;
        let (_, text) = ran(&bench, order).await;
        let said = bench.log(id, LogStream::Stdout).await;
        assert_eq!(said, "tried\n", "{level:?}: {text}");
    }
    victim.kill().unwrap();
    victim.wait().unwrap();
}

/// Links nothing, so that no variable, loader or library is in its way: asks the kernel itself, and says what it got.
const LINKS_NOTHING: &str = r#"
static long ask(long n, long a, long b, long c, long d, long e) {
    register long r10 __asm__("r10") = d;
    register long r8 __asm__("r8") = e;
    long got;
    __asm__ volatile("syscall" : "=a"(got) : "a"(n), "D"(a), "S"(b), "d"(c), "r"(r10), "r"(r8) : "rcx", "r11", "memory");
    return got;
}
static void say(const char *what) {
    long length = 0;
    while (what[length]) length++;
    ask(1, 1, (long)what, length, 0, 0);
    ask(1, 1, (long)"\n", 1, 0, 0);
}
static void got(const char *what, long answer) { if (answer >= 0) say(what); }
static char room[4096];
void _start(void) {
    say("asks");
    long pid = ask(57, 0, 0, 0, 0, 0);
    if (pid == 0) { ask(35, (long)(long[]){5, 0}, 0, 0, 0, 0); ask(60, 0, 0, 0, 0, 0); }
    got("a trace of its child", ask(101, 16, pid, 0, 0, 0));
    got("to be traced", ask(101, 0, 0, 0, 0, 0));
    long there[] = {(long)room, sizeof room};
    got("its child's memory", ask(310, pid, (long)there, 1, (long)there, 1));
    got("a device file", ask(133, (long)"/tmp/device", 0020666, 195 << 8, 0, 0));
    got("a namespace", ask(272, 0x10000000, 0, 0, 0, 0));
    got("a mount", ask(165, (long)"x", (long)"/tmp", (long)"tmpfs", 0, 0));
    got("a root", ask(161, (long)"/tmp", 0, 0, 0, 0));
    got("a file by its handle", ask(304, -100, (long)room, 0, 0, 0) == -1 ? -1 : ask(303, -100, (long)"/", (long)room, (long)room, 0));
    got("counters", ask(298, (long)(int[32]){1, 128}, 0, -1, -1, 0));
    got("a program in the kernel", ask(321, 0, (long)(int[32]){2, 4, 4, 1}, 128, 0, 0));
    got("a ring in the kernel", ask(425, 1, (long)room, 0, 0, 0));
    got("faults", ask(323, 0, 0, 0, 0, 0));
    got("keys", ask(250, 0, -3, 1, 0, 0));
    got("a module", ask(313, 0, (long)"", 0, 0, 0));
    got("packets", ask(41, 17, 3, 0x300, 0, 0));
    got("the log of the kernel", ask(103, 10, 0, 0, 0, 0));
    got("the clock", ask(227, 0, (long)(long[]){1, 0}, 0, 0, 0));
    for (const char **at = (const char *[]){"/dev/nvidiactl", "/dev/nvidia0", "/dev/kfd", "/dev/dri/renderD128", "/dev/mem", "/dev/kmsg", "/proc/kcore", "/proc/1/mem", "/proc/sysrq-trigger", 0}; *at; at++)
        got(*at, ask(2, (long)*at, 2, 0, 0, 0));
    ask(62, pid, 9, 0, 0, 0);
    for (;;) {
        char *more = (char *)ask(9, 0, 16 << 20, 3, 0x22, -1);
        if ((long)more < 0 && (long)more > -4096) break;
        for (long at = 0; at < 16 << 20; at += 4096) more[at] = 1;
    }
    say("endless memory");
    ask(60, 0, 0, 0, 0, 0);
}
"#;

#[tokio::test(flavor = "multi_thread")]
async fn a_program_that_links_nothing() {
    let dir = tempfile::tempdir().unwrap();
    let (source, program) = (dir.path().join("asks.c"), dir.path().join("asks"));
    std::fs::write(&source, LINKS_NOTHING).unwrap();
    let built = std::process::Command::new("cc")
        .args([
            "-static",
            "-nostdlib",
            "-ffreestanding",
            "-fno-tree-loop-distribute-patterns",
            "-fno-stack-protector",
            "-Os",
            "-s",
            "-o",
        ])
        .args([&program, &source])
        .status();
    assert!(built.unwrap().success());
    // Where there is no wall it gets most of what it asks for; of memory it is given little, so that this machine stays.
    let bare = std::process::Command::new("sh")
        .arg("-c")
        .arg(format!("ulimit -v 65536; {}", program.display()))
        .output()
        .unwrap();
    let bare = String::from_utf8_lossy(&bare.stdout).into_owned();
    let _ = std::fs::remove_file("/tmp/device");
    for reached in [
        "a trace of its child",
        "to be traced",
        "its child's memory",
        "a namespace",
        "a device file",
        "endless memory",
    ] {
        assert!(bare.contains(reached), "{reached}: {bare}");
    }
    let bench = bench().await;
    let bytes = std::fs::read(&program).unwrap();
    let hex: String = bytes.iter().map(|byte| format!("{byte:02x}")).collect();
    let script = "/usr/bin/python3 -c \"import os; open('/tmp/asks', 'wb').write(bytes.fromhex(os.environ['PROGRAM']))\"; chmod +x /tmp/asks; exec /tmp/asks";
    for level in [Isolation::Guarded, Isolation::Fenced] {
        let mut order: Order = order(&bench, SLICE, &["sh", "-c", script]);
        order.isolation = level;
        order.memory_mib = JOB;
        order.env.push(("PROGRAM".into(), hex.clone()));
        let id = order.allocation;
        bench.run(order).await;
        let said = bench.log(id, LogStream::Stdout).await;
        // A debugger may do as much to what is the job's own.
        assert_eq!(
            said, "asks\na trace of its child\nto be traced\nits child's memory\n",
            "{level:?}"
        );
        let why = bench.log(id, LogStream::Stderr).await;
        assert!(why.contains("out of memory: the job may use"), "{level:?}: {why}");
    }
}

/// A page that nobody looks after, with one slice on it, and what tells a program where they are.
fn loose_page() -> (
    tempfile::TempDir,
    tenure_limits::Device,
    [(&'static str, String); 2],
) {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("one.page");
    let device = tenure_limits::Device::create(&path).unwrap();
    let slice = tenure_limits::SliceSpec {
        id: 4711,
        limit_bytes: SLICE << 20,
        weight_per_mille: 500,
        cap_per_mille: None,
        kernel_limit_ns: None,
        process_limit_ns: None,
    };
    device.add(slice).unwrap();
    let variables = [
        ("TENURE_GUARD_PAGE", path.display().to_string()),
        ("TENURE_GUARD_SLICE", slice.id.to_string()),
    ];
    (dir, device, variables)
}

/// What a program leaves a slice with on a page that nobody looks after.
async fn left_on_a_loose_page(source: &str) -> (u64, u32) {
    let (_dir, device, variables) = loose_page();
    let said = without_walls(source, &variables).await;
    let snapshot = device.snapshot().unwrap();
    let slice = snapshot.slice(4711).unwrap_or_else(|| panic!("{said}"));
    (slice.limit_bytes, slice.weight_per_mille)
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
    // Where nobody looks after the page it says what was written there.
    assert_eq!(left_on_a_loose_page(source).await.0, 1 << 40);
    let bench = bench().await;
    let (state, text) = tried(&bench, Isolation::Guarded, RUN, source).await;
    assert!(was_ended(&state) && stayed(&text) == 0, "{state:?} {text}");
    let (_, text) = tried(&bench, Isolation::Fenced, RUN, source).await;
    assert!(text.contains("no page"), "{text}");
}

/// Gives itself all of the device on its page, again and again, and works on.
const GREEDY: &str = r#"
import mmap, os, struct, threading, time
page, slice = os.environ['TENURE_GUARD_PAGE'], int(os.environ['TENURE_GUARD_SLICE'])
def greedy():
    with open(page, 'r+b') as file:
        memory = mmap.mmap(file.fileno(), 0)
        at = memory.find(struct.pack('<Q', slice))
        for _ in range(20):
            memory[at + 16:at + 28] = struct.pack('<QL', 1 << 40, 1000)
            time.sleep(0.05)
        print('wrote', flush=True)
threading.Thread(target=greedy).start()
"#;

/// Of two who can write there nobody can tell which did; what was given holds all the same.
#[tokio::test(flavor = "multi_thread")]
async fn what_was_given_comes_back_on_a_page_that_several_can_write() {
    assert_eq!(left_on_a_loose_page(GREEDY).await, (1 << 40, 1000));
    let pair = Pair::new(Isolation::Guarded, &format!("{GREEDY}{SPIN}")).await;
    pair.says(1, "wrote").await;
    let reader = reader(&pair.bench);
    let id = pair.ids[1].0;
    crate::bench::eventually("its page says again what it was given", || {
        let snapshot = reader.snapshot().unwrap();
        let slice = snapshot.slice(id).unwrap();
        (slice.limit_bytes, slice.weight_per_mille) == (SLICE << 20, 500)
    })
    .await;
    pair.both_work().await;
    pair.is_untouched().await;
}

/// Cuts the page of its limits short, by every way there is; says what became of it, and computes on.
const CUT: &str = r#"
import ctypes, os
libc = ctypes.CDLL(None, use_errno=True)
page = os.environ['TENURE_GUARD_PAGE']
def tried(name, way):
    try: way()
    except OSError as error: print(name, 'refused', error.errno, flush=True)
    else: print(name, 'cut', flush=True)
tried('ftruncate', lambda: os.ftruncate(os.open(page, os.O_RDWR), 0))
tried('truncate', lambda: os.truncate(page, 0))
tried('open', lambda: os.open(page, os.O_RDWR | os.O_TRUNC))
own = os.open(page, os.O_RDWR)
tried('again', lambda: os.ftruncate(os.open('/proc/self/fd/%d' % own, os.O_RDWR), 0))
print('tried', flush=True)
"#;

#[tokio::test(flavor = "multi_thread")]
async fn a_page_is_not_cut_short_under_the_agent_and_its_neighbours() {
    let (_dir, _device, variables) = loose_page();
    let said = without_walls(CUT, &variables).await;
    assert_eq!(said.matches("cut").count(), 4, "each way is one: {said}");
    let pair = Pair::new(Isolation::Guarded, &format!("{CUT}{SPIN}")).await;
    let agent = pair.bench.agent_pid();
    pair.says(1, "tried").await;
    let said = pair.said(1).await;
    assert!(
        !said.contains("cut") && said.matches("refused").count() == 4,
        "{said}"
    );
    pair.both_work().await;
    pair.is_untouched().await;
    assert_eq!(pair.bench.agent_pid(), agent);
    assert!(std::path::Path::new(&format!("/proc/{agent}/maps")).exists());
    // One that has the device to itself has a page all the same.
    drop(pair);
    let bench = bench().await;
    let agent = bench.agent_pid();
    let mut order = order(&bench, SLICE, &["/usr/bin/python3", "-c", CUT]);
    order.isolation = Isolation::Exclusive;
    order.devices[0].compute_permille = 1000;
    let (state, said) = ran(&bench, order).await;
    assert!(
        state == crate::slice::DONE && !said.contains("cut") && said.contains("tried"),
        "{state:?} {said}"
    );
    assert!(std::path::Path::new(&format!("/proc/{agent}/maps")).exists());
}

/// How many processes a program comes to at most, of so many that it may have, in a world of its own that ends with it.
async fn grows_to(limit: u32, program: &[&str]) -> usize {
    const USER: u32 = 65_533;
    let limit = format!("--nproc={limit}");
    let user = USER.to_string();
    let mut bare = tokio::process::Command::new("unshare");
    bare.args(["--fork", "--pid", "--kill-child", "setpriv", "--clear-groups"])
        .args(["--reuid", &user, "--regid", &user, "prlimit", &limit])
        .args(program)
        .stdout(std::process::Stdio::null())
        .stderr(std::process::Stdio::null())
        .kill_on_drop(true);
    let mut bare = bare.spawn().unwrap();
    let count = || {
        let all = std::fs::read_dir("/proc").unwrap().flatten();
        all.filter(|entry| {
            use std::os::unix::fs::MetadataExt;
            entry.metadata().is_ok_and(|facts| facts.uid() == USER)
        })
        .count()
    };
    let (mut most, begun) = (0, Instant::now());
    while begun.elapsed() < Duration::from_secs(5) {
        most = most.max(count());
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    bare.kill().await.unwrap();
    most
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

/// Forks without end, each child as well, once it works on the device.
const BOMB: &str = r#"
import os, threading, time
def bomb():
    while 'buffer' not in globals(): time.sleep(0.05)
    time.sleep(1)
    print('forks', flush=True)
    if os.fork() == 0:
        end = time.time() + 60
        while time.time() < end:
            try: os.fork()
            except OSError: time.sleep(0.001)
        os._exit(0)
threading.Thread(target=bomb).start()
"#;

#[tokio::test(flavor = "multi_thread")]
async fn a_fork_bomb_with_a_slice_takes_none_of_its_neighbours() {
    let program = format!("{BOMB}\nbuffer = None\ntime.sleep(60)");
    let most = grows_to(40, &["/usr/bin/python3", "-c", &program]).await;
    assert!(most > 30, "{most} of 40");
    for level in [Isolation::Guarded, Isolation::Fenced] {
        let pair = Pair::new(level, &format!("{BOMB}{SPIN}")).await;
        pair.both_work().await;
        pair.says(1, "forks").await;
        pair.is_untouched().await;
    }
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
