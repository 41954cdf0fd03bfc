//! At the job itself: what it writes, from its logs as they grow, and its own input where it has one.

use std::path::Path;

use tenure_api::channel::LogStream;
use tenure_api::channel::stream::{Exit, MAX_CHUNK, Up};
use tenure_domain::id::AllocationId;

use super::pipe::Pipe;
use super::{End, Gone, Inbox, Input, Outbox};
use crate::door::{Asked, Question};
use crate::exec::terminal;
use crate::log;
use crate::node::Node;
use crate::record::{Phase, Record};

/// How long a read waits for more; the job's end is seen at once all the same.
const WAIT_MS: u32 = 5_000;

pub(super) async fn attach(
    node: &Node,
    id: AllocationId,
    from_start: bool,
    mut inbox: Inbox,
    outbox: &Outbox,
) -> End {
    let dir = node.dir.allocation(id);
    // Before it is said to be open: what is written after that is not missed.
    let begin = |name: &str| match from_start {
        true => 0,
        false => std::fs::metadata(dir.join(name)).map_or(0, |facts| facts.len()),
    };
    let (out_from, err_from) = (begin("stdout"), begin("stderr"));
    let input = input(&dir).await;
    let has_terminal = input.as_ref().is_some_and(|(_, terminal)| *terminal);
    let opened = Up::Opened {
        terminal: has_terminal,
        input: input.is_some(),
    };
    if outbox.say(opened).await.is_err() {
        return End::because("nobody is there");
    }
    let output = async {
        tokio::join!(
            follow(node, id, LogStream::Stdout, out_from, outbox),
            follow(node, id, LogStream::Stderr, err_from, outbox)
        )
    };
    tokio::select! {
        _ = output => ended(node, id),
        () = feed(&dir, input, &mut inbox, outbox) => End::because("nobody is there"),
    }
}

/// Where the job reads from, and whether it is a terminal; none when it reads nothing.
async fn input(dir: &Path) -> Option<(Pipe, bool)> {
    let asked = Asked::ask(dir, &Question::Input, &[]).await.ok()?;
    let (terminal, fds) = asked.granted().await.ok()?;
    let pipe = Pipe::new(fds.into_iter().next()?).ok()?;
    Some((pipe, terminal))
}

async fn follow(
    node: &Node,
    id: AllocationId,
    stream: LogStream,
    mut offset: u64,
    outbox: &Outbox,
) -> Result<(), Gone> {
    loop {
        let Ok(chunk) = log::read(node, id, stream, offset, MAX_CHUNK as u32, WAIT_MS).await else {
            return Ok(());
        };
        offset = chunk.offset + chunk.bytes.len() as u64;
        outbox.data(stream, &chunk.bytes).await?;
        if chunk.end {
            return Ok(());
        }
    }
}

/// How the job ended, as far as this node knows it.
fn ended(node: &Node, id: AllocationId) -> End {
    let record = node
        .table
        .get(id)
        .or_else(|| Record::read(&node.dir.released_allocation(id)).ok().flatten());
    match record.map(|record| record.phase) {
        Some(Phase::Exited {
            exit_code,
            signal,
            by,
            ..
        }) => End {
            exit: Some(Exit {
                code: exit_code,
                signal,
            }),
            why: by.map(|_| "the job was stopped".to_owned()),
        },
        _ => End::because("the job ended"),
    }
}

/// Passes input on until nobody is there any more.
async fn feed(dir: &Path, mut input: Option<(Pipe, bool)>, inbox: &mut Inbox, outbox: &Outbox) {
    while let Some(said) = inbox.next().await {
        match (said, &input) {
            (Input::Data(bytes), open) => {
                if let Some((pipe, _)) = open
                    && let Err(Gone) = pipe.write_all(&bytes).await
                {
                    input = None;
                }
                if inbox.passed_on(&bytes, outbox).await.is_err() {
                    return;
                }
            }
            (Input::Resize(size), Some((pipe, true))) => {
                let _ = terminal::resize(pipe.owned(), size);
            }
            (Input::End, Some((_, false))) => {
                input = None;
                if let Ok(asked) = Asked::ask(dir, &Question::EndInput, &[]).await {
                    let _ = asked.granted().await;
                }
            }
            _ => {}
        }
    }
}
