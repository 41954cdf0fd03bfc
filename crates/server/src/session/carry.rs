//! Between a WebSocket and a stream: each direction by itself, so that neither waits for the other.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use axum::extract::ws::{Message, WebSocket};
use futures_util::stream::{SplitSink, SplitStream};
use futures_util::{SinkExt, StreamExt};
use tenure_api::channel::LogStream;
use tenure_api::channel::stream::{Exit, Size, Up};
use tenure_api::v1::session::{ClientSays, INPUT, STDERR, STDOUT, ServerSays};
use tenure_domain::id::SessionId;
use tenure_engine::Stream;
use tenure_engine::stream::{Over, StreamReceiver, StreamSender};

use super::Counts;

/// Something is said at least this often, so that nothing in between takes the connection for dead.
const PING: Duration = Duration::from_secs(15);
/// A client that has answered nothing for this long is gone.
const SILENCE: Duration = Duration::from_secs(120);
const LAST_WORDS: Duration = Duration::from_secs(2);
/// A terminal is told its size at most this often; of those said in between, the last one counts.
const RESIZE: Duration = Duration::from_millis(20);

type Sink = SplitSink<WebSocket, Message>;

/// When the client was last heard.
struct Pulse {
    begun: Instant,
    heard_ms: AtomicU64,
    /// What it says waits for the job to read: its silence then says nothing.
    held_up: AtomicBool,
}

impl Pulse {
    fn new() -> Pulse {
        Pulse {
            begun: Instant::now(),
            heard_ms: AtomicU64::new(0),
            held_up: AtomicBool::new(false),
        }
    }

    fn beat(&self) {
        self.heard_ms
            .store(self.begun.elapsed().as_millis() as u64, Ordering::Relaxed);
    }

    fn is_gone(&self) -> bool {
        let heard = Duration::from_millis(self.heard_ms.load(Ordering::Relaxed));
        !self.held_up.load(Ordering::Relaxed) && self.begun.elapsed().saturating_sub(heard) > SILENCE
    }
}

/// Carries bytes until one side ends or `lost` says why it must. How it ended, for the journal.
pub(crate) async fn carry(
    socket: WebSocket,
    stream: Result<Stream, String>,
    session: SessionId,
    counts: &Counts,
    lost: impl Future<Output = String>,
) -> (Option<Exit>, String) {
    let (mut sink, mut source) = socket.split();
    let Stream { sender, receiver } = match stream {
        Ok(stream) => stream,
        Err(why) => {
            farewell(&mut sink, None, &why).await;
            until_heard(&mut source).await;
            return (None, why);
        }
    };
    let pulse = Pulse::new();
    let ended = tokio::select! {
        ended = downward(&mut sink, receiver, session, counts, &pulse) => ended,
        why = upward(&mut source, sender, counts, &pulse) => Err(why),
        why = lost => Err(why),
    };
    let told = match ended {
        Ok((exit, why)) => {
            let said = why.unwrap_or_else(|| match exit {
                Some(_) => "the process ended".to_owned(),
                None => "the other end closed it".to_owned(),
            });
            (exit, said)
        }
        Err(why) => {
            farewell(&mut sink, None, &why).await;
            (None, why)
        }
    };
    until_heard(&mut source).await;
    told
}

/// Waits until the client has heard the last words and closed. A connection dropped while the client still says
/// something, be it the answer to a ping, is reset, and what it has not read yet is lost to it.
async fn until_heard(source: &mut SplitStream<WebSocket>) {
    let closing = async { while let Some(Ok(_)) = source.next().await {} };
    let _ = tokio::time::timeout(LAST_WORDS, closing).await;
}

/// Holds a WebSocket open over which nothing is carried.
pub(super) async fn hold(
    socket: WebSocket,
    session: SessionId,
    lost: impl Future<Output = String>,
) -> String {
    let (mut sink, mut source) = socket.split();
    let opened = ServerSays::Opened {
        session,
        terminal: false,
        input: false,
    };
    if say(&mut sink, &opened).await.is_err() {
        return gone();
    }
    let pulse = Pulse::new();
    let pinging = async {
        let mut ping = tokio::time::interval(PING);
        loop {
            ping.tick().await;
            if pulse.is_gone() || sink.send(Message::Ping(Vec::new().into())).await.is_err() {
                return gone();
            }
        }
    };
    let listening = async {
        while let Some(Ok(message)) = source.next().await {
            pulse.beat();
            if let Message::Close(_) = message {
                break;
            }
        }
        gone()
    };
    let why = tokio::select! {
        why = pinging => why,
        why = listening => why,
        why = lost => why,
    };
    farewell(&mut sink, None, &why).await;
    until_heard(&mut source).await;
    why
}

fn gone() -> String {
    "the client left".to_owned()
}

async fn say(sink: &mut Sink, says: &ServerSays) -> Result<(), axum::Error> {
    let text = serde_json::to_string(says).unwrap_or_default();
    sink.send(Message::Text(text.into())).await
}

async fn farewell(sink: &mut Sink, exit: Option<Exit>, why: &str) {
    let closed = ServerSays::Closed {
        exit_code: exit.and_then(|exit| exit.code),
        signal: exit.and_then(|exit| exit.signal),
        why: Some(why.to_owned()),
    };
    let _ = tokio::time::timeout(LAST_WORDS, async {
        let _ = say(sink, &closed).await;
        let _ = sink.close().await;
    })
    .await;
}

async fn downward(
    sink: &mut Sink,
    mut receiver: StreamReceiver,
    session: SessionId,
    counts: &Counts,
    pulse: &Pulse,
) -> Result<(Option<Exit>, Option<String>), String> {
    let mut ping = tokio::time::interval(PING);
    loop {
        let up = tokio::select! {
            up = receiver.next() => up,
            _ = ping.tick() => {
                if pulse.is_gone() || sink.send(Message::Ping(Vec::new().into())).await.is_err() {
                    return Err(gone());
                }
                continue;
            }
        };
        let sent = match up {
            None => return Err("the connection with the node ended".to_owned()),
            Some(Up::Opened { terminal, input }) => {
                say(
                    sink,
                    &ServerSays::Opened {
                        session,
                        terminal,
                        input,
                    },
                )
                .await
            }
            Some(Up::Data { from, bytes }) => {
                counts.outward.fetch_add(bytes.len() as u64, Ordering::Relaxed);
                let mut message = Vec::with_capacity(bytes.len() + 1);
                message.push(match from {
                    LogStream::Stdout => STDOUT,
                    LogStream::Stderr => STDERR,
                });
                message.extend(bytes);
                sink.send(Message::Binary(message.into())).await
            }
            // Taken where it came in.
            Some(Up::Window { .. }) => Ok(()),
            Some(Up::Closed { exit, why }) => {
                let closed = ServerSays::Closed {
                    exit_code: exit.and_then(|exit| exit.code),
                    signal: exit.and_then(|exit| exit.signal),
                    why: why.clone(),
                };
                let _ = say(sink, &closed).await;
                let _ = tokio::time::timeout(LAST_WORDS, sink.close()).await;
                return Ok((exit, why));
            }
        };
        if sent.is_err() {
            return Err(gone());
        }
    }
}

/// The size a terminal is yet to be told.
struct Sizes {
    wanted: Option<Size>,
    due: tokio::time::Instant,
}

impl Sizes {
    async fn pass(&mut self, sender: &StreamSender) -> Result<(), Over> {
        let Some(size) = self.wanted.take() else {
            return Ok(());
        };
        self.due = tokio::time::Instant::now() + RESIZE;
        sender.resize(size).await
    }
}

async fn upward(
    source: &mut SplitStream<WebSocket>,
    sender: StreamSender,
    counts: &Counts,
    pulse: &Pulse,
) -> String {
    let mut sizes = Sizes {
        wanted: None,
        due: tokio::time::Instant::now(),
    };
    loop {
        let message = tokio::select! {
            () = tokio::time::sleep_until(sizes.due), if sizes.wanted.is_some() => None,
            message = source.next() => match message {
                Some(Ok(message)) => Some(message),
                _ => return gone(),
            },
        };
        let passed = match message {
            None => sizes.pass(&sender).await,
            Some(message) => {
                pulse.beat();
                match heard(message, &sender, &mut sizes, counts, pulse).await {
                    Ok(passed) => passed,
                    Err(why) => return why,
                }
            }
        };
        if passed.is_err() {
            // Its receiver says why; this is only the first to notice.
            std::future::pending::<()>().await;
        }
    }
}

/// Passes one message on; the error is why no more are heard.
async fn heard(
    message: Message,
    sender: &StreamSender,
    sizes: &mut Sizes,
    counts: &Counts,
    pulse: &Pulse,
) -> Result<Result<(), Over>, String> {
    let not_understood = || "the client said what is not of this protocol".to_owned();
    Ok(match message {
        Message::Binary(bytes) => {
            let Some((&INPUT, bytes)) = bytes.split_first() else {
                return Err(not_understood());
            };
            counts.inward.fetch_add(bytes.len() as u64, Ordering::Relaxed);
            pulse.held_up.store(true, Ordering::Relaxed);
            // What is typed after a resize finds the terminal in its new size.
            let passed = match bytes {
                [] => Ok(()),
                bytes => match sizes.pass(sender).await {
                    Ok(()) => sender.send(bytes).await,
                    over => over,
                },
            };
            pulse.held_up.store(false, Ordering::Relaxed);
            pulse.beat();
            passed
        }
        Message::Text(text) => match serde_json::from_str(&text) {
            Ok(ClientSays::End) => sender.end().await,
            Ok(ClientSays::Resize { rows, cols }) => {
                sizes.wanted = Some(Size { rows, cols });
                Ok(())
            }
            Err(_) => return Err(not_understood()),
        },
        Message::Close(_) => return Err(gone()),
        Message::Ping(_) | Message::Pong(_) => Ok(()),
    })
}
