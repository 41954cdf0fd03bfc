//! Who the node is: its key, which never leaves it, its certificate, and the authority it trusts.
//!
//! Files: `node.key`, `node.crt`, `authority.crt`; while a key is being changed also `node.key.next`.

use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use rcgen::{CertificateParams, KeyPair, PublicKeyData, SigningKey};
use rustls::ClientConfig;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use tenure_api::channel::frame::{FrameReader, FrameWriter};
use tenure_api::channel::{FromAgent, FromServer, Reader};
use tenure_api::seal;
use tenure_api::token::JoinTicket;
use tenure_domain::audit::conduct::{Conduct, SignedConduct};
use tenure_domain::schedule::receipt::Receipt;
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;

use crate::record::write_synced;
use crate::tls;

const JOIN_PATIENCE: Duration = Duration::from_secs(20);

/// Why the node has no identity.
#[derive(Debug, thiserror::Error)]
pub enum IdentityError {
    #[error("read or write the node's identity in {0}")]
    Io(PathBuf, #[source] io::Error),
    #[error("the node's identity in {0} is damaged: {1}")]
    Damaged(PathBuf, String),
    #[error("the node has not joined, and was given no join token")]
    NotJoined,
    #[error("make a key or a certificate request")]
    Key(#[from] rcgen::Error),
    #[error("set up TLS")]
    Tls(#[from] rustls::Error),
    #[error("reach {server} to join")]
    Unreachable {
        server: String,
        #[source]
        source: io::Error,
    },
    #[error("the server refused the join: {code}: {detail}")]
    Refused { code: String, detail: String },
    #[error("the server's answer to the join cannot be trusted: {0}")]
    Untrusted(String),
}

impl IdentityError {
    /// Whether trying again may help.
    pub fn is_passing(&self) -> bool {
        matches!(self, IdentityError::Unreachable { .. })
    }
}

/// The node's identity on disk.
#[derive(Debug, Clone)]
pub struct Identity {
    root: PathBuf,
}

impl Identity {
    /// Loads the identity, finishing a change of key that was cut short. None when the node never joined.
    pub fn load(root: &Path) -> Result<Option<Identity>, IdentityError> {
        let identity = Identity {
            root: root.to_owned(),
        };
        if !root.join("node.crt").exists() || !root.join("authority.crt").exists() {
            return Ok(None);
        }
        if !identity.fits("node.key")? {
            if !identity.fits("node.key.next")? {
                return Err(IdentityError::Damaged(
                    root.to_owned(),
                    "the key is not the certificate's".into(),
                ));
            }
            identity.rename("node.key.next", "node.key")?;
        }
        Ok(Some(identity))
    }

    /// Joins with a ticket. The key is kept before anything is sent: who missed the answer asks again with it.
    pub async fn join(
        root: &Path,
        server: &str,
        name: &str,
        ticket: &JoinTicket,
    ) -> Result<Identity, IdentityError> {
        let identity = Identity {
            root: root.to_owned(),
        };
        let key = identity.key("node.key")?;
        let csr_pem = request(&key)?;
        let unreachable = |source| IdentityError::Unreachable {
            server: server.to_owned(),
            source,
        };
        let config = tls::for_joining(ticket.authority)?;
        let message = FromAgent::Join {
            token: ticket.token.clone(),
            name: name.to_owned(),
            csr_pem,
        };
        let talk = async {
            let stream = TcpStream::connect(server).await?;
            let stream = TlsConnector::from(Arc::new(config))
                .connect(tls::server_name(), stream)
                .await?;
            let (read, write) = tokio::io::split(stream);
            let mut writer = FrameWriter::new(write);
            writer.send(&message).await.map_err(io::Error::other)?;
            FrameReader::new(read, Reader::default())
                .next::<FromServer>()
                .await
                .map_err(io::Error::other)
        };
        let answer = tokio::time::timeout(JOIN_PATIENCE, talk)
            .await
            .map_err(|_| unreachable(io::ErrorKind::TimedOut.into()))?;
        match answer.map_err(|error| {
            if is_certificate(&error) {
                IdentityError::Untrusted(error.to_string())
            } else {
                unreachable(error)
            }
        })? {
            FromServer::Joined {
                certificate_pem,
                authority_pem,
                ..
            } => {
                let authority = CertificateDer::from_pem_slice(authority_pem.as_bytes())
                    .map_err(|e| IdentityError::Untrusted(e.to_string()))?;
                if tls::digest(&authority) != ticket.authority {
                    return Err(IdentityError::Untrusted(
                        "another authority than the ticket's".into(),
                    ));
                }
                identity.write("authority.crt", &authority_pem)?;
                identity.write("node.crt", &certificate_pem)?;
                tracing::info!(name, "joined");
                Identity::load(root)?.ok_or(IdentityError::NotJoined)
            }
            FromServer::Bye { code, detail } => Err(IdentityError::Refused { code, detail }),
            _ => Err(IdentityError::Untrusted("not an answer to a join".into())),
        }
    }

    pub fn client_config(&self) -> Result<ClientConfig, IdentityError> {
        let damaged =
            |e: rustls::pki_types::pem::Error| IdentityError::Damaged(self.root.clone(), e.to_string());
        let authority =
            CertificateDer::from_pem_slice(self.read("authority.crt")?.as_bytes()).map_err(damaged)?;
        let certificate =
            CertificateDer::from_pem_slice(self.read("node.crt")?.as_bytes()).map_err(damaged)?;
        let key = PrivateKeyDer::from_pem_slice(self.read("node.key")?.as_bytes()).map_err(damaged)?;
        Ok(tls::for_node(authority, certificate, key)?)
    }

    /// Signs what a run did, with the key the server knows the node by.
    pub fn sign(&self, conduct: Conduct) -> Result<SignedConduct, IdentityError> {
        let key = KeyPair::from_pem(&self.read("node.key")?)?;
        let public_key = key.subject_public_key_info();
        Ok(seal::sealed(conduct, &public_key, |message| {
            SigningKey::sign(&key, message)
        })?)
    }

    /// Signs the receipt of a scrub likewise.
    pub fn sign_receipt(&self, receipt: Receipt) -> Result<Receipt, IdentityError> {
        let key = KeyPair::from_pem(&self.read("node.key")?)?;
        let public_key = key.subject_public_key_info();
        Ok(seal::sealed_receipt(receipt, &public_key, |message| {
            SigningKey::sign(&key, message)
        })?)
    }

    /// How old the certificate is, by its file.
    pub fn age(&self) -> Duration {
        let modified = std::fs::metadata(self.root.join("node.crt")).and_then(|file| file.modified());
        modified
            .ok()
            .and_then(|modified| modified.elapsed().ok())
            .unwrap_or_default()
    }

    /// A request for a certificate on a new key, the same one until it is answered.
    pub fn next_request(&self) -> Result<String, IdentityError> {
        request(&self.key("node.key.next")?)
    }

    /// Takes the certificate on the new key. From here on the node is known by that key.
    pub fn take_next(&self, certificate_pem: &str) -> Result<(), IdentityError> {
        let key = self.key("node.key.next")?;
        if !certificate_is_of(certificate_pem, &key) {
            return Err(IdentityError::Untrusted(
                "a certificate on another key than asked for".into(),
            ));
        }
        // A crash in between leaves the old key beside the new certificate, and `load` finishes it.
        self.write("node.crt", certificate_pem)?;
        self.rename("node.key.next", "node.key")
    }

    fn fits(&self, name: &str) -> Result<bool, IdentityError> {
        if !self.root.join(name).exists() {
            return Ok(false);
        }
        let key = KeyPair::from_pem(&self.read(name)?)?;
        Ok(certificate_is_of(&self.read("node.crt")?, &key))
    }

    /// The key of that name, made if it is not there.
    fn key(&self, name: &str) -> Result<KeyPair, IdentityError> {
        if self.root.join(name).exists() {
            return Ok(KeyPair::from_pem(&self.read(name)?)?);
        }
        let key = KeyPair::generate()?;
        self.write(name, &key.serialize_pem())?;
        Ok(key)
    }

    fn read(&self, name: &str) -> Result<String, IdentityError> {
        std::fs::read_to_string(self.root.join(name)).map_err(|e| IdentityError::Io(self.root.clone(), e))
    }

    fn write(&self, name: &str, text: &str) -> Result<(), IdentityError> {
        write_synced(&self.root, name, text.as_bytes()).map_err(|e| IdentityError::Io(self.root.clone(), e))
    }

    fn rename(&self, from: &str, to: &str) -> Result<(), IdentityError> {
        std::fs::rename(self.root.join(from), self.root.join(to))
            .map_err(|e| IdentityError::Io(self.root.clone(), e))
    }
}

fn request(key: &KeyPair) -> Result<String, IdentityError> {
    Ok(CertificateParams::default().serialize_request(key)?.pem()?)
}

/// A certificate holds its public key info as one run of bytes.
fn certificate_is_of(certificate_pem: &str, key: &KeyPair) -> bool {
    let info = key.subject_public_key_info();
    CertificateDer::from_pem_slice(certificate_pem.as_bytes())
        .is_ok_and(|der| der.windows(info.len()).any(|run| run == info))
}

fn is_certificate(error: &io::Error) -> bool {
    let inner = error
        .get_ref()
        .and_then(|inner| inner.downcast_ref::<rustls::Error>());
    matches!(inner, Some(rustls::Error::InvalidCertificate(_)))
}
