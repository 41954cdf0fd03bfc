//! One request to the collector, and what its answer means.

use std::io::Write;
use std::time::Duration;

use flate2::Compression;
use flate2::write::GzEncoder;
use reqwest::header::{CONTENT_ENCODING, CONTENT_TYPE, RETRY_AFTER};
use reqwest::{Client, Response, StatusCode};
use serde::Deserialize;

use super::setting::TraceOptions;
use crate::controller::now;

/// So much of an answer is read.
const MAX_ANSWER_BYTES: usize = 64 * 1024;
const MAX_WHY_BYTES: usize = 300;

/// What the collector said.
pub(super) enum Said {
    /// It has them, but for those it does not want.
    Taken { rejected: u64, why: String },
    /// Not now.
    Again { why: String, after: Option<Duration> },
    /// It will never take these.
    Refused { why: String },
}

pub(super) struct Post {
    client: Client,
    options: TraceOptions,
}

impl Post {
    pub fn new(options: &TraceOptions) -> Post {
        // Fails only where a provider was chosen before, which is as good.
        let _ = rustls::crypto::ring::default_provider().install_default();
        let mut builder = Client::builder()
            .redirect(reqwest::redirect::Policy::none())
            .timeout(options.time_limit)
            .pool_max_idle_per_host(1)
            .user_agent(concat!("tenure/", env!("CARGO_PKG_VERSION")));
        let pem = options.authority_pem.as_deref().unwrap_or_default();
        // Read before, with the settings.
        for authority in reqwest::Certificate::from_pem_bundle(pem).unwrap_or_default() {
            builder = builder.add_root_certificate(authority);
        }
        Post {
            client: builder.build().expect("a client without special wishes"),
            options: options.clone(),
        }
    }

    pub async fn send(&self, body: String) -> Said {
        let request = self
            .client
            .post(self.options.endpoint.clone())
            .headers(self.options.headers.clone())
            .header(CONTENT_TYPE, "application/json");
        let request = match self.options.gzip {
            true => request.header(CONTENT_ENCODING, "gzip").body(packed(&body)),
            false => request.body(body),
        };
        match request.send().await {
            Ok(response) => read(response).await,
            Err(error) => Said::Again {
                why: reason(&error),
                after: None,
            },
        }
    }
}

fn packed(body: &str) -> Vec<u8> {
    let mut packer = GzEncoder::new(Vec::new(), Compression::fast());
    packer.write_all(body.as_bytes()).expect("memory takes it");
    packer.finish().expect("memory takes it")
}

async fn read(mut response: Response) -> Said {
    let status = response.status();
    let after = retry_after(&response);
    let mut bytes = Vec::new();
    while let Ok(Some(piece)) = response.chunk().await {
        bytes.extend_from_slice(&piece);
        if bytes.len() > MAX_ANSWER_BYTES {
            bytes.truncate(MAX_ANSWER_BYTES);
            break;
        }
    }
    if status.is_success() {
        let partial = serde_json::from_slice::<Answer>(&bytes)
            .unwrap_or_default()
            .partial;
        return Said::Taken {
            rejected: partial.rejected.number(),
            why: line(&partial.message),
        };
    }
    let why = format!(
        "it answered {} {}",
        status.as_u16(),
        line(&String::from_utf8_lossy(&bytes))
    );
    match status {
        StatusCode::TOO_MANY_REQUESTS
        | StatusCode::BAD_GATEWAY
        | StatusCode::SERVICE_UNAVAILABLE
        | StatusCode::GATEWAY_TIMEOUT => Said::Again { why, after },
        _ => Said::Refused { why },
    }
}

#[derive(Default, Deserialize)]
struct Answer {
    #[serde(default, rename = "partialSuccess")]
    partial: Partial,
}

#[derive(Default, Deserialize)]
struct Partial {
    #[serde(default, rename = "rejectedSpans")]
    rejected: Count,
    #[serde(default, rename = "errorMessage")]
    message: String,
}

/// As text, as OTLP writes numbers of 64 bits, or as a number, as some do.
#[derive(Deserialize)]
#[serde(untagged)]
enum Count {
    Number(u64),
    Text(String),
}

impl Default for Count {
    fn default() -> Count {
        Count::Number(0)
    }
}

impl Count {
    fn number(&self) -> u64 {
        match self {
            Count::Number(number) => *number,
            Count::Text(text) => text.parse().unwrap_or(0),
        }
    }
}

/// In seconds, or as a date.
fn retry_after(response: &Response) -> Option<Duration> {
    let text = response.headers().get(RETRY_AFTER)?.to_str().ok()?.trim();
    if let Ok(seconds) = text.parse() {
        return Some(Duration::from_secs(seconds));
    }
    let date = jiff::fmt::rfc2822::parse(text).ok()?.timestamp().as_millisecond();
    Some(Duration::from_millis(u64::try_from(date - now().0).unwrap_or(0)))
}

/// What somebody else said, as one bounded line for the log.
fn line(text: &str) -> String {
    let text: String = text.chars().filter(|c| !c.is_control()).collect();
    text[..text.floor_char_boundary(MAX_WHY_BYTES)].to_owned()
}

/// Without the URL, whose query may be a secret.
fn reason(error: &reqwest::Error) -> String {
    if error.is_timeout() {
        return "it did not answer in time".into();
    }
    let mut why: &dyn std::error::Error = error;
    while let Some(source) = why.source() {
        why = source;
    }
    match why.downcast_ref::<reqwest::Error>() {
        Some(_) => "the request failed".into(),
        None => line(&why.to_string()),
    }
}
