//! The hub's end of one node's connection: what waits to be sent, and who waits for an answer.

use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use tenure_api::channel::stream::{Down, MAX_PER_ALLOCATION, MAX_PER_NODE, Target, Up};
use tenure_api::channel::{FromServer, LogChunk};
use tenure_domain::id::{AllocationId, NodeId};
use tokio::sync::{mpsc, oneshot, watch};

use crate::stream::{Far, stream};
use crate::{EngineError, Stream};

const MAX_QUEUED: usize = 1024;
/// Questions of one kind that wait for their answers.
const MAX_ASKED: usize = 256;
/// Frames of streams ahead of the connection; more wait, each stream in its turn.
const MAX_BULK: usize = 16;
const WRITE_PATIENCE: Duration = Duration::from_secs(15);

/// What is said to the agent next.
pub(super) enum Outgoing {
    Message(FromServer, Option<oneshot::Sender<()>>),
    /// The last words; the connection closes after them.
    Last(Bye),
}

/// Why a conversation ends: a stable code and a sentence.
#[derive(Debug, Clone)]
pub(super) struct Bye {
    pub code: &'static str,
    pub detail: String,
}

impl Bye {
    pub(super) fn new(code: &'static str, detail: impl Into<String>) -> Self {
        Bye {
            code,
            detail: detail.into(),
        }
    }

    pub(super) fn message(&self) -> FromServer {
        FromServer::Bye {
            code: self.code.to_owned(),
            detail: self.detail.clone(),
        }
    }
}

/// Who waits for an answer, by the number of the question, and what was asked.
type Asked<Q, A> = Mutex<HashMap<u64, (Q, Answer<A>)>>;
type Answer<A> = oneshot::Sender<Result<A, String>>;

pub(super) struct Link {
    pub boot_id: String,
    node: NodeId,
    queue: mpsc::Sender<Outgoing>,
    bulk: mpsc::Sender<(u64, Down)>,
    /// The node has said all it holds; only now may it be told to do more.
    ready: AtomicBool,
    cut: watch::Sender<Option<Bye>>,
    ended: watch::Sender<bool>,
    next_request: AtomicU64,
    logs: Asked<u32, LogChunk>,
    resizes: Asked<(), ()>,
    streams: Mutex<HashMap<u64, (AllocationId, Far)>>,
}

/// What waits for the connection: orders first, the bytes of streams where nothing else does.
pub(super) struct Queued {
    orders: mpsc::Receiver<Outgoing>,
    bulk: mpsc::Receiver<(u64, Down)>,
}

impl Queued {
    pub(super) async fn next(&mut self) -> Option<Outgoing> {
        tokio::select! {
            biased;
            order = self.orders.recv() => order,
            Some((stream, says)) = self.bulk.recv() => {
                Some(Outgoing::Message(FromServer::Stream { stream, says }, None))
            }
        }
    }
}

impl Link {
    pub(super) fn new(node: NodeId, boot_id: String) -> (Self, Queued) {
        let (queue, orders) = mpsc::channel(MAX_QUEUED);
        let (bulk, bulk_queued) = mpsc::channel(MAX_BULK);
        let link = Link {
            boot_id,
            node,
            queue,
            bulk,
            ready: AtomicBool::new(false),
            cut: watch::Sender::new(None),
            ended: watch::Sender::new(false),
            next_request: AtomicU64::new(1),
            logs: Mutex::default(),
            resizes: Mutex::default(),
            streams: Mutex::default(),
        };
        let queued = Queued {
            orders,
            bulk: bulk_queued,
        };
        (link, queued)
    }

    pub(super) fn set_ready(&self) {
        self.ready.store(true, Ordering::Release);
    }

    pub(super) fn is_ready(&self) -> bool {
        self.ready.load(Ordering::Acquire)
    }

    /// Ends the conversation from outside. The first reason stays.
    pub(super) fn cut(&self, bye: Bye) {
        self.cut.send_if_modified(|cut| {
            let first = cut.is_none();
            if first {
                *cut = Some(bye);
            }
            first
        });
    }

    pub(super) async fn when_cut(&self) -> Bye {
        let mut cut = self.cut.subscribe();
        match cut.wait_for(Option::is_some).await {
            Ok(bye) => bye
                .clone()
                .unwrap_or_else(|| Bye::new("closing", "the server ends the conversation")),
            Err(_) => Bye::new("closing", "the server ends the conversation"),
        }
    }

    pub(super) fn set_ended(&self) {
        self.ended.send_replace(true);
        self.logs.lock().unwrap_or_else(PoisonError::into_inner).clear();
        self.resizes
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .clear();
        self.streams
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .clear();
    }

    pub(super) async fn when_ended(&self) {
        let _ = self.ended.subscribe().wait_for(|ended| *ended).await;
    }

    /// For the conversation itself: waits for room.
    pub(super) async fn say(&self, outgoing: Outgoing) {
        let _ = self.queue.send(outgoing).await;
    }

    /// An order from outside: returns once the connection took it.
    pub(super) async fn order(&self, message: FromServer) -> Result<(), EngineError> {
        if !self.is_ready() || *self.ended.borrow() {
            return Err(EngineError::NotConnected(self.node));
        }
        let (written, was_written) = oneshot::channel();
        self.queue
            .try_send(Outgoing::Message(message, Some(written)))
            .map_err(|error| match error {
                mpsc::error::TrySendError::Full(_) => EngineError::Busy(self.node),
                mpsc::error::TrySendError::Closed(_) => EngineError::NotConnected(self.node),
            })?;
        match tokio::time::timeout(WRITE_PATIENCE, was_written).await {
            Ok(Ok(())) => Ok(()),
            _ => Err(EngineError::NotConnected(self.node)),
        }
    }

    /// Asks a question; `message` is given its number.
    async fn ask<Q, A>(
        &self,
        waiting: &Asked<Q, A>,
        question: Q,
        patience: Duration,
        message: impl FnOnce(u64) -> FromServer,
    ) -> Result<A, EngineError> {
        let request = self.next_request.fetch_add(1, Ordering::Relaxed);
        let (answer, answered) = oneshot::channel();
        {
            let mut waiting = waiting.lock().unwrap_or_else(PoisonError::into_inner);
            waiting.retain(|_, (_, answer)| !answer.is_closed());
            if waiting.len() >= MAX_ASKED {
                return Err(EngineError::Busy(self.node));
            }
            waiting.insert(request, (question, answer));
        }
        self.order(message(request)).await?;
        match tokio::time::timeout(patience, answered).await {
            Ok(Ok(Ok(answer))) => Ok(answer),
            Ok(Ok(Err(why))) => Err(EngineError::Refused { why }),
            _ => Err(EngineError::NotConnected(self.node)),
        }
    }

    /// Who waits for an answer. One nobody waits for any more is dropped.
    fn asked<Q, A>(&self, waiting: &Asked<Q, A>, request: u64) -> Result<Option<(Q, Answer<A>)>, Bye> {
        let asked = waiting
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .remove(&request);
        // Its asker may have given up; but a number never given out is an invention.
        let given = request > 0 && request < self.next_request.load(Ordering::Relaxed);
        if asked.is_some() || given {
            Ok(asked)
        } else {
            Err(Bye::new("unexpected", "an answer to a question never asked"))
        }
    }

    pub(super) async fn read_log(
        &self,
        max: u32,
        wait_ms: u32,
        message: impl FnOnce(u64) -> FromServer,
    ) -> Result<LogChunk, EngineError> {
        let patience = Duration::from_millis(wait_ms.into()) + WRITE_PATIENCE;
        self.ask(&self.logs, max, patience, message).await
    }

    /// Takes a log answer; one longer than asked is not taken.
    pub(super) fn answer_log(&self, request: u64, chunk: Result<LogChunk, String>) -> Result<(), Bye> {
        let Some((max, answer)) = self.asked(&self.logs, request)? else {
            return Ok(());
        };
        if chunk.as_ref().is_ok_and(|chunk| chunk.bytes.len() > max as usize) {
            return Err(Bye::new("invalid_log", "more of a log than was asked for"));
        }
        let _ = answer.send(chunk);
        Ok(())
    }

    pub(super) async fn try_resize(
        &self,
        message: impl FnOnce(u64) -> FromServer,
    ) -> Result<(), EngineError> {
        self.ask(&self.resizes, (), WRITE_PATIENCE, message).await
    }

    pub(super) fn answer_resize(&self, request: u64, done: Result<(), String>) -> Result<(), Bye> {
        if done.as_ref().is_err_and(|why| why.len() > 2000) {
            return Err(Bye::new("invalid_resized", "a reason longer than anybody reads"));
        }
        if let Some(((), answer)) = self.asked(&self.resizes, request)? {
            let _ = answer.send(done);
        }
        Ok(())
    }

    /// Opens a stream to an allocation of the node.
    pub(super) async fn open(&self, allocation: AllocationId, target: Target) -> Result<Stream, EngineError> {
        let number = self.next_request.fetch_add(1, Ordering::Relaxed);
        let (stream, far) = stream(number, self.bulk.clone());
        {
            let mut streams = self.streams.lock().unwrap_or_else(PoisonError::into_inner);
            streams.retain(|_, (_, far)| !far.is_left());
            let of_allocation = streams.values().filter(|(of, _)| *of == allocation).count();
            if of_allocation >= MAX_PER_ALLOCATION {
                return Err(EngineError::Refused {
                    why: format!("the job has {MAX_PER_ALLOCATION} streams open already; close some"),
                });
            }
            if streams.len() >= MAX_PER_NODE {
                return Err(EngineError::Busy(self.node));
            }
            streams.insert(number, (allocation, far));
        }
        let says = Down::Open { allocation, target };
        let opened = self.order(FromServer::Stream { stream: number, says }).await;
        if let Err(error) = opened {
            let mut streams = self.streams.lock().unwrap_or_else(PoisonError::into_inner);
            streams.remove(&number);
            return Err(error);
        }
        Ok(stream)
    }

    /// Takes what the node says of a stream. One that was left is not listened to any more.
    pub(super) fn heard(&self, number: u64, says: Up) -> Result<(), Bye> {
        let closed = matches!(says, Up::Closed { .. });
        let mut streams = self.streams.lock().unwrap_or_else(PoisonError::into_inner);
        let Some((_, far)) = streams.get(&number) else {
            let given = number > 0 && number < self.next_request.load(Ordering::Relaxed);
            return if given {
                Ok(())
            } else {
                Err(Bye::new("unexpected", "a stream that was never opened"))
            };
        };
        far.take(says).map_err(|what| Bye::new("invalid_stream", what))?;
        if closed {
            streams.remove(&number);
        }
        Ok(())
    }
}
