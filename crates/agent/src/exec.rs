//! The thin parent: one small process per allocation, which outlives the agent.
//!
//! It builds the wall before it knows for whom, waits for its launch, claims the allocation, starts the job, keeps
//! its logs, and ends it: on request, at its run-time limit, and when the node's lease runs out, whether or not an
//! agent is there to say so. It works in the allocation's directory and has one thread. Forked by the maker of
//! seats (`maker.rs`), which `node/seat.rs` starts as `tenure-agent exec`.

mod door;
mod init;
mod listener;
mod maker;
mod output;
pub(crate) mod tally;
pub(crate) mod terminal;
mod timer;

use std::collections::BTreeSet;
use std::ffi::OsString;
use std::io::{self, Read};
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::os::unix::net::UnixDatagram;
use std::path::{Path, PathBuf};
use std::time::Duration;

use rustix::event::{PollFd, PollFlags, poll};
use rustix::pipe::{PipeFlags, pipe_with};
use tenure_domain::workload::job::StopReason;

use crate::isolate::cgroup::{self, Limits, freeze};
use crate::launch::{Launch, SEAT, Seat};
use crate::record::{Phase, Record, Subject, start_ticks};
use crate::stop::{self, StopRequest, pause};
use crate::{clock, conduct, kernel};
use output::Output;
use timer::Timer;

/// How long killed processes may take to be gone before it is said that they are not.
const KILL_PATIENCE: Duration = Duration::from_secs(30);

/// Makes seats as often as it is asked. Each makes itself ready, waits for its launch, and runs it. A process's exit code
/// says nothing.
pub fn main() -> i32 {
    let _ = kernel::hide_memory();
    let _ = rustix::process::setsid();
    let seat = std::env::var(SEAT).unwrap_or_default();
    let Ok(seat) = serde_json::from_str(&seat) else {
        return 1;
    };
    maker::main(&seat, sit)
}

/// What stands before there is a job.
struct Ready {
    /// The first process of the job's world, waiting.
    init: i32,
    to_init: OwnedFd,
    stdout: OwnedFd,
    stderr: OwnedFd,
    failure: std::fs::File,
    status: std::fs::File,
    cgroup_name: String,
}

/// What the agent gave.
struct Given {
    sealed: std::fs::File,
    /// An end of the pipe between a job and its worker, for those that are tied; a worker's listener; mounts of its
    /// volumes, in their order; then the tenant's network, without which the job has the host's.
    rest: Vec<OwnedFd>,
}

/// What the thin parent holds while the job runs.
struct Run {
    dir: PathBuf,
    record: Record,
    /// The record's name is safe from a power cut.
    named: bool,
    timer: Timer,
    /// Somebody left something to look at.
    wakes: OwnedFd,
    /// What whoever ended it left for its log.
    note: Option<String>,
    /// A worker's job is gone when this is closed; a job holds its worker's open until it is gone itself.
    tie: Option<OwnedFd>,
}

fn sit(seat: &Seat, cgroup_name: String) -> io::Result<()> {
    let cgroups = seat.cgroups.dirs(&cgroup_name);
    seat.cgroups.make(&cgroup_name)?;
    // Until this process and the first of the job's world are gone, whatever becomes of the agent.
    let _held = cgroup::hold(&cgroups)?;
    let launched = prepare(seat, cgroup_name, &cgroups).and_then(|ready| {
        let mut dir = Vec::new();
        let mut fds = kernel::receive_fds(&io::stdin(), &mut dir)?.into_iter();
        if let Ok(null) = std::fs::File::open("/dev/null") {
            let _ = kernel::place(&null, 0);
        }
        let launch = fds.next().map(|sealed| Given {
            sealed: sealed.into(),
            rest: fds.collect(),
        });
        Ok(launch.map(|given| (ready, given, PathBuf::from(OsString::from_vec(dir)))))
    });
    match launched {
        Ok(Some((ready, given, dir))) => {
            std::env::set_current_dir(dir)?;
            run(seat, ready, given)
        }
        // Nobody needs the seat. Its first process goes with this one.
        other => {
            for child in children() {
                kernel::kill(child, libc::SIGKILL);
            }
            cgroup::end(&cgroups, KILL_PATIENCE);
            other.map(drop)
        }
    }
}

/// Everything that can be done before it is known for whom.
fn prepare(seat: &Seat, cgroup_name: String, cgroups: &[PathBuf]) -> io::Result<Ready> {
    let (stdout, out_write) = pipe_with(PipeFlags::CLOEXEC)?;
    let (stderr, err_write) = pipe_with(PipeFlags::CLOEXEC)?;
    let (failure, failure_write) = pipe_with(PipeFlags::CLOEXEC)?;
    let (status, status_write) = pipe_with(PipeFlags::CLOEXEC)?;
    let (to_init, from_parent) = rustix::net::socketpair(
        rustix::net::AddressFamily::UNIX,
        rustix::net::SocketType::SEQPACKET,
        rustix::net::SocketFlags::CLOEXEC,
        None,
    )?;
    seat.namespaces.enter_processes()?;
    let init = match kernel::fork()? {
        kernel::Forked::Child => {
            drop(to_init);
            let ends = init::Ends {
                stdout: out_write,
                stderr: err_write,
                failure: failure_write,
                status: status_write,
                from_parent,
            };
            init::main(seat, cgroups, ends)
        }
        kernel::Forked::Parent(pid) => pid,
    };
    Ok(Ready {
        init,
        to_init,
        stdout,
        stderr,
        failure: failure.into(),
        status: status.into(),
        cgroup_name,
    })
}

fn run(seat: &Seat, ready: Ready, mut given: Given) -> io::Result<()> {
    let launch = Launch::unseal(&given.sealed)?;
    let tie = (launch.is_tied() && !given.rest.is_empty()).then(|| given.rest.remove(0));
    let dir = PathBuf::from(".");
    // Heard before the run is claimed and a stop request looked for, so that none falls between.
    kernel::block_signals(&[stop::WAKE]);
    let wakes = kernel::signal_fd(&[stop::WAKE])?;
    let pid = std::process::id() as i32;
    let record = Record {
        pid,
        start_ticks: start_ticks(pid).unwrap_or(0),
        cgroups: seat.cgroups.dirs(&ready.cgroup_name),
        subject: Some(Subject {
            job: launch.order.job,
            devices: launch.order.devices.len() as u32,
        }),
        ..Record::without_process(launch.order.allocation, Phase::Starting)
    };
    if !record.claim(&dir)? {
        kernel::kill(ready.init, libc::SIGKILL);
        cgroup::end(&record.cgroups, KILL_PATIENCE);
        return Ok(());
    }
    let timer = Timer::new(&launch.order);
    let mut run = Run {
        dir,
        record,
        named: false,
        timer,
        wakes,
        note: None,
        tie,
    };
    if let Some(request) = StopRequest::read(&run.dir) {
        kernel::kill(ready.init, libc::SIGKILL);
        cgroup::end(&run.record.cgroups, KILL_PATIENCE);
        return run.end(Phase::Exited {
            exit_code: None,
            signal: None,
            by: Some(request.reason),
            ran_ms: 0,
        });
    }
    match run.attend(seat, ready, launch, given) {
        Ok(phase) => run.end(phase),
        Err(error) => {
            // The node's fault, not the job's: it may run elsewhere.
            let _ = std::fs::write(
                "stderr",
                format!("tenure: could not start the job here: {error}\n"),
            );
            for child in children() {
                kernel::kill(child, libc::SIGKILL);
            }
            cgroup::end(&run.record.cgroups, KILL_PATIENCE);
            run.end(Phase::evicted(0))
        }
    }
}

impl Run {
    /// Starts the job and stays with it until it has ended.
    fn attend(&mut self, seat: &Seat, ready: Ready, launch: Launch, given: Given) -> io::Result<Phase> {
        let order = &launch.order;
        let limits = Limits {
            memory_mib: order.memory_mib,
            cpu_milli: order.cpu_milli,
            cpu_weight_milli: launch.cpu_weight_milli.unwrap_or(order.cpu_milli),
            processes_max: launch.processes_max,
        };
        let Ready {
            init,
            to_init,
            stdout,
            stderr,
            mut failure,
            mut status,
            cgroup_name,
        } = ready;
        seat.cgroups.limit(&cgroup_name, limits, &launch.device_files)?;
        seat.cgroups
            .limit_device_memory(&cgroup_name, &launch.device_memory)?;
        let own_pids = seat.namespaces.own;
        let mut stderr = Output::new(stderr, &self.dir.join("stderr"), launch.log_bytes_max)?;
        // It may have failed to build its walls, and says so where failures are said.
        let here = std::env::current_dir()?;
        let fds: Vec<_> = std::iter::once(given.sealed.as_fd())
            .chain(given.rest.iter().map(AsFd::as_fd))
            .collect();
        let _ = kernel::send_fds(&to_init, here.as_os_str().as_bytes(), &fds);
        // A terminal is made inside, where its name means something; without one, it failed and says so itself.
        let terminal = if order.tty {
            kernel::receive_fds(&to_init, &mut Vec::new())
                .unwrap_or_default()
                .pop()
        } else {
            None
        };
        drop((to_init, given));
        let stdout = terminal.unwrap_or(stdout);
        let mut stdout = Output::new(stdout, &self.dir.join("stdout"), launch.log_bytes_max)?;
        let memory_mib = launch.order.memory_mib;
        let is_worker = launch.worker.is_some();
        drop(launch);
        let init_fd = kernel::pidfd(init)?;

        let mut failed: Option<String> = None;
        let mut started = false;
        loop {
            let mut fds = vec![
                PollFd::new(&init_fd, PollFlags::IN),
                PollFd::new(&self.wakes, PollFlags::IN),
            ];
            let leash = self
                .tie
                .as_ref()
                .filter(|_| is_worker && self.timer.reason().is_none());
            fds.extend(leash.map(|leash| PollFd::new(leash, PollFlags::IN)));
            let leashed = leash.is_some();
            let outputs = [&stdout, &stderr].map(|output| output.is_open());
            for (output, open) in [&stdout, &stderr].into_iter().zip(outputs) {
                if open {
                    fds.push(PollFd::from_borrowed_fd(output.as_fd(), PollFlags::IN));
                }
            }
            if !started {
                fds.push(PollFd::new(&failure, PollFlags::IN));
            }
            match poll(&mut fds, Some(&self.timer.until_next())) {
                Err(rustix::io::Errno::INTR) => continue,
                Err(error) => return Err(error.into()),
                Ok(_) => {}
            }
            let ready: Vec<bool> = fds.iter().map(|fd| !fd.revents().is_empty()).collect();
            drop(fds);
            if ready[1] {
                self.take_requests();
            }
            if leashed && ready[2] {
                self.timer.stop(StopReason::Evicted, 0);
            }
            for output in [&mut stdout, &mut stderr] {
                output.pump();
            }
            if !started && ready[ready.len() - 1] {
                let mut why = String::new();
                let _ = failure.read_to_string(&mut why);
                started = true;
                if why.is_empty() {
                    self.set_running(ready[0])?;
                } else {
                    failed = Some(why);
                }
            }
            match self.timer.due(&self.dir) {
                // What has no devices and stands still cannot end by itself.
                Some(_) if freeze::are_frozen(&self.record.cgroups) => {
                    freeze::kill_frozen(&self.record.cgroups);
                }
                Some(timer::Act::Terminate) => kernel::kill(init, libc::SIGTERM),
                Some(timer::Act::Kill) => self.kill(init, own_pids),
                None => {}
            }
            if ready[0] {
                break;
            }
        }
        let ran_ms = self.ran_ms();
        kernel::reap(init, true);
        self.sweep();
        stdout.finish();
        let memory_kills = cgroup::memory_kills(&self.record.cgroups);
        if memory_kills > 0 {
            stderr.note(&format!("tenure: out of memory: the job may use {memory_mib} MiB, {memory_kills} of its processes were killed"));
        }
        if let Some(note) = &self.note {
            stderr.note(&format!("tenure: {note}"));
        }
        stderr.finish();
        // Removed, or used again, by the agent.
        if !cgroup::empty(&self.record.cgroups, KILL_PATIENCE) {
            stderr.note("tenure: some processes of the job would not die");
        }
        let outcome = self.outcome(failed, read_status(&mut status), ran_ms);
        Ok(outcome.over_limit_if(memory_kills > 0))
    }

    fn outcome(&self, failed: Option<String>, status: Option<i32>, ran_ms: u64) -> Phase {
        let by = self.timer.reason();
        if let (Some(failed), None) = (failed, by) {
            return match failed.strip_prefix(init::NODE_FAULT) {
                Some(why) => {
                    let _ = std::fs::write(
                        self.dir.join("stderr"),
                        format!("tenure: could not start the job here: {why}\n"),
                    );
                    Phase::evicted(0)
                }
                None => Phase::NotStarted { why: failed },
            };
        }
        let (exit_code, signal) = match status {
            Some(status) if libc::WIFEXITED(status) => (Some(libc::WEXITSTATUS(status)), None),
            Some(status) => (None, Some(libc::WTERMSIG(status))),
            // Killed with its whole world before it could say.
            None => (None, Some(libc::SIGKILL)),
        };
        Phase::Exited {
            exit_code,
            signal,
            by,
            ran_ms,
        }
    }

    fn set_running(&mut self, ended_already: bool) -> io::Result<()> {
        let since_ms = clock::monotonic_ms();
        self.timer.set_running(since_ms);
        self.record.phase = Phase::Running { since_ms };
        if ended_already { Ok(()) } else { self.tell() }
    }

    fn ran_ms(&self) -> u64 {
        match self.record.phase {
            Phase::Running { since_ms } => clock::monotonic_ms().saturating_sub(since_ms),
            Phase::Paused { ran_ms } => ran_ms,
            _ => 0,
        }
    }

    fn take_requests(&mut self) {
        while kernel::read_signal(&self.wakes).is_some() {}
        if let Some(request) = StopRequest::read(&self.dir) {
            self.timer.stop(request.reason, request.grace_s);
            self.note = request.note;
        }
        if let Err(error) = self.pause_or_resume() {
            self.note = Some(format!("could not write down that it pauses: {error}"));
        }
    }

    /// Follows what the agent has done with the devices.
    fn pause_or_resume(&mut self) -> io::Result<()> {
        match (&self.record.phase, pause::is_wanted(&self.dir)) {
            (Phase::Running { .. }, true) => {
                self.record.phase = Phase::Paused {
                    ran_ms: self.ran_ms(),
                };
                self.timer.set_paused();
            }
            (&Phase::Paused { ran_ms }, false) => {
                let since_ms = clock::monotonic_ms().saturating_sub(ran_ms);
                self.record.phase = Phase::Running { since_ms };
                self.timer.set_running(since_ms);
            }
            _ => return Ok(()),
        }
        self.tell()
    }

    /// Ends everything at once. With its own process ids, the first process takes all others along.
    fn kill(&self, init: i32, own_pids: bool) {
        if !own_pids {
            for dir in &self.record.cgroups {
                let processes = std::fs::read_to_string(dir.join("cgroup.procs")).unwrap_or_default();
                processes
                    .lines()
                    .filter_map(|pid| pid.parse().ok())
                    .filter(|&pid| pid > 1)
                    .for_each(|pid| kernel::kill(pid, libc::SIGKILL));
            }
        }
        kernel::kill(init, libc::SIGKILL);
    }

    /// Ends what was left behind: orphans come to this process, being a subreaper.
    fn sweep(&self) {
        let deadline = std::time::Instant::now() + KILL_PATIENCE;
        while std::time::Instant::now() < deadline {
            let mut any = false;
            for child in children() {
                any = true;
                kernel::kill(child, libc::SIGKILL);
            }
            while kernel::reap(-1, false).is_some() {}
            if !any {
                return;
            }
            std::thread::sleep(Duration::from_millis(1));
        }
    }

    fn end(&mut self, phase: Phase) -> io::Result<()> {
        let _ = std::fs::remove_file(crate::door::NAME);
        self.record.phase = phase;
        // All there is to say of one without devices is here; written at once, it is synced once.
        if self
            .record
            .subject
            .as_ref()
            .is_some_and(|subject| subject.devices == 0)
        {
            let conduct = conduct::of(&self.record, &self.dir, None, BTreeSet::new());
            self.record.conduct = conduct.map(Box::new);
        }
        self.tell()
    }

    /// Writes the state down for good, then says so to the agent, if there is one.
    fn tell(&mut self) -> io::Result<()> {
        if self.named {
            self.record.follow(&self.dir)?;
        } else {
            self.record.replace(&self.dir)?;
            self.named = true;
        }
        if let Ok(socket) = UnixDatagram::unbound() {
            let _ = socket.set_nonblocking(true);
            let _ = socket.send_to(
                self.record.allocation.to_string().as_bytes(),
                Path::new("../../agent.sock"),
            );
        }
        Ok(())
    }
}

fn children() -> Vec<i32> {
    let me = std::process::id();
    let text = std::fs::read_to_string(format!("/proc/{me}/task/{me}/children")).unwrap_or_default();
    text.split_whitespace()
        .filter_map(|pid| pid.parse().ok())
        .filter(|&pid| pid > 1)
        .collect()
}

fn read_status(status: &mut std::fs::File) -> Option<i32> {
    let mut bytes = [0; 4];
    status.read_exact(&mut bytes).ok()?;
    Some(i32::from_ne_bytes(bytes))
}
