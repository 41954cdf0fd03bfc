//! Kernel calls that need `unsafe`, each behind a safe function that says why it is.
//!
//! What rustix offers safely in one call is called directly where it is needed, not here.

mod descriptor;
mod device_filter;
mod landlock;
mod loop_device;
mod mount;
mod notify;

use std::ffi::CString;
use std::io;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd, RawFd};

pub use descriptor::{awaited, other_end, receive_fds, send_fds};
pub use device_filter::{DeviceRule, filter_devices};
pub use landlock::{Access, Ruleset, landlock_version};
pub use loop_device::{LoopDevice, place_mount, resize_ext4};
pub use mount::{mount_overlay, restrict_mount};
pub use notify::{deny_call, filter_calls_heard, hear_call};

pub(crate) fn check(result: libc::c_int) -> io::Result<libc::c_int> {
    if result < 0 {
        Err(io::Error::last_os_error())
    } else {
        Ok(result)
    }
}

/// Which side of a fork one is on.
pub enum Forked {
    Child,
    Parent(i32),
}

/// Forks a process that has one thread. Panics when it has more: a lock another thread held would be held for
/// ever in the child.
pub fn fork() -> io::Result<Forked> {
    assert_one_thread();
    // SAFETY: with one thread no lock is held elsewhere, so the child may go on as the parent would.
    match check(unsafe { libc::fork() })? {
        0 => Ok(Forked::Child),
        pid => Ok(Forked::Parent(pid)),
    }
}

/// Forks a sibling: its parent is the caller's own, who waits for it and hears of its end. As above, one thread.
pub fn fork_sibling() -> io::Result<Forked> {
    const NONE: libc::c_long = 0;
    assert_one_thread();
    let flags = libc::c_long::from(libc::CLONE_PARENT | libc::SIGCHLD);
    // SAFETY: as above. Memory is copied, so the child needs no stack of its own, and no number is asked for. The C
    // library does not hear of this fork: with one thread there is no lock it would have to take or let go, and its note
    // of this thread's number, which stays the caller's, is used for signals to single threads alone.
    match check(unsafe { libc::syscall(libc::SYS_clone, flags, NONE, NONE, NONE, NONE) } as libc::c_int)? {
        0 => Ok(Forked::Child),
        pid => Ok(Forked::Parent(pid)),
    }
}

fn assert_one_thread() {
    // A directory's links are those to it from below, one for each, and two more.
    let threads = std::fs::metadata("/proc/self/task").map_or(1, |tasks| {
        std::os::unix::fs::MetadataExt::nlink(&tasks).saturating_sub(2)
    });
    assert!(threads <= 1, "only a process with one thread may fork");
}

/// Ends the process without running anything of it.
pub fn exit_now(code: i32) -> ! {
    // SAFETY: `_exit` takes any code and does not return.
    unsafe { libc::_exit(code) }
}

pub fn unshare(flags: i32) -> io::Result<()> {
    // SAFETY: `unshare` changes only what the calling process shares; file descriptors are not among the flags used.
    check(unsafe { libc::unshare(flags) }).map(drop)
}

fn prctl(option: i32, argument: libc::c_ulong) -> io::Result<()> {
    // SAFETY: the options used here take one number and no pointer.
    check(unsafe { libc::prctl(option, argument, 0, 0, 0) }).map(drop)
}

/// The process dies when its parent does.
pub fn die_with_parent() -> io::Result<()> {
    prctl(libc::PR_SET_PDEATHSIG, libc::SIGKILL as libc::c_ulong)
}

/// Orphans among the descendants become children of this process.
pub fn become_subreaper() -> io::Result<()> {
    prctl(libc::PR_SET_CHILD_SUBREAPER, 1)
}

/// Nothing executed from here on gains rights by its file.
pub fn no_new_privileges() -> io::Result<()> {
    prctl(libc::PR_SET_NO_NEW_PRIVS, 1)
}

/// Neither core dumps nor other processes of the same user see this one's memory.
pub fn hide_memory() -> io::Result<()> {
    prctl(libc::PR_SET_DUMPABLE, 0)?;
    no_core_dumps()
}

/// The opposite, for the moment in which the process writes into its own `/proc` directory without root.
pub fn show_memory() -> io::Result<()> {
    prctl(libc::PR_SET_DUMPABLE, 1)
}

pub fn no_core_dumps() -> io::Result<()> {
    let none = libc::rlimit {
        rlim_cur: 0,
        rlim_max: 0,
    };
    // SAFETY: the pointer is to a live struct of the right type.
    check(unsafe { libc::setrlimit(libc::RLIMIT_CORE, &none) }).map(drop)
}

/// Gives up every capability for good, for all programs executed from here on.
pub fn drop_capabilities() {
    for capability in 0..64 {
        // Fails past the last capability the kernel knows, which is the end wanted.
        if prctl(libc::PR_CAPBSET_DROP, capability).is_err() {
            break;
        }
    }
}

/// Becomes another user, with no groups but its own.
pub fn become_user(uid: u32, gid: u32) -> io::Result<()> {
    // SAFETY: these take numbers only; an empty group list may come with a null pointer.
    unsafe {
        check(libc::setgroups(0, std::ptr::null()))?;
        check(libc::setresgid(gid, gid, gid))?;
        check(libc::setresuid(uid, uid, uid))?;
    }
    Ok(())
}

/// Default actions and no blocked signals, as a program expects to be started.
pub fn reset_signals() {
    for signal in 1..=64 {
        // SAFETY: setting a default action installs no handler; what cannot be set is refused by the kernel.
        unsafe { libc::signal(signal, libc::SIG_DFL) };
    }
    // SAFETY: both pointers are to a live set or null, as the calls want.
    unsafe {
        let mut none = std::mem::zeroed();
        libc::sigemptyset(&mut none);
        libc::sigprocmask(libc::SIG_SETMASK, &none, std::ptr::null_mut());
    }
}

/// Blocks signals, so that `signal_fd` takes them one by one.
pub fn block_signals(signals: &[i32]) {
    let set = signal_set(signals);
    // SAFETY: the set is live; no old set is asked for.
    unsafe { libc::sigprocmask(libc::SIG_BLOCK, &set, std::ptr::null_mut()) };
}

fn signal_set(signals: &[i32]) -> libc::sigset_t {
    // SAFETY: an all-zero set is a valid place for `sigemptyset` to write to.
    unsafe {
        let mut set = std::mem::zeroed();
        libc::sigemptyset(&mut set);
        for &signal in signals {
            libc::sigaddset(&mut set, signal);
        }
        set
    }
}

/// A descriptor from which blocked signals are read.
pub fn signal_fd(signals: &[i32]) -> io::Result<OwnedFd> {
    let set = signal_set(signals);
    // SAFETY: the set is live; the call returns a new descriptor that nobody else owns.
    let fd = check(unsafe { libc::signalfd(-1, &set, libc::SFD_CLOEXEC | libc::SFD_NONBLOCK) })?;
    // SAFETY: as above.
    Ok(unsafe { OwnedFd::from_raw_fd(fd) })
}

/// The next signal; none when there is none.
pub fn read_signal(from: &OwnedFd) -> Option<i32> {
    // The number is the first field.
    let mut facts = [0; size_of::<libc::signalfd_siginfo>()];
    let got = rustix::io::read(from, &mut facts).ok()?;
    let number = facts.first_chunk().filter(|_| got == facts.len())?;
    i32::try_from(u32::from_ne_bytes(*number)).ok()
}

/// Closes everything but the standard descriptors and those to keep. For a process that goes on without what its
/// parent had open.
pub fn close_others(mut keep: Vec<RawFd>) {
    keep.sort_unstable();
    let mut from: u32 = 3;
    let kept = keep
        .iter()
        .filter_map(|&fd| u32::try_from(fd).ok())
        .filter(|&fd| fd >= 3);
    for next in kept.chain([u32::MAX]) {
        if from < next {
            // SAFETY: the caller's process never touches its parent's descriptors again, nor returns to their owners.
            unsafe { libc::syscall(libc::SYS_close_range, from, next - 1, 0) };
        }
        from = next.saturating_add(1);
    }
}

/// Sends a signal; a negative number is a process group. Who is gone already is no error.
pub fn kill(pid: i32, signal: i32) {
    // INVARIANT: 0 and -1 would reach everybody.
    assert!(!(-1..=1).contains(&pid), "no signal to everybody");
    // SAFETY: takes two numbers.
    unsafe { libc::kill(pid, signal) };
}

/// The wait status of a child that ended, any child for -1; none when none has ended or none is left. One that made the
/// caller its tracer and stands still is no longer traced, and goes on.
pub fn reap(pid: i32, wait: bool) -> Option<(i32, i32)> {
    let mut status = 0;
    loop {
        // SAFETY: the status pointer is live.
        let reaped = unsafe { libc::waitpid(pid, &mut status, if wait { 0 } else { libc::WNOHANG }) };
        match reaped {
            -1 if io::Error::last_os_error().kind() == io::ErrorKind::Interrupted => {}
            reaped if reaped <= 0 => return None,
            stopped if libc::WIFSTOPPED(status) => trace_no_more(stopped, libc::WSTOPSIG(status)),
            reaped => return Some((reaped, status)),
        }
    }
}

/// Lets a traced child go on, with the signal it was stopped by; the stop after `exec` is by no signal of anybody's.
fn trace_no_more(pid: i32, signal: i32) {
    let signal = if signal == libc::SIGTRAP { 0 } else { signal };
    // SAFETY: numbers alone; a child that is not traced is left as it is.
    unsafe {
        libc::ptrace(
            libc::PTRACE_DETACH,
            pid,
            std::ptr::null_mut::<libc::c_void>(),
            signal as usize as *mut libc::c_void,
        )
    };
}

/// A handle on a process that stays with it, whatever becomes of its number.
pub fn pidfd(pid: i32) -> io::Result<OwnedFd> {
    // SAFETY: the call takes two numbers and returns a new descriptor that nobody else owns.
    let fd = check(unsafe { libc::syscall(libc::SYS_pidfd_open, pid, 0) } as libc::c_int)?;
    // SAFETY: as above.
    Ok(unsafe { OwnedFd::from_raw_fd(fd) })
}

/// Sends a signal to the process a handle is of, if it lives.
pub fn signal(process: &OwnedFd, signal: i32) {
    let nothing = std::ptr::null::<libc::siginfo_t>();
    // SAFETY: a live descriptor and a number; no facts are given.
    unsafe {
        libc::syscall(
            libc::SYS_pidfd_send_signal,
            process.as_raw_fd(),
            signal,
            nothing,
            0,
        )
    };
}

/// Puts a copy of `fd` at `at`, to be kept over an exec.
pub fn place(fd: &impl AsRawFd, at: RawFd) -> io::Result<()> {
    // SAFETY: replaces a standard descriptor, which no Rust object owns.
    check(unsafe { libc::dup2(fd.as_raw_fd(), at) }).map(drop)
}

/// Lets a descriptor pass the next exec as number `at`, whatever was there.
pub fn pass_on(fd: &impl AsRawFd, at: RawFd) -> io::Result<()> {
    if fd.as_raw_fd() == at {
        // SAFETY: only takes the mark away that would close it.
        return check(unsafe { libc::fcntl(at, libc::F_SETFD, 0) }).map(drop);
    }
    place(fd, at)
}

/// Lets nothing but the standard descriptors pass the next exec.
pub fn close_on_exec_from_3() {
    // SAFETY: only marks descriptors; none is closed under its owner.
    unsafe { libc::syscall(libc::SYS_close_range, 3, u32::MAX, libc::CLOSE_RANGE_CLOEXEC) };
}

/// Becomes another program; returns only with the reason why not.
pub fn execute(path: &CString, arguments: &[CString], environment: &[CString]) -> io::Error {
    let pointers = |texts: &[CString]| -> Vec<*const libc::c_char> {
        texts
            .iter()
            .map(|text| text.as_ptr())
            .chain([std::ptr::null()])
            .collect()
    };
    let (arguments, environment) = (pointers(arguments), pointers(environment));
    // SAFETY: both lists end with null and point into texts that live until the call returns.
    unsafe { libc::execve(path.as_ptr(), arguments.as_ptr(), environment.as_ptr()) };
    io::Error::last_os_error()
}

pub fn set_hostname(name: &str) -> io::Result<()> {
    // SAFETY: pointer and length are of one live text.
    check(unsafe { libc::sethostname(name.as_ptr().cast(), name.len()) }).map(drop)
}

/// Lets only what the filter allows pass from here on. Needs `no_new_privileges` first.
pub fn filter_calls(program: &[libc::sock_filter]) -> io::Result<()> {
    let program = libc::sock_fprog {
        len: u16::try_from(program.len()).map_err(|_| io::Error::other("the filter is too long"))?,
        filter: program.as_ptr().cast_mut(),
    };
    // SAFETY: the kernel copies the program, which is live and as long as is said.
    check(
        unsafe { libc::syscall(libc::SYS_seccomp, libc::SECCOMP_SET_MODE_FILTER, 0, &program) }
            as libc::c_int,
    )
    .map(drop)
}

/// Counts that live in a file, for as long as this process does; whoever is forked from it counts in the same place.
pub fn map_counts(
    file: &std::fs::File,
    places: usize,
) -> io::Result<&'static [std::sync::atomic::AtomicU32]> {
    let bytes = places * size_of::<std::sync::atomic::AtomicU32>();
    if file.metadata()?.len() < bytes as u64 {
        return Err(io::ErrorKind::UnexpectedEof.into());
    }
    // SAFETY: a new mapping at a place of the kernel's choice, of a file that is long enough.
    let address = unsafe {
        libc::mmap(
            std::ptr::null_mut(),
            bytes,
            libc::PROT_READ | libc::PROT_WRITE,
            libc::MAP_SHARED,
            file.as_raw_fd(),
            0,
        )
    };
    if address == libc::MAP_FAILED {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: mapped for good, aligned to a page, atomics of any content are valid; nobody else cuts the file short.
    Ok(unsafe { std::slice::from_raw_parts(address.cast(), places) })
}

/// Switches on the loopback of the network this thread is in.
pub fn loopback_up() -> io::Result<()> {
    let socket = rustix::net::socket(
        rustix::net::AddressFamily::INET,
        rustix::net::SocketType::DGRAM,
        None,
    )?;
    // SAFETY: all zero is a valid value.
    let mut request: libc::ifreq = unsafe { std::mem::zeroed() };
    request.ifr_name[0] = b'l' as libc::c_char;
    request.ifr_name[1] = b'o' as libc::c_char;
    request.ifr_ifru.ifru_flags = (libc::IFF_UP | libc::IFF_RUNNING) as libc::c_short;
    // SAFETY: the request is live and of the type this call takes.
    check(unsafe { libc::ioctl(socket.as_raw_fd(), libc::SIOCSIFFLAGS, &request) }).map(drop)
}

/// Enters the network that an open file holds.
pub fn enter_network(file: &impl AsRawFd) -> io::Result<()> {
    // SAFETY: takes a descriptor and a number.
    check(unsafe { libc::setns(file.as_raw_fd(), libc::CLONE_NEWNET) }).map(drop)
}
