//! The agent for this machine, as a child process: the control plane itself stays without privilege.

use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::Duration;

use sha2::{Digest as _, Sha256};
use tenure_api::secret_text::SecretText;
use tenure_api::token;
use tenure_domain::tenancy::key::Digest;
use tenure_domain::{Actor, Wish};
use tokio::process::{Child, Command};

use super::UpError;
use super::found::wish;
use crate::controller::Controller;
use crate::keyring::random;

/// How long the agent may take to end before it is killed.
const PATIENCE: Duration = Duration::from_secs(20);

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

/// The agent's process.
pub struct LocalAgent {
    child: Child,
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
        Ok(LocalAgent {
            child: command.spawn()?,
        })
    }

    /// Ends the agent. With `jobs_too` what runs is ended as well and goes back to the queue; without, it runs
    /// on and is adopted by the next agent.
    pub async fn stop(mut self, jobs_too: bool) {
        let Some(pid) = self
            .child
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
        if tokio::time::timeout(PATIENCE, self.child.wait()).await.is_err() {
            let _ = self.child.kill().await;
        }
    }
}
