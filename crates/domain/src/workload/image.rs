//! Names of container images: `[host[:port]/]path[:tag][@sha256:…]`, read as every tool reads them.
//!
//! Pure: what a name means, not what is behind it. A job specification is checked with it, placement compares
//! with it, and the agent asks registries by it. Deliberately absent: digests other than SHA-256.

use std::fmt;
use std::str::FromStr;

/// The registry meant when none is named, as people write it.
pub const DEFAULT_REGISTRY: &str = "docker.io";
/// Where that registry answers.
const DEFAULT_REGISTRY_HOST: &str = "registry-1.docker.io";
const DEFAULT_TAG: &str = "latest";
pub const MAX_IMAGE_NAME: usize = 512;
const MAX_REPOSITORY: usize = 255;
const MAX_TAG: usize = 128;

/// The SHA-256 of a manifest, a configuration or a layer.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ImageDigest(pub [u8; 32]);

impl ImageDigest {
    /// The digits alone, as files are called.
    pub fn hex(&self) -> String {
        self.0.iter().map(|byte| format!("{byte:02x}")).collect()
    }
}

impl fmt::Display for ImageDigest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "sha256:{}", self.hex())
    }
}

/// Why a text is not the name of an image.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct BadImageName(pub String);

impl fmt::Display for BadImageName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for BadImageName {}

fn bad<T>(why: impl Into<String>) -> Result<T, BadImageName> {
    Err(BadImageName(why.into()))
}

impl FromStr for ImageDigest {
    type Err = BadImageName;

    fn from_str(text: &str) -> Result<ImageDigest, BadImageName> {
        let Some(hex) = text.strip_prefix("sha256:") else {
            return bad("an image's digest is sha256: and 64 digits");
        };
        let digit = |byte: u8| match byte {
            b'0'..=b'9' => Some(byte - b'0'),
            b'a'..=b'f' => Some(byte - b'a' + 10),
            _ => None,
        };
        let mut bytes = [0; 32];
        let (pairs, rest) = hex.as_bytes().as_chunks::<2>();
        if pairs.len() != bytes.len() || !rest.is_empty() {
            return bad("an image's digest is sha256: and 64 digits");
        }
        for (byte, [high, low]) in bytes.iter_mut().zip(pairs) {
            let (Some(high), Some(low)) = (digit(*high), digit(*low)) else {
                return bad("an image's digest is sha256: and 64 digits of 0-9 and a-f");
            };
            *byte = high << 4 | low;
        }
        Ok(ImageDigest(bytes))
    }
}

/// An image by its name.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ImageName {
    /// `host` or `host:port`.
    registry: String,
    repository: String,
    tag: Option<String>,
    digest: Option<ImageDigest>,
}

impl ImageName {
    pub fn registry(&self) -> &str {
        &self.registry
    }

    /// The host, and port, to ask.
    pub fn host(&self) -> &str {
        if self.registry == DEFAULT_REGISTRY {
            DEFAULT_REGISTRY_HOST
        } else {
            &self.registry
        }
    }

    pub fn repository(&self) -> &str {
        &self.repository
    }

    /// The tag, unless a digest alone was named.
    pub fn tag(&self) -> Option<&str> {
        self.tag.as_deref()
    }

    pub fn digest(&self) -> Option<ImageDigest> {
        self.digest
    }

    /// Whether the name can come to mean another image from one day to the next as a matter of course.
    pub fn is_latest(&self) -> bool {
        self.digest.is_none() && self.tag.as_deref() == Some(DEFAULT_TAG)
    }

    /// What nodes say they hold, and placement looks for: a digest where one is named, else the whole name.
    pub fn key(&self) -> String {
        self.digest
            .map_or_else(|| self.to_string(), |digest| digest.to_string())
    }
}

impl fmt::Display for ImageName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.registry, self.repository)?;
        if let Some(tag) = &self.tag {
            write!(f, ":{tag}")?;
        }
        match &self.digest {
            Some(digest) => write!(f, "@{digest}"),
            None => Ok(()),
        }
    }
}

impl FromStr for ImageName {
    type Err = BadImageName;

    fn from_str(text: &str) -> Result<ImageName, BadImageName> {
        if text.is_empty() {
            return bad("an image's name is empty");
        }
        if text.len() > MAX_IMAGE_NAME {
            return bad(format!("an image's name is at most {MAX_IMAGE_NAME} bytes"));
        }
        if text.contains("://") {
            return bad("an image is named without http:// or https://");
        }
        let (rest, digest) = match text.split_once('@') {
            Some((rest, digest)) => (rest, Some(digest.parse()?)),
            None => (text, None),
        };
        // A first part with a dot, a port or the name `localhost` is a host; anything else is of the default registry.
        let (registry, path) = match rest.split_once('/') {
            Some((first, path)) if first.contains(['.', ':']) || first == "localhost" => (first, path),
            _ => (DEFAULT_REGISTRY, rest),
        };
        check_host(registry)?;
        let (repository, tag) = match path.rsplit_once(':') {
            Some((repository, tag)) => (repository, Some(tag)),
            None => (path, None),
        };
        let registry = registry.to_ascii_lowercase();
        let registry = match registry.as_str() {
            "index.docker.io" | DEFAULT_REGISTRY_HOST => DEFAULT_REGISTRY.to_owned(),
            _ => registry,
        };
        let repository = if registry == DEFAULT_REGISTRY && !repository.contains('/') {
            format!("library/{repository}")
        } else {
            repository.to_owned()
        };
        check_repository(&repository)?;
        if let Some(tag) = tag {
            check_tag(tag)?;
        }
        let tag = tag.map(str::to_owned);
        Ok(ImageName {
            registry,
            repository,
            tag: tag.or_else(|| digest.is_none().then(|| DEFAULT_TAG.to_owned())),
            digest,
        })
    }
}

fn check_host(registry: &str) -> Result<(), BadImageName> {
    let (host, port) = match registry.strip_prefix('[') {
        Some(rest) => match rest.split_once(']') {
            Some((host, port)) if host.parse::<core::net::Ipv6Addr>().is_ok() => {
                ("", port.strip_prefix(':').or((!port.is_empty()).then_some("")))
            }
            _ => return bad("the image's registry is not an address"),
        },
        None => match registry.split_once(':') {
            Some((host, port)) => (host, Some(port)),
            None => (registry, None),
        },
    };
    if port.is_some_and(|port| port.parse::<u16>().map_or(true, |port| port == 0)) {
        return bad("the port of the image's registry is not a number from 1 to 65535");
    }
    let label = |label: &str| {
        (1..=63).contains(&label.len())
            && label.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'-')
            && !label.starts_with('-')
            && !label.ends_with('-')
    };
    if registry.starts_with('[') || host.len() <= 253 && host.split('.').all(label) {
        Ok(())
    } else {
        bad("the image's registry is not a host's name")
    }
}

fn check_repository(repository: &str) -> Result<(), BadImageName> {
    if repository.len() > MAX_REPOSITORY {
        return bad(format!("an image's path is at most {MAX_REPOSITORY} bytes"));
    }
    if repository.bytes().any(|b| b.is_ascii_uppercase()) {
        return bad("an image's path has no capital letters");
    }
    if repository.split('/').all(is_path_part) {
        Ok(())
    } else {
        bad("an image's path is parts of a-z and 0-9, joined by '/', inside a part by '.', '_', '__' or '-'")
    }
}

fn is_path_part(part: &str) -> bool {
    let plain = |b: u8| b.is_ascii_lowercase() || b.is_ascii_digit();
    let ends = |part: &str| part.bytes().next().is_some_and(plain) && part.bytes().last().is_some_and(plain);
    let joints = part
        .split(|c: char| c.is_ascii_lowercase() || c.is_ascii_digit())
        .all(|joint| matches!(joint, "" | "." | "_" | "__") || joint.bytes().all(|b| b == b'-'));
    ends(part) && joints
}

fn check_tag(tag: &str) -> Result<(), BadImageName> {
    let fine = (1..=MAX_TAG).contains(&tag.len())
        && tag
            .bytes()
            .all(|b| b.is_ascii_alphanumeric() || matches!(b, b'_' | b'.' | b'-'))
        && !tag.starts_with(['.', '-']);
    if fine {
        Ok(())
    } else {
        bad(format!(
            "an image's tag is 1 to {MAX_TAG} letters, digits, '_', '.' or '-', starting with a letter, a digit or '_'"
        ))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const DIGEST: &str = "sha256:e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855";

    #[test]
    fn names_mean_what_every_tool_says() {
        for (written, whole, host) in [
            (
                "ubuntu",
                "docker.io/library/ubuntu:latest",
                "registry-1.docker.io",
            ),
            (
                "ubuntu:24.04",
                "docker.io/library/ubuntu:24.04",
                "registry-1.docker.io",
            ),
            ("a/b", "docker.io/a/b:latest", "registry-1.docker.io"),
            (
                "docker.io/ubuntu",
                "docker.io/library/ubuntu:latest",
                "registry-1.docker.io",
            ),
            (
                "registry-1.docker.io/library/ubuntu",
                "docker.io/library/ubuntu:latest",
                "registry-1.docker.io",
            ),
            ("localhost/x", "localhost/x:latest", "localhost"),
            ("localhost:5000/x/y:v1", "localhost:5000/x/y:v1", "localhost:5000"),
            ("GHCR.io/a/b__c:V_1", "ghcr.io/a/b__c:V_1", "ghcr.io"),
            ("[::1]:5000/x", "[::1]:5000/x:latest", "[::1]:5000"),
            ("127.0.0.1:80/x", "127.0.0.1:80/x:latest", "127.0.0.1:80"),
        ] {
            let name: ImageName = written.parse().unwrap_or_else(|e| panic!("{written}: {e}"));
            assert_eq!(name.to_string(), whole, "{written}");
            assert_eq!(name.host(), host, "{written}");
            assert_eq!(name.key(), whole, "{written}");
            assert_eq!(whole.parse(), Ok(name), "what is printed reads the same");
        }
        let pinned: ImageName = format!("ubuntu@{DIGEST}").parse().unwrap();
        assert_eq!(pinned.tag(), None);
        assert_eq!(pinned.key(), DIGEST);
        assert!(!pinned.is_latest());
        let both: ImageName = format!("quay.io/a/b:v2@{DIGEST}").parse().unwrap();
        assert_eq!((both.tag(), both.key()), (Some("v2"), DIGEST.to_owned()));
        assert!("ubuntu".parse::<ImageName>().unwrap().is_latest());
        assert!(!"ubuntu:24.04".parse::<ImageName>().unwrap().is_latest());
    }

    #[test]
    fn other_texts_are_refused() {
        let long = "x".repeat(256);
        let label = format!("{}.io/x", "a".repeat(64));
        for text in [
            "",
            " ",
            "Ubuntu",
            "ubuntu:",
            "ubuntu:a b",
            "ubuntu:-x",
            "ubuntu@",
            "ubuntu@sha256:12",
            "ubuntu@sha512:00",
            "https://ghcr.io/a",
            "a//b",
            "/a",
            "a/",
            "a/../b",
            "..",
            ".",
            "a/.b",
            "a..b",
            "a___b",
            "a.io:0/x",
            "a.io:99999/x",
            "a.io:/x",
            "-a.io/x",
            "a..io/x",
            "[::1/x",
            "[zz]:1/x",
            "[::1]x/y",
            "a.io/",
            "a.io/x?y",
            "a.io/x#y",
            "user@host/x",
            "x\n",
            "x\0",
            "é",
            &long,
            &label,
            &format!("x@{}", DIGEST.to_uppercase()),
        ] {
            assert!(text.parse::<ImageName>().is_err(), "{text:?} was taken");
        }
    }

    #[test]
    fn digests_read_as_they_print() {
        let digest: ImageDigest = DIGEST.parse().unwrap();
        assert_eq!(digest.to_string(), DIGEST);
        assert_eq!(digest.hex(), &DIGEST[7..]);
        assert!(DIGEST[7..].parse::<ImageDigest>().is_err());
    }
}
