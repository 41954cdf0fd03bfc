//! Asks registries over HTTP: what may be asked without TLS, where redirects may lead, which answer means what.
//!
//! Anybody may name a registry, and a registry may lead anywhere: so only public addresses are asked, over TLS. What
//! is elsewhere is asked where the operator listed it, and only when the registry first asked is listed as well.
//! TLS trusts the host's certificates, so that an operator's own registry is trusted where the operator's other
//! programs trust it. Absent: pushing, and resuming half a download (a layer is begun again).

use std::net::IpAddr;
use std::time::Duration;

use reqwest::header::{ACCEPT, AUTHORIZATION, HeaderMap, LOCATION, RETRY_AFTER};
use reqwest::{Response, StatusCode, Url};
use tenure_api::public::is_public;

use super::public::{NotPublic, Public};
use super::{ImageConfig, ImageError};

const REDIRECTS_MAX: u32 = 5;
/// A registry that asks for more patience than this is tried again sooner.
const RETRY_AFTER_MAX: Duration = Duration::from_secs(30);

/// How registries are spoken with.
pub struct Registry {
    /// For who may be anywhere, and for everybody else.
    listed: reqwest::Client,
    public: reqwest::Client,
    private: Vec<String>,
    insecure: Vec<String>,
    tries: u32,
    pause: Duration,
}

impl Registry {
    pub fn new(config: &ImageConfig) -> Result<Registry, ImageError> {
        // One provider for the whole program; a second call finds it there.
        let _ = rustls::crypto::ring::default_provider().install_default();
        let builder = || {
            reqwest::Client::builder()
                .user_agent(concat!("tenure-agent/", env!("CARGO_PKG_VERSION")))
                .connect_timeout(Duration::from_secs(10).min(config.stall))
                .read_timeout(config.stall)
                // Followed here, where it is known what may be told to whom.
                .redirect(reqwest::redirect::Policy::none())
        };
        let failed = |error| ImageError::Io {
            what: "prepare to speak with registries".to_owned(),
            source: std::io::Error::other(error),
        };
        Ok(Registry {
            listed: builder().build().map_err(failed)?,
            public: builder().dns_resolver(Public::new()).build().map_err(failed)?,
            private: config.private_registries.clone(),
            insecure: config.insecure_registries.clone(),
            tries: config.tries.max(1),
            pause: config.pause,
        })
    }

    /// Where a registry is asked, by its host and port.
    pub fn base(&self, host: &str) -> Result<Url, ImageError> {
        let https = parse(&format!("https://{host}/v2/"))?;
        if self.may_be_plain(&https) {
            parse(&format!("http://{host}/v2/"))
        } else {
            Ok(https)
        }
    }

    fn may_be_plain(&self, url: &Url) -> bool {
        let name = url.host_str().unwrap_or_default();
        let loopback = name == "localhost" || address(url).is_some_and(|address| address.is_loopback());
        is_in(&self.insecure, url) || loopback && is_in(&self.private, url)
    }

    fn is_listed(&self, url: &Url) -> bool {
        is_in(&self.private, url) || is_in(&self.insecure, url)
    }

    /// By whom an address is asked for an image of this registry, if it may be: the registry's own, or one it named,
    /// another place for a blob or where tokens are given.
    fn way(&self, registry: &str, to: &Url) -> Result<&reqwest::Client, ImageError> {
        let listed = self.is_listed(to) && self.is_listed(&parse(&format!("https://{registry}/v2/"))?);
        let host = to.host_str().unwrap_or_default();
        match to.scheme() {
            "https" => {}
            "http" if listed && self.may_be_plain(to) => {}
            scheme => {
                return Err(ImageError::Refused(format!(
                    "registry {registry} leads to {host} by {scheme}, which is only allowed where both are listed by \
                     the operator"
                )));
            }
        }
        if listed {
            return Ok(&self.listed);
        }
        match address(to) {
            Some(address) if !is_public(address) => Err(not_public(host)),
            _ => Ok(&self.public),
        }
    }

    /// Gets an address for an image of a registry, following redirects. `authorization` is only ever told to the
    /// host first asked.
    pub async fn get(
        &self,
        registry: &str,
        url: Url,
        accept: Option<&str>,
        authorization: Option<&str>,
    ) -> Result<Response, ImageError> {
        let mut to = url.clone();
        for _ in 0..=REDIRECTS_MAX {
            let mut request = self.way(registry, &to)?.get(to.clone());
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

fn address(url: &Url) -> Option<IpAddr> {
    url.host_str()?.trim_matches(['[', ']']).parse().ok()
}

/// Whether a list has the host, with its port or without.
fn is_in(list: &[String], url: &Url) -> bool {
    let name = url.host_str().unwrap_or_default();
    let port = url.port_or_known_default().unwrap_or_default();
    list.iter()
        .any(|listed| listed == name || *listed == format!("{name}:{port}"))
}

fn not_public(host: &str) -> ImageError {
    ImageError::Refused(format!(
        "{host} is at no public address, and the operator has not listed it as a private registry"
    ))
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
    if let Some(NotPublic(host)) = why.downcast_ref() {
        return not_public(host);
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_may_lead_where() {
        let registry = Registry::new(&ImageConfig {
            private_registries: vec!["127.0.0.1:5000".into(), "lan.example".into(), "[::1]".into()],
            insecure_registries: vec!["10.0.0.5:80".into()],
            ..ImageConfig::default()
        })
        .unwrap();
        let way = |from: &str, to: &str| {
            registry
                .way(from, &Url::parse(to).unwrap())
                .ok()
                .map(|client| std::ptr::eq(client, &registry.listed))
        };
        let rows = [
            // Strangers lead to public addresses alone, whoever is listed.
            ("ghcr.io", "https://ghcr.io/v2/", Some(false)),
            ("ghcr.io", "https://1.1.1.1/x", Some(false)),
            ("ghcr.io", "http://ghcr.io/x", None),
            ("ghcr.io", "https://127.0.0.1/x", None),
            ("ghcr.io", "https://2130706433/x", None),
            ("ghcr.io", "https://[::ffff:10.0.0.1]/x", None),
            ("ghcr.io", "https://169.254.169.254/latest", None),
            ("ghcr.io", "http://127.0.0.1:5000/x", None),
            ("ghcr.io", "https://127.0.0.1:5000/x", None),
            ("ghcr.io", "https://lan.example/x", Some(false)),
            ("ghcr.io", "http://10.0.0.5/x", None),
            // Whom the operator listed, to whom the operator listed.
            ("127.0.0.1:5000", "http://127.0.0.1:5000/v2/", Some(true)),
            ("127.0.0.1:5000", "http://127.0.0.1:5001/v2/", None),
            ("127.0.0.1:5000", "http://[::1]:9/x", Some(true)),
            ("127.0.0.1:5000", "https://lan.example:8443/x", Some(true)),
            ("lan.example", "http://lan.example/x", None),
            ("lan.example", "http://10.0.0.5/x", Some(true)),
            ("lan.example", "http://10.0.0.5:81/x", None),
            ("lan.example", "https://cdn.example/x", Some(false)),
            ("127.0.0.1:5001", "http://127.0.0.1:5001/v2/", None),
            ("127.0.0.1:5001", "http://127.0.0.1:5000/v2/", None),
        ];
        for (from, to, expected) in rows {
            assert_eq!(way(from, to), expected, "{from} leads to {to}");
        }
        let base = |host: &str| registry.base(host).unwrap().to_string();
        assert_eq!(base("127.0.0.1:5000"), "http://127.0.0.1:5000/v2/");
        assert_eq!(base("127.0.0.1:5001"), "https://127.0.0.1:5001/v2/");
        assert_eq!(base("10.0.0.5:80"), "http://10.0.0.5/v2/");
        assert_eq!(base("lan.example"), "https://lan.example/v2/");
    }
}
