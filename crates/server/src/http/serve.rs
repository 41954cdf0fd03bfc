//! Connections: how many, how long they may take, and how they end.

use std::convert::Infallible;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use axum::body::Body;
use axum::extract::Request;
use hyper::body::Incoming;
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use hyper_util::server::conn::auto::Builder;
use hyper_util::server::graceful::{GracefulShutdown, Watcher};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::Semaphore;
use tokio_rustls::TlsAcceptor;
use tokio_util::sync::CancellationToken;
use tower::ServiceExt;

use super::App;
use crate::audit::Audit;
use crate::service::Services;
use crate::webhook::Webhooks;

const HEADERS: Duration = Duration::from_secs(10);
const HANDSHAKE: Duration = Duration::from_secs(10);
const DRAIN: Duration = Duration::from_secs(5);
const MAX_HEADERS: usize = 100;
const MAX_HEAD_BYTES: usize = 32 * 1024;
const MAX_STREAMS: u32 = 128;

/// The far end of the connection a request came over.
#[derive(Debug, Clone, Copy)]
pub struct Peer(pub SocketAddr);

/// Serves until told to stop; then lets requests under way end, and writes down what was refused. The
/// controller must stay open until this is done.
pub async fn serve(
    listener: TcpListener,
    tls: Option<Arc<rustls::ServerConfig>>,
    app: App,
    stop: CancellationToken,
) {
    let audit = Arc::new(Audit::default());
    let controller = app.controller.clone();
    let counting = tokio::spawn(audit.clone().run(controller.clone(), stop.clone()));
    let services = Arc::new(Services::new(
        controller.clone(),
        app.engine.clone(),
        app.readings.clone(),
    ));
    let serving = tokio::spawn(services.clone().run(stop.clone()));
    let webhooks = Arc::new(Webhooks::new(
        controller.clone(),
        app.keyring.clone(),
        app.options.webhooks.clone(),
    ));
    let telling = tokio::spawn(webhooks.clone().run(stop.clone()));
    let slots = Arc::new(Semaphore::new(app.options.max_connections));
    let router = super::router(
        app,
        audit.clone(),
        (services, webhooks),
        stop.clone(),
        tls.is_some(),
    );
    let acceptor = tls.map(TlsAcceptor::from);
    let graceful = GracefulShutdown::new();
    loop {
        let slot = tokio::select! {
            () = stop.cancelled() => break,
            slot = slots.clone().acquire_owned() => slot.expect("never closed"),
        };
        let accepted = tokio::select! {
            () = stop.cancelled() => break,
            accepted = listener.accept() => accepted,
        };
        let (stream, peer) = match accepted {
            Ok(accepted) => accepted,
            Err(error) => {
                // Out of file handles, or the peer went away again: neither is a reason to end.
                tracing::warn!(%error, "a connection was not accepted");
                tokio::time::sleep(Duration::from_millis(50)).await;
                continue;
            }
        };
        let (router, acceptor, watcher) = (router.clone(), acceptor.clone(), graceful.watcher());
        tokio::spawn(async move {
            converse(stream, peer, acceptor, router, watcher).await;
            drop(slot);
        });
    }
    drop(listener);
    if tokio::time::timeout(DRAIN, graceful.shutdown()).await.is_err() {
        tracing::info!("some connections did not end in time");
    }
    let _ = counting.await;
    let _ = serving.await;
    let _ = telling.await;
    audit.flush(&controller).await;
}

async fn converse(
    stream: TcpStream,
    peer: SocketAddr,
    acceptor: Option<TlsAcceptor>,
    router: Router,
    watcher: Watcher,
) {
    let _ = stream.set_nodelay(true);
    let Some(acceptor) = acceptor else {
        return speak(stream, peer, router, watcher).await;
    };
    match tokio::time::timeout(HANDSHAKE, acceptor.accept(stream)).await {
        Ok(Ok(stream)) => speak(stream, peer, router, watcher).await,
        Ok(Err(error)) => tracing::debug!(%peer, %error, "a handshake failed"),
        Err(_) => tracing::debug!(%peer, "a handshake took too long"),
    }
}

async fn speak(
    stream: impl AsyncRead + AsyncWrite + Unpin + Send + 'static,
    peer: SocketAddr,
    router: Router,
    watcher: Watcher,
) {
    let service = hyper::service::service_fn(move |request: Request<Incoming>| {
        let router = router.clone();
        async move {
            let mut request = request.map(Body::new);
            request.extensions_mut().insert(Peer(peer));
            Ok::<_, Infallible>(
                router
                    .oneshot(request)
                    .await
                    .unwrap_or_else(|never| match never {}),
            )
        }
    });
    let mut builder = Builder::new(TokioExecutor::new());
    builder
        .http1()
        .timer(TokioTimer::new())
        .header_read_timeout(HEADERS)
        .max_headers(MAX_HEADERS)
        .max_buf_size(MAX_HEAD_BYTES);
    builder
        .http2()
        .timer(TokioTimer::new())
        .max_concurrent_streams(MAX_STREAMS)
        .max_header_list_size(MAX_HEAD_BYTES as u32)
        .keep_alive_interval(Duration::from_secs(30))
        .keep_alive_timeout(Duration::from_secs(20));
    let connection = builder
        .serve_connection_with_upgrades(TokioIo::new(stream), service)
        .into_owned();
    if let Err(error) = watcher.watch(connection).await {
        tracing::debug!(%peer, %error, "a connection ended badly");
    }
}
