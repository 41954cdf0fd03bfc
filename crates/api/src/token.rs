//! API keys as people hold them: `tnr_`, 43 characters of 32 random bytes, and 6 of checksum. The checksum
//! tells a mistyped or truncated key from an unknown one without asking anybody, and lets scanners find leaks.

use tenure_domain::tenancy::key::Digest;

use crate::secret_text::SecretText;

const ALPHABET: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_";

/// Which kind of token a text claims to be.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// Authenticates a user.
    Key,
    /// Lets one node join; followed by the fingerprint of the server's authority.
    Join,
}

impl Kind {
    fn prefix(self) -> &'static str {
        match self {
            Kind::Key => "tnr_",
            Kind::Join => "tnrj_",
        }
    }
}

/// Why a text is not a token.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum BadToken {
    #[error("it does not start like a token of this kind")]
    Prefix,
    #[error("it has the wrong length; was it cut?")]
    Length,
    #[error("its checksum does not match; was it mistyped?")]
    Checksum,
}

/// Writes 32 random bytes as a token.
pub fn write(kind: Kind, bytes: &[u8; 32]) -> SecretText {
    let body = base64(bytes);
    let sum = checksum(kind, &body);
    SecretText::new(format!("{}{body}{sum}", kind.prefix()))
}

/// Reads a token back into its bytes.
pub fn read(kind: Kind, text: &str) -> Result<[u8; 32], BadToken> {
    let rest = text.strip_prefix(kind.prefix()).ok_or(BadToken::Prefix)?;
    if rest.len() != 49 || !rest.is_ascii() {
        return Err(BadToken::Length);
    }
    let (body, sum) = rest.split_at(43);
    if sum != checksum(kind, body) {
        return Err(BadToken::Checksum);
    }
    unbase64(body).ok_or(BadToken::Checksum)
}

/// What a node needs to join: a one-time token, and the SHA-256 of the certificate of the authority it will
/// trust. Written `tnrj_….` and 64 hexadecimal digits.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct JoinTicket {
    pub token: SecretText,
    pub authority: Digest,
}

impl JoinTicket {
    pub fn write(&self) -> SecretText {
        let hex: String = self
            .authority
            .0
            .iter()
            .map(|byte| format!("{byte:02x}"))
            .collect();
        SecretText::new(format!("{}.{hex}", self.token.reveal()))
    }

    pub fn read(text: &str) -> Result<JoinTicket, BadToken> {
        let (token, hex) = text.trim().split_once('.').ok_or(BadToken::Length)?;
        read(Kind::Join, token)?;
        if hex.len() != 64 {
            return Err(BadToken::Length);
        }
        let digit = |i: usize| {
            char::from(hex.as_bytes()[i])
                .to_digit(16)
                .ok_or(BadToken::Checksum)
        };
        let mut authority = [0; 32];
        for (i, byte) in authority.iter_mut().enumerate() {
            *byte = (digit(2 * i)? << 4 | digit(2 * i + 1)?) as u8;
        }
        Ok(JoinTicket {
            token: SecretText::new(token),
            authority: Digest(authority),
        })
    }
}

fn base64(bytes: &[u8]) -> String {
    let mut text = String::with_capacity(bytes.len().div_ceil(3) * 4);
    for chunk in bytes.chunks(3) {
        let word =
            chunk.iter().fold(0u32, |word, &byte| word << 8 | u32::from(byte)) << (8 * (3 - chunk.len()));
        for i in 0..=chunk.len() {
            text.push(char::from(ALPHABET[(word >> (18 - 6 * i)) as usize & 63]));
        }
    }
    text
}

fn unbase64(text: &str) -> Option<[u8; 32]> {
    let mut bits: u32 = 0;
    let mut held = 0;
    let mut bytes = Vec::with_capacity(32);
    for letter in text.bytes() {
        let digit = ALPHABET.iter().position(|&known| known == letter)?;
        bits = bits << 6 | digit as u32;
        held += 6;
        if held >= 8 {
            held -= 8;
            bytes.push((bits >> held) as u8);
            bits &= (1 << held) - 1;
        }
    }
    // The last character carries two unused bits; only zero is canonical.
    if bits != 0 { None } else { bytes.try_into().ok() }
}

/// CRC-32 (IEEE) of prefix and body, as six characters.
fn checksum(kind: Kind, body: &str) -> String {
    let mut crc = !0u32;
    for byte in kind.prefix().bytes().chain(body.bytes()) {
        crc ^= u32::from(byte);
        for _ in 0..8 {
            crc = if crc & 1 == 1 {
                crc >> 1 ^ 0xedb8_8320
            } else {
                crc >> 1
            };
        }
    }
    base64(&(!crc).to_be_bytes())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tokens_read_as_they_were_written() {
        for seed in 0..=255u8 {
            let bytes: [u8; 32] = std::array::from_fn(|i| seed.wrapping_mul(31).wrapping_add(i as u8));
            let token = write(Kind::Key, &bytes);
            assert_eq!(read(Kind::Key, token.reveal()), Ok(bytes));
            assert!(read(Kind::Join, token.reveal()).is_err());
        }
    }

    #[test]
    fn tickets_read_as_they_were_written() {
        let ticket = JoinTicket {
            token: write(Kind::Join, &[9; 32]),
            authority: Digest(std::array::from_fn(|i| i as u8 * 8)),
        };
        let text = ticket.write();
        assert_eq!(JoinTicket::read(text.reveal()), Ok(ticket.clone()));
        assert_eq!(
            JoinTicket::read(&format!("{}\n", text.reveal())),
            Ok(ticket.clone())
        );
        let end = text.reveal().len();
        for cut in [0, 5, 30, end - 1] {
            assert!(JoinTicket::read(&text.reveal()[..cut]).is_err());
        }
        assert!(JoinTicket::read(&text.reveal().replace('.', "")).is_err());
        assert!(JoinTicket::read(&format!("{}é", &text.reveal()[..end - 2])).is_err());
    }

    #[test]
    fn every_slip_of_one_character_is_seen() {
        let token = write(Kind::Key, &[7; 32]);
        let text = token.reveal();
        for i in 0..text.len() {
            let mut other = text.to_owned().into_bytes();
            other[i] = if other[i] == b'A' { b'B' } else { b'A' };
            assert!(
                read(Kind::Key, std::str::from_utf8(&other).unwrap()).is_err(),
                "position {i}"
            );
            assert!(read(Kind::Key, &text[..i]).is_err());
        }
    }
}
