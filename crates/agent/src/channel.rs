//! The conversation with the server: opened by the agent, opened again whenever it ends, each time saying
//! everything. Wishes go to the node's one thread; what changed there comes back as reports.

mod session;

use std::sync::Arc;
use std::time::Duration;

use tokio::net::TcpStream;
use tokio::sync::watch;
use tokio_rustls::TlsConnector;

use crate::identity::Identity;
use crate::node::Node;
use crate::tls;
use session::End;

const CONNECT_PATIENCE: Duration = Duration::from_secs(5);
const FIRST_PAUSE: Duration = Duration::from_millis(100);
const LONGEST_PAUSE: Duration = Duration::from_secs(5);
/// After a refusal that only an operator can change.
const REFUSED_PAUSE: Duration = Duration::from_secs(15);

/// How the agent finds its server and keeps its key fresh.
#[derive(Debug, Clone)]
pub struct ChannelConfig {
    pub server: String,
    pub rotate_after: Duration,
    /// Run time of what runs is reported at least this often.
    pub meter_every: Duration,
}

impl Default for ChannelConfig {
    fn default() -> Self {
        ChannelConfig {
            server: String::new(),
            rotate_after: Duration::from_secs(30 * 24 * 3600),
            meter_every: Duration::from_secs(10),
        }
    }
}

/// Speaks with the server for ever.
pub async fn keep(
    node: Arc<Node>,
    identity: Identity,
    config: ChannelConfig,
    inventory: watch::Receiver<tenure_domain::schedule::fleet::Inventory>,
) {
    let wishes = session::grant_in_order(node.clone());
    let mut pause = FIRST_PAUSE;
    loop {
        let end = match connect(&identity, &config.server).await {
            Ok(stream) => session::hold(&node, &identity, &config, inventory.clone(), &wishes, stream).await,
            Err(error) => End::Broken(format!("could not connect: {error}")),
        };
        let wait = match end {
            End::Rotated => FIRST_PAUSE,
            End::Broken(why) => {
                tracing::warn!(server = config.server, why, "not connected");
                pause
            }
            // It was a conversation, so the server is there and well.
            End::Closed(why) => {
                tracing::info!(server = config.server, why, "the connection ended");
                pause = FIRST_PAUSE;
                pause
            }
            End::Refused { code, detail } => {
                tracing::error!(
                    server = config.server,
                    code,
                    detail,
                    "the server refused the connection"
                );
                if code == "closing" || code == "replaced" || code == "silent" || code == "full" {
                    pause
                } else {
                    REFUSED_PAUSE.min(pause * 8)
                }
            }
        };
        // Spread out: a whole fleet may have lost its server at the same moment.
        tokio::time::sleep(wait / 2 + wait.mul_f64(jitter() / 2.0)).await;
        pause = (pause * 2).min(LONGEST_PAUSE);
    }
}

fn jitter() -> f64 {
    let mut bytes = [0; 4];
    let _ = getrandom::fill(&mut bytes);
    f64::from(u32::from_ne_bytes(bytes)) / f64::from(u32::MAX)
}

type Stream = tokio_rustls::client::TlsStream<TcpStream>;

async fn connect(identity: &Identity, server: &str) -> anyhow::Result<Stream> {
    let connector = TlsConnector::from(Arc::new(identity.client_config()?));
    let stream = tokio::time::timeout(CONNECT_PATIENCE, async {
        let stream = TcpStream::connect(server).await?;
        stream.set_nodelay(true)?;
        connector.connect(tls::server_name(), stream).await
    });
    Ok(stream.await??)
}
