//! One connection, from hello to its end.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use tenure_api::channel::frame::{FrameError, FrameReader, FrameWriter};
use tenure_api::channel::reading::MAX_DEVICES;
use tenure_api::channel::{FromAgent, FromServer, Reader};
use tenure_domain::id::VolumeId;
use tenure_domain::schedule::fleet::Inventory;
use tokio::io::WriteHalf;
use tokio::sync::{Semaphore, mpsc, watch};
use tokio::time::{Instant, MissedTickBehavior, interval, timeout};

use super::{ChannelConfig, Stream};
use crate::identity::Identity;
use crate::interact::Streams;
use crate::lease::Lease;
use crate::node::{Node, Wish};
use crate::scrub::Taker;
use crate::{clock, log};

const WRITE_PATIENCE: Duration = Duration::from_secs(10);
const WELCOME_PATIENCE: Duration = Duration::from_secs(10);
const LOG_READS: usize = 128;
/// How often readings are sent, and how long the last message may have taken for them to be.
const READINGS_EVERY: Duration = Duration::from_secs(2);
const SLOW: Duration = Duration::from_millis(250);
/// Frames of streams that wait for the connection; it is shared with heartbeats, so they are few.
const STREAM_FRAMES: usize = 8;

/// Reports in one frame: each may carry a record of some kilobytes.
const AT_ONCE: usize = 400;

/// Why a connection ended.
pub(super) enum End {
    /// Never was one, or it broke at once.
    Broken(String),
    Closed(String),
    Refused {
        code: String,
        detail: String,
    },
    /// The node has a new key and must show it.
    Rotated,
}

/// One thread does what the server wishes, in order. An agent whose thread broke would hold its node's lease and do
/// nothing: it ends instead, what runs goes on, and the next agent takes it over.
pub(super) fn grant_in_order(node: Arc<Node>) -> mpsc::Sender<Wish> {
    struct EndWithIt;
    impl Drop for EndWithIt {
        fn drop(&mut self) {
            if std::thread::panicking() {
                std::process::abort();
            }
        }
    }
    let (wishes, mut wished) = mpsc::channel::<Wish>(4096);
    std::thread::spawn(move || {
        let _end = EndWithIt;
        while let Some(wish) = wished.blocking_recv() {
            let subject = wish.subject();
            if let Err(error) = node.grant(wish) {
                tracing::error!(subject, %error, "a wish could not be granted");
            }
        }
    });
    wishes
}

struct Session<'a> {
    node: &'a Arc<Node>,
    identity: &'a Identity,
    wishes: &'a mpsc::Sender<Wish>,
    writer: FrameWriter<WriteHalf<Stream>>,
    log_reads: Arc<Semaphore>,
    logs: mpsc::Sender<FromAgent>,
    streams: Streams,
    last_lease: Instant,
    /// The last message took long: what can be left out is.
    slow: bool,
}

pub(super) async fn hold(
    node: &Arc<Node>,
    identity: &Identity,
    config: &ChannelConfig,
    mut inventory: watch::Receiver<Inventory>,
    wishes: &mpsc::Sender<Wish>,
    stream: Stream,
) -> End {
    let (read, write) = tokio::io::split(stream);
    let (logs, mut log_answers) = mpsc::channel(LOG_READS);
    let (to_session, mut stream_frames) = mpsc::channel(STREAM_FRAMES);
    let mut session = Session {
        node,
        identity,
        wishes,
        writer: FrameWriter::new(write),
        log_reads: Arc::new(Semaphore::new(LOG_READS)),
        logs,
        streams: Streams::new(node.clone(), to_session),
        last_lease: Instant::now(),
        slow: false,
    };
    let mut incoming = listen(FrameReader::new(read, Reader::default()));
    let term = match session.open(&mut incoming, &mut inventory).await {
        Ok(term) => term,
        Err(end) => return end,
    };
    let mut heartbeat = interval(term / 3);
    let mut meter = interval(config.meter_every);
    for ticks in [&mut heartbeat, &mut meter] {
        ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        ticks.reset();
    }
    let mut readings = interval(READINGS_EVERY);
    readings.set_missed_tick_behavior(MissedTickBehavior::Skip);
    let mut asked_to_rotate = false;
    let mut receipts = node.scrubs.receipts.subscribe();
    loop {
        let step = tokio::select! {
            message = incoming.recv() => match message {
                Some(Ok(message)) => session.take(message).await,
                Some(Err(error)) => Err(End::Closed(error.to_string())),
                None => Err(End::Closed("the server closed it".into())),
            },
            _ = heartbeat.tick() => {
                if session.last_lease.elapsed() > term {
                    Err(End::Closed("the server answers no heartbeats".into()))
                } else {
                    if !asked_to_rotate && identity.age() > config.rotate_after {
                        asked_to_rotate = true;
                        if let Err(end) = session.ask_to_rotate().await {
                            return end;
                        }
                    }
                    session.beat().await
                }
            }
            _ = meter.tick() => session.report(true).await,
            _ = readings.tick() => session.tell_readings().await,
            () = node.table.changed() => session.report(false).await,
            erased = node.erased_volumes() => session.tell_erased(erased).await,
            Ok(()) = receipts.changed() => session.tell_receipts().await,
            Ok(()) = inventory.changed() => {
                let inventory = inventory.borrow_and_update().clone();
                session.send(FromAgent::Inventory { inventory }).await
            }
            Some(answer) = log_answers.recv() => session.send(answer).await,
            Some(frame) = stream_frames.recv() => session.send(frame).await,
        };
        if let Err(end) = step {
            return end;
        }
    }
}

/// Reads in a task of its own: a frame half read must not be dropped because something else happened.
fn listen(
    mut reader: FrameReader<tokio::io::ReadHalf<Stream>>,
) -> mpsc::Receiver<Result<FromServer, FrameError>> {
    let (sender, receiver) = mpsc::channel(64);
    tokio::spawn(async move {
        loop {
            let message = tokio::select! {
                message = reader.next() => message,
                () = sender.closed() => return,
            };
            let ended = message.is_err();
            if sender.send(message).await.is_err() || ended {
                return;
            }
        }
    });
    receiver
}

impl Session<'_> {
    /// Says who, what and everything that is here; the server's welcome says how long a lease is.
    async fn open(
        &mut self,
        incoming: &mut mpsc::Receiver<Result<FromServer, FrameError>>,
        inventory: &mut watch::Receiver<Inventory>,
    ) -> Result<Duration, End> {
        let hello = FromAgent::Hello {
            agent_version: env!("CARGO_PKG_VERSION").to_owned(),
            boot_id: clock::boot_id(),
            uptime_ms: clock::boottime_ms(),
        };
        self.send(hello).await.map_err(broken)?;
        let welcome = timeout(WELCOME_PATIENCE, incoming.recv()).await;
        let term_ms = match welcome {
            Ok(Some(Ok(FromServer::Welcome { term_ms, .. }))) => term_ms,
            Ok(Some(Ok(FromServer::Bye { code, detail }))) => return Err(End::Refused { code, detail }),
            Ok(Some(Err(error))) => return Err(End::Broken(error.to_string())),
            _ => return Err(End::Broken("no welcome".into())),
        };
        // The lease before the report: once all is reported the server may give more to do.
        self.beat().await?;
        let inventory = inventory.borrow_and_update().clone();
        self.send(FromAgent::Inventory { inventory }).await?;
        let mut whole = self.node.table.whole();
        self.node.add_usage(&mut whole);
        self.node.add_conduct(&mut whole, self.identity);
        for start in self.node.starts(&whole) {
            self.send(start).await?;
        }
        let mut parts = whole.chunks(AT_ONCE).peekable();
        loop {
            let allocations = parts.next().unwrap_or_default().to_vec();
            let more = parts.peek().is_some();
            self.send(FromAgent::Report {
                whole: true,
                more,
                allocations,
            })
            .await?;
            if !more {
                break;
            }
        }
        tracing::info!(allocations = whole.len(), "connected");
        Ok(Duration::from_millis(term_ms.clamp(100, 24 * 3_600_000)))
    }

    async fn send(&mut self, message: FromAgent) -> Result<(), End> {
        let begun = Instant::now();
        let sent = timeout(WRITE_PATIENCE, self.writer.send(&message)).await;
        self.slow = begun.elapsed() > SLOW;
        match sent {
            Ok(Ok(())) => Ok(()),
            Ok(Err(error)) => Err(End::Closed(error.to_string())),
            Err(_) => Err(End::Closed("the server takes nothing".into())),
        }
    }

    async fn beat(&mut self) -> Result<(), End> {
        self.send(FromAgent::Heartbeat {
            sent_ms: clock::boottime_ms(),
        })
        .await
    }

    async fn report(&mut self, running: bool) -> Result<(), End> {
        let mut untold = self.node.table.untold(running);
        self.node.add_usage(&mut untold);
        self.node.add_conduct(&mut untold, self.identity);
        for start in self.node.starts(&untold) {
            self.send(start).await?;
        }
        for allocations in untold.chunks(AT_ONCE) {
            self.send(FromAgent::Report {
                whole: false,
                more: false,
                allocations: allocations.to_vec(),
            })
            .await?;
        }
        Ok(())
    }

    /// Lost with the connection, it is asked for again.
    async fn tell_erased(&mut self, erased: BTreeSet<VolumeId>) -> Result<(), End> {
        for volume in erased {
            self.send(FromAgent::VolumeErased { volume }).await?;
        }
        Ok(())
    }

    /// Said until the server has taken them; lost with the connection, they are said again in the next.
    async fn tell_receipts(&mut self) -> Result<(), End> {
        let receipts = self.node.scrubs.untold().unwrap_or_else(|error| {
            tracing::error!(%error, "receipts could not be told");
            Vec::new()
        });
        for receipt in receipts {
            let receipt = Box::new(receipt);
            self.send(FromAgent::Scrubbed { receipt }).await?;
        }
        Ok(())
    }

    /// Readings are worth something only now: on a slow connection this one is left out, and none is kept for later.
    async fn tell_readings(&mut self) -> Result<(), End> {
        if std::mem::take(&mut self.slow) {
            return Ok(());
        }
        for devices in self.node.telemetry.readings().chunks(MAX_DEVICES) {
            self.send(FromAgent::Readings {
                devices: devices.to_vec(),
            })
            .await?;
        }
        Ok(())
    }

    async fn ask_to_rotate(&mut self) -> Result<(), End> {
        match self.identity.next_request() {
            Ok(csr_pem) => self.send(FromAgent::Rotate { csr_pem }).await,
            Err(error) => {
                tracing::error!(%error, "could not make a new key");
                Ok(())
            }
        }
    }

    async fn take(&mut self, message: FromServer) -> Result<(), End> {
        match message {
            FromServer::Lease { sent_ms, term_ms } => {
                if let Some(lease) = Lease::renewed(sent_ms, term_ms) {
                    self.last_lease = Instant::now();
                    lease
                        .write(self.node.dir.root())
                        .map_err(|e| End::Closed(format!("could not write the lease: {e}")))?;
                }
                Ok(())
            }
            FromServer::Start { order } => self.wish(Wish::Start(order)).await,
            FromServer::Stop {
                allocation,
                reason,
                grace_s,
            } => {
                self.wish(Wish::Stop {
                    allocation,
                    reason,
                    grace_s,
                })
                .await
            }
            FromServer::Release { allocation } => self.wish(Wish::Release(allocation)).await,
            FromServer::Resize {
                request: None,
                allocation,
                devices,
            } => self.wish(Wish::Resize { allocation, devices }).await,
            FromServer::Resize {
                request: Some(request),
                allocation,
                devices,
            } => {
                let done = self.node.shares.try_resize(allocation, &devices);
                self.send(FromAgent::Resized { request, done }).await
            }
            FromServer::Pause { allocation } => self.wish(Wish::Pause(allocation)).await,
            FromServer::Resume {
                allocation,
                tenant,
                devices,
            } => {
                self.wish(Wish::Resume(Taker {
                    allocation,
                    tenant,
                    devices,
                }))
                .await
            }
            FromServer::GrowVolume { volume, size_mib } => {
                self.wish(Wish::GrowVolume { volume, size_mib }).await
            }
            FromServer::EraseVolume { volume } => self.wish(Wish::EraseVolume(volume)).await,
            FromServer::ReceiptsTaken { number } => {
                if let Err(error) = self.node.scrubs.receipts.taken(number) {
                    tracing::warn!(%error, "receipts that were taken could not be removed");
                }
                Ok(())
            }
            FromServer::CheckGpu { question } => {
                let (node, answers) = (self.node.clone(), self.logs.clone());
                tokio::spawn(async move {
                    let (gpu, number) = (question.gpu, question.number);
                    let checked = tokio::task::spawn_blocking(move || node.check_gpu(&question)).await;
                    let Ok(Some(report)) = checked else { return };
                    let report = Box::new(report);
                    let answer = FromAgent::Checked { gpu, number, report };
                    let _ = answers.send(answer).await;
                });
                Ok(())
            }
            FromServer::ReadLog {
                request,
                allocation,
                stream,
                offset,
                max,
                wait_ms,
            } => {
                let Ok(permit) = self.log_reads.clone().try_acquire_owned() else {
                    return self
                        .send(FromAgent::Log {
                            request,
                            chunk: Err("too many logs are read at once".into()),
                        })
                        .await;
                };
                let (node, logs) = (self.node.clone(), self.logs.clone());
                tokio::spawn(async move {
                    let chunk = log::read(&node, allocation, stream, offset, max, wait_ms).await;
                    let _ = logs.send(FromAgent::Log { request, chunk }).await;
                    drop(permit);
                });
                Ok(())
            }
            FromServer::Stream { stream, says } => {
                self.streams.take(stream, says);
                Ok(())
            }
            FromServer::Rotated { certificate_pem } => {
                match self.identity.take_next(&certificate_pem) {
                    Ok(()) => return Err(End::Rotated),
                    Err(error) => tracing::error!(%error, "could not take the new certificate"),
                }
                Ok(())
            }
            FromServer::Bye { code, detail } => Err(End::Refused { code, detail }),
            FromServer::Joined { .. } | FromServer::Welcome { .. } => {
                Err(End::Closed("the server repeats itself".into()))
            }
        }
    }

    async fn wish(&self, wish: Wish) -> Result<(), End> {
        self.wishes
            .send(wish)
            .await
            .map_err(|_| End::Closed("the node's thread ended".into()))
    }
}

fn broken(end: End) -> End {
    match end {
        End::Closed(why) => End::Broken(why),
        other => other,
    }
}
