//! A new process inside a running job, and its standard streams.

use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::path::Path;

use rustix::pipe::{PipeFlags, pipe_with};
use tenure_api::channel::LogStream;
use tenure_api::channel::stream::{Terminal, Up};
use tokio::sync::watch;

use super::pipe::Pipe;
use super::{End, Gone, Inbox, Input, Outbox};
use crate::door::{Answer, Asked, Question};
use crate::exec::terminal;

/// Our ends of the process's streams.
struct Ends {
    stdin: Pipe,
    stdout: Pipe,
    stderr: Option<Pipe>,
}

pub(super) async fn exec(
    dir: &Path,
    command: Vec<String>,
    terminal: Option<Terminal>,
    mut inbox: Inbox,
    outbox: &Outbox,
) -> End {
    let has_terminal = terminal.is_some();
    let (asked, ends) = match begin(dir, Question::Run { command, terminal }).await {
        Ok(begun) => begun,
        Err(why) => return End::because(why),
    };
    let opened = Up::Opened {
        terminal: has_terminal,
        input: true,
    };
    if outbox.say(opened).await.is_err() {
        return End::because("nobody is there");
    }
    let Ends {
        stdin,
        stdout,
        stderr,
    } = ends;
    let (end, ended) = watch::channel(false);
    let output = async {
        let errors = async {
            match &stderr {
                Some(stderr) => stderr.copy(LogStream::Stderr, outbox, ended.clone()).await,
                None => Ok(0),
            }
        };
        tokio::join!(stdout.copy(LogStream::Stdout, outbox, ended.clone()), errors)
    };
    let process = async {
        let exit = match asked.answer().await {
            Ok(Some((Answer::Ended { exit }, _))) => Some(exit),
            // Its world went, and it with it.
            _ => None,
        };
        end.send_replace(true);
        exit
    };
    let ends = async { tokio::join!(process, output).0 };
    tokio::select! {
        exit = ends => match exit {
            Some(exit) => End { exit: Some(exit), why: None },
            None => End::because("the job ended"),
        },
        // Dropping what was asked ends the process.
        () = feed(stdin, has_terminal, &mut inbox, outbox) => End::because("nobody is there"),
    }
}

/// Asks for the process; its own ends of the pipes are closed here once it has them.
async fn begin(dir: &Path, question: Question) -> Result<(Asked, Ends), String> {
    let failed = |error: io::Error| format!("the job has no way in: {error}");
    if matches!(
        &question,
        Question::Run {
            terminal: Some(_),
            ..
        }
    ) {
        let asked = Asked::ask(dir, &question, &[]).await.map_err(failed)?;
        let (_, fds) = asked.granted().await?;
        let ours = fds.into_iter().next().ok_or("the job's walls gave no terminal")?;
        let ours = Pipe::new(ours).map_err(failed)?;
        let ends = Ends {
            stdin: ours.clone(),
            stdout: ours,
            stderr: None,
        };
        return Ok((asked, ends));
    }
    let make = || -> io::Result<(Ends, [OwnedFd; 3])> {
        let (their_in, stdin) = pipe_with(PipeFlags::CLOEXEC)?;
        let (stdout, their_out) = pipe_with(PipeFlags::CLOEXEC)?;
        let (stderr, their_err) = pipe_with(PipeFlags::CLOEXEC)?;
        let ends = Ends {
            stdin: Pipe::new(stdin)?,
            stdout: Pipe::new(stdout)?,
            stderr: Some(Pipe::new(stderr)?),
        };
        Ok((ends, [their_in, their_out, their_err]))
    };
    let (ends, theirs) = make().map_err(failed)?;
    let asked = Asked::ask(dir, &question, &theirs.each_ref().map(AsFd::as_fd))
        .await
        .map_err(failed)?;
    drop(theirs);
    asked.granted().await?;
    Ok((asked, ends))
}

/// Passes input on until nobody is there any more.
async fn feed(stdin: Pipe, has_terminal: bool, inbox: &mut Inbox, outbox: &Outbox) {
    let mut stdin = Some(stdin);
    while let Some(input) = inbox.next().await {
        match input {
            Input::Data(bytes) => {
                if let Some(pipe) = &stdin
                    && let Err(Gone) = pipe.write_all(&bytes).await
                {
                    stdin = None;
                }
                if inbox.passed_on(&bytes, outbox).await.is_err() {
                    return;
                }
            }
            // A terminal's end is a character, which people type themselves.
            Input::End if has_terminal => {}
            Input::End => stdin = None,
            Input::Resize(size) => {
                if let Some(pipe) = stdin.as_ref().filter(|_| has_terminal) {
                    let _ = terminal::resize(pipe.owned(), size);
                }
            }
        }
    }
}
