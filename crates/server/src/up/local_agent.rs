//! The agent for this machine, as a child process: the control plane itself stays without privilege.

use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::{Duration, Instant};

use sha2::{Digest as _, Sha256};
use tenure_api::secret_text::SecretText;
use tenure_api::token;
use tenure_domain::tenancy::key::Digest;
use tenure_domain::{Actor, Wish};
use tokio::process::{Child, Command};
use tokio::sync::oneshot;
use tokio::task::JoinHandle;

use super::UpError;
use super::found::wish;
use crate::controller::Controller;
use crate::keyring::random;

/// How long the agent may take to end before it is killed.
const PATIENCE: Duration = Duration::from_secs(20);
/// Between an agent that ended and the next, at first and at most.
const FIRST_PAUSE: Duration = Duration::from_secs(1);
const LONGEST_PAUSE: Duration = Duration::from_secs(30);

fn state_dir(data_dir: &Path) -> PathBuf {
    data_dir.join("agent")
}

/// A ticket for the agent to join with; none where it joined before.
pub async fn ticket(
    controller: &Controller,
    authority: Digest,
    data_dir: &Path,
) -> Result<Option<SecretText>, UpError> {
    if state_dir(data_dir).join("node.crt").exists() {
        return Ok(None);
    }
    let bytes: [u8; 32] = random();
    let expires = crate::controller::now().plus_ms(600_000);
    wish(
        controller,
        Actor::System,
        Wish::CreateJoinToken {
            digest: Digest(Sha256::digest(bytes).into()),
            expires,
            tenant: None,
        },
    )
    .await?;
    Ok(Some(
        token::JoinTicket {
            token: token::write(token::Kind::Join, &bytes),
            authority,
        }
        .write(),
    ))
}

/// The agent's process, started again whenever it ends by itself.
pub struct LocalAgent {
    /// Told to stop, and whether jobs end too.
    stop: oneshot::Sender<bool>,
    kept: JoinHandle<()>,
}

impl LocalAgent {
    /// Starts `tenure-agent`, found beside this program.
    pub fn start(
        server: SocketAddr,
        ticket: Option<SecretText>,
        data_dir: &Path,
    ) -> std::io::Result<LocalAgent> {
        let program = std::env::current_exe()?.with_file_name("tenure-agent");
        if !program.exists() {
            let why = format!(
                "{} is not there; build or install it beside tenure, or use --no-agent",
                program.display()
            );
            return Err(std::io::Error::new(std::io::ErrorKind::NotFound, why));
        }
        let mut command = Command::new(program);
        command
            .arg("run")
            .arg("--server")
            .arg(server.to_string())
            .arg("--state-dir")
            .arg(state_dir(data_dir));
        command.stdin(Stdio::null()).process_group(0).kill_on_drop(false);
        if let Some(ticket) = ticket {
            command.env("TENURE_JOIN_TOKEN", ticket.reveal());
        }
        let child = command.spawn()?;
        let (stop, stopped) = oneshot::channel();
        Ok(LocalAgent {
            stop,
            kept: tokio::spawn(keep(command, child, stopped)),
        })
    }

    /// Ends the agent. With `jobs_too` what runs is ended as well and goes back to the queue; without, it runs
    /// on and is adopted by the next agent.
    pub async fn stop(self, jobs_too: bool) {
        let _ = self.stop.send(jobs_too);
        let _ = self.kept.await;
    }
}

/// Starts the agent again when it ends, more slowly each time it does not last.
async fn keep(mut command: Command, mut child: Child, mut stopped: oneshot::Receiver<bool>) {
    let mut pause = FIRST_PAUSE;
    loop {
        let begun = Instant::now();
        let ended = tokio::select! {
            ended = child.wait() => ended,
            jobs_too = &mut stopped => return end(child, jobs_too.unwrap_or(false)).await,
        };
        if begun.elapsed() > LONGEST_PAUSE {
            pause = FIRST_PAUSE;
        }
        tracing::warn!(
            status = ended.map_or_else(|error| error.to_string(), |status| status.to_string()),
            again_in_s = pause.as_secs(),
            "this machine's agent ended"
        );
        tokio::select! {
            () = tokio::time::sleep(pause) => {}
            _ = &mut stopped => return,
        }
        pause = LONGEST_PAUSE.min(pause * 2);
        child = match command.spawn() {
            Ok(child) => child,
            Err(error) => return tracing::error!(%error, "this machine's agent cannot be started again"),
        };
    }
}

async fn end(mut child: Child, jobs_too: bool) {
    let Some(pid) = child
        .id()
        .and_then(|pid| rustix::process::Pid::from_raw(pid.cast_signed()))
    else {
        return;
    };
    let signal = if jobs_too {
        rustix::process::Signal::INT
    } else {
        rustix::process::Signal::TERM
    };
    let _ = rustix::process::kill_process(pid, signal);
    if tokio::time::timeout(PATIENCE, child.wait()).await.is_err() {
        let _ = child.kill().await;
    }
}
