//! People at running jobs: the streams of one connection with the server.
//!
//! Each stream is a task of its own, with a bounded window each way; whatever ends the connection ends them all,
//! and what they had started inside their jobs, while the jobs go on. Deliberately absent: who may (the server
//! asked `domain` before) and how one gets inside (`door.rs`).

mod attach;
mod exec;
mod inlet;
mod pipe;
mod port;

use std::collections::HashMap;
use std::sync::Arc;

use tenure_api::channel::stream::{
    Down, Exit, MAX_CHUNK, MAX_COMMAND_BYTES, MAX_PER_ALLOCATION, MAX_PER_NODE, Target, Terminal, Up, WINDOW,
    cost,
};
use tenure_api::channel::{FromAgent, LogStream};
use tenure_domain::id::AllocationId;
use tokio::sync::{Semaphore, mpsc};

use crate::node::Node;
use crate::record::Phase;
use inlet::{Inbox, Inlet, Input, inlet};

/// All streams of one connection.
pub(crate) struct Streams {
    node: Arc<Node>,
    to_session: mpsc::Sender<FromAgent>,
    open: HashMap<u64, Open>,
}

struct Open {
    allocation: AllocationId,
    inlet: Inlet,
    credit: Arc<Semaphore>,
}

/// Nobody is there any more.
struct Gone;

/// How a stream ended.
struct End {
    exit: Option<Exit>,
    why: Option<String>,
}

impl End {
    fn because(why: impl Into<String>) -> End {
        End {
            exit: None,
            why: Some(why.into()),
        }
    }
}

impl Streams {
    pub(crate) fn new(node: Arc<Node>, to_session: mpsc::Sender<FromAgent>) -> Streams {
        Streams {
            node,
            to_session,
            open: HashMap::new(),
        }
    }

    /// Takes what the server says of a stream. Never waits: what is under way is bounded by the windows.
    pub(crate) fn take(&mut self, stream: u64, says: Down) {
        match says {
            Down::Open { allocation, target } => self.open(stream, allocation, target),
            Down::Close => drop(self.open.remove(&stream)),
            Down::Window { credit } => {
                if let Some(open) = self.open.get(&stream)
                    && open.credit.available_permits() + credit as usize <= WINDOW as usize
                {
                    open.credit.add_permits(credit as usize);
                }
            }
            Down::Data { bytes } => self.pass(stream, Input::Data(bytes)),
            Down::End => self.pass(stream, Input::End),
            Down::Resize { size } => self.pass(stream, Input::Resize(size)),
        }
    }

    fn pass(&mut self, stream: u64, input: Input) {
        if let Some(open) = self.open.get_mut(&stream)
            && open.inlet.take(input).is_err()
        {
            self.open.remove(&stream);
        }
    }

    fn open(&mut self, stream: u64, allocation: AllocationId, target: Target) {
        self.open.retain(|_, open| !open.inlet.is_left());
        let of_allocation = self
            .open
            .values()
            .filter(|open| open.allocation == allocation)
            .count();
        let objection = if of_allocation >= MAX_PER_ALLOCATION {
            Some(format!(
                "the job has {MAX_PER_ALLOCATION} streams open already; close some"
            ))
        } else if self.open.len() >= MAX_PER_NODE {
            Some(format!(
                "the node has {MAX_PER_NODE} streams open already; try again later"
            ))
        } else {
            objection(&target)
        };
        let credit = Arc::new(Semaphore::new(WINDOW as usize));
        let outbox = Outbox {
            stream,
            to_session: self.to_session.clone(),
            credit: credit.clone(),
        };
        if let Some(why) = objection {
            tokio::spawn(async move { outbox.close(End::because(why)).await });
            return;
        }
        let (inlet, inbox) = inlet();
        self.open.insert(
            stream,
            Open {
                allocation,
                inlet,
                credit,
            },
        );
        let node = self.node.clone();
        tokio::spawn(async move {
            let end = carry(&node, allocation, target, inbox, &outbox).await;
            outbox.close(end).await;
        });
    }
}

async fn carry(node: &Node, id: AllocationId, target: Target, inbox: Inbox, outbox: &Outbox) -> End {
    let runs = node
        .table
        .get(id)
        .is_some_and(|record| matches!(record.phase, Phase::Running { .. }));
    if !runs {
        return End::because("the job does not run here");
    }
    let dir = node.dir.allocation(id);
    match target {
        Target::Attach { from_start } => attach::attach(node, id, from_start, inbox, outbox).await,
        Target::Exec { command, terminal } => exec::exec(&dir, command, terminal, inbox, outbox).await,
        Target::Port { port } => port::port(&dir, port, inbox, outbox).await,
    }
}

/// What can never be done.
fn objection(target: &Target) -> Option<String> {
    match target {
        Target::Exec { command, terminal } => {
            let length: usize = command.iter().map(|part| part.len() + 1).sum();
            if command.first().is_none_or(String::is_empty) {
                Some("there is no command".to_owned())
            } else if length > MAX_COMMAND_BYTES {
                Some(format!("the command is longer than {MAX_COMMAND_BYTES} bytes"))
            } else if terminal
                .as_ref()
                .and_then(|terminal| terminal.name.as_deref())
                .is_some_and(|name| !Terminal::is_name(name))
            {
                Some("the terminal's name is none".to_owned())
            } else {
                None
            }
        }
        Target::Port { port: 0 } => Some("a port is 1 to 65535".to_owned()),
        _ => None,
    }
}

/// What goes to the person.
struct Outbox {
    stream: u64,
    to_session: mpsc::Sender<FromAgent>,
    credit: Arc<Semaphore>,
}

impl Outbox {
    async fn say(&self, says: Up) -> Result<(), Gone> {
        let message = FromAgent::Stream {
            stream: self.stream,
            says,
        };
        self.to_session.send(message).await.map_err(|_| Gone)
    }

    /// Sends bytes, as fast as the other end takes them.
    async fn data(&self, from: LogStream, bytes: &[u8]) -> Result<(), Gone> {
        for piece in bytes.chunks(MAX_CHUNK) {
            let permit = self.credit.acquire_many(cost(piece)).await.map_err(|_| Gone)?;
            permit.forget();
            let bytes = piece.to_vec();
            self.say(Up::Data { from, bytes }).await?;
        }
        Ok(())
    }

    async fn close(&self, end: End) {
        let End { exit, why } = end;
        let _ = self.say(Up::Closed { exit, why }).await;
    }
}

impl Inbox {
    /// The bytes were passed on, or nobody wants them: the other end hears that there is room for more.
    async fn passed_on(&self, bytes: &[u8], outbox: &Outbox) -> Result<(), Gone> {
        let credit = cost(bytes);
        self.give_back(credit);
        outbox.say(Up::Window { credit }).await
    }
}
