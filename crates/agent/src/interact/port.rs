//! A connection to what listens inside a job.

use std::path::Path;

use rustix::net::{Shutdown, shutdown};
use tenure_api::channel::LogStream;
use tenure_api::channel::stream::Up;
use tokio::sync::watch;

use super::pipe::Pipe;
use super::{End, Gone, Inbox, Input, Outbox};
use crate::door::{Asked, Question};

pub(super) async fn port(dir: &Path, port: u16, mut inbox: Inbox, outbox: &Outbox) -> End {
    let socket = match connect(dir, port).await {
        Ok(socket) => socket,
        Err(why) => return End::because(why),
    };
    let opened = Up::Opened {
        terminal: false,
        input: true,
    };
    if outbox.say(opened).await.is_err() {
        return End::because("nobody is there");
    }
    let (_never, ends) = watch::channel(false);
    tokio::select! {
        _ = socket.copy(LogStream::Stdout, outbox, ends) => End { exit: None, why: None },
        () = feed(&socket, &mut inbox, outbox) => End::because("nobody is there"),
    }
}

async fn connect(dir: &Path, port: u16) -> Result<Pipe, String> {
    let failed = |error: std::io::Error| format!("the job has no way in: {error}");
    let asked = Asked::ask(dir, &Question::Connect { port }, &[])
        .await
        .map_err(failed)?;
    let (_, fds) = asked.granted().await?;
    let socket = fds
        .into_iter()
        .next()
        .ok_or("the job's walls gave no connection")?;
    Pipe::new(socket).map_err(failed)
}

async fn feed(socket: &Pipe, inbox: &mut Inbox, outbox: &Outbox) {
    let mut open = true;
    while let Some(input) = inbox.next().await {
        match input {
            Input::Data(bytes) => {
                if open && let Err(Gone) = socket.write_all(&bytes).await {
                    open = false;
                }
                if inbox.passed_on(&bytes, outbox).await.is_err() {
                    return;
                }
            }
            Input::End => {
                let _ = shutdown(socket, Shutdown::Write);
            }
            Input::Resize(_) => {}
        }
    }
}
