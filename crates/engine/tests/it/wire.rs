//! A hub, and the raw other end of its connections.

use std::sync::Arc;
use std::time::Duration;

use rcgen::{CertificateParams, KeyPair};
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, PrivatePkcs8KeyDer, ServerName};
use tenure_api::channel::{FromAgent, FromServer, Reader, SERVER_NAME, Writer};
use tenure_api::secret_text::SecretText;
use tenure_domain::id::NodeId;
use tenure_engine::conformance::MemoryRegistry;
use tenure_engine::local::{Authority, Hub, HubConfig};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;

pub struct House {
    pub hub: Hub,
    pub registry: Arc<MemoryRegistry>,
    pub authority: Arc<Authority>,
}

impl House {
    pub async fn new() -> House {
        House::with(HubConfig {
            term: Duration::from_secs(5),
            handshake: Duration::from_secs(2),
            ..HubConfig::default()
        })
        .await
    }

    pub async fn with(config: HubConfig) -> House {
        let registry = Arc::new(MemoryRegistry::default());
        let authority = Arc::new(Authority::create().unwrap());
        let hub = Hub::bind(config, authority.clone(), registry.clone())
            .await
            .unwrap();
        House {
            hub,
            registry,
            authority,
        }
    }

    /// A node that has joined.
    pub async fn node(&self, seed: u8) -> Card {
        let key = KeyPair::generate().unwrap();
        let token = self.registry.issue(seed);
        match self.join(&token, &key).await {
            FromServer::Joined {
                node,
                certificate_pem,
                ..
            } => Card {
                node,
                key,
                certificate_pem,
            },
            other => panic!("{other:?}"),
        }
    }

    pub async fn join(&self, token: &str, key: &KeyPair) -> FromServer {
        let mut wire = self.stranger().await;
        wire.say(&FromAgent::Join {
            token: SecretText::new(token),
            name: "fake".into(),
            csr_pem: request(key),
        })
        .await;
        wire.hear().await.unwrap()
    }

    pub async fn stranger(&self) -> Wire {
        self.connect(&self.authority, None).await.unwrap()
    }

    pub async fn wire(&self, card: &Card) -> Wire {
        self.connect(&self.authority, Some(card)).await.unwrap()
    }

    pub async fn connect(&self, trusted: &Authority, card: Option<&Card>) -> std::io::Result<Wire> {
        let mut roots = rustls::RootCertStore::empty();
        roots.add(trusted.certificate().clone()).unwrap();
        let builder =
            rustls::ClientConfig::builder_with_provider(Arc::new(rustls::crypto::ring::default_provider()))
                .with_safe_default_protocol_versions()
                .unwrap()
                .with_root_certificates(roots);
        let config = match card {
            None => builder.with_no_client_auth(),
            Some(card) => {
                let certificate = CertificateDer::from_pem_slice(card.certificate_pem.as_bytes()).unwrap();
                let key: PrivateKeyDer<'static> = PrivatePkcs8KeyDer::from(card.key.serialize_der()).into();
                builder.with_client_auth_cert(vec![certificate], key).unwrap()
            }
        };
        let tcp = TcpStream::connect(self.hub.address()).await?;
        let stream = TlsConnector::from(Arc::new(config))
            .connect(ServerName::try_from(SERVER_NAME).unwrap(), tcp)
            .await?;
        Ok(Wire {
            stream,
            writer: Writer::default(),
            reader: Reader::default(),
        })
    }
}

/// What a node shows of itself.
pub struct Card {
    pub node: NodeId,
    pub key: KeyPair,
    pub certificate_pem: String,
}

pub fn request(key: &KeyPair) -> String {
    CertificateParams::default()
        .serialize_request(key)
        .unwrap()
        .pem()
        .unwrap()
}

pub struct Wire {
    pub stream: TlsStream<TcpStream>,
    pub writer: Writer,
    pub reader: Reader,
}

impl Wire {
    pub async fn say(&mut self, message: &FromAgent) {
        let bytes = self.writer.frame(message).unwrap();
        self.raw(&bytes).await;
    }

    /// Bytes as they are. The hub may have closed already, which is no failure here.
    pub async fn raw(&mut self, bytes: &[u8]) {
        let _ = self.stream.write_all(bytes).await;
        let _ = self.stream.flush().await;
    }

    pub async fn body(&mut self, body: &str) {
        let mut bytes = (body.len() as u32).to_be_bytes().to_vec();
        bytes.extend(body.as_bytes());
        self.raw(&bytes).await;
    }

    /// The next message; none when the connection ended.
    pub async fn hear(&mut self) -> Option<FromServer> {
        let hear = async {
            let mut header = [0; 4];
            self.stream.read_exact(&mut header).await.ok()?;
            let mut body = vec![0; self.reader.length(header).unwrap()];
            self.stream.read_exact(&mut body).await.ok()?;
            Some(self.reader.take(&body).unwrap())
        };
        tokio::time::timeout(Duration::from_secs(20), hear)
            .await
            .expect("the hub says nothing")
    }

    pub async fn hello(&mut self) {
        self.say(&hello("boot-1", 1000)).await;
        assert!(matches!(self.hear().await, Some(FromServer::Welcome { .. })));
    }

    /// Hello and everything a node says on a new connection.
    pub async fn open(&mut self) {
        self.hello().await;
        self.say(&FromAgent::Heartbeat { sent_ms: 1 }).await;
        assert!(matches!(
            self.hear().await,
            Some(FromServer::Lease { sent_ms: 1, .. })
        ));
        self.say(&FromAgent::Report {
            whole: true,
            more: false,
            allocations: vec![],
        })
        .await;
    }

    /// The code of the last words; none when the connection ended without.
    pub async fn bye(&mut self) -> Option<String> {
        loop {
            match self.hear().await {
                Some(FromServer::Bye { code, .. }) => return Some(code),
                Some(_) => {}
                None => return None,
            }
        }
    }
}

pub fn hello(boot: &str, uptime_ms: u64) -> FromAgent {
    FromAgent::Hello {
        agent_version: "0".into(),
        boot_id: boot.into(),
        uptime_ms,
    }
}
