//! The platform's own certificate authority: it signs the hub's certificate and one per node.
//!
//! Certificates carry no useful dates: a node whose clock is wrong must still reach its server, and
//! what ends a node's right is the list of keys, asked at every connection. So nothing here reads a clock.

use rcgen::{
    BasicConstraints, CertificateParams, CertificateSigningRequestParams, DistinguishedName, DnType,
    ExtendedKeyUsagePurpose, IsCa, Issuer, KeyPair, KeyUsagePurpose, date_time_ymd,
};
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, CertificateSigningRequestDer, PrivateKeyDer, PrivatePkcs8KeyDer};
use tenure_api::channel::SERVER_NAME;
use tenure_api::secret_text::SecretText;
use tenure_domain::id::NodeId;
use tenure_domain::tenancy::key::Digest;

/// Why a certificate could not be made or read.
#[derive(Debug, thiserror::Error)]
pub enum AuthorityError {
    #[error("make or read a certificate")]
    Certificate(#[from] rcgen::Error),
    #[error("read a PEM text")]
    Pem(#[from] rustls::pki_types::pem::Error),
    #[error("read a certificate or request: {0}")]
    Malformed(String),
    #[error("the key does not belong to the authority's certificate")]
    KeyMismatch,
}

/// The authority: its certificate and the key it signs with.
pub struct Authority {
    issuer: Issuer<'static, KeyPair>,
    certificate: CertificateDer<'static>,
    certificate_pem: String,
}

/// A certificate for the hub with its key.
pub struct ServerCertificate {
    pub chain: Vec<CertificateDer<'static>>,
    pub key: PrivateKeyDer<'static>,
}

impl Authority {
    /// A new authority with a new key.
    pub fn create() -> Result<Self, AuthorityError> {
        let key = KeyPair::generate()?;
        let mut params = never_expiring("Tenure authority");
        params.is_ca = IsCa::Ca(BasicConstraints::Constrained(0));
        params.key_usages = vec![KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::DigitalSignature];
        let certificate = params.self_signed(&key)?;
        let (certificate_pem, certificate) = (certificate.pem(), certificate.der().clone());
        Ok(Authority {
            issuer: Issuer::new(params, key),
            certificate,
            certificate_pem,
        })
    }

    /// The authority that `to_pem` wrote.
    pub fn load(certificate_pem: &str, key_pem: &str) -> Result<Self, AuthorityError> {
        let key = KeyPair::from_pem(key_pem)?;
        let certificate = CertificateDer::from_pem_slice(certificate_pem.as_bytes())?;
        if key_of(&certificate)? != digest(&rcgen::PublicKeyData::subject_public_key_info(&key)) {
            return Err(AuthorityError::KeyMismatch);
        }
        let issuer = Issuer::from_ca_cert_pem(certificate_pem, key)?;
        Ok(Authority {
            issuer,
            certificate,
            certificate_pem: certificate_pem.to_owned(),
        })
    }

    /// The certificate, and the key to be kept where only the server reads.
    pub fn to_pem(&self) -> (String, SecretText) {
        (
            self.certificate_pem.clone(),
            SecretText::new(self.issuer.key().serialize_pem()),
        )
    }

    pub fn certificate(&self) -> &CertificateDer<'static> {
        &self.certificate
    }

    /// SHA-256 of the certificate: what a join ticket carries.
    pub fn fingerprint(&self) -> Digest {
        digest(&self.certificate)
    }

    /// A certificate for a server; agents look for `SERVER_NAME` in it, `names` are for people and tools.
    pub fn issue_server(&self, names: &[String]) -> Result<ServerCertificate, AuthorityError> {
        let key = KeyPair::generate()?;
        let mut all = vec![SERVER_NAME.to_owned()];
        all.extend(names.iter().filter(|name| *name != SERVER_NAME).cloned());
        let mut params = never_expiring("Tenure server");
        params.subject_alt_names = CertificateParams::new(all)?.subject_alt_names;
        params.key_usages = vec![KeyUsagePurpose::DigitalSignature];
        params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ServerAuth];
        let certificate = params.signed_by(&key, &self.issuer)?;
        Ok(ServerCertificate {
            // The authority goes along, so that a joining node can compare it with its ticket.
            chain: vec![certificate.der().clone(), self.certificate.clone()],
            key: PrivatePkcs8KeyDer::from(key.serialize_der()).into(),
        })
    }

    /// A certificate for a node on the key of its request. Of the request only the key is taken, and only
    /// if it is signed with that key.
    pub fn sign_node(&self, csr_pem: &str, node: NodeId) -> Result<String, AuthorityError> {
        let mut request = CertificateSigningRequestParams::from_pem(csr_pem)?;
        request.params = never_expiring(&node.to_string());
        request.params.key_usages = vec![KeyUsagePurpose::DigitalSignature];
        request.params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ClientAuth];
        Ok(request.signed_by(&self.issuer)?.pem())
    }
}

fn never_expiring(common_name: &str) -> CertificateParams {
    let mut name = DistinguishedName::new();
    name.push(DnType::CommonName, common_name);
    let mut params = CertificateParams::default();
    params.not_before = date_time_ymd(1970, 1, 1);
    params.not_after = date_time_ymd(9999, 12, 31);
    params.distinguished_name = name;
    params
}

pub(super) fn digest(bytes: &[u8]) -> Digest {
    let hash = ring::digest::digest(&ring::digest::SHA256, bytes);
    let mut digest = [0; 32];
    digest.copy_from_slice(hash.as_ref());
    Digest(digest)
}

/// The SHA-256 of a certificate's public key info.
pub(super) fn key_of(certificate: &CertificateDer<'_>) -> Result<Digest, AuthorityError> {
    let (_, parsed) = x509_parser::parse_x509_certificate(certificate)
        .map_err(|e| AuthorityError::Malformed(e.to_string()))?;
    Ok(digest(parsed.public_key().raw))
}

/// The SHA-256 of the public key info a request asks a certificate for. Says nothing of its signature.
pub(super) fn key_of_request(csr_pem: &str) -> Result<Digest, AuthorityError> {
    use x509_parser::prelude::FromDer;
    let der = CertificateSigningRequestDer::from_pem_slice(csr_pem.as_bytes())?;
    let (_, request) = x509_parser::certification_request::X509CertificationRequest::from_der(&der)
        .map_err(|e| AuthorityError::Malformed(e.to_string()))?;
    Ok(digest(request.certification_request_info.subject_pki.raw))
}
