//! One connection from its handshake to its end.
//!
//! Whatever breaks the channel's rules ends the conversation with a `Bye` that says why, and nothing of it
//! is passed on. A certificate is not enough: its key must be one the registry still knows.

use std::net::SocketAddr;
use std::sync::Arc;

use rustls::pki_types::CertificateDer;
use tenure_api::channel::frame::{FrameError, FrameReader, FrameWriter};
use tenure_api::channel::reading;
use tenure_api::channel::{
    AllocationReport, BadFrame, FromAgent, FromServer, MAX_JOIN_FRAME, MAX_REPORTS, MAX_STEPS, Reader,
    RunState,
};
use tenure_domain::id::NodeId;
use tenure_domain::name;
use tenure_domain::tenancy::key::Digest;
use tokio::io::{AsyncRead, AsyncWrite, ReadHalf, WriteHalf};
use tokio::net::TcpStream;
use tokio::sync::OwnedSemaphorePermit;
use tokio::time::{Duration, Instant, timeout, timeout_at};
use tokio_rustls::TlsAcceptor;
use tokio_rustls::server::TlsStream;

use super::authority::{key_of, key_of_request};
use super::hub::Inner;
use super::link::{Bye, Link, Outgoing, Queued};
use super::pace::Pace;
use crate::{Measured, Seen};

const LAST_WORDS: Duration = Duration::from_secs(2);
const WRITE_PATIENCE: Duration = Duration::from_secs(30);
/// A whole report may come in this many frames.
const MAX_WHOLE_FRAMES: usize = 64;
/// No allocation has run longer than this.
const MAX_RAN_MS: u64 = 10 * 366 * 86_400_000;

/// What a frame of a stream counts of another.
const STREAM_WEIGHT: f64 = 0.05;

type Incoming = FrameReader<ReadHalf<TlsStream<TcpStream>>>;
type OutgoingFrames = FrameWriter<WriteHalf<TlsStream<TcpStream>>>;

/// Shakes hands and sorts strangers from nodes.
pub(super) async fn meet(
    inner: Arc<Inner>,
    acceptor: TlsAcceptor,
    stream: TcpStream,
    from: SocketAddr,
    stranger: OwnedSemaphorePermit,
) {
    let patience = inner.config.handshake;
    let Ok(Ok(stream)) = timeout(patience, acceptor.accept(stream)).await else {
        tracing::debug!(%from, "no TLS handshake");
        return;
    };
    let certificate = stream
        .get_ref()
        .1
        .peer_certificates()
        .and_then(|chain| chain.first())
        .map(|c| c.clone().into_owned());
    let (read, write) = tokio::io::split(stream);
    let mut writer = FrameWriter::new(write);
    let Some(certificate) = certificate else {
        let reader = FrameReader::new(read, Reader::limited(MAX_JOIN_FRAME));
        match timeout(patience, join(&inner, reader, &mut writer)).await {
            Ok(Ok(node)) => tracing::info!(%node, %from, "a node joined"),
            Ok(Err(bye)) => part(&mut writer, &bye, from).await,
            Err(_) => part(&mut writer, &Bye::new("silent", "nothing was said in time"), from).await,
        }
        writer.close().await;
        return;
    };
    let mut reader = FrameReader::new(read, Reader::default());
    match timeout(patience, greet(&inner, &certificate, &mut reader)).await {
        Ok(Ok(greeting)) => match inner.connections.clone().try_acquire_owned() {
            Ok(_connection) => {
                drop(stranger);
                converse(&inner, greeting, reader, writer, from).await;
            }
            Err(_) => {
                part(
                    &mut writer,
                    &Bye::new("full", "the server has as many connections as it takes"),
                    from,
                )
                .await
            }
        },
        Ok(Err(bye)) => part(&mut writer, &bye, from).await,
        Err(_) => part(&mut writer, &Bye::new("silent", "nothing was said in time"), from).await,
    }
}

async fn part<W: AsyncWrite + Unpin>(writer: &mut FrameWriter<W>, bye: &Bye, from: SocketAddr) {
    tracing::warn!(%from, code = bye.code, detail = bye.detail, "a connection was refused");
    let _ = timeout(LAST_WORDS, async {
        let _ = writer.send(&bye.message()).await;
        writer.close().await;
    })
    .await;
}

/// A stranger may say one thing.
async fn join<R: AsyncRead + Unpin, W: AsyncWrite + Unpin>(
    inner: &Inner,
    mut reader: FrameReader<R>,
    writer: &mut FrameWriter<W>,
) -> Result<NodeId, Bye> {
    let (token, name, csr_pem) = match reader.next().await.map_err(bad_frame)? {
        FromAgent::Join { token, name, csr_pem } => (token, name, csr_pem),
        _ => {
            return Err(Bye::new(
                "unexpected",
                "without a certificate only a join is taken",
            ));
        }
    };
    name::check(&name, "/name").map_err(|refusal| Bye::new(refusal.code.as_str(), refusal.sentence))?;
    let invalid = |error: super::AuthorityError| {
        Bye::new(
            "invalid_request",
            format!("the certificate request is not valid: {error}"),
        )
    };
    let key = key_of_request(&csr_pem).map_err(invalid)?;
    // Checked before the token is spent: the request must be signed with its own key.
    inner.authority.sign_node(&csr_pem, NodeId(0)).map_err(invalid)?;
    let node = match inner.registry.node_of(&key).await {
        // It joined before and missed the answer; the signed request proves that it holds the key.
        Some(node) => node,
        None => inner
            .registry
            .join(token.reveal(), &name, key)
            .await
            .map_err(|refusal| Bye::new(refusal.code.as_str(), refusal.sentence))?,
    };
    let certificate_pem = inner.authority.sign_node(&csr_pem, node).map_err(invalid)?;
    let (authority_pem, _) = inner.authority.to_pem();
    let joined = FromServer::Joined {
        node,
        certificate_pem,
        authority_pem,
    };
    writer.send(&joined).await.map_err(bad_frame)?;
    Ok(node)
}

struct Greeting {
    node: NodeId,
    key: Digest,
    agent_version: String,
    boot_id: String,
}

/// Whose certificate it is, and its first words.
async fn greet(
    inner: &Inner,
    certificate: &CertificateDer<'_>,
    reader: &mut Incoming,
) -> Result<Greeting, Bye> {
    let unknown = || Bye::new("unknown_key", "the key of this certificate is unknown or revoked");
    let key = key_of(certificate).map_err(|_| unknown())?;
    let node = inner.registry.node_of(&key).await.ok_or_else(unknown)?;
    match reader.next().await.map_err(bad_frame)? {
        FromAgent::Hello {
            agent_version,
            boot_id,
            uptime_ms,
        } => {
            let sound = |text: &str| !text.is_empty() && name::check_text(text, 100, "/hello").is_ok();
            if !sound(&agent_version) || !sound(&boot_id) {
                return Err(Bye::new("invalid_hello", "version and boot id are short texts"));
            }
            inner.check_boot(node, &boot_id, uptime_ms)?;
            Ok(Greeting {
                node,
                key,
                agent_version,
                boot_id,
            })
        }
        _ => Err(Bye::new("unexpected", "a conversation opens with hello")),
    }
}

async fn converse(
    inner: &Inner,
    greeting: Greeting,
    reader: Incoming,
    mut writer: OutgoingFrames,
    from: SocketAddr,
) {
    let Greeting {
        node,
        key,
        agent_version,
        boot_id,
    } = greeting;
    let (link, queued) = Link::new(node, boot_id.clone());
    let link = Arc::new(link);
    if let Err(bye) = inner.take_over(node, &link).await {
        return part(&mut writer, &bye, from).await;
    }
    tracing::info!(%node, %from, agent_version, "a node connected");
    inner.registry.retire_old_keys(node, key).await;
    inner
        .emit(Seen::Joined {
            node,
            boot_id,
            agent_version,
        })
        .await;
    let term_ms = inner.config.term.as_millis() as u64;
    link.say(Outgoing::Message(FromServer::Welcome { node, term_ms }, None))
        .await;

    let listening = listen(inner, node, key, &link, reader);
    let writing = write(writer, queued);
    tokio::pin!(listening, writing);
    let bye = tokio::select! {
        bye = &mut listening => Some(bye),
        bye = link.when_cut() => Some(bye),
        () = &mut writing => None,
    };
    let code = bye.as_ref().map_or("closed", |bye| bye.code);
    if let Some(bye) = bye {
        tracing::info!(%node, code = bye.code, detail = bye.detail, "a node's connection ends");
        let last = async { tokio::join!(link.say(Outgoing::Last(bye)), &mut writing) };
        let _ = timeout(LAST_WORDS, last).await;
    }
    // Said before another connection may take the place, so that its Joined comes after.
    if code != "replaced" {
        inner.emit(Seen::Gone { node }).await;
    }
    inner.let_go(node, &link);
    link.set_ended();
}

async fn write(mut writer: OutgoingFrames, mut queued: Queued) {
    while let Some(outgoing) = queued.next().await {
        let sent = match outgoing {
            Outgoing::Message(message, written) => {
                let sent = timeout(WRITE_PATIENCE, writer.send(&message)).await;
                if let (Ok(Ok(())), Some(written)) = (&sent, written) {
                    let _ = written.send(());
                }
                sent
            }
            Outgoing::Last(bye) => {
                let _ = writer.send(&bye.message()).await;
                break;
            }
        };
        if !matches!(sent, Ok(Ok(()))) {
            break;
        }
    }
    writer.close().await;
}

/// Listens until something ends it, and says what.
async fn listen(inner: &Inner, node: NodeId, key: Digest, link: &Link, mut reader: Incoming) -> Bye {
    let term = inner.config.term;
    let mut deadline = Instant::now() + term;
    let mut whole = Vec::new();
    let mut pace = Pace::new();
    let mut weight = 1.0;
    loop {
        pace.take(weight).await;
        let message = match timeout_at(deadline, reader.next()).await {
            Ok(Ok(message)) => message,
            Ok(Err(error)) => return bad_frame(error),
            Err(_) => return Bye::new("silent", format!("no heartbeat for {} ms", term.as_millis())),
        };
        weight = match message {
            // Held back by its window already.
            FromAgent::Stream { .. } => STREAM_WEIGHT,
            _ => 1.0,
        };
        if let FromAgent::Heartbeat { .. } = message {
            // Asked again with every renewal: no revoked key holds a lease, whoever forgot to disconnect it.
            if inner.registry.node_of(&key).await != Some(node) {
                return Bye::new("unknown_key", "the key of this certificate is unknown or revoked");
            }
            deadline = Instant::now() + term;
        }
        if let Err(bye) = take(inner, node, link, &mut whole, message).await {
            return bye;
        }
    }
}

async fn take(
    inner: &Inner,
    node: NodeId,
    link: &Link,
    whole_so_far: &mut Vec<AllocationReport>,
    message: FromAgent,
) -> Result<(), Bye> {
    match message {
        FromAgent::Join { .. } | FromAgent::Hello { .. } => {
            return Err(Bye::new("unexpected", "that is said once, and first"));
        }
        FromAgent::Heartbeat { sent_ms } => {
            let term_ms = inner.config.term.as_millis() as u64;
            link.say(Outgoing::Message(FromServer::Lease { sent_ms, term_ms }, None))
                .await;
            inner.emit(Seen::Heartbeat { node }).await;
        }
        FromAgent::Inventory { inventory } => {
            inventory
                .check()
                .map_err(|refusal| Bye::new("invalid_inventory", refusal.to_string()))?;
            inner.emit(Seen::Inventory { node, inventory }).await;
        }
        FromAgent::Report {
            whole,
            more,
            allocations,
        } => {
            check_report(whole, more, &allocations)?;
            let in_parts = !whole_so_far.is_empty();
            if in_parts && !whole {
                return Err(Bye::new("invalid_report", "a whole report was not finished"));
            }
            whole_so_far.extend(allocations);
            if whole_so_far.len() > MAX_REPORTS * MAX_WHOLE_FRAMES {
                return Err(Bye::new("invalid_report", "more allocations than any node has"));
            }
            if !more {
                inner
                    .emit(Seen::Report {
                        node,
                        whole,
                        allocations: std::mem::take(whole_so_far),
                    })
                    .await;
                if whole {
                    link.set_ready();
                }
            }
        }
        FromAgent::Rotate { csr_pem } => {
            let invalid = |error: super::AuthorityError| {
                Bye::new(
                    "invalid_request",
                    format!("the certificate request is not valid: {error}"),
                )
            };
            let certificate_pem = inner.authority.sign_node(&csr_pem, node).map_err(invalid)?;
            let key = key_of_request(&csr_pem).map_err(invalid)?;
            let added = inner.registry.rotate(node, key).await;
            added.map_err(|refusal| Bye::new(refusal.code.as_str(), refusal.sentence))?;
            link.say(Outgoing::Message(FromServer::Rotated { certificate_pem }, None))
                .await;
        }
        FromAgent::Started { allocation, steps } => {
            if steps.len() > MAX_STEPS {
                return Err(Bye::new("invalid_report", "no start has so many steps"));
            }
            let seen = Seen::Started {
                node,
                allocation,
                steps,
            };
            inner.emit(seen).await;
        }
        FromAgent::VolumeErased { volume } => inner.emit(Seen::VolumeErased { node, volume }).await,
        FromAgent::Scrubbed { receipt } => inner.emit(Seen::Scrubbed { node, receipt }).await,
        FromAgent::Checked { gpu, number, report } => {
            report
                .check()
                .map_err(|refusal| Bye::new("invalid_report", refusal.to_string()))?;
            let seen = Seen::Checked {
                node,
                gpu,
                number,
                report,
            };
            inner.emit(seen).await;
        }
        FromAgent::Log { request, chunk } => link.answer_log(request, chunk)?,
        FromAgent::Resized { request, done } => link.answer_resize(request, done)?,
        FromAgent::Readings { devices } => {
            reading::check(&devices).map_err(|why| Bye::new("invalid_readings", why))?;
            inner.pass_on(&Measured { node, devices });
        }
        FromAgent::Stream { stream, says } => link.heard(stream, says)?,
    }
    Ok(())
}

fn check_report(whole: bool, more: bool, allocations: &[AllocationReport]) -> Result<(), Bye> {
    let invalid = |detail: &str| Err(Bye::new("invalid_report", detail));
    if allocations.len() > MAX_REPORTS {
        return invalid("more allocations than a report carries");
    }
    if more && (!whole || allocations.is_empty()) {
        return invalid("only a whole report comes in parts, and none of them is empty but the last");
    }
    for report in allocations {
        if report.ran_ms > MAX_RAN_MS {
            return invalid("a run time longer than anything ran");
        }
        if matches!(&report.state, RunState::NotStarted { why } if why.len() > 2000) {
            return invalid("a reason longer than anybody reads");
        }
    }
    Ok(())
}

fn bad_frame(error: FrameError) -> Bye {
    match error {
        FrameError::Closed | FrameError::Io(_) => Bye::new("closed", "the connection ended"),
        FrameError::Bad(BadFrame::Version(theirs)) => {
            Bye::new("version", BadFrame::Version(theirs).to_string())
        }
        // The parser's own words may quote what it read, and that may be a secret.
        FrameError::Bad(BadFrame::Malformed(error)) => Bye::new(
            "bad_frame",
            format!(
                "a frame is not of this protocol, from column {} on",
                error.column()
            ),
        ),
        FrameError::Bad(error) => Bye::new("bad_frame", error.to_string()),
    }
}
