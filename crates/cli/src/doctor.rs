//! `tenure doctor`: looks for what keeps a user from working, from this machine outwards.

use std::path::{Path, PathBuf};
use std::time::Instant;

use clap::Args as ClapArgs;
use serde::Serialize;
use tenure_api::client::{Client, ClientError};
use tenure_domain::schedule::fleet::NodeStatus;

use crate::context::{Context, client_for};
use crate::moment::{length, now};
use crate::output::{Form, Paint};
use crate::profile::{self, Config, Target};
use crate::refusal::{Failure, REFUSED, UNREACHABLE};
use crate::resolve;
use crate::safe::safe;

/// More than this between two clocks makes tokens end early and times read wrong.
const CLOCK_SLACK_MS: u64 = 5_000;

#[derive(Debug, ClapArgs)]
pub struct Args {
    /// Where `tenure up` keeps its data
    #[arg(long, value_name = "DIR")]
    data_dir: Option<PathBuf>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
enum Grade {
    Fine,
    Note,
    Bad,
}

#[derive(Debug, Serialize)]
struct Finding {
    check: &'static str,
    grade: Grade,
    said: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    hint: Option<String>,
}

#[derive(Default)]
struct Findings {
    list: Vec<Finding>,
    exit: u8,
}

impl Findings {
    fn add(&mut self, check: &'static str, grade: Grade, said: impl Into<String>, hint: Option<&str>) {
        self.list.push(Finding {
            check,
            grade,
            said: said.into(),
            hint: hint.map(str::to_owned),
        });
        if grade == Grade::Bad && self.exit == 0 {
            self.exit = 1;
        }
    }

    fn fine(&mut self, check: &'static str, said: impl Into<String>) {
        self.add(check, Grade::Fine, said, None);
    }

    fn bad(&mut self, check: &'static str, said: impl Into<String>, hint: &str, exit: u8) {
        self.add(check, Grade::Bad, said, Some(hint));
        self.exit = exit;
    }
}

pub async fn run(context: &Context, args: Args) -> Result<(), Failure> {
    let mut found = Findings::default();
    if let Some(target) = config(context, &mut found)
        && let Ok(client) = client_for(&target)
        && server(&client, &target, &mut found).await
        && token(&client, &target, &mut found).await
    {
        nodes(&client, &mut found).await;
    }
    data_dir(args.data_dir.or_else(profile::data_dir).as_deref(), &mut found);
    show(context, &found)?;
    if found.exit == 0 {
        Ok(())
    } else {
        Err(Failure::Said(found.exit))
    }
}

fn config(context: &Context, found: &mut Findings) -> Option<Target> {
    let config = match profile::path() {
        None => {
            found.add(
                "config",
                Grade::Note,
                "neither XDG_CONFIG_HOME nor HOME is set",
                Some("without one, logins are not kept"),
            );
            Config::default()
        }
        Some(path) => match Config::load(&path) {
            Err(failure) => {
                found.bad(
                    "config",
                    failure.text(false).trim_end().to_owned(),
                    "put the file right or move it away",
                    failure.exit_code(),
                );
                return None;
            }
            Ok((config, warning)) => {
                let count = config.profiles.len();
                match warning {
                    Some(warning) => found.add("config", Grade::Bad, warning, None),
                    None if count == 0 => found.add(
                        "config",
                        Grade::Note,
                        format!("no profiles in {}", path.display()),
                        Some("`tenure login` makes one"),
                    ),
                    None => found.fine(
                        "config",
                        format!(
                            "{count} profile{} in {}",
                            if count == 1 { "" } else { "s" },
                            path.display()
                        ),
                    ),
                }
                config
            }
        },
    };
    let settled = profile::settle(&config, context.said())
        .and_then(|target| profile::check_server(&target.server).map(|()| target));
    match settled {
        Ok(target) => {
            for note in &target.notes {
                found.add("config", Grade::Note, note.clone(), None);
            }
            Some(target)
        }
        Err(failure) => {
            found.bad(
                "config",
                failure.text(false).lines().next().unwrap_or_default().to_owned(),
                "name a server that can be spoken to",
                failure.exit_code(),
            );
            None
        }
    }
}

async fn server(client: &Client, target: &Target, found: &mut Findings) -> bool {
    let asked = Instant::now();
    match client.health_at().await {
        Ok((health, at)) => {
            let took = asked.elapsed().as_millis() as u64;
            found.fine(
                "server",
                format!(
                    "{} answers in {} ({}, event {})",
                    target.server,
                    length(took),
                    health.role,
                    health.seq
                ),
            );
            let ours = env!("CARGO_PKG_VERSION");
            if health.version == ours {
                found.fine("version", format!("both sides are {ours}"));
            } else {
                found.add(
                    "version",
                    Grade::Note,
                    format!("the server is {}, this command {ours}", health.version),
                    Some("use the same version on both sides"),
                );
            }
            clock(at.as_deref(), took, found);
            true
        }
        Err(error) => {
            let code = if let ClientError::Refused(problem) = &error {
                problem.code.clone()
            } else {
                "unreachable".into()
            };
            let hint = match &error {
                ClientError::Refused(_) => "it is up but not ready; its log says why",
                ClientError::Unreachable { .. } => {
                    "is it running, and is the address right? `tenure up` starts one here"
                }
                ClientError::Unreadable(_) => "is this a Tenure server?",
            };
            let said = Failure::from(error).text(false);
            let said = said
                .lines()
                .next()
                .unwrap_or_default()
                .split_once(": ")
                .map_or(code, |(_, said)| said.to_owned());
            found.bad("server", said, hint, UNREACHABLE);
            false
        }
    }
}

fn clock(date: Option<&str>, took_ms: u64, found: &mut Findings) {
    let Some(server) = date.and_then(|date| jiff::fmt::rfc2822::parse(date).ok()) else {
        return;
    };
    let skew = server.timestamp().as_millisecond().abs_diff(now().0);
    // The server's clock is told in whole seconds, and was read some time during the request.
    if skew > CLOCK_SLACK_MS + took_ms + 1000 {
        found.add(
            "clock",
            Grade::Bad,
            format!("this machine's clock and the server's are {} apart", length(skew)),
            Some("set the clock, or let NTP do so"),
        );
    } else {
        found.fine("clock", "agrees with the server's");
    }
}

async fn token(client: &Client, target: &Target, found: &mut Findings) -> bool {
    if target.token.is_none() {
        found.bad(
            "token",
            format!("there is none for {}", target.server),
            "log in with `tenure login`",
            REFUSED,
        );
        return false;
    }
    match client.whoami().await {
        Ok(me) => {
            found.fine(
                "token",
                format!(
                    "you are {}, with {} role{}",
                    me.user.path,
                    me.grants.len(),
                    if me.grants.len() == 1 { "" } else { "s" }
                ),
            );
            if me.user.suspended {
                found.add(
                    "token",
                    Grade::Bad,
                    "you are suspended",
                    Some("ask the operator who suspended you"),
                );
            }
            true
        }
        Err(error) => {
            let failure = Failure::from(error);
            let exit = failure.exit_code();
            found.bad(
                "token",
                failure.text(false).lines().next().unwrap_or_default().to_owned(),
                "log in again with `tenure login`",
                exit,
            );
            false
        }
    }
}

async fn nodes(client: &Client, found: &mut Findings) {
    match resolve::nodes(client).await {
        Ok(nodes) => {
            let up = nodes.iter().filter(|node| node.status == NodeStatus::Up).count();
            let gpus: usize = nodes.iter().map(|node| node.gpus.len()).sum();
            let said = format!(
                "{up} of {} up, {gpus} GPU{}",
                nodes.len(),
                if gpus == 1 { "" } else { "s" }
            );
            if up == 0 {
                found.add(
                    "nodes",
                    Grade::Note,
                    said,
                    Some("jobs wait until a node is up; `tenure node token` lets one join"),
                );
            } else {
                found.fine("nodes", said);
            }
        }
        // Most users may not see the machines, and need not.
        Err(Failure::Refused(problem)) if problem.status == 403 || problem.status == 404 => {}
        Err(failure) => found.add(
            "nodes",
            Grade::Note,
            failure.text(false).lines().next().unwrap_or_default(),
            None,
        ),
    }
}

fn data_dir(dir: Option<&Path>, found: &mut Findings) {
    let Some(dir) = dir else { return };
    match std::fs::metadata(dir) {
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => {
            found.fine(
                "data",
                format!("{} does not exist; no server was started here", dir.display()),
            );
        }
        Err(error) => found.add("data", Grade::Bad, format!("{}: {error}", dir.display()), None),
        Ok(metadata) if !metadata.is_dir() => found.add(
            "data",
            Grade::Bad,
            format!("{} is not a directory", dir.display()),
            None,
        ),
        Ok(metadata) => {
            let mode = std::os::unix::fs::PermissionsExt::mode(&metadata.permissions()) & 0o777;
            let writable = rustix::fs::access(dir, rustix::fs::Access::WRITE_OK).is_ok();
            if mode & 0o077 != 0 {
                let hint = format!("close it with `chmod 700 {}`", dir.display());
                found.add(
                    "data",
                    Grade::Bad,
                    format!("{} can be read by others (mode {mode:03o})", dir.display()),
                    Some(&hint),
                );
            } else if !writable {
                found.add(
                    "data",
                    Grade::Note,
                    format!("{} is not writable for you", dir.display()),
                    None,
                );
            } else {
                found.fine("data", format!("{} is there and closed to others", dir.display()));
            }
        }
    }
}

fn show(context: &Context, found: &Findings) -> Result<(), Failure> {
    let out = &context.out;
    match out.form {
        Form::Json | Form::Yaml => return out.value(&found.list),
        Form::Name => {
            return out.text(
                &found
                    .list
                    .iter()
                    .filter(|one| one.grade == Grade::Bad)
                    .map(|one| format!("{}\n", one.check))
                    .collect::<String>(),
            );
        }
        Form::Table | Form::Wide => {}
    }
    for one in &found.list {
        let mark = match one.grade {
            Grade::Fine => out.paint(Paint::Good, "✓"),
            Grade::Note => out.paint(Paint::Busy, "!"),
            Grade::Bad => out.paint(Paint::Bad, "✗"),
        };
        out.line(format!("{mark} {:<8} {}", one.check, safe(&one.said)))?;
        if let Some(hint) = &one.hint {
            out.line(format!("           {}", out.paint(Paint::Dim, &safe(hint))))?;
        }
    }
    Ok(())
}
