//! A program in the kernel that decides which device files the processes of a cgroup may open.
//!
//! Built here instruction by instruction: it compares the kind and numbers of the device with each rule and lets
//! through what one names. Making device files is never let through.

use std::io;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};

/// A device, or with no `minor` all of its kind.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct DeviceRule {
    pub block: bool,
    pub major: u32,
    pub minor: Option<u32>,
}

/// `struct bpf_insn`
#[repr(C)]
#[derive(Clone, Copy)]
struct Instruction {
    code: u8,
    /// Destination in the lower half, source in the upper.
    registers: u8,
    offset: i16,
    value: i32,
}

const LOAD_WORD: u8 = 0x61;
const COPY: u8 = 0xbf;
const SET: u8 = 0xb7;
const AND: u8 = 0x54;
const SHIFT_RIGHT: u8 = 0x74;
const JUMP_IF_ANY_BIT: u8 = 0x45;
const JUMP_IF_NOT: u8 = 0x55;
const EXIT: u8 = 0x95;

const ANSWER: u8 = 0;
const CONTEXT: u8 = 1;
const KIND: u8 = 2;
const ACCESS: u8 = 3;
const MAJOR: u8 = 4;
const MINOR: u8 = 5;

/// `BPF_DEVCG_DEV_BLOCK`, `_CHAR` and `BPF_DEVCG_ACC_MKNOD`
const BLOCK: i32 = 1;
const CHARACTER: i32 = 2;
const MAKE: i32 = 1;

fn step(code: u8, to: u8, from: u8, offset: i16, value: i32) -> Instruction {
    Instruction {
        code,
        registers: to | from << 4,
        offset,
        value,
    }
}

fn program(rules: &[DeviceRule]) -> Vec<Instruction> {
    let mut steps = vec![
        // `struct bpf_cgroup_dev_ctx`: access and kind, major, minor.
        step(LOAD_WORD, KIND, CONTEXT, 0, 0),
        step(COPY, ACCESS, KIND, 0, 0),
        step(AND, KIND, 0, 0, 0xffff),
        step(SHIFT_RIGHT, ACCESS, 0, 0, 16),
        step(LOAD_WORD, MAJOR, CONTEXT, 4, 0),
        step(LOAD_WORD, MINOR, CONTEXT, 8, 0),
    ];
    let deny = steps.len();
    steps.push(step(JUMP_IF_ANY_BIT, ACCESS, 0, 0, MAKE));
    for rule in rules {
        let kind = if rule.block { BLOCK } else { CHARACTER };
        let mut tests = vec![(KIND, kind), (MAJOR, rule.major as i32)];
        tests.extend(rule.minor.map(|minor| (MINOR, minor as i32)));
        let count = tests.len();
        for (index, (register, value)) in tests.into_iter().enumerate() {
            // Over the tests that follow, and the yes.
            let past = (count - index - 1 + 2) as i16;
            steps.push(step(JUMP_IF_NOT, register, 0, past, value));
        }
        steps.extend([step(SET, ANSWER, 0, 0, 1), step(EXIT, 0, 0, 0, 0)]);
    }
    steps[deny].offset = (steps.len() - deny - 1) as i16;
    steps.extend([step(SET, ANSWER, 0, 0, 0), step(EXIT, 0, 0, 0, 0)]);
    steps
}

/// The part of `union bpf_attr` that loading a program reads; the rest is zero.
#[repr(C)]
struct Load {
    kind: u32,
    count: u32,
    instructions: u64,
    license: u64,
    log_level: u32,
    log_size: u32,
    log: u64,
    kernel_version: u32,
    flags: u32,
}

/// The part that attaching reads.
#[repr(C)]
struct Attach {
    target: u32,
    program: u32,
    kind: u32,
    flags: u32,
}

const LOAD: libc::c_int = 5;
const ATTACH: libc::c_int = 8;
/// `BPF_PROG_TYPE_CGROUP_DEVICE` and `BPF_CGROUP_DEVICE`
const PROGRAM_KIND: u32 = 15;
const ATTACH_KIND: u32 = 6;

fn bpf<T>(call: libc::c_int, of: &T) -> io::Result<libc::c_int> {
    // SAFETY: the struct is live and as long as is said; what it points at is live as long.
    super::check(unsafe { libc::syscall(libc::SYS_bpf, call, of, size_of::<T>()) } as libc::c_int)
}

/// Lets the processes of a cgroup open what the rules name and nothing else, instead of what an earlier call said.
pub fn filter_devices(cgroup: &impl AsRawFd, rules: &[DeviceRule]) -> io::Result<()> {
    let steps = program(rules);
    let license = c"Apache-2.0";
    let fd = bpf(
        LOAD,
        &Load {
            kind: PROGRAM_KIND,
            count: steps.len() as u32,
            instructions: steps.as_ptr() as u64,
            license: license.as_ptr() as u64,
            log_level: 0,
            log_size: 0,
            log: 0,
            kernel_version: 0,
            flags: 0,
        },
    )?;
    // SAFETY: the kernel just gave it to us alone.
    let loaded = unsafe { OwnedFd::from_raw_fd(fd) };
    bpf(
        ATTACH,
        &Attach {
            target: cgroup.as_raw_fd() as u32,
            program: loaded.as_raw_fd() as u32,
            kind: ATTACH_KIND,
            flags: 0,
        },
    )
    .map(drop)
}
