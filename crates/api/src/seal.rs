//! Signatures of nodes over what they saw: made with the key a node proves itself with, checked by anybody.
//!
//! ECDSA on P-256 with SHA-256, as node keys are. Deliberately absent: whose key it is, which the journal tells.

use ring::signature::{ECDSA_P256_SHA256_ASN1, UnparsedPublicKey};
use tenure_domain::audit::conduct::{Conduct, SignedConduct};
use tenure_domain::schedule::receipt::Receipt;
use tenure_domain::tenancy::key::Digest;

/// How public key info of a P-256 key begins; 65 bytes of the key itself follow.
const P256: [u8; 26] = [
    0x30, 0x59, 0x30, 0x13, 0x06, 0x07, 0x2a, 0x86, 0x48, 0xce, 0x3d, 0x02, 0x01, 0x06, 0x08, 0x2a, 0x86,
    0x48, 0xce, 0x3d, 0x03, 0x01, 0x07, 0x03, 0x42, 0x00,
];

/// Why a record is not what its node signed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum BadSeal {
    #[error("the public key is not one of P-256")]
    NotAKey,
    #[error("the key's digest is that of another key")]
    OtherKey,
    #[error("the signature does not match")]
    BadSignature,
}

/// A record with its seal; `public_key` is the signer's public key info.
pub fn sealed<E>(
    conduct: Conduct,
    public_key: &[u8],
    sign: impl FnOnce(&[u8]) -> Result<Vec<u8>, E>,
) -> Result<SignedConduct, E> {
    let signature = sign(&SignedConduct::message(&conduct))?;
    Ok(SignedConduct {
        conduct,
        key: digest(public_key),
        public_key: to_hex(public_key),
        signature: to_hex(&signature),
    })
}

/// The same for the receipt of a scrub, whatever its seal said before.
pub fn sealed_receipt<E>(
    receipt: Receipt,
    public_key: &[u8],
    sign: impl FnOnce(&[u8]) -> Result<Vec<u8>, E>,
) -> Result<Receipt, E> {
    let signature = sign(receipt.message().as_bytes())?;
    Ok(Receipt {
        key: digest(public_key),
        public_key: to_hex(public_key),
        signature: to_hex(&signature),
        ..receipt
    })
}

/// Whether the record is what the holder of its key signed. Whether that is a node's key is another question.
pub fn check(record: &SignedConduct) -> Result<(), BadSeal> {
    let message = SignedConduct::message(&record.conduct);
    holds(&record.key, &record.public_key, &record.signature, &message)
}

/// The same of a receipt.
pub fn check_receipt(receipt: &Receipt) -> Result<(), BadSeal> {
    let message = receipt.message();
    holds(
        &receipt.key,
        &receipt.public_key,
        &receipt.signature,
        message.as_bytes(),
    )
}

fn holds(key: &Digest, public_key: &str, signature: &str, message: &[u8]) -> Result<(), BadSeal> {
    let public_key = from_hex(public_key).ok_or(BadSeal::NotAKey)?;
    let point = public_key
        .strip_prefix(&P256)
        .filter(|point| point.len() == 65)
        .ok_or(BadSeal::NotAKey)?;
    if digest(&public_key) != *key {
        return Err(BadSeal::OtherKey);
    }
    let signature = from_hex(signature).ok_or(BadSeal::BadSignature)?;
    UnparsedPublicKey::new(&ECDSA_P256_SHA256_ASN1, point)
        .verify(message, &signature)
        .map_err(|_| BadSeal::BadSignature)
}

fn digest(bytes: &[u8]) -> Digest {
    let hash = ring::digest::digest(&ring::digest::SHA256, bytes);
    let mut digest = [0; 32];
    digest.copy_from_slice(hash.as_ref());
    Digest(digest)
}

fn to_hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

fn from_hex(text: &str) -> Option<Vec<u8>> {
    let plain = text.len().is_multiple_of(2) && text.bytes().all(|byte| byte.is_ascii_hexdigit());
    let pair = |at: usize| u8::from_str_radix(text.get(at..at + 2)?, 16).ok();
    (0..text.len())
        .step_by(2)
        .filter(|_| plain)
        .map(pair)
        .collect::<Option<Vec<u8>>>()
        .filter(|_| plain)
}

#[cfg(test)]
mod tests {
    use super::*;
    use ring::rand::SystemRandom;
    use ring::signature::{ECDSA_P256_SHA256_ASN1_SIGNING, EcdsaKeyPair, KeyPair};
    use tenure_domain::id::{AllocationId, JobId};

    fn record() -> SignedConduct {
        let random = SystemRandom::new();
        let key = EcdsaKeyPair::generate_pkcs8(&ECDSA_P256_SHA256_ASN1_SIGNING, &random).unwrap();
        let key = EcdsaKeyPair::from_pkcs8(&ECDSA_P256_SHA256_ASN1_SIGNING, key.as_ref(), &random).unwrap();
        let public_key = [&P256[..], key.public_key().as_ref()].concat();
        let conduct = Conduct {
            launches: 7,
            ..Conduct::new(AllocationId(1), JobId(2))
        };
        sealed(conduct, &public_key, |message| {
            key.sign(&random, message)
                .map(|signature| signature.as_ref().to_vec())
        })
        .unwrap()
    }

    #[test]
    fn what_was_signed_is_told_from_what_was_not() {
        let good = record();
        assert_eq!(check(&good), Ok(()));
        let read: SignedConduct = serde_json::from_str(&serde_json::to_string(&good).unwrap()).unwrap();
        assert_eq!(check(&read), Ok(()), "as it was read back");
        let mut changed = good.clone();
        changed.conduct.launches = 6;
        assert_eq!(check(&changed), Err(BadSeal::BadSignature));
        let others = record();
        let stolen = SignedConduct {
            public_key: others.public_key.clone(),
            ..good.clone()
        };
        assert_eq!(check(&stolen), Err(BadSeal::OtherKey));
        let resigned = SignedConduct {
            key: others.key,
            ..stolen
        };
        assert_eq!(check(&resigned), Err(BadSeal::BadSignature));
        for (public_key, signature, why) in [
            ("", good.signature.as_str(), BadSeal::NotAKey),
            ("zz", good.signature.as_str(), BadSeal::NotAKey),
            (good.public_key.as_str(), "", BadSeal::BadSignature),
            (good.public_key.as_str(), "3", BadSeal::BadSignature),
            (good.public_key.as_str(), "+1", BadSeal::BadSignature),
        ] {
            let bad = SignedConduct {
                public_key: public_key.to_owned(),
                signature: signature.to_owned(),
                ..good.clone()
            };
            assert_eq!(check(&bad), Err(why));
        }
    }

    fn receipt() -> Receipt {
        let random = SystemRandom::new();
        let key = EcdsaKeyPair::generate_pkcs8(&ECDSA_P256_SHA256_ASN1_SIGNING, &random).unwrap();
        let key = EcdsaKeyPair::from_pkcs8(&ECDSA_P256_SHA256_ASN1_SIGNING, key.as_ref(), &random).unwrap();
        let receipt = Receipt {
            number: 1,
            device: "GPU-1".into(),
            from: ["ten_a".to_owned()].into(),
            to: "ten_b".into(),
            allocation: AllocationId(7),
            at_ms: 5,
            took_ms: 6,
            bytes: 1 << 30,
            local_bytes: 65536,
            compute_units: 4,
            missed_bytes: 0,
            fault: None,
            key: Digest([0; 32]),
            public_key: String::new(),
            signature: String::new(),
        };
        let public_key = [&P256[..], key.public_key().as_ref()].concat();
        let sign = |message: &[u8]| Ok::<_, ()>(key.sign(&random, message).unwrap().as_ref().to_vec());
        sealed_receipt(receipt, &public_key, sign).unwrap()
    }

    #[test]
    fn nothing_of_a_receipt_can_be_changed() {
        let (signed, forged) = (receipt(), receipt());
        assert_eq!(check_receipt(&signed), Ok(()));
        let changes: [fn(&mut Receipt, &Receipt); 15] = [
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
            |receipt, _| receipt.missed_bytes = 1,
            |receipt, _| receipt.fault = Some("stuck".into()),
            |receipt, forged| receipt.signature = forged.signature.clone(),
            |receipt, forged| receipt.public_key = forged.public_key.clone(),
            |receipt, forged| receipt.key = forged.key,
        ];
        for (number, change) in changes.iter().enumerate() {
            let mut changed = signed.clone();
            change(&mut changed, &forged);
            assert!(check_receipt(&changed).is_err(), "change {number}");
        }
    }

    /// Signed once and for ever: a change of encoding turns this red.
    #[test]
    fn an_old_record_still_checks() {
        let old = include_str!("../tests/golden/conduct.json");
        let old: SignedConduct = serde_json::from_str(old).unwrap();
        assert_eq!(check(&old), Ok(()));
    }
}
