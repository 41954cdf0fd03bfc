//! TLS towards the server: only one authority is trusted, the one the node joined with.

use std::sync::Arc;

use rustls::client::WebPkiServerVerifier;
use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::crypto::{CryptoProvider, ring};
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName, UnixTime};
use rustls::{CertificateError, ClientConfig, DigitallySignedStruct, Error, RootCertStore, SignatureScheme};
use tenure_api::channel::SERVER_NAME;
use tenure_domain::tenancy::key::Digest;

/// SHA-256.
pub(crate) fn digest(bytes: &[u8]) -> Digest {
    let hash = ::ring::digest::digest(&::ring::digest::SHA256, bytes);
    let mut digest = [0; 32];
    digest.copy_from_slice(hash.as_ref());
    Digest(digest)
}

/// The name looked for in the server's certificate, wherever the server is.
pub(crate) fn server_name() -> ServerName<'static> {
    ServerName::try_from(SERVER_NAME).unwrap_or_else(|_| unreachable!("a constant that is a DNS name"))
}

fn provider() -> Arc<CryptoProvider> {
    Arc::new(ring::default_provider())
}

fn verifier(authority: CertificateDer<'static>) -> Result<Arc<WebPkiServerVerifier>, Error> {
    let mut roots = RootCertStore::empty();
    roots.add(authority)?;
    WebPkiServerVerifier::builder_with_provider(Arc::new(roots), provider())
        .build()
        .map_err(|e| Error::General(e.to_string()))
}

/// For a node with a certificate.
pub(crate) fn for_node(
    authority: CertificateDer<'static>,
    certificate: CertificateDer<'static>,
    key: PrivateKeyDer<'static>,
) -> Result<ClientConfig, Error> {
    let mut config = ClientConfig::builder_with_provider(provider())
        .with_protocol_versions(&[&rustls::version::TLS13])?
        .with_webpki_verifier(verifier(authority)?)
        .with_client_auth_cert(vec![certificate], key)?;
    config.resumption = rustls::client::Resumption::disabled();
    Ok(config)
}

/// For joining: the authority is known by its fingerprint alone.
pub(crate) fn for_joining(authority: Digest) -> Result<ClientConfig, Error> {
    let mut config = ClientConfig::builder_with_provider(provider())
        .with_protocol_versions(&[&rustls::version::TLS13])?
        .dangerous()
        .with_custom_certificate_verifier(Arc::new(Pinned {
            authority,
            provider: provider(),
        }))
        .with_no_client_auth();
    config.resumption = rustls::client::Resumption::disabled();
    Ok(config)
}

/// Trusts what the pinned authority signed. The server sends the authority's certificate along.
#[derive(Debug)]
struct Pinned {
    authority: Digest,
    provider: Arc<CryptoProvider>,
}

impl ServerCertVerifier for Pinned {
    fn verify_server_cert(
        &self,
        end_entity: &CertificateDer<'_>,
        intermediates: &[CertificateDer<'_>],
        server_name: &ServerName<'_>,
        ocsp_response: &[u8],
        now: UnixTime,
    ) -> Result<ServerCertVerified, Error> {
        let pinned = intermediates
            .iter()
            .find(|certificate| digest(certificate) == self.authority);
        let authority = pinned.ok_or(Error::InvalidCertificate(CertificateError::UnknownIssuer))?;
        verifier(authority.clone().into_owned())?.verify_server_cert(
            end_entity,
            &[],
            server_name,
            ocsp_response,
            now,
        )
    }

    fn verify_tls12_signature(
        &self,
        _: &[u8],
        _: &CertificateDer<'_>,
        _: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        Err(Error::General("TLS 1.2 is not spoken here".to_owned()))
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        dss: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        rustls::crypto::verify_tls13_signature(
            message,
            cert,
            dss,
            &self.provider.signature_verification_algorithms,
        )
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.provider
            .signature_verification_algorithms
            .supported_schemes()
    }
}
