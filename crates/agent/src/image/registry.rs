//! Asks registries over HTTP: what may be asked without TLS, where redirects may lead, which answer means what.
//!
//! TLS trusts the host's certificates, so that an operator's own registry is trusted where the operator's other
//! programs trust it. Absent: pushing, and resuming half a download (a layer is begun again).

use std::net::IpAddr;
use std::time::Duration;

use reqwest::header::{ACCEPT, AUTHORIZATION, HeaderMap, LOCATION, RETRY_AFTER};
use reqwest::{Response, StatusCode, Url};

use super::{ImageConfig, ImageError};

const REDIRECTS_MAX: u32 = 5;
/// A registry that asks for more patience than this is tried again sooner.
const RETRY_AFTER_MAX: Duration = Duration::from_secs(30);

/// How registries are spoken with.
pub struct Registry {
    client: reqwest::Client,
    insecure: Vec<String>,
    tries: u32,
    pause: Duration,
}

impl Registry {
    pub fn new(config: &ImageConfig) -> Result<Registry, ImageError> {
        // One provider for the whole program; a second call finds it there.
        let _ = rustls::crypto::ring::default_provider().install_default();
        let client = reqwest::Client::builder()
            .user_agent(concat!("tenure-agent/", env!("CARGO_PKG_VERSION")))
            .connect_timeout(Duration::from_secs(10).min(config.stall))
            .read_timeout(config.stall)
            // Followed here, where it is known what may be told to whom.
            .redirect(reqwest::redirect::Policy::none())
            .build()
            .map_err(|error| ImageError::Io {
                what: "prepare to speak with registries".to_owned(),
                source: std::io::Error::other(error),
            })?;
        Ok(Registry {
            client,
            insecure: config.insecure_registries.clone(),
            tries: config.tries.max(1),
            pause: config.pause,
        })
    }

    /// Where a registry is asked, by its host and port.
    pub fn base(&self, host: &str) -> Result<Url, ImageError> {
        let https = parse(&format!("https://{host}/v2/"))?;
        if self.may_be_plain(&https, host) {
            parse(&format!("http://{host}/v2/"))
        } else {
            Ok(https)
        }
    }

    fn may_be_plain(&self, url: &Url, host: &str) -> bool {
        let name = url.host_str().unwrap_or_default();
        let loopback = name == "localhost"
            || name
                .trim_matches(['[', ']'])
                .parse::<IpAddr>()
                .is_ok_and(|address| address.is_loopback());
        loopback
            || self
                .insecure
                .iter()
                .any(|listed| listed == name || listed == host)
    }

    /// An address a registry named: another place for a blob, or where tokens are given.
    pub fn may_go(&self, to: &Url) -> Result<(), ImageError> {
        let host = match to.port() {
            Some(port) => format!("{}:{port}", to.host_str().unwrap_or_default()),
            None => to.host_str().unwrap_or_default().to_owned(),
        };
        match to.scheme() {
            "https" => Ok(()),
            "http" if self.may_be_plain(to, &host) => Ok(()),
            scheme => Err(ImageError::Refused(format!(
                "the registry leads to {host} by {scheme}, which is only allowed for hosts listed as insecure"
            ))),
        }
    }

    /// Gets an address, following redirects. `authorization` is only ever told to the host first asked.
    pub async fn get(
        &self,
        url: Url,
        accept: Option<&str>,
        authorization: Option<&str>,
    ) -> Result<Response, ImageError> {
        let mut to = url.clone();
        for _ in 0..=REDIRECTS_MAX {
            let mut request = self.client.get(to.clone());
            if let Some(accept) = accept {
                request = request.header(ACCEPT, accept);
            }
            if let Some(authorization) = authorization.filter(|_| to.origin() == url.origin()) {
                request = request.header(AUTHORIZATION, authorization);
            }
            let response = request.send().await.map_err(|error| unreachable(&to, &error))?;
            let moved = response
                .status()
                .is_redirection()
                .then(|| response.headers().get(LOCATION));
            let Some(Some(location)) = moved else {
                return Ok(response);
            };
            let next = location.to_str().ok().and_then(|location| to.join(location).ok());
            to = next.ok_or_else(|| {
                ImageError::Refused("the registry leads to what is not an address".to_owned())
            })?;
            self.may_go(&to)?;
        }
        Err(ImageError::Refused(
            "the registry leads from one place to another without end".to_owned(),
        ))
    }

    pub fn patience(&self) -> Patience {
        Patience {
            left: self.tries - 1,
            pause: self.pause,
        }
    }
}

/// How often something is done again while its error may pass, waiting longer each time.
pub struct Patience {
    left: u32,
    pause: Duration,
}

impl Patience {
    /// Returns when it is time to do it again; with the error when it is not worth it.
    pub async fn meet(&mut self, error: ImageError) -> Result<(), ImageError> {
        if !error.is_passing() || self.left == 0 {
            return Err(error);
        }
        tracing::info!(%error, "asking the registry again");
        let asked = match &error {
            ImageError::Answered { retry_after, .. } => *retry_after,
            _ => None,
        };
        tokio::time::sleep(asked.map_or(self.pause, |asked| asked.min(RETRY_AFTER_MAX))).await;
        self.left -= 1;
        self.pause *= 2;
        Ok(())
    }
}

fn parse(text: &str) -> Result<Url, ImageError> {
    Url::parse(text)
        .map_err(|error| ImageError::Refused(format!("the registry's address is not one: {error}")))
}

pub fn host_of(url: &Url) -> String {
    url.host_str().unwrap_or_default().to_owned()
}

pub fn unreachable(url: &Url, error: &reqwest::Error) -> ImageError {
    // The innermost reason is the one people can act upon.
    let mut why: &dyn std::error::Error = error;
    while let Some(source) = why.source() {
        why = source;
    }
    ImageError::Unreachable {
        registry: host_of(url),
        why: why.to_string(),
    }
}

/// The answer, or what an answer other than yes means.
pub fn answered(
    response: Response,
    registry: &str,
    what: &str,
    with_credentials: bool,
) -> Result<Response, ImageError> {
    let (registry, what) = (registry.to_owned(), what.to_owned());
    match response.status() {
        StatusCode::OK => Ok(response),
        StatusCode::UNAUTHORIZED | StatusCode::FORBIDDEN => Err(ImageError::Denied {
            registry,
            what,
            with_credentials,
        }),
        StatusCode::NOT_FOUND => Err(ImageError::NotFound { registry, what }),
        status => Err(ImageError::Answered {
            registry,
            status: status.as_u16(),
            what,
            retry_after: retry_after(response.headers()),
        }),
    }
}

fn retry_after(headers: &HeaderMap) -> Option<Duration> {
    let seconds = headers.get(RETRY_AFTER)?.to_str().ok()?.parse().ok()?;
    Some(Duration::from_secs(seconds))
}

/// All of a short answer.
pub async fn whole(mut response: Response, most: u64, what: &'static str) -> Result<Vec<u8>, ImageError> {
    let url = response.url().clone();
    let mut bytes = Vec::new();
    while let Some(chunk) = response
        .chunk()
        .await
        .map_err(|error| unreachable(&url, &error))?
    {
        if (bytes.len() + chunk.len()) as u64 > most {
            return Err(ImageError::TooLarge {
                what,
                limit: most,
                unit: "bytes",
            });
        }
        bytes.extend_from_slice(&chunk);
    }
    Ok(bytes)
}
