//! Signed tokens (RFC 7515) and published keys (RFC 7517), as far as ID tokens need them: three algorithms, all
//! with public keys. `none` and shared secrets are not known here at all.

use ring::signature::{
    ECDSA_P256_SHA256_FIXED, ED25519, RSA_PKCS1_2048_8192_SHA256, RsaPublicKeyComponents, UnparsedPublicKey,
};
use serde::Deserialize;

/// A published key.
#[derive(Debug, Clone, Deserialize)]
pub(super) struct Jwk {
    kty: String,
    kid: Option<String>,
    alg: Option<String>,
    #[serde(rename = "use")]
    purpose: Option<String>,
    crv: Option<String>,
    n: Option<String>,
    e: Option<String>,
    x: Option<String>,
    y: Option<String>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Algorithm {
    Rs256,
    Es256,
    EdDsa,
}

impl Algorithm {
    fn parse(name: &str) -> Option<Algorithm> {
        match name {
            "RS256" => Some(Algorithm::Rs256),
            "ES256" => Some(Algorithm::Es256),
            "EdDSA" => Some(Algorithm::EdDsa),
            _ => None,
        }
    }

    fn name(self) -> &'static str {
        match self {
            Algorithm::Rs256 => "RS256",
            Algorithm::Es256 => "ES256",
            Algorithm::EdDsa => "EdDSA",
        }
    }

    fn fits(self, key: &Jwk) -> bool {
        let kind = match self {
            Algorithm::Rs256 => key.kty == "RSA",
            Algorithm::Es256 => key.kty == "EC" && key.crv.as_deref() == Some("P-256"),
            Algorithm::EdDsa => key.kty == "OKP" && key.crv.as_deref() == Some("Ed25519"),
        };
        kind && key.alg.as_deref().is_none_or(|alg| alg == self.name())
            && key.purpose.as_deref().is_none_or(|purpose| purpose == "sig")
    }
}

#[derive(Deserialize)]
struct Header {
    alg: String,
    kid: Option<String>,
    crit: Option<serde_json::Value>,
}

/// A token split into its parts, nothing of it believed yet.
pub(super) struct Signed {
    algorithm: Algorithm,
    kid: Option<String>,
    /// What the signature covers.
    covered: String,
    payload: Vec<u8>,
    signature: Vec<u8>,
}

impl Signed {
    pub fn read(token: &str) -> Result<Signed, &'static str> {
        let mut parts = token.split('.');
        let (Some(header), Some(payload), Some(signature), None) =
            (parts.next(), parts.next(), parts.next(), parts.next())
        else {
            return Err("it does not have three parts");
        };
        let bytes = unbase64url(header).ok_or("its header is not readable")?;
        let parsed: Header = serde_json::from_slice(&bytes).map_err(|_| "its header is not readable")?;
        if parsed.crit.is_some() {
            return Err("it asks for extensions nobody knows here");
        }
        let algorithm =
            Algorithm::parse(&parsed.alg).ok_or("only RS256, ES256 and EdDSA signatures are believed")?;
        Ok(Signed {
            algorithm,
            kid: parsed.kid,
            covered: format!("{header}.{payload}"),
            payload: unbase64url(payload).ok_or("its claims are not readable")?,
            signature: unbase64url(signature).ok_or("its signature is not readable")?,
        })
    }

    /// The key the token names; the only fitting one where it names none.
    pub fn choose<'a>(&self, keys: &'a [Jwk]) -> Option<&'a Jwk> {
        let mut fitting = keys.iter().filter(|key| self.algorithm.fits(key));
        match &self.kid {
            Some(kid) => fitting.find(|key| key.kid.as_ref() == Some(kid)),
            None => fitting.next().filter(|_| fitting.next().is_none()),
        }
    }

    /// The claims, once the signature is proven.
    pub fn verify(self, key: &Jwk) -> Result<Vec<u8>, &'static str> {
        let wrong = "its signature is not its issuer's";
        if !self.algorithm.fits(key) {
            return Err(wrong);
        }
        let part = |part: &Option<String>| {
            part.as_deref()
                .and_then(unbase64url)
                .ok_or("its issuer's key is not readable")
        };
        let covered = self.covered.as_bytes();
        let proven = match self.algorithm {
            Algorithm::Rs256 => {
                let (n, e) = (part(&key.n)?, part(&key.e)?);
                RsaPublicKeyComponents { n, e }.verify(&RSA_PKCS1_2048_8192_SHA256, covered, &self.signature)
            }
            Algorithm::Es256 => {
                let point = [&[4], part(&key.x)?.as_slice(), part(&key.y)?.as_slice()].concat();
                UnparsedPublicKey::new(&ECDSA_P256_SHA256_FIXED, point).verify(covered, &self.signature)
            }
            Algorithm::EdDsa => {
                UnparsedPublicKey::new(&ED25519, part(&key.x)?).verify(covered, &self.signature)
            }
        };
        proven.map_err(|_| wrong)?;
        Ok(self.payload)
    }
}

/// Base64url without padding, canonical or nothing.
fn unbase64url(text: &str) -> Option<Vec<u8>> {
    let mut bytes = Vec::with_capacity(text.len() * 3 / 4);
    let (mut bits, mut held) = (0u32, 0u32);
    for letter in text.bytes() {
        let digit = match letter {
            b'A'..=b'Z' => letter - b'A',
            b'a'..=b'z' => letter - b'a' + 26,
            b'0'..=b'9' => letter - b'0' + 52,
            b'-' => 62,
            b'_' => 63,
            _ => return None,
        };
        bits = bits << 6 | u32::from(digit);
        held += 6;
        if held >= 8 {
            held -= 8;
            bytes.push((bits >> held) as u8);
            bits &= (1 << held) - 1;
        }
    }
    (bits == 0 && held < 6).then_some(bytes)
}

#[cfg(test)]
mod tests {
    use ring::rand::SystemRandom;
    use ring::signature::{Ed25519KeyPair, KeyPair};

    use super::*;

    fn base64url(bytes: &[u8]) -> String {
        const LETTERS: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_";
        let word = |chunk: &[u8]| {
            chunk.iter().fold(0u32, |word, &byte| word << 8 | u32::from(byte)) << (8 * (3 - chunk.len()))
        };
        let letters = bytes.chunks(3).flat_map(|chunk| {
            (0..=chunk.len()).map(move |i| LETTERS[(word(chunk) >> (18 - 6 * i)) as usize & 63])
        });
        letters.map(char::from).collect()
    }

    fn pair() -> (Ed25519KeyPair, Jwk) {
        let pkcs8 = Ed25519KeyPair::generate_pkcs8(&SystemRandom::new()).unwrap();
        let pair = Ed25519KeyPair::from_pkcs8(pkcs8.as_ref()).unwrap();
        let x = base64url(pair.public_key().as_ref());
        let key = serde_json::json!({ "kty": "OKP", "crv": "Ed25519", "kid": "k1", "x": x });
        (pair, serde_json::from_value(key).unwrap())
    }

    fn token(pair: &Ed25519KeyPair, header: &str, claims: &str) -> String {
        let covered = format!(
            "{}.{}",
            base64url(header.as_bytes()),
            base64url(claims.as_bytes())
        );
        let signature = base64url(pair.sign(covered.as_bytes()).as_ref());
        format!("{covered}.{signature}")
    }

    #[test]
    fn only_what_the_key_signed_is_believed() {
        let ((ours, key), (theirs, _)) = (pair(), pair());
        let header = r#"{"alg":"EdDSA","kid":"k1"}"#;
        let good = token(&ours, header, r#"{"sub":"ada"}"#);
        let signed = Signed::read(&good).unwrap();
        assert!(signed.choose(std::slice::from_ref(&key)).is_some());
        assert_eq!(signed.verify(&key).unwrap(), br#"{"sub":"ada"}"#);
        assert!(
            Signed::read(&token(&theirs, header, r#"{"sub":"ada"}"#))
                .unwrap()
                .verify(&key)
                .is_err()
        );
        let (head, rest) = good.split_once('.').unwrap();
        let (_, signature) = rest.split_once('.').unwrap();
        let forged = format!("{head}.{}.{signature}", base64url(br#"{"sub":"eve"}"#));
        assert!(Signed::read(&forged).unwrap().verify(&key).is_err());
    }

    #[test]
    fn no_signature_and_shared_secrets_are_unknown() {
        let (ours, key) = pair();
        for alg in ["none", "None", "HS256", "HS512", "RS512", ""] {
            assert!(
                Signed::read(&token(&ours, &format!(r#"{{"alg":"{alg}","kid":"k1"}}"#), "{}")).is_err(),
                "{alg}"
            );
        }
        let other = Signed::read(&token(&ours, r#"{"alg":"RS256","kid":"k1"}"#, "{}")).unwrap();
        assert!(other.choose(std::slice::from_ref(&key)).is_none());
        assert!(other.verify(&key).is_err());
        for broken in [
            "",
            ".",
            "..",
            "a.b.c",
            "a.b.c.d",
            "e30.e30.",
            "eyJhbGciOiJub25lIn0.e30.",
        ] {
            assert!(Signed::read(broken).is_err(), "{broken}");
        }
    }
}
