//! One image asked of its registry: who asks, the token that was given for it, and the answers, checked.

use std::io::{self, Read};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use reqwest::header::WWW_AUTHENTICATE;
use reqwest::{Response, StatusCode, Url};
use serde::Deserialize;
use tenure_api::secret_text::SecretText;
use tenure_domain::workload::image::{ImageDigest, ImageName};

use super::ImageError;
use super::layer::digest_of;
use super::manifest::{self, Descriptor, Found, Manifest};
use super::registry::{Registry, answered, unreachable, whole};

const TOKEN_MAX: u64 = 64 << 10;

pub struct Session {
    registry: Arc<Registry>,
    name: ImageName,
    credentials: Option<SecretText>,
    /// What the registry wants to hear, once it has said so.
    authorization: Mutex<Option<SecretText>>,
}

/// What a name means today.
pub struct Resolved {
    pub digest: ImageDigest,
    /// Of the index it was found in, if it was.
    pub index: Option<ImageDigest>,
    pub manifest: Manifest,
}

impl Session {
    pub fn new(registry: Arc<Registry>, name: ImageName, credentials: Option<SecretText>) -> Session {
        Session {
            registry,
            name,
            credentials,
            authorization: Mutex::default(),
        }
    }

    /// Whether anybody may read what was read.
    pub fn is_open(&self) -> bool {
        self.credentials.is_none()
    }

    pub async fn resolve(&self) -> Result<Resolved, ImageError> {
        let pinned = self.name.digest();
        let reference = match (pinned, self.name.tag()) {
            (Some(digest), _) => digest.to_string(),
            (None, tag) => tag.unwrap_or("latest").to_owned(),
        };
        let (digest, found) = self.manifest(&reference, pinned).await?;
        let manifests = match found {
            Found::Manifest(manifest) => {
                return Ok(Resolved {
                    digest,
                    index: None,
                    manifest,
                });
            }
            Found::Index(manifests) => manifests,
        };
        let chosen = manifest::for_this_machine(&manifests)?.digest()?;
        match self.manifest(&chosen.to_string(), Some(chosen)).await? {
            (chosen, Found::Manifest(manifest)) => Ok(Resolved {
                digest: chosen,
                index: Some(digest),
                manifest,
            }),
            (_, Found::Index(_)) => Err(ImageError::Refused(
                "the image's index names another index".to_owned(),
            )),
        }
    }

    async fn manifest(
        &self,
        reference: &str,
        expected: Option<ImageDigest>,
    ) -> Result<(ImageDigest, Found), ImageError> {
        let what = format!("{} ({reference})", self.name);
        let path = format!("{}/manifests/{reference}", self.name.repository());
        let mut patience = self.registry.patience();
        let bytes = loop {
            let read = async {
                let response = self.get(&path, Some(manifest::ACCEPTED), &what).await?;
                let bytes = whole(response, manifest::MANIFEST_MAX, "the image's manifest").await?;
                checked(bytes, expected, &what)
            };
            match read.await {
                Ok(bytes) => break bytes,
                Err(error) => patience.meet(error).await?,
            }
        };
        Ok((digest_of(&bytes), Found::read(&bytes)?))
    }

    /// All of a short blob.
    pub async fn small(&self, blob: &Descriptor) -> Result<Vec<u8>, ImageError> {
        let digest = blob.digest()?;
        let mut patience = self.registry.patience();
        loop {
            let read = async {
                let response = self.blob(digest).await?;
                let bytes = whole(response, manifest::CONFIG_MAX, "the image's configuration").await?;
                checked(bytes, Some(digest), &format!("blob {digest}"))
            };
            match read.await {
                Err(error) => patience.meet(error).await?,
                read => return read,
            }
        }
    }

    pub async fn blob(&self, digest: ImageDigest) -> Result<Response, ImageError> {
        let what = format!("blob {digest} of {}", self.name);
        let path = format!("{}/blobs/{digest}", self.name.repository());
        self.get(&path, None, &what).await
    }

    pub fn registry(&self) -> &Registry {
        &self.registry
    }

    async fn get(&self, path: &str, accept: Option<&str>, what: &str) -> Result<Response, ImageError> {
        let registry = self.name.registry();
        let base = self.registry.base(self.name.host())?;
        let url = base
            .join(path)
            .map_err(|error| ImageError::Refused(format!("{what} has no address: {error}")))?;
        let known = self
            .authorization
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .clone();
        let told = known.as_ref().map(SecretText::reveal);
        let response = self
            .registry
            .get(self.name.host(), url.clone(), accept, told)
            .await?;
        let with_credentials = self.credentials.is_some();
        // From the registry itself, and not from a place it led to: a stranger is told nothing.
        if response.status() != StatusCode::UNAUTHORIZED || response.url().origin() != url.origin() {
            return answered(response, registry, what, with_credentials);
        }
        // A token lives for minutes; the next one is asked for in the same way as the first.
        let Some(authorization) = self.authorize(&response).await? else {
            return answered(response, registry, what, with_credentials);
        };
        let again = self
            .registry
            .get(self.name.host(), url, accept, Some(authorization.reveal()))
            .await?;
        *self.authorization.lock().unwrap_or_else(PoisonError::into_inner) = Some(authorization);
        answered(again, registry, what, with_credentials)
    }

    /// What the registry wants to hear, if it can be had.
    async fn authorize(&self, refused: &Response) -> Result<Option<SecretText>, ImageError> {
        let challenges: Vec<Challenge> = refused
            .headers()
            .get_all(WWW_AUTHENTICATE)
            .iter()
            .filter_map(|value| Challenge::read(value.to_str().ok()?))
            .collect();
        if let Some(bearer) = challenges.iter().find(|challenge| challenge.scheme == "bearer") {
            return self.token(bearer).await.map(Some);
        }
        let basic = challenges.iter().any(|challenge| challenge.scheme == "basic");
        Ok(self.basic().filter(|_| basic))
    }

    fn basic(&self) -> Option<SecretText> {
        let credentials = self.credentials.as_ref()?;
        Some(SecretText::new(format!(
            "Basic {}",
            base64(credentials.reveal().as_bytes())
        )))
    }

    async fn token(&self, challenge: &Challenge) -> Result<SecretText, ImageError> {
        #[derive(Deserialize)]
        struct Answer {
            token: Option<SecretText>,
            access_token: Option<SecretText>,
        }
        let what = format!("a token for {}", self.name);
        let realm = challenge.value("realm").and_then(|realm| Url::parse(realm).ok());
        let mut url = realm.ok_or_else(|| {
            ImageError::Refused("the registry does not say where tokens are given".to_owned())
        })?;
        {
            let mut query = url.query_pairs_mut();
            if let Some(service) = challenge.value("service") {
                query.append_pair("service", service);
            }
            let scope = format!("repository:{}:pull", self.name.repository());
            query.append_pair("scope", &scope);
        }
        let basic = self.basic();
        let told = basic.as_ref().map(SecretText::reveal);
        let response = self.registry.get(self.name.host(), url, None, told).await?;
        let response = answered(response, self.name.registry(), &what, basic.is_some())?;
        let bytes = whole(response, TOKEN_MAX, "a token").await?;
        let answer: Result<Answer, _> = serde_json::from_slice(&bytes);
        let token = answer
            .ok()
            .and_then(|answer| answer.token.or(answer.access_token))
            .filter(|token| token.reveal().bytes().all(|byte| byte.is_ascii_graphic()));
        let token = token
            .ok_or_else(|| ImageError::Refused(format!("registry {} gave no token", self.name.registry())))?;
        Ok(SecretText::new(format!("Bearer {}", token.reveal())))
    }
}

fn checked(bytes: Vec<u8>, expected: Option<ImageDigest>, what: &str) -> Result<Vec<u8>, ImageError> {
    match expected {
        Some(expected) if digest_of(&bytes) != expected => Err(ImageError::Damaged {
            what: what.to_owned(),
        }),
        _ => Ok(bytes),
    }
}

/// One `WWW-Authenticate`: a scheme and what belongs to it.
struct Challenge {
    scheme: String,
    values: Vec<(String, String)>,
}

impl Challenge {
    fn read(text: &str) -> Option<Challenge> {
        let (scheme, mut rest) = text.trim().split_once(' ').unwrap_or((text.trim(), ""));
        let mut values = Vec::new();
        while let Some((key, after)) = rest.split_once('=') {
            let (value, next) = match after.strip_prefix('"') {
                Some(quoted) => quoted.split_once('"')?,
                None => after.split_once(',').unwrap_or((after, "")),
            };
            values.push((
                key.trim_matches([' ', ',']).to_ascii_lowercase(),
                value.trim().to_owned(),
            ));
            rest = next;
        }
        Some(Challenge {
            scheme: scheme.to_ascii_lowercase(),
            values,
        })
    }

    fn value(&self, key: &str) -> Option<&str> {
        let found = self.values.iter().find(|(known, _)| known == key);
        found.map(|(_, value)| value.as_str())
    }
}

fn base64(bytes: &[u8]) -> String {
    const DIGITS: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    let mut text = String::with_capacity(bytes.len().div_ceil(3) * 4);
    for three in bytes.chunks(3) {
        let at = |n: usize| u32::from(three.get(n).copied().unwrap_or(0));
        let bits = at(0) << 16 | at(1) << 8 | at(2);
        for digit in 0..4 {
            let index = (bits >> (18 - 6 * digit) & 63) as usize;
            text.push(if digit <= three.len() {
                char::from(DIGITS[index])
            } else {
                '='
            });
        }
    }
    text
}

/// The body of an answer, for whoever reads and waits. On a thread that may wait.
pub struct Body {
    runtime: tokio::runtime::Handle,
    response: Response,
    chunk: std::collections::VecDeque<u8>,
    cancelled: Arc<AtomicBool>,
    stall: Duration,
}

impl Body {
    pub fn new(
        runtime: tokio::runtime::Handle,
        response: Response,
        cancelled: Arc<AtomicBool>,
        stall: Duration,
    ) -> Body {
        Body {
            runtime,
            response,
            chunk: Default::default(),
            cancelled,
            stall,
        }
    }
}

impl Read for Body {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        if self.chunk.is_empty() {
            if self.cancelled.load(Ordering::Relaxed) {
                return Err(ImageError::Cancelled.through());
            }
            let url = self.response.url().clone();
            let chunk = tokio::time::timeout(self.stall, self.response.chunk());
            let chunk = self.runtime.block_on(chunk);
            match chunk {
                Ok(Ok(Some(chunk))) => self.chunk = Vec::from(chunk).into(),
                Ok(Ok(None)) => return Ok(0),
                Ok(Err(error)) => return Err(unreachable(&url, &error).through()),
                Err(_) => {
                    let error = ImageError::Unreachable {
                        registry: super::registry::host_of(&url),
                        why: "it stopped sending".to_owned(),
                    };
                    return Err(error.through());
                }
            }
        }
        self.chunk.read(buffer)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn challenges_are_read() {
        let challenge = Challenge::read(
            r#"Bearer realm="https://auth.example/token",service="a, b",scope="repository:x/y:pull""#,
        )
        .unwrap();
        assert_eq!(challenge.scheme, "bearer");
        assert_eq!(challenge.value("realm"), Some("https://auth.example/token"));
        assert_eq!(challenge.value("service"), Some("a, b"));
        assert_eq!(challenge.value("scope"), Some("repository:x/y:pull"));
        let plain = Challenge::read("Basic realm=here, charset=UTF-8").unwrap();
        assert_eq!(
            (plain.scheme.as_str(), plain.value("charset")),
            ("basic", Some("UTF-8"))
        );
        assert!(Challenge::read(r#"Bearer realm="never closed"#).is_none());
        assert!(Challenge::read("Negotiate").is_some_and(|challenge| challenge.values.is_empty()));
    }

    #[test]
    fn base64_as_everybody_writes_it() {
        for (bytes, text) in [
            ("", ""),
            ("f", "Zg=="),
            ("fo", "Zm8="),
            ("foo", "Zm9v"),
            ("user:päss", "dXNlcjpww6Rzcw=="),
        ] {
            assert_eq!(base64(bytes.as_bytes()), text);
        }
    }
}
