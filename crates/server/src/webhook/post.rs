//! Asking a receiver: where may be asked, how long, and what its answer means.
//!
//! Whoever makes a webhook names an address that this server then connects to; it must not be made to knock where they
//! could not. So what a name means is looked up here, only public addresses are connected to, and to those very
//! addresses, unless the operator listed the host. No redirect is followed and no proxy used, for either would lead
//! elsewhere; of an answer nothing is told but its status.

use std::net::{IpAddr, SocketAddr};
use std::time::Duration;

use reqwest::dns::{Addrs, Name, Resolve, Resolving};
use reqwest::header::{CONTENT_TYPE, RETRY_AFTER};
use reqwest::{Client, Response, Url};
use tenure_api::public::is_public;

use super::message::CONTENT_TYPE as CLOUD_EVENT;
use super::{Kept, Message, WebhookOptions};
use crate::controller::now;

const MAX_URL_BYTES: usize = 2048;
/// So much of an answer is read, for so long, that its connection can be used again; what it says is not looked at.
const MAX_ANSWER_BYTES: usize = 16 * 1024;
const ANSWER_WAIT: Duration = Duration::from_millis(250);
const MAX_WHY_BYTES: usize = 200;

/// What a receiver said.
#[derive(Debug)]
pub(crate) enum Said {
    Status {
        status: u16,
        retry_after: Option<Duration>,
    },
    /// It was not reached, or not asked, or did not answer.
    Nothing(String),
}

impl Said {
    pub fn is_taken(&self) -> bool {
        matches!(self, Said::Status { status: 200..300, .. })
    }

    pub fn status(&self) -> Option<u16> {
        match self {
            Said::Status { status, .. } => Some(*status),
            Said::Nothing(_) => None,
        }
    }

    /// Why it was not taken.
    pub fn why(&self) -> String {
        match self {
            Said::Status { status, .. } if (300..400).contains(status) => {
                format!("it answered {status}, and redirects are not followed")
            }
            Said::Status { status, .. } => format!("it answered {status}"),
            Said::Nothing(why) => why.clone(),
        }
    }
}

pub(crate) struct Post {
    /// For who may be anywhere, and for everybody else.
    listed: Client,
    public: Client,
    private: Vec<String>,
    time_limit: Duration,
}

impl Post {
    pub fn new(options: &WebhookOptions) -> Post {
        // Fails only where a provider was chosen before, which is as good.
        let _ = rustls::crypto::ring::default_provider().install_default();
        let builder = || {
            Client::builder()
                .redirect(reqwest::redirect::Policy::none())
                .no_proxy()
                .timeout(options.time_limit)
                .pool_max_idle_per_host(2)
                .pool_idle_timeout(Duration::from_secs(30))
                .user_agent(concat!("tenure/", env!("CARGO_PKG_VERSION")))
        };
        let expected = "a client without special wishes";
        Post {
            listed: builder().build().expect(expected),
            public: builder().dns_resolver(Public).build().expect(expected),
            private: options.private.clone(),
            time_limit: options.time_limit,
        }
    }

    /// By whom a URL is asked, if it may be; else why not.
    fn way(&self, url: &Url) -> Result<&Client, String> {
        if self.is_listed(url) {
            return Ok(&self.listed);
        }
        // A name's addresses are looked at when it is resolved, an address here: nothing resolves it.
        match address(url) {
            Some(address) if !is_public(address) => Err(not_public(url.host_str().unwrap_or_default())),
            _ => Ok(&self.public),
        }
    }

    /// Reads the URL of a receiver that may be asked; else says why not.
    pub fn check(&self, text: &str) -> Result<Url, String> {
        if text.len() > MAX_URL_BYTES {
            return Err(format!("it is longer than {MAX_URL_BYTES} bytes"));
        }
        let url = Url::parse(text).map_err(|error| format!("it is not a URL: {error}"))?;
        if !matches!(url.scheme(), "https" | "http") {
            return Err("only https and http are known here".into());
        }
        if !url.username().is_empty() || url.password().is_some() {
            return Err("it holds a name or a password; what is sent is signed instead".into());
        }
        if url.host_str().is_none_or(str::is_empty) {
            return Err("it has no host".into());
        }
        self.way(&url)?;
        Ok(url)
    }

    fn is_listed(&self, url: &Url) -> bool {
        let name = url.host_str().unwrap_or_default();
        let port = url.port_or_known_default().unwrap_or_default();
        let listed = |listed: &String| listed == name || *listed == format!("{name}:{port}");
        self.private.iter().any(listed)
    }

    /// Sends one message, once.
    pub async fn send(&self, kept: &Kept, message: &Message) -> Said {
        let url = match self.check(kept.url()) {
            Ok(url) => url,
            Err(why) => return Said::Nothing(why),
        };
        let client = match self.way(&url) {
            Ok(client) => client,
            Err(why) => return Said::Nothing(why),
        };
        let at = now();
        let timestamp_s = at.0.div_euclid(1000);
        let request = client
            .post(url)
            .header(CONTENT_TYPE, CLOUD_EVENT)
            .header("webhook-id", &message.id)
            .header("webhook-timestamp", timestamp_s.to_string())
            .header("webhook-signature", message.signature(kept.keys(at), timestamp_s))
            .body(message.body.clone());
        match request.send().await {
            Ok(response) => {
                let said = Said::Status {
                    status: response.status().as_u16(),
                    retry_after: retry_after(&response),
                };
                drain(response).await;
                said
            }
            Err(error) => Said::Nothing(self.reason(&error)),
        }
    }

    /// Without the URL, which is a secret.
    fn reason(&self, error: &reqwest::Error) -> String {
        if error.is_timeout() {
            return format!("it did not answer within {} ms", self.time_limit.as_millis());
        }
        let mut why: &dyn std::error::Error = error;
        while let Some(source) = why.source() {
            why = source;
        }
        let text = match why.downcast_ref::<reqwest::Error>() {
            Some(_) => "the request failed".to_owned(),
            None => why.to_string(),
        };
        let end = text.floor_char_boundary(MAX_WHY_BYTES);
        text[..end].to_owned()
    }
}

fn retry_after(response: &Response) -> Option<Duration> {
    let text = response.headers().get(RETRY_AFTER)?.to_str().ok()?;
    text.parse().ok().map(Duration::from_secs)
}

async fn drain(mut response: Response) {
    let mut left = MAX_ANSWER_BYTES;
    let _ = tokio::time::timeout(ANSWER_WAIT, async {
        while let Ok(Some(piece)) = response.chunk().await {
            match left.checked_sub(piece.len()) {
                Some(less) => left = less,
                None => return,
            }
        }
    })
    .await;
}

/// Scheme, host and port: what of a URL may be shown.
pub(crate) fn origin(url: &Url) -> String {
    url.origin().ascii_serialization()
}

fn address(url: &Url) -> Option<IpAddr> {
    url.host_str()?.trim_matches(['[', ']']).parse().ok()
}

fn not_public(host: &str) -> String {
    format!("{host} has no public address, and the operator has not listed it (--private-webhook)")
}

/// Names, as far as they mean public addresses.
struct Public;

impl Resolve for Public {
    fn resolve(&self, name: Name) -> Resolving {
        Box::pin(async move {
            let found = tokio::net::lookup_host((name.as_str(), 0)).await?;
            let public: Vec<SocketAddr> = found.filter(|address| is_public(address.ip())).collect();
            if public.is_empty() {
                return Err(not_public(name.as_str()).into());
            }
            Ok(Box::new(public.into_iter()) as Addrs)
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_public_addresses_and_listed_hosts_may_be_asked_however_they_are_written() {
        let post = Post::new(&WebhookOptions {
            private: vec!["hooks.internal:8443".into(), "10.0.0.7".into()],
            ..WebhookOptions::default()
        });
        for good in [
            "https://hooks.example.com/services/T0/B0/XX",
            "http://8.8.8.8:81/",
            "https://[2606:4700::1111]/x",
            "https://hooks.internal:8443/x",
            "http://10.0.0.7:9/x",
        ] {
            assert!(post.check(good).is_ok(), "{good}");
        }
        for bad in [
            "",
            "hooks.example.com",
            "ftp://hooks.example.com/",
            "file:///etc/passwd",
            "https://user:password@hooks.example.com/",
            "https://token@hooks.example.com/",
            "http://127.0.0.1/",
            "http://0x7f.1/",
            "http://2130706433/",
            "http://017700000001/",
            "http://[::1]/",
            "http://[::ffff:10.0.0.1]/",
            "http://169.254.169.254/latest/meta-data/",
            "http://[fd00:ec2::254]/",
            "http://192.168.0.1/",
            "http://10.0.0.8/",
        ] {
            assert!(post.check(bad).is_err(), "{bad}");
        }
        let url = Url::parse("https://hooks.example.com:444/secret?token=1").unwrap();
        assert_eq!(origin(&url), "https://hooks.example.com:444");
    }

    #[tokio::test]
    async fn a_name_of_this_machine_means_no_public_address() {
        let refused = Public.resolve("localhost".parse().unwrap()).await.err().unwrap();
        assert!(refused.to_string().contains("no public address"), "{refused}");
    }
}
