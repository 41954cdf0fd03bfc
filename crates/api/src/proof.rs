//! Proofs: what a node signs with its own key, and how anybody checks it.
//!
//! A node's key is the one its certificate is for, ECDSA on P-256; the platform knows it by its digest, which is in the
//! journal from the moment the node joined. So a receipt is checked with the journal alone.

use ring::digest::{SHA256, digest};
use ring::rand::SystemRandom;
use ring::signature::{
    ECDSA_P256_SHA256_ASN1, ECDSA_P256_SHA256_ASN1_SIGNING, EcdsaKeyPair, KeyPair, UnparsedPublicKey,
};
use tenure_domain::schedule::receipt::Receipt;
use tenure_domain::tenancy::key::Digest;

/// What stands before a P-256 point to make it a public key as certificates carry it.
const BEFORE_POINT: [u8; 26] = [
    0x30, 0x59, 0x30, 0x13, 0x06, 0x07, 0x2a, 0x86, 0x48, 0xce, 0x3d, 0x02, 0x01, 0x06, 0x08, 0x2a, 0x86,
    0x48, 0xce, 0x3d, 0x03, 0x01, 0x07, 0x03, 0x42, 0x00,
];

/// Why a proof is none.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum BadProof {
    #[error("the key cannot be read")]
    Key,
    #[error("it was signed with another key than it says")]
    OtherKey,
    #[error("the signature does not match")]
    Signature,
}

/// A node's own key.
pub struct NodeKey {
    pair: EcdsaKeyPair,
    random: SystemRandom,
}

impl NodeKey {
    /// From the key's file.
    pub fn from_pem(pem: &str) -> Result<NodeKey, BadProof> {
        use base64::Engine as _;
        let body: String = pem
            .lines()
            .filter(|line| !line.starts_with("-----"))
            .map(str::trim)
            .collect();
        let der = base64::engine::general_purpose::STANDARD
            .decode(body)
            .map_err(|_| BadProof::Key)?;
        NodeKey::from_pkcs8(&der)
    }

    pub fn from_pkcs8(der: &[u8]) -> Result<NodeKey, BadProof> {
        let random = SystemRandom::new();
        let pair = EcdsaKeyPair::from_pkcs8(&ECDSA_P256_SHA256_ASN1_SIGNING, der, &random)
            .map_err(|_| BadProof::Key)?;
        Ok(NodeKey { pair, random })
    }

    /// Signs a receipt, whatever its proof said before.
    pub fn sign(&self, receipt: Receipt) -> Result<Receipt, BadProof> {
        let point = self.pair.public_key().as_ref();
        let signature = self
            .pair
            .sign(&self.random, receipt.message().as_bytes())
            .map_err(|_| BadProof::Signature)?;
        Ok(Receipt {
            key: digest_of(point),
            public_key: to_hex(point),
            signature: to_hex(signature.as_ref()),
            ..receipt
        })
    }
}

/// Checks that whoever has the key of this digest said exactly this.
pub fn verify(receipt: &Receipt) -> Result<(), BadProof> {
    let point = from_hex(&receipt.public_key).ok_or(BadProof::Key)?;
    let signature = from_hex(&receipt.signature).ok_or(BadProof::Signature)?;
    if digest_of(&point) != receipt.key {
        return Err(BadProof::OtherKey);
    }
    UnparsedPublicKey::new(&ECDSA_P256_SHA256_ASN1, &point)
        .verify(receipt.message().as_bytes(), &signature)
        .map_err(|_| BadProof::Signature)
}

/// As the platform knows a node's key: of the whole public key, as its certificate carries it.
fn digest_of(point: &[u8]) -> Digest {
    let whole = [&BEFORE_POINT[..], point].concat();
    let mut bytes = [0; 32];
    bytes.copy_from_slice(digest(&SHA256, &whole).as_ref());
    Digest(bytes)
}

fn to_hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

fn from_hex(text: &str) -> Option<Vec<u8>> {
    let digits = text.as_bytes();
    if !text.is_ascii() || digits.len() % 2 != 0 {
        return None;
    }
    (0..digits.len())
        .step_by(2)
        .map(|at| u8::from_str_radix(&text[at..at + 2], 16).ok())
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn receipt() -> Receipt {
        Receipt {
            number: 1,
            device: "GPU-1".into(),
            from: ["ten_a".to_owned()].into(),
            to: "ten_b".into(),
            allocation: tenure_domain::id::AllocationId(7),
            at_ms: 5,
            took_ms: 6,
            bytes: 1 << 30,
            local_bytes: 65536,
            compute_units: 4,
            fault: None,
            key: Digest([0; 32]),
            public_key: String::new(),
            signature: String::new(),
        }
    }

    #[test]
    fn nothing_signed_can_be_changed() {
        let random = SystemRandom::new();
        let key = EcdsaKeyPair::generate_pkcs8(&ECDSA_P256_SHA256_ASN1_SIGNING, &random).unwrap();
        let signed = NodeKey::from_pkcs8(key.as_ref())
            .unwrap()
            .sign(receipt())
            .unwrap();
        assert_eq!(verify(&signed), Ok(()));
        let other = EcdsaKeyPair::generate_pkcs8(&ECDSA_P256_SHA256_ASN1_SIGNING, &random).unwrap();
        let forged = NodeKey::from_pkcs8(other.as_ref())
            .unwrap()
            .sign(receipt())
            .unwrap();
        let changes: [fn(&mut Receipt, &Receipt); 14] = [
            |receipt, _| receipt.number = 2,
            |receipt, _| receipt.device.push('0'),
            |receipt, _| receipt.from = Default::default(),
            |receipt, _| receipt.to = "ten_c".into(),
            |receipt, _| receipt.allocation.0 += 1,
            |receipt, _| receipt.at_ms += 1,
            |receipt, _| receipt.took_ms += 1,
            |receipt, _| receipt.bytes += 1,
            |receipt, _| receipt.local_bytes = 0,
            |receipt, _| receipt.compute_units += 1,
            |receipt, _| receipt.fault = Some("stuck".into()),
            |receipt, forged| receipt.signature = forged.signature.clone(),
            |receipt, forged| receipt.public_key = forged.public_key.clone(),
            |receipt, forged| receipt.key = forged.key,
        ];
        for (number, change) in changes.iter().enumerate() {
            let mut changed = signed.clone();
            change(&mut changed, &forged);
            assert!(verify(&changed).is_err(), "change {number}");
        }
    }
}
