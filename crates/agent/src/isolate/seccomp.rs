//! Which kernel calls a job may make: those that programs use, by name; everything else answers "not permitted".
//!
//! An allow-list: a call the kernel learns tomorrow is refused until somebody has thought about it. What is left
//! out on purpose: mounts, namespaces, modules, clocks, keys, BPF, io_uring, performance counters, userfaultfd,
//! handles to files by number, and whatever only an administrator needs. Nor does a job get what no limit of its own
//! counts: huge pages, of which the host has one pool, and contexts for asynchronous files, of which it has one number.

use std::io;
use std::os::fd::OwnedFd;

use crate::kernel;

const ALLOW: u32 = libc::SECCOMP_RET_ALLOW;
const REFUSE: u32 = libc::SECCOMP_RET_ERRNO | libc::EPERM as u32;
/// For calls with an older form that programs fall back to.
const UNKNOWN: u32 = libc::SECCOMP_RET_ERRNO | libc::ENOSYS as u32;
/// As a host answers that has set no huge pages apart: programs then take plain ones, so it is nothing to be counted.
const NO_MEMORY: u32 = libc::SECCOMP_RET_ERRNO | libc::ENOMEM as u32;
/// As a kernel answers that was built without.
const NO_PROTOCOL: u32 = libc::SECCOMP_RET_ERRNO | libc::EPROTONOSUPPORT as u32;

#[cfg(target_arch = "x86_64")]
const ARCHITECTURE: u32 = 0xc000_003e;
#[cfg(target_arch = "aarch64")]
const ARCHITECTURE: u32 = 0xc000_00b7;

/// Where the call's data has its number, its architecture and its arguments' lower halves.
const NUMBER: u32 = 0;
const ARCH: u32 = 4;
const fn argument(index: u32) -> u32 {
    16 + 8 * index
}

const NAMESPACES: u32 = (libc::CLONE_NEWNS
    | libc::CLONE_NEWCGROUP
    | libc::CLONE_NEWUTS
    | libc::CLONE_NEWIPC
    | libc::CLONE_NEWUSER
    | libc::CLONE_NEWPID
    | libc::CLONE_NEWNET) as u32;

macro_rules! calls {
    ($($name:ident)*) => { [$(libc::$name,)*] };
}

/// Calls that are the same everywhere.
#[rustfmt::skip]
const CALLS: &[libc::c_long] = &calls! {
    SYS_accept SYS_accept4 SYS_bind SYS_brk SYS_capget SYS_capset SYS_chdir
    SYS_clock_getres SYS_clock_gettime SYS_clock_nanosleep SYS_close SYS_close_range SYS_connect
    SYS_copy_file_range SYS_dup SYS_dup3 SYS_epoll_create1 SYS_epoll_ctl SYS_epoll_pwait
    SYS_epoll_pwait2 SYS_eventfd2 SYS_execve SYS_execveat SYS_exit SYS_exit_group SYS_faccessat
    SYS_faccessat2 SYS_fadvise64 SYS_fallocate SYS_fchdir SYS_fchmod SYS_fchmodat SYS_fchmodat2
    SYS_fchown SYS_fchownat SYS_fcntl SYS_fdatasync SYS_fgetxattr SYS_flistxattr SYS_flock
    SYS_fremovexattr SYS_fsetxattr SYS_fstat SYS_fstatfs SYS_fsync SYS_ftruncate SYS_futex
    SYS_futex_waitv SYS_get_mempolicy
    SYS_get_robust_list SYS_getcpu SYS_getcwd SYS_getdents64 SYS_getegid SYS_geteuid SYS_getgid
    SYS_getgroups SYS_getitimer SYS_getpeername SYS_getpgid SYS_getpid SYS_getppid SYS_getpriority
    SYS_getrandom SYS_getresgid SYS_getresuid SYS_getrlimit SYS_getrusage SYS_getsid
    SYS_getsockname SYS_getsockopt SYS_gettid SYS_gettimeofday SYS_getuid SYS_getxattr
    SYS_inotify_add_watch SYS_inotify_init1 SYS_inotify_rm_watch
    SYS_ioprio_get SYS_ioprio_set SYS_kcmp SYS_kill
    SYS_landlock_add_rule SYS_landlock_create_ruleset SYS_landlock_restrict_self SYS_lgetxattr
    SYS_linkat SYS_listen SYS_listxattr SYS_llistxattr SYS_lremovexattr SYS_lseek SYS_lsetxattr
    SYS_madvise SYS_mbind SYS_membarrier SYS_memfd_create SYS_migrate_pages SYS_mincore
    SYS_mkdirat SYS_mknodat SYS_mlock SYS_mlock2 SYS_mlockall SYS_mmap SYS_move_pages SYS_mprotect
    SYS_mq_getsetattr SYS_mq_notify SYS_mq_open SYS_mq_timedreceive SYS_mq_timedsend SYS_mq_unlink
    SYS_mremap SYS_mseal SYS_msgctl SYS_msgget SYS_msgrcv SYS_msgsnd SYS_msync SYS_munlock
    SYS_munlockall SYS_munmap SYS_nanosleep SYS_newfstatat SYS_openat SYS_openat2
    SYS_pidfd_getfd SYS_pidfd_open SYS_pidfd_send_signal SYS_pipe2 SYS_pkey_alloc SYS_pkey_free
    SYS_pkey_mprotect SYS_ppoll SYS_prctl SYS_pread64 SYS_preadv SYS_preadv2 SYS_prlimit64
    SYS_process_madvise SYS_process_mrelease SYS_process_vm_readv SYS_process_vm_writev
    SYS_pselect6 SYS_ptrace SYS_pwrite64 SYS_pwritev SYS_pwritev2 SYS_read SYS_readahead
    SYS_readlinkat SYS_readv SYS_recvfrom SYS_recvmmsg SYS_recvmsg SYS_remap_file_pages
    SYS_removexattr SYS_renameat SYS_renameat2 SYS_restart_syscall SYS_rseq SYS_rt_sigaction
    SYS_rt_sigpending SYS_rt_sigprocmask SYS_rt_sigqueueinfo SYS_rt_sigreturn SYS_rt_sigsuspend
    SYS_rt_sigtimedwait SYS_rt_tgsigqueueinfo SYS_sched_get_priority_max
    SYS_sched_get_priority_min SYS_sched_getaffinity SYS_sched_getattr SYS_sched_getparam
    SYS_sched_getscheduler SYS_sched_rr_get_interval SYS_sched_setaffinity SYS_sched_setattr
    SYS_sched_setparam SYS_sched_setscheduler SYS_sched_yield SYS_seccomp SYS_semctl SYS_semget
    SYS_semop SYS_semtimedop SYS_sendfile SYS_sendmmsg SYS_sendmsg SYS_sendto SYS_set_mempolicy
    SYS_set_mempolicy_home_node SYS_set_robust_list SYS_set_tid_address SYS_setfsgid SYS_setfsuid
    SYS_setgid SYS_setgroups SYS_setitimer SYS_setpgid SYS_setpriority SYS_setregid SYS_setresgid
    SYS_setresuid SYS_setreuid SYS_setrlimit SYS_setsid SYS_setsockopt SYS_setuid SYS_setxattr
    SYS_shmat SYS_shmctl SYS_shmdt SYS_shmget SYS_shutdown SYS_sigaltstack SYS_signalfd4
    SYS_socketpair SYS_splice SYS_statfs SYS_statx SYS_symlinkat SYS_sync SYS_sync_file_range
    SYS_syncfs SYS_sysinfo SYS_tee SYS_tgkill SYS_timer_create SYS_timer_delete
    SYS_timer_getoverrun SYS_timer_gettime SYS_timer_settime SYS_timerfd_create
    SYS_timerfd_gettime SYS_timerfd_settime SYS_times SYS_tkill SYS_truncate SYS_umask SYS_uname
    SYS_unlinkat SYS_utimensat SYS_vmsplice SYS_wait4 SYS_waitid SYS_write SYS_writev
};

/// Older forms that only some architectures have.
#[cfg(target_arch = "x86_64")]
#[rustfmt::skip]
const OLDER_CALLS: &[libc::c_long] = &calls! {
    SYS_access SYS_alarm SYS_arch_prctl SYS_chmod SYS_chown SYS_creat SYS_dup2 SYS_epoll_create
    SYS_epoll_ctl_old SYS_epoll_wait SYS_epoll_wait_old SYS_eventfd SYS_fork SYS_futimesat
    SYS_get_thread_area SYS_getdents SYS_getpgrp SYS_inotify_init SYS_lchown SYS_link SYS_lstat
    SYS_mkdir SYS_mknod SYS_open SYS_pause SYS_pipe SYS_poll SYS_readlink SYS_rename SYS_rmdir
    SYS_select SYS_set_thread_area SYS_signalfd SYS_stat SYS_symlink SYS_time SYS_unlink SYS_utime
    SYS_utimes SYS_vfork
};
#[cfg(not(target_arch = "x86_64"))]
const OLDER_CALLS: &[libc::c_long] = &[];

/// Protocols of the internet that programs speak: whichever fits, and ICMP, TCP, UDP and ICMPv6.
const INTERNET: [u32; 5] = [
    0,
    libc::IPPROTO_ICMP as u32,
    libc::IPPROTO_TCP as u32,
    libc::IPPROTO_UDP as u32,
    libc::IPPROTO_ICMPV6 as u32,
];

/// Of netlink, what shows the job's own interfaces. Others tell of the host: its devices, its audit, its firewall.
const NETLINK: [u32; 1] = [libc::NETLINK_ROUTE as u32];

/// Calls that ask for huge pages, by which of their arguments, and by which bit of it.
const HUGE_PAGES: [(libc::c_long, u32, u32); 3] = [
    (libc::SYS_mmap, 3, libc::MAP_HUGETLB as u32),
    (libc::SYS_memfd_create, 1, libc::MFD_HUGETLB),
    (libc::SYS_shmget, 2, libc::SHM_HUGETLB as u32),
];

/// Only the plain personality, and those that ask or switch address randomisation off for a debugger.
const PERSONALITIES: [u32; 4] = [0, 0x0004_0000, 0x0008, u32::MAX];

/// The filter, ready for the kernel.
pub struct Filter(Vec<libc::sock_filter>);

impl Filter {
    pub fn new() -> Filter {
        let mut program = Program::default();
        program.load(ARCH);
        program.unless(ARCHITECTURE, libc::SECCOMP_RET_KILL_PROCESS);
        program.load(NUMBER);
        // Another calling convention on the same architecture has numbers with this bit.
        #[cfg(target_arch = "x86_64")]
        program.from(0x4000_0000, REFUSE);
        program.when(libc::SYS_clone3, UNKNOWN);
        program.checked(libc::SYS_clone, argument(0), |program| {
            program.any_bit(NAMESPACES, REFUSE);
            program.answer(ALLOW);
        });
        program.checked(libc::SYS_socket, argument(0), |program| {
            program.equal(libc::AF_UNIX as u32, ALLOW);
            program.one_of(&[libc::AF_INET as u32, libc::AF_INET6 as u32], |program| {
                program.load(argument(2));
                INTERNET.iter().for_each(|&one| program.equal(one, ALLOW));
                program.answer(NO_PROTOCOL);
            });
            program.one_of(&[libc::AF_NETLINK as u32], |program| {
                program.load(argument(2));
                NETLINK.iter().for_each(|&one| program.equal(one, ALLOW));
                program.answer(NO_PROTOCOL);
            });
            program.answer(REFUSE);
        });
        for (call, flags, huge) in HUGE_PAGES {
            program.checked(call, argument(flags), |program| {
                program.any_bit(huge, NO_MEMORY);
                program.answer(ALLOW);
            });
        }
        program.when(libc::SYS_io_setup, UNKNOWN);
        program.checked(libc::SYS_personality, argument(0), |program| {
            PERSONALITIES.iter().for_each(|&kind| program.equal(kind, ALLOW));
            program.answer(REFUSE);
        });
        program.checked(libc::SYS_ioctl, argument(1), |program| {
            // Typing into somebody's terminal.
            program.equal(libc::TIOCSTI as u32, REFUSE);
            program.equal(libc::TIOCLINUX as u32, REFUSE);
            program.answer(ALLOW);
        });
        let mut calls: Vec<u32> = CALLS.iter().chain(OLDER_CALLS).map(|&call| call as u32).collect();
        calls.sort_unstable();
        program.only(&calls);
        Filter(program.0)
    }

    /// Beside the other, for a worker: a file on a disk is not given room beyond its end, where no limit on its length
    /// would count it.
    pub fn of_worker() -> Filter {
        let mut program = Program::default();
        program.load(NUMBER);
        program.checked(libc::SYS_fallocate, argument(1), |program| {
            program.equal(0, ALLOW);
            let hole = libc::FALLOC_FL_PUNCH_HOLE | libc::FALLOC_FL_KEEP_SIZE;
            program.equal(hole as u32, ALLOW);
            program.answer(REFUSE);
        });
        program.answer(ALLOW);
        Filter(program.0)
    }

    /// From here on, for this process and all that come from it. Needs `no_new_privileges` first.
    pub fn install(&self) -> io::Result<()> {
        kernel::filter_calls(&self.0)
    }

    /// The same, but what is denied is asked of whoever has the listener this gives. Where nobody answers any more it
    /// is denied all the same.
    pub fn install_heard(&self) -> io::Result<OwnedFd> {
        let heard = |step: &libc::sock_filter| {
            let refuses = u32::from(step.code) == libc::BPF_RET | libc::BPF_K && step.k == REFUSE;
            libc::sock_filter {
                k: if refuses {
                    libc::SECCOMP_RET_USER_NOTIF
                } else {
                    step.k
                },
                ..*step
            }
        };
        let program: Vec<libc::sock_filter> = self.0.iter().map(heard).collect();
        kernel::filter_calls_heard(&program)
    }
}

impl Default for Filter {
    fn default() -> Self {
        Filter::new()
    }
}

/// Instructions of the kernel's classic packet filter.
#[derive(Default)]
struct Program(Vec<libc::sock_filter>);

impl Program {
    fn push(&mut self, code: u32, on_true: u8, on_false: u8, value: u32) {
        self.0.push(libc::sock_filter {
            code: code as u16,
            jt: on_true,
            jf: on_false,
            k: value,
        });
    }

    fn load(&mut self, offset: u32) {
        self.push(libc::BPF_LD | libc::BPF_W | libc::BPF_ABS, 0, 0, offset);
    }

    fn answer(&mut self, answer: u32) {
        self.push(libc::BPF_RET | libc::BPF_K, 0, 0, answer);
    }

    fn equal(&mut self, value: u32, answer: u32) {
        self.push(libc::BPF_JMP | libc::BPF_JEQ | libc::BPF_K, 0, 1, value);
        self.answer(answer);
    }

    fn when(&mut self, call: libc::c_long, answer: u32) {
        self.equal(call as u32, answer);
    }

    fn unless(&mut self, value: u32, answer: u32) {
        self.push(libc::BPF_JMP | libc::BPF_JEQ | libc::BPF_K, 1, 0, value);
        self.answer(answer);
    }

    fn from(&mut self, value: u32, answer: u32) {
        self.push(libc::BPF_JMP | libc::BPF_JGE | libc::BPF_K, 0, 1, value);
        self.answer(answer);
    }

    /// Allows these, which are sorted, and refuses all others. By runs: the kernel goes through the filter once for every
    /// call there is when it is installed, so its length is a job's start.
    fn only(&mut self, calls: &[u32]) {
        for run in calls.chunk_by(|one, next| next - one <= 1) {
            let (first, after) = (run[0], run[run.len() - 1] + 1);
            self.push(libc::BPF_JMP | libc::BPF_JGE | libc::BPF_K, 3, 0, after);
            self.push(libc::BPF_JMP | libc::BPF_JGE | libc::BPF_K, 0, 1, first);
            self.answer(ALLOW);
            self.answer(REFUSE);
        }
        self.answer(REFUSE);
    }

    /// For any of these values, what `then` answers; it must in every case.
    fn one_of(&mut self, values: &[u32], then: impl FnOnce(&mut Program)) {
        let mut inner = Program::default();
        then(&mut inner);
        let over = u8::try_from(inner.0.len()).unwrap_or(u8::MAX);
        for (left, &value) in (0..values.len() as u8).rev().zip(values) {
            let last = left == 0;
            self.push(
                libc::BPF_JMP | libc::BPF_JEQ | libc::BPF_K,
                left,
                if last { over } else { 0 },
                value,
            );
        }
        self.0.extend(inner.0);
    }

    fn any_bit(&mut self, bits: u32, answer: u32) {
        self.push(libc::BPF_JMP | libc::BPF_JSET | libc::BPF_K, 0, 1, bits);
        self.answer(answer);
    }

    /// For one call, looks at an argument; `then` must answer in every case.
    fn checked(&mut self, call: libc::c_long, argument: u32, then: impl FnOnce(&mut Program)) {
        let mut inner = Program::default();
        inner.load(argument);
        then(&mut inner);
        let over = u8::try_from(inner.0.len()).unwrap_or(u8::MAX);
        self.push(libc::BPF_JMP | libc::BPF_JEQ | libc::BPF_K, 0, over, call as u32);
        self.0.extend(inner.0);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Runs the filter as the kernel would.
    fn answer<const N: usize>(filter: &Filter, architecture: u32, number: u32, arguments: [u32; N]) -> u32 {
        let load = |offset: u32| match offset {
            NUMBER => number,
            ARCH => architecture,
            other => *arguments
                .get((other as usize - 16) / 8)
                .expect("an argument that was given"),
        };
        let (mut at, mut value) = (0, 0);
        loop {
            let step = &filter.0[at];
            at += 1;
            let jump = |holds: bool| usize::from(if holds { step.jt } else { step.jf });
            match u32::from(step.code) {
                code if code == libc::BPF_LD | libc::BPF_W | libc::BPF_ABS => value = load(step.k),
                code if code == libc::BPF_RET | libc::BPF_K => return step.k,
                code if code == libc::BPF_JMP | libc::BPF_JEQ | libc::BPF_K => at += jump(value == step.k),
                code if code == libc::BPF_JMP | libc::BPF_JGE | libc::BPF_K => at += jump(value >= step.k),
                code if code == libc::BPF_JMP | libc::BPF_JSET | libc::BPF_K => {
                    at += jump(value & step.k != 0)
                }
                other => panic!("code {other}"),
            }
        }
    }

    #[test]
    fn what_programs_use_passes_and_the_rest_does_not() {
        let filter = Filter::new();
        let ask = |call: libc::c_long, arguments| answer(&filter, ARCHITECTURE, call as u32, arguments);
        for call in [
            libc::SYS_read,
            libc::SYS_execve,
            libc::SYS_futex,
            libc::SYS_munmap,
            libc::SYS_writev,
        ] {
            assert_eq!(ask(call, [0, 0]), ALLOW);
        }
        for call in [
            libc::SYS_mount,
            libc::SYS_unshare,
            libc::SYS_setns,
            libc::SYS_bpf,
            libc::SYS_io_uring_setup,
            libc::SYS_keyctl,
            libc::SYS_init_module,
            libc::SYS_perf_event_open,
            libc::SYS_open_by_handle_at,
            libc::SYS_userfaultfd,
            libc::SYS_pivot_root,
            libc::SYS_settimeofday,
            9999,
        ] {
            assert_eq!(ask(call, [0, 0]), REFUSE, "{call}");
        }
        assert_eq!(ask(libc::SYS_clone3, [0, 0]), UNKNOWN);
        assert_eq!(ask(libc::SYS_clone, [libc::CLONE_VM as u32, 0]), ALLOW);
        assert_eq!(ask(libc::SYS_clone, [libc::CLONE_NEWUSER as u32, 0]), REFUSE);
        assert_eq!(ask(libc::SYS_socket, [libc::AF_UNIX as u32, 0]), ALLOW);
        assert_eq!(ask(libc::SYS_socket, [libc::AF_PACKET as u32, 0]), REFUSE);
        assert_eq!(ask(libc::SYS_socket, [libc::AF_VSOCK as u32, 0]), REFUSE);
        assert_eq!(ask(libc::SYS_ioctl, [0, libc::TIOCSTI as u32]), REFUSE);
        assert_eq!(ask(libc::SYS_ioctl, [0, libc::TIOCGWINSZ as u32]), ALLOW);
        assert_eq!(ask(libc::SYS_personality, [0x0002_0000, 0]), REFUSE);
        let foreign = answer(&filter, 0x4000_0003, libc::SYS_read as u32, [0, 0]);
        assert_eq!(foreign, libc::SECCOMP_RET_KILL_PROCESS);
        #[cfg(target_arch = "x86_64")]
        assert_eq!(answer(&filter, ARCHITECTURE, 0x4000_0000, [0, 0]), REFUSE);
    }
    fn asked<const N: usize>(call: libc::c_long, arguments: [u32; N]) -> u32 {
        answer(&Filter::new(), ARCHITECTURE, call as u32, arguments)
    }

    #[test]
    fn no_huge_pages_for_they_are_in_no_limit() {
        let (private, huge) = (libc::MAP_PRIVATE as u32, libc::MAP_HUGETLB as u32);
        assert_eq!(asked(libc::SYS_mmap, [0, 4096, 3, private]), ALLOW);
        let of_one_gib = private | huge | 30 << libc::MAP_HUGE_SHIFT;
        assert_eq!(asked(libc::SYS_mmap, [0, 4096, 3, of_one_gib]), NO_MEMORY);
        assert_eq!(asked(libc::SYS_memfd_create, [0, libc::MFD_CLOEXEC]), ALLOW);
        assert_eq!(asked(libc::SYS_memfd_create, [0, libc::MFD_HUGETLB]), NO_MEMORY);
        assert_eq!(asked(libc::SYS_shmget, [0, 4096, 0o600]), ALLOW);
        assert_eq!(asked(libc::SYS_shmget, [0, 4096, 0o4600]), NO_MEMORY);
    }

    #[test]
    fn no_contexts_for_asynchronous_files_for_the_host_has_one_number_of_them() {
        assert_eq!(asked(libc::SYS_io_setup, [1, 0]), UNKNOWN);
        assert_eq!(asked(libc::SYS_io_submit, [0, 0]), REFUSE);
    }

    #[test]
    fn only_protocols_that_programs_speak() {
        let socket =
            |family: i32, protocol: i32| asked(libc::SYS_socket, [family as u32, 1, protocol as u32]);
        for family in [libc::AF_INET, libc::AF_INET6] {
            for protocol in [0, libc::IPPROTO_TCP, libc::IPPROTO_UDP, libc::IPPROTO_ICMPV6] {
                assert_eq!(socket(family, protocol), ALLOW);
            }
            for protocol in [
                libc::IPPROTO_SCTP,
                libc::IPPROTO_DCCP,
                libc::IPPROTO_MPTCP,
                libc::IPPROTO_RAW,
            ] {
                assert_eq!(socket(family, protocol), NO_PROTOCOL);
            }
        }
        assert_eq!(socket(libc::AF_NETLINK, libc::NETLINK_ROUTE), ALLOW);
        for protocol in [
            libc::NETLINK_KOBJECT_UEVENT,
            libc::NETLINK_AUDIT,
            libc::NETLINK_NETFILTER,
        ] {
            assert_eq!(socket(libc::AF_NETLINK, protocol), NO_PROTOCOL);
        }
    }

    #[test]
    fn a_workers_files_get_no_room_beyond_their_end() {
        let filter = Filter::of_worker();
        let ask = |mode: i32| {
            answer(
                &filter,
                ARCHITECTURE,
                libc::SYS_fallocate as u32,
                [5, mode as u32],
            )
        };
        assert_eq!(ask(0), ALLOW);
        assert_eq!(ask(libc::FALLOC_FL_PUNCH_HOLE | libc::FALLOC_FL_KEEP_SIZE), ALLOW);
        for mode in [
            libc::FALLOC_FL_KEEP_SIZE,
            libc::FALLOC_FL_ZERO_RANGE | libc::FALLOC_FL_KEEP_SIZE,
            libc::FALLOC_FL_UNSHARE_RANGE,
        ] {
            assert_eq!(ask(mode), REFUSE);
        }
        let other = answer(&filter, ARCHITECTURE, libc::SYS_read as u32, [5, 1]);
        assert_eq!(other, ALLOW);
    }
}
