//! The inner side of the door: the first process of the job's world answers the agent's questions.
//!
//! Whatever is asked for is made by a process of its own, which stands inside all walls already and is confined
//! by the very function that confines the job: there is no second way to be inside.

use std::fs::File;
use std::io::{self, Read};
use std::net::{Ipv4Addr, SocketAddrV4};
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::path::Path;
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, poll};
use rustix::net::{AddressFamily, SocketAddrUnix, SocketFlags, SocketType, sockopt};
use rustix::pipe::{PipeFlags, pipe_with};
use rustix::time::Timespec;
use tenure_api::channel::stream::{Exit, Terminal};

use super::init::{Program, Stdio, World, become_job, confine, fail, start};
use super::tally::Denials;
use super::{children, listener, terminal};
use crate::door::{Answer, NAME, Question};
use crate::kernel;

/// Who knocks speaks at once.
const PATIENCE: Duration = Duration::from_secs(2);
/// How long what is told to hang up has before it is killed.
const HANG_UP: Duration = Duration::from_secs(1);

/// Where the job reads from.
pub(super) enum Input {
    Nothing,
    Pipe(OwnedFd),
    Terminal(OwnedFd),
}

pub(super) struct Door {
    /// None where it could not be made: then the job runs without.
    socket: Option<OwnedFd>,
    signals: OwnedFd,
    input: Input,
    /// Of the job's own filter.
    denials: Denials,
}

impl Door {
    /// Makes the socket in the working directory, which must be the allocation's. The signals must be blocked.
    pub(super) fn new(signals: &[i32]) -> io::Result<Door> {
        let listen = || -> io::Result<OwnedFd> {
            let socket = rustix::net::socket_with(
                AddressFamily::UNIX,
                SocketType::SEQPACKET,
                SocketFlags::CLOEXEC,
                None,
            )?;
            rustix::net::bind(&socket, &SocketAddrUnix::new(NAME)?)?;
            rustix::net::listen(&socket, 64)?;
            Ok(socket)
        };
        Ok(Door {
            socket: listen().ok(),
            signals: kernel::signal_fd(signals)?,
            input: Input::Nothing,
            denials: Denials::Over,
        })
    }

    pub(super) fn set_input(&mut self, input: Input) {
        self.input = input;
    }

    pub(super) fn set_denials(&mut self, denials: Denials) {
        self.denials = denials;
    }

    /// Answers knocks, and denies what the job may not call, until a signal comes.
    pub(super) fn next_signal(&mut self, world: &World<'_>) -> i32 {
        loop {
            let mut fds = vec![PollFd::new(&self.signals, PollFlags::IN)];
            fds.extend(self.denials.poll_fd());
            let denials = fds.len() - 1;
            fds.extend(
                self.socket
                    .as_ref()
                    .map(|socket| PollFd::new(socket, PollFlags::IN)),
            );
            if poll(&mut fds, None).is_err() {
                continue;
            }
            let asked = fds[denials].revents();
            let is_ready = |at: usize| fds.get(at).is_some_and(|fd| !fd.revents().is_empty());
            let ready = [is_ready(0), is_ready(denials + 1)];
            drop(fds);
            if denials > 0 && !asked.is_empty() {
                self.denials.take(asked, world.tally.as_ref());
            }
            if ready[0]
                && let Some(signal) = kernel::read_signal(&self.signals)
            {
                return signal;
            }
            if ready[1]
                && let Some(socket) = &self.socket
                && let Ok(knock) = rustix::net::accept_with(socket, SocketFlags::CLOEXEC)
            {
                self.answer(world, knock);
            }
        }
    }

    fn answer(&mut self, world: &World<'_>, knock: OwnedFd) {
        let _ = sockopt::set_socket_timeout(&knock, sockopt::Timeout::Recv, Some(PATIENCE));
        let mut bytes = Vec::new();
        let Ok(fds) = kernel::receive_fds(&knock, &mut bytes) else {
            return;
        };
        match serde_json::from_slice(&bytes) {
            Ok(Question::Run { command, terminal }) => {
                in_a_process_of_its_own(&knock, |keep| attend(world, keep, &command, terminal, fds));
            }
            Ok(Question::Connect { port }) => {
                in_a_process_of_its_own(&knock, |keep| connect(world, keep, port));
            }
            Ok(Question::Input) => match &self.input {
                Input::Nothing => say(
                    &knock,
                    &Answer::No {
                        why: "the job reads nothing".into(),
                    },
                    None,
                ),
                Input::Pipe(input) => say(&knock, &Answer::Yes { terminal: false }, Some(input)),
                Input::Terminal(input) => say(&knock, &Answer::Yes { terminal: true }, Some(input)),
            },
            Ok(Question::EndInput) => {
                if let Input::Pipe(_) = self.input {
                    self.input = Input::Nothing;
                }
                say(&knock, &Answer::Yes { terminal: false }, None);
            }
            Err(_) => say(
                &knock,
                &Answer::No {
                    why: "the question was not understood".into(),
                },
                None,
            ),
        }
    }
}

fn say(to: &OwnedFd, answer: &Answer, with: Option<&OwnedFd>) {
    let fds: Vec<_> = with.iter().map(|fd| fd.as_fd()).collect();
    if let Ok(bytes) = serde_json::to_vec(answer) {
        let _ = kernel::send_fds(to, &bytes, &fds);
    }
}

fn in_a_process_of_its_own(knock: &OwnedFd, work: impl FnOnce(&OwnedFd) -> io::Result<()>) {
    let no = |error: &io::Error| {
        let why = format!("no process could be started inside the job: {error}");
        say(knock, &Answer::No { why }, None);
    };
    match kernel::fork() {
        Ok(kernel::Forked::Child) => {
            let worked = kernel::die_with_parent()
                .and_then(|()| kernel::become_subreaper())
                .and_then(|()| work(knock));
            if let Err(error) = worked {
                no(&error);
            }
            kernel::exit_now(0)
        }
        Ok(kernel::Forked::Parent(_)) => {}
        Err(error) => no(&error),
    }
}

/// Starts a program inside and stays with it until it ends or nobody wants it any more.
fn attend(
    world: &World<'_>,
    knock: &OwnedFd,
    command: &[String],
    terminal: Option<Terminal>,
    fds: Vec<OwnedFd>,
) -> io::Result<()> {
    // Nothing of the first process's: an end of a pipe held here would never close.
    let mut keep = vec![knock.as_raw_fd()];
    keep.extend(fds.iter().map(AsRawFd::as_raw_fd));
    kernel::close_others(keep);
    let (master, stdio) = match &terminal {
        Some(wanted) => {
            let (master, slave) = terminal::open(wanted.size, world.launch.user_id)?;
            (Some(master), Stdio::terminal(&slave)?)
        }
        None => {
            let mut fds = fds.into_iter();
            let (Some(stdin), Some(stdout), Some(stderr)) = (fds.next(), fds.next(), fds.next()) else {
                return Err(io::Error::other("three descriptors are needed"));
            };
            (
                None,
                Stdio {
                    stdin: Some(stdin),
                    stdout,
                    stderr,
                    terminal: false,
                },
            )
        }
    };
    let (failure, failure_write) = pipe_with(PipeFlags::CLOEXEC)?;
    let name = terminal.as_ref().and_then(|terminal| terminal.name.clone());
    let program = Program {
        command,
        stdio: &stdio,
        terminal: name,
    };
    let (pid, denials) = start(world, |to_init| {
        let why = become_job(world, to_init, &program);
        fail(failure_write.try_clone().ok(), &why)
    })?;
    drop((stdio, failure_write));
    let mut why = String::new();
    File::from(failure).read_to_string(&mut why)?;
    if !why.is_empty() {
        let why = why
            .strip_prefix(super::init::NODE_FAULT)
            .unwrap_or(&why)
            .to_owned();
        say(knock, &Answer::No { why }, None);
        return Ok(());
    }
    say(
        knock,
        &Answer::Yes {
            terminal: master.is_some(),
        },
        master.as_ref(),
    );
    drop(master);
    if let Some(exit) = until_ended(world, knock, pid, denials)? {
        say(knock, &Answer::Ended { exit }, None);
    }
    Ok(())
}

/// Hands over a connection, made as the job would make it.
fn connect(world: &World<'_>, knock: &OwnedFd, port: u16) -> io::Result<()> {
    kernel::close_others(vec![knock.as_raw_fd()]);
    let (pid, denials) = start(world, |to_init| {
        // Who listens is seen from outside the job's own walls alone. It is a port of the job's own loopback either way.
        let connected = connected(port).and_then(|socket| confine(world, to_init).map(|()| socket));
        match connected {
            Ok(socket) => say(knock, &Answer::Yes { terminal: false }, Some(&socket)),
            Err(why) => say(knock, &Answer::No { why }, None),
        }
        kernel::exit_now(0)
    })?;
    until_ended(world, knock, pid, denials)?;
    Ok(())
}

/// A connection to the job's own listener.
fn connected(port: u16) -> Result<OwnedFd, String> {
    let before = listener::own(Path::new("/proc"), port)?;
    let socket = rustix::net::socket_with(
        AddressFamily::INET,
        SocketType::STREAM,
        SocketFlags::CLOEXEC,
        None,
    )
    .map_err(|error| error.to_string())?;
    rustix::net::connect(&socket, &SocketAddrV4::new(Ipv4Addr::LOCALHOST, port)).map_err(
        |error| match error {
            rustix::io::Errno::CONNREFUSED => format!("nothing listens on port {port} in the job"),
            other => format!("port {port} in the job cannot be reached: {other}"),
        },
    )?;
    // The same all the while, so it is who was connected to.
    match listener::own(Path::new("/proc"), port)? == before {
        true => Ok(socket),
        false => Err(format!("who listens on port {port} changed meanwhile")),
    }
}

/// How the process ended; none when nobody was there any more, so it was ended with all it had started.
fn until_ended(
    world: &World<'_>,
    knock: &OwnedFd,
    pid: i32,
    mut denials: Denials,
) -> io::Result<Option<Exit>> {
    let process = kernel::pidfd(pid)?;
    // What it left behind to this process goes to the job's first process when this one ends.
    loop {
        let mut fds = vec![
            PollFd::new(&process, PollFlags::IN),
            PollFd::new(knock, PollFlags::IN),
        ];
        fds.extend(denials.poll_fd());
        match poll(&mut fds, None) {
            Err(rustix::io::Errno::INTR) => continue,
            other => other?,
        };
        let revents: Vec<PollFlags> = fds.iter().map(PollFd::revents).collect();
        drop(fds);
        if let Some(asked) = revents.get(2).filter(|asked| !asked.is_empty()) {
            denials.take(*asked, world.tally.as_ref());
        }
        if !revents[0].is_empty() {
            let status = kernel::reap(pid, true).map_or(0, |(_, status)| status);
            return Ok(Some(if libc::WIFEXITED(status) {
                Exit {
                    code: Some(libc::WEXITSTATUS(status)),
                    signal: None,
                }
            } else {
                Exit {
                    code: None,
                    signal: Some(libc::WTERMSIG(status)),
                }
            }));
        }
        if !revents[1].is_empty() {
            hang_up(pid, &process);
            return Ok(None);
        }
    }
}

/// Ends the process and everything that descends from it.
fn hang_up(pid: i32, process: &OwnedFd) {
    kernel::kill(-pid, libc::SIGHUP);
    let patience = Timespec {
        tv_sec: HANG_UP.as_secs() as i64,
        tv_nsec: 0,
    };
    let _ = poll(&mut [PollFd::new(process, PollFlags::IN)], Some(&patience));
    let deadline = Instant::now() + super::KILL_PATIENCE;
    while Instant::now() < deadline {
        let left = children();
        left.iter().for_each(|&child| kernel::kill(child, libc::SIGKILL));
        while kernel::reap(-1, false).is_some() {}
        if left.is_empty() {
            return;
        }
        std::thread::sleep(Duration::from_millis(1));
    }
}
