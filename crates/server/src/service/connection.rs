//! A connection to a replica's port: HTTP/1.1 over one stream of the agent channel, kept open for the next request.

use std::time::Duration;

use axum::body::Body;
use hyper::client::conn::http1::{self, SendRequest};
use hyper_util::rt::TokioIo;
use tenure_api::channel::stream::{MAX_CHUNK, Target, Up};
use tenure_domain::id::{AllocationId, NodeId};
use tenure_engine::stream::{StreamReceiver, StreamSender};
use tenure_engine::{Engine, Stream};
use tokio::io::{AsyncReadExt, AsyncWriteExt, DuplexStream, ReadHalf, WriteHalf};

/// How long a node has to open the way to a port.
const OPENING: Duration = Duration::from_secs(5);
/// What lies between the stream and HTTP in each direction, beside the stream's own window.
const BUFFER: usize = 64 * 1024;

pub(super) type Connection = SendRequest<Body>;

/// Opens one, or says why it could not be.
pub(super) async fn open(
    engine: &dyn Engine,
    node: NodeId,
    allocation: AllocationId,
    port: u16,
) -> Result<Connection, String> {
    let opening = async {
        let target = Target::Port { port };
        let stream = engine.open(node, allocation, target).await;
        let Stream { sender, mut receiver } = stream.map_err(|error| error.to_string())?;
        match receiver.next().await {
            Some(Up::Opened { .. }) => Ok((sender, receiver)),
            Some(Up::Closed { why, .. }) => Err(why.unwrap_or_else(|| "it closed at once".to_owned())),
            _ => Err("the connection with the node ended".to_owned()),
        }
    };
    let (sender, receiver) = tokio::time::timeout(OPENING, opening)
        .await
        .map_err(|_| format!("its node did not open the way in {} s", OPENING.as_secs()))??;
    let (near, far) = tokio::io::duplex(BUFFER);
    let (from_http, to_http) = tokio::io::split(far);
    tokio::spawn(carry(from_http, to_http, sender, receiver));
    let (connection, speaking) = http1::handshake(TokioIo::new(near))
        .await
        .map_err(|error| error.to_string())?;
    tokio::spawn(async move {
        if let Err(error) = speaking.await {
            tracing::debug!(%error, "a connection to a replica ended badly");
        }
    });
    Ok(connection)
}

/// Bytes both ways until either end closes; then the stream is dropped, which tells the node.
async fn carry(
    from_http: ReadHalf<DuplexStream>,
    to_http: WriteHalf<DuplexStream>,
    sender: StreamSender,
    receiver: StreamReceiver,
) {
    tokio::select! {
        () = upward(from_http, &sender) => {}
        () = downward(to_http, receiver) => {}
    }
}

async fn upward(mut from_http: ReadHalf<DuplexStream>, sender: &StreamSender) {
    let mut buffer = vec![0; MAX_CHUNK];
    while let Ok(read @ 1..) = from_http.read(&mut buffer).await {
        if sender.send(&buffer[..read]).await.is_err() {
            // What the node said before it ended is still to be passed on.
            std::future::pending::<()>().await;
        }
    }
}

async fn downward(mut to_http: WriteHalf<DuplexStream>, mut receiver: StreamReceiver) {
    while let Some(up) = receiver.next().await {
        match up {
            Up::Data { bytes, .. } => {
                if to_http.write_all(&bytes).await.is_err() {
                    return;
                }
            }
            Up::Closed { .. } => break,
            Up::Opened { .. } | Up::Window { .. } => {}
        }
    }
    let _ = to_http.shutdown().await;
}
