//! Nothing left behind: what one tenant wrote to a device's memory and local memory never reaches the next.
//!
//! On PoCL within one process, with the guard in front as in a worker: it hands freed buffers and local memory on as
//! they are. And on a double whose memory outlives processes, as a GPU's does. Without the scrub both leak.

use std::ffi::c_void;
use std::path::PathBuf;
use std::process::Command;
use std::ptr::{null, null_mut};
use std::time::Duration;

use rcgen::{KeyPair, PublicKeyData, SigningKey};
use tenure_api::seal;
use tenure_broker::scrub::{Scrubbed, Wanted, scrub};
use tenure_domain::id::AllocationId;
use tenure_domain::schedule::receipt::Receipt;
use tenure_domain::tenancy::key::Digest;

use super::bench::{Bench, MIB, Vendor, count, library, spec, turn};
use super::cl::{Cl, Handle};
use super::part::{Part, own, say, setting};

const SOURCE: &str = "
__kernel void leave(__local volatile uint *mine, ulong words, uint value) {
    for (ulong at = 0; at < words; at++) mine[at] = value;
}
__kernel void look(__local volatile uint *mine, ulong words, __global uint *out) {
    uint seen = 0;
    for (ulong at = 0; at < words; at++) seen |= mine[at];
    out[get_group_id(0)] = seen;
}
";
const GROUPS: usize = 8;
const LOCAL_WORDS: u64 = 4096;
const PIECES: usize = 3;
const PIECE: usize = 256 << 10;

/// A tenant's program: its context, its kernels, and a look at what it is given.
struct Tenant<'a> {
    cl: &'a Cl,
    context: Handle,
    queue: Handle,
    leave: Handle,
    look: Handle,
}

impl Tenant<'_> {
    fn new(cl: &Cl) -> Tenant<'_> {
        let context = cl.context();
        Tenant {
            queue: cl.queue(context, 0),
            leave: cl.kernel(context, SOURCE, "leave"),
            look: cl.kernel(context, SOURCE, "look"),
            cl,
            context,
        }
    }

    fn buffers(&self) -> Vec<Handle> {
        (0..PIECES)
            .map(|_| self.cl.buffer(self.context, 1, PIECE).unwrap())
            .collect()
    }

    fn local(&self, kernel: Handle) {
        let bytes = LOCAL_WORDS as usize * 4;
        let code = crate::call!(self.cl, "clSetKernelArg", i32, kernel => Handle, 0 => u32, bytes => usize,
            null() => *const c_void);
        assert_eq!(code, 0, "local memory");
        self.cl.set_arg(kernel, 1, &LOCAL_WORDS);
    }

    /// Leaves a secret wherever it can.
    fn leave(&self, secret: u32) {
        let text = secret.to_ne_bytes().repeat(PIECE / 4);
        let buffers = self.buffers();
        for &buffer in &buffers {
            self.cl.write(self.queue, buffer, &text);
        }
        self.local(self.leave);
        self.cl.set_arg(self.leave, 2, &secret);
        assert_eq!(self.cl.launch(self.queue, self.leave, GROUPS, 1, null_mut()), 0);
        assert_eq!(self.cl.finish(self.queue), 0);
        buffers.into_iter().for_each(|buffer| self.cl.release(buffer));
    }

    /// Whether it finds anything in memory it was given, and in local memory.
    fn look(&self) -> (bool, bool) {
        let buffers = self.buffers();
        let mut text = vec![0; PIECE];
        let in_memory = buffers.iter().any(|&buffer| {
            self.cl.read(self.queue, buffer, &mut text);
            text.iter().any(|&byte| byte != 0)
        });
        let out = self.cl.buffer(self.context, 1, GROUPS * 4).unwrap();
        self.local(self.look);
        self.cl.set_arg(self.look, 2, &out);
        assert_eq!(self.cl.launch(self.queue, self.look, GROUPS, 1, null_mut()), 0);
        let mut seen = [0; GROUPS * 4];
        self.cl.read(self.queue, out, &mut seen);
        for buffer in buffers.into_iter().chain([out]) {
            self.cl.release(buffer);
        }
        (in_memory, seen.iter().any(|&byte| byte != 0))
    }
}

fn wanted(bytes: u64) -> Wanted {
    Wanted {
        platform: std::env::var("TENURE_TEST_PLATFORM").unwrap(),
        index: 0,
        bytes,
        least: bytes,
        processor_bytes: u64::MAX,
    }
}

/// Hands the device from tenant to tenant and counts what was found; says how often each, and how many receipts
/// were verified.
pub fn hand_over() {
    let rounds = setting("TENURE_TEST_ROUNDS");
    let scrubs = setting("TENURE_TEST_SCRUBS") == 1;
    let bytes = setting("TENURE_TEST_BYTES");
    let cl = Cl::open().unwrap();
    let tenants = [Tenant::new(&cl), Tenant::new(&cl)];
    let key = KeyPair::generate().unwrap();
    let (mut memory, mut local, mut verified) = (0, 0, 0);
    for round in 0..rounds {
        if round % 100 == 0 {
            // Told with why it failed, if it does.
            eprintln!("{round} hand-overs");
        }
        let [from, to] = [round as usize % 2, (round as usize + 1) % 2];
        tenants[from].leave(0x5EC2_0001 + round as u32 * 2);
        if scrubs {
            let done = scrub(&wanted(bytes)).unwrap();
            let receipt = receipt(round + 1, from, to, done);
            let public_key = key.subject_public_key_info();
            let receipt = seal::sealed_receipt(receipt, &public_key, |message| key.sign(message)).unwrap();
            verified += u64::from(seal::check_receipt(&receipt).is_ok());
        }
        let (in_memory, in_local) = tenants[to].look();
        memory += u64::from(in_memory);
        local += u64::from(in_local);
    }
    say("found", format!("{memory} {local} {verified}"));
}

fn receipt(number: u64, from: usize, to: usize, done: Scrubbed) -> Receipt {
    Receipt {
        number,
        device: "device".into(),
        from: [format!("ten_{from}")].into(),
        to: format!("ten_{to}"),
        allocation: AllocationId(number),
        at_ms: 0,
        took_ms: 0,
        bytes: done.bytes,
        local_bytes: done.local_bytes,
        compute_units: done.compute_units,
        missed_bytes: done.asked - done.bytes,
        fault: None,
        key: Digest([0; 32]),
        public_key: String::new(),
        signature: String::new(),
    }
}

/// One tenant's life: it looks, then leaves a secret.
pub fn live_once() {
    let cl = Cl::open().unwrap();
    let tenant = Tenant::new(&cl);
    let (memory, local) = tenant.look();
    tenant.leave(0x5EC2_E700);
    say("found", format!("{} {}", u8::from(memory), u8::from(local)));
}

/// Makes queues and lets them go as a scrub does, each at the very time at which the guard's keeper is inside the driver
/// with what was open on it.
pub fn let_queues_go() {
    let cl = Cl::open().unwrap();
    let context = cl.context();
    let buffer = cl.buffer(context, 1, 4096).unwrap();
    for _ in 0..10 {
        let queue = cl.queue(context, 0);
        let zero = 0u32;
        let code = crate::call!(cl, "clEnqueueFillBuffer", i32, queue => Handle, buffer => Handle,
            (&raw const zero).cast() => *const c_void, 4 => usize, 0 => usize, 4096 => usize, 0 => u32,
            null() => *const Handle, null_mut() => *mut Handle);
        assert_eq!(code, 0, "clEnqueueFillBuffer");
        std::thread::sleep(Duration::from_millis(15));
        assert_eq!(cl.finish(queue), 0);
        assert_eq!(crate::call!(cl, "clReleaseCommandQueue", i32, queue => Handle), 0);
        std::thread::sleep(Duration::from_millis(40));
    }
    say("found", 10);
}

/// The double, on a device of the test's own.
pub fn lasting(dir: &tempfile::TempDir, program: impl AsRef<std::ffi::OsStr>) -> Command {
    let vendors = dir.path().join("vendors");
    std::fs::create_dir_all(&vendors).unwrap();
    std::fs::write(vendors.join("lasting.icd"), driver().display().to_string()).unwrap();
    let mut command = Command::new(program);
    command
        .env("OCL_ICD_VENDORS", vendors)
        .env("TENURE_LASTING_DEVICE", dir.path().join("device"))
        .env("TENURE_TEST_PLATFORM", "Lasting");
    command
}

fn driver() -> PathBuf {
    let examples = library("libtenure_remote.so").parent().unwrap().join("examples");
    let beside = [examples.clone(), examples.parent().unwrap().join("../examples")];
    beside
        .iter()
        .map(|dir| dir.join("liblasting_icd.so"))
        .find(|path| path.exists())
        .expect("the double stands beside the tests")
}

fn settings(rounds: u64, scrubs: bool, bytes: u64) -> [(&'static str, String); 3] {
    [
        ("TENURE_TEST_ROUNDS", rounds.to_string()),
        ("TENURE_TEST_SCRUBS", u8::from(scrubs).to_string()),
        ("TENURE_TEST_BYTES", bytes.to_string()),
    ]
}

fn found(command: Command, part: &str, settings: &[(&str, String)]) -> Vec<u64> {
    let mut part = Part::start(command, part, settings);
    let Some(line) = part.line("found") else {
        panic!("the part failed: {}", part.end().1);
    };
    line.split(' ').map(|number| number.parse().unwrap()).collect()
}

/// What can be had of the double's memory beside what the kernels answer in, which is zeroed.
pub const LASTING_BYTES: u64 = MIB - (64 << 10);

#[test]
fn a_device_whose_memory_lasts_hands_nothing_on() {
    let _turn = turn();
    let dir = tempfile::tempdir().unwrap();
    let rounds = count("TENURE_HANDOVERS", 10_000);
    let clean = found(
        lasting(&dir, own()),
        "hand over",
        &settings(rounds, true, LASTING_BYTES),
    );
    assert_eq!(clean, [0, 0, rounds], "in memory, in local memory, receipts");
    let leaking = found(
        lasting(&dir, own()),
        "hand over",
        &settings(100, false, LASTING_BYTES),
    );
    assert_eq!(leaking, [100, 100, 0], "without the scrub everything is found");
}

#[test]
fn nor_does_it_from_process_to_process() {
    let _turn = turn();
    let dir = tempfile::tempdir().unwrap();
    let first = found(lasting(&dir, own()), "live once", &[]);
    assert_eq!(first, [0, 0], "a new device holds nothing");
    let unscrubbed = found(lasting(&dir, own()), "live once", &[]);
    assert_eq!(unscrubbed, [1, 1], "what a process left lasts");
    for _ in 0..20 {
        let said = scrubbed(&dir, None).unwrap();
        assert_eq!(
            said.trim(),
            format!(
                r#"{{"bytes":{LASTING_BYTES},"asked":{LASTING_BYTES},"local_bytes":32768,"compute_units":4}}"#
            )
        );
        assert_eq!(found(lasting(&dir, own()), "live once", &[]), [0, 0]);
    }
}

/// Two slices share the device in turns: nobody scrubs between them but the guard in front of each.
#[test]
fn nor_from_slice_to_slice_that_share_it() {
    let _turn = turn();
    let dir = tempfile::tempdir().unwrap();
    let page = dir.path().join("device.limits");
    let device = tenure_limits::Device::create(&page).unwrap();
    for slice in [1, 2] {
        device.add(spec(slice, 2)).unwrap();
    }
    let lives = |slice: u64| found(guarded(lasting(&dir, own()), &page, slice), "live once", &[]);
    for round in 0..20 {
        assert_eq!(lives(1 + round % 2), [0, 0], "in memory, in local memory");
    }
    // One slice's own stays its own, and is not overwritten each time.
    assert_eq!(lives(2), [0, 1]);
}

#[test]
fn a_queue_that_a_scrub_lets_go_is_not_gone_before_the_guard_is_done_with_it() {
    let _turn = turn();
    let dir = tempfile::tempdir().unwrap();
    let page = dir.path().join("device.limits");
    let device = tenure_limits::Device::create(&page).unwrap();
    device.add(spec(1, 2)).unwrap();
    let mut command = guarded(lasting(&dir, own()), &page, 1);
    command.env("TENURE_LASTING_FAULT", "slow");
    assert_eq!(found(command, "let queues go", &[]), [10]);
}

/// A program with the guard in front of its driver.
fn guarded(mut command: Command, page: &std::path::Path, slice: u64) -> Command {
    command
        .env("OPENCL_LAYERS", library("libtenure_guard.so"))
        .env("TENURE_GUARD_PAGE", page)
        .env("TENURE_GUARD_SLICE", slice.to_string())
        .env("TENURE_GUARD_DEVICE", "0:0");
    command
}

/// What the program says, on a device with a fault.
fn scrubbed(dir: &tempfile::TempDir, fault: Option<&str>) -> Result<String, String> {
    let mut command = lasting(dir, env!("CARGO_BIN_EXE_tenure-broker"));
    let bytes = LASTING_BYTES.to_string();
    command.args([
        "scrub",
        "--platform",
        "Lasting",
        "--device",
        "0",
        "--bytes",
        &bytes,
        "--least",
        &bytes,
    ]);
    command.envs(fault.map(|fault| ("TENURE_LASTING_FAULT", fault)));
    let output = command.output().unwrap();
    match output.status.success() {
        true => Ok(String::from_utf8(output.stdout).unwrap()),
        false => Err(String::from_utf8(output.stderr).unwrap()),
    }
}

#[test]
fn a_device_that_cannot_be_scrubbed_is_found_out() {
    let _turn = turn();
    let dir = tempfile::tempdir().unwrap();
    for (fault, why) in [
        ("stuck", "what was written to device memory was not read back"),
        ("small", "the device gave 196608 bytes to scrub, not 983040"),
    ] {
        let said = scrubbed(&dir, Some(fault)).unwrap_err();
        assert!(said.contains(why), "{fault}: {said}");
    }
    // What it did not give is said.
    let said = scrubbed(&dir, None).unwrap();
    let all = format!(r#""bytes":{LASTING_BYTES},"asked":{LASTING_BYTES},"#);
    assert!(said.contains(&all), "{said}");
    let mut command = lasting(&dir, env!("CARGO_BIN_EXE_tenure-broker"));
    let output = command
        .args(["scrub", "--platform", "Absent", "--device", "0", "--bytes", "1"])
        .output()
        .unwrap();
    assert!(!output.status.success(), "no device, no scrub");
}

#[test]
fn pocl_hands_nothing_on_within_one_process() {
    let _turn = turn();
    let bench = Bench::on(Vendor::Pocl, &[spec(1, 64)]);
    let rounds = count("TENURE_POCL_HANDOVERS", 300);
    let name = ("TENURE_TEST_PLATFORM", "Portable Computing Language");
    let mut behind = guarded(bench.bare(own()), &bench.page, 1);
    behind.env(name.0, name.1);
    let clean = found(behind, "hand over", &settings(rounds, true, 4 * MIB));
    assert_eq!(clean, [0, 0, rounds], "in memory, in local memory, receipts");
    let mut bare = bench.bare(own());
    bare.env(name.0, name.1);
    let leaking = found(bare, "hand over", &settings(100, false, 4 * MIB));
    assert!(
        leaking[0] > 10 && leaking[1] > 90,
        "without the scrub it leaks: {leaking:?}"
    );
}
