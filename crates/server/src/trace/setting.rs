//! What an operator sets: a flag, and the variables that OpenTelemetry knows, as far as they mean something here.
//!
//! Read before anything is started. A value that cannot be used is refused, though OpenTelemetry would have it passed over:
//! who sets one finds out at once, and not by traces that never come.

use std::time::Duration;

use reqwest::Url;
use reqwest::header::{HeaderMap, HeaderName, HeaderValue};
use tenure_domain::workload::trace::{TraceId, TraceParent};

const PATH: &str = "/v1/traces";
const MAX_URL_BYTES: usize = 2048;
const MAX_PAIRS: usize = 64;
const MAX_VALUE_BYTES: usize = 8192;

/// Where traces go, and how.
#[derive(Debug, Clone)]
pub struct TraceOptions {
    pub endpoint: Url,
    pub headers: HeaderMap,
    /// A certificate authority to trust beside the system's, in PEM.
    pub authority_pem: Option<Vec<u8>>,
    pub gzip: bool,
    /// What is said of this server.
    pub resource: Vec<(String, String)>,
    pub sampler: Sampler,
    /// How long one request may take.
    pub time_limit: Duration,
    /// How long spans wait for others to go with.
    pub delay: Duration,
    /// Spans in one request.
    pub batch: usize,
    /// What waits takes no more memory than this; the oldest is dropped.
    pub max_bytes: usize,
    /// Between a failure and the next try, at first and at most.
    pub first_pause: Duration,
    pub longest_pause: Duration,
    /// How long the server's end is held up for what is not sent yet.
    pub patience: Duration,
    /// A job that waits so long is asked why.
    pub look: Duration,
}

impl TraceOptions {
    pub fn to(endpoint: Url) -> TraceOptions {
        TraceOptions {
            endpoint,
            headers: HeaderMap::new(),
            authority_pem: None,
            gzip: false,
            resource: vec![("service.name".into(), "tenure".into())],
            sampler: Sampler::default(),
            time_limit: Duration::from_secs(10),
            delay: Duration::from_secs(1),
            batch: 512,
            max_bytes: 16 << 20,
            first_pause: Duration::from_secs(1),
            longest_pause: Duration::from_secs(30),
            patience: Duration::from_secs(5),
            look: Duration::from_secs(1),
        }
    }

    /// None where nobody wants traces; why not, where a value cannot be used.
    pub fn read(
        flag: Option<&str>,
        variable: impl Fn(&str) -> Option<String>,
    ) -> Result<Option<TraceOptions>, String> {
        let said = |name: &str| variable(name).filter(|value| !value.trim().is_empty());
        // Of two, that for traces alone outranks that for everything.
        let either = |name: &str| {
            let own = format!("OTEL_EXPORTER_OTLP_TRACES_{name}");
            let common = format!("OTEL_EXPORTER_OTLP_{name}");
            let value = said(&own).map(|value| (own, value));
            value.or_else(|| said(&common).map(|value| (common, value)))
        };
        let Some(endpoint) = endpoint(flag, &said)? else {
            return Ok(None);
        };
        let mut options = TraceOptions::to(endpoint);
        if let Some((name, value)) = either("PROTOCOL")
            && value.trim() == "grpc"
        {
            return Err(format!(
                "{name} says grpc; traces are sent by OTLP over HTTP, to the collector's port for that (4318)"
            ));
        }
        if let Some((name, value)) = either("HEADERS") {
            // Their values are secrets.
            let bad = || format!("{name} is not a list as name=value,name=value");
            for (key, value) in pairs(&value).ok_or_else(bad)? {
                let key = HeaderName::from_bytes(key.as_bytes()).map_err(|_| bad())?;
                let mut value = HeaderValue::from_bytes(value.as_bytes()).map_err(|_| bad())?;
                value.set_sensitive(true);
                options.headers.append(key, value);
            }
        }
        if let Some((name, value)) = either("TIMEOUT") {
            let ms = value.trim().parse().ok().filter(|ms| (1..=600_000).contains(ms));
            let ms = ms.ok_or_else(|| format!("{name} is not a number of milliseconds, from 1 to 600000"))?;
            options.time_limit = Duration::from_millis(ms);
        }
        if let Some((name, value)) = either("COMPRESSION") {
            options.gzip = match value.trim() {
                "gzip" => true,
                "none" => false,
                _ => return Err(format!("{name} is neither gzip nor none")),
            };
        }
        if let Some((name, path)) = either("CERTIFICATE") {
            let pem =
                std::fs::read(&path).map_err(|error| format!("{name}: reading {path} failed: {error}"))?;
            reqwest::Certificate::from_pem_bundle(&pem)
                .ok()
                .filter(|found| !found.is_empty())
                .ok_or_else(|| format!("{name}: {path} holds no certificate in PEM"))?;
            options.authority_pem = Some(pem);
        }
        options.resource(said("OTEL_RESOURCE_ATTRIBUTES"), said("OTEL_SERVICE_NAME"))?;
        options.sampler = Sampler::read(said("OTEL_TRACES_SAMPLER"), said("OTEL_TRACES_SAMPLER_ARG"))?;
        Ok(Some(options))
    }

    fn resource(&mut self, attributes: Option<String>, service: Option<String>) -> Result<(), String> {
        let said = match attributes {
            None => Vec::new(),
            Some(text) => pairs(&text)
                .ok_or("OTEL_RESOURCE_ATTRIBUTES is not a list as name=value,name=value".to_owned())?,
        };
        let service = service.map(|service| ("service.name".to_owned(), service));
        for (key, value) in said.into_iter().chain(service) {
            self.resource.retain(|(known, _)| *known != key);
            self.resource.push((key, value));
        }
        Ok(())
    }

    /// Says something of this server where the operator does not.
    pub(super) fn say(&mut self, key: &str, value: String) {
        if !self.resource.iter().any(|(known, _)| known == key) {
            self.resource.push((key.to_owned(), value));
        }
    }
}

/// The flag outranks all; what turns OpenTelemetry off turns the variables off, and not the flag.
fn endpoint(flag: Option<&str>, said: &impl Fn(&str) -> Option<String>) -> Result<Option<Url>, String> {
    if let Some(text) = flag {
        return url("--otlp", text, true).map(Some);
    }
    let off = said("OTEL_SDK_DISABLED").is_some_and(|value| value.trim().eq_ignore_ascii_case("true"));
    if off || said("OTEL_TRACES_EXPORTER").is_some_and(|value| value.trim() == "none") {
        return Ok(None);
    }
    for (name, is_base) in [
        ("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT", false),
        ("OTEL_EXPORTER_OTLP_ENDPOINT", true),
    ] {
        if let Some(text) = said(name) {
            return url(name, &text, is_base).map(Some);
        }
    }
    Ok(None)
}

/// What is common to all kinds of telemetry gets the path for traces behind it.
fn url(name: &str, text: &str, is_base: bool) -> Result<Url, String> {
    let bad = |why: &str| {
        format!("{name} is no collector's address: {why}; it is written as http://collector:4318")
    };
    let text = text.trim();
    if text.len() > MAX_URL_BYTES {
        return Err(bad("it is too long"));
    }
    let mut url = Url::parse(text).map_err(|error| bad(&error.to_string()))?;
    if !matches!(url.scheme(), "http" | "https") {
        return Err(bad("only http and https are known here"));
    }
    if !url.username().is_empty() || url.password().is_some() {
        return Err(format!(
            "{name} holds a name or a password; put what proves the server into OTEL_EXPORTER_OTLP_HEADERS"
        ));
    }
    if url.host_str().is_none_or(str::is_empty) {
        return Err(bad("it has no host"));
    }
    if url.fragment().is_some() {
        return Err(bad("it has a fragment"));
    }
    if is_base && !url.path().ends_with(PATH) {
        let path = format!("{}{PATH}", url.path().trim_end_matches('/'));
        url.set_path(&path);
    }
    Ok(url)
}

/// `name=value,name=value`, values percent-encoded; none where it is something else.
fn pairs(text: &str) -> Option<Vec<(String, String)>> {
    let members = text.split(',').map(str::trim).filter(|member| !member.is_empty());
    let pairs: Option<Vec<_>> = members
        .map(|member| {
            let (key, value) = member.split_once('=')?;
            let key = decoded(key.trim())?;
            let value = decoded(value.trim())?;
            let fits = !key.is_empty() && key.len() <= 255 && value.len() <= MAX_VALUE_BYTES;
            let is_plain = !key.chars().any(char::is_control) && !value.chars().any(char::is_control);
            (fits && is_plain).then_some((key, value))
        })
        .collect();
    pairs.filter(|pairs| pairs.len() <= MAX_PAIRS)
}

fn decoded(text: &str) -> Option<String> {
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text.as_bytes();
    while let [byte, after @ ..] = rest {
        rest = after;
        if *byte != b'%' {
            bytes.push(*byte);
            continue;
        }
        let digits = std::str::from_utf8(rest.get(..2)?).ok()?;
        bytes.push(u8::from_str_radix(digits, 16).ok()?);
        rest = &rest[2..];
    }
    String::from_utf8(bytes).ok()
}

/// Of which jobs is told.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Sampler {
    /// Of jobs with a trace of their own, or of all.
    share: f64,
    /// Of a job submitted in somebody's trace is told where that is.
    follows: bool,
}

impl Default for Sampler {
    fn default() -> Sampler {
        Sampler {
            share: 1.0,
            follows: true,
        }
    }
}

impl Sampler {
    fn read(name: Option<String>, argument: Option<String>) -> Result<Sampler, String> {
        let name = name.unwrap_or_else(|| "parentbased_always_on".into());
        let (follows, rule) = match name.trim().strip_prefix("parentbased_") {
            Some(rule) => (true, rule),
            None => (false, name.trim()),
        };
        let share = match rule {
            "always_on" => 1.0,
            "always_off" => 0.0,
            "traceidratio" => argument
                .map_or(Some(1.0), |text| text.trim().parse().ok())
                .filter(|share| (0.0..=1.0).contains(share))
                .ok_or("OTEL_TRACES_SAMPLER_ARG is not a share from 0 to 1")?,
            _ => {
                return Err(
                    "OTEL_TRACES_SAMPLER is none of always_on, always_off, traceidratio and the same with parentbased_"
                        .into(),
                );
            }
        };
        Ok(Sampler { share, follows })
    }

    /// By the trace's id alone, so that all who ask say the same.
    pub(super) fn takes(&self, trace: &TraceId, caller: Option<TraceParent>) -> bool {
        if let Some(caller) = caller.filter(|_| self.follows) {
            return caller.is_sampled();
        }
        let [.., a, b, c, d, e, f, g] = trace.bytes();
        let number = u64::from_be_bytes([0, a, b, c, d, e, f, g]);
        // Of all, none is rounded away.
        self.share >= 1.0 || (number as f64) < self.share * (1u64 << 56) as f64
    }
}

#[cfg(test)]
mod tests {
    use sha2::{Digest, Sha256};

    use super::*;

    fn read(flag: Option<&str>, variables: &[(&str, &str)]) -> Result<Option<TraceOptions>, String> {
        TraceOptions::read(flag, |name| {
            let found = variables.iter().find(|(known, _)| *known == name);
            found.map(|(_, value)| (*value).to_owned())
        })
    }

    fn endpoint(flag: Option<&str>, variables: &[(&str, &str)]) -> String {
        read(flag, variables).unwrap().unwrap().endpoint.to_string()
    }

    const ALL: &str = "OTEL_EXPORTER_OTLP_ENDPOINT";
    const OWN: &str = "OTEL_EXPORTER_OTLP_TRACES_ENDPOINT";

    #[test]
    fn where_traces_go_is_said_as_opentelemetry_has_it() {
        assert!(read(None, &[]).unwrap().is_none());
        assert!(read(None, &[(ALL, " ")]).unwrap().is_none());
        assert_eq!(
            endpoint(None, &[(ALL, "http://c:4318")]),
            "http://c:4318/v1/traces"
        );
        assert_eq!(
            endpoint(None, &[(ALL, "http://c:4318/a/")]),
            "http://c:4318/a/v1/traces"
        );
        assert_eq!(
            endpoint(None, &[(ALL, "http://c:4318"), (OWN, "https://d/x")]),
            "https://d/x"
        );
        assert_eq!(endpoint(None, &[(OWN, "https://d")]), "https://d/");
        assert_eq!(
            endpoint(Some("http://f:1"), &[(OWN, "https://d/x")]),
            "http://f:1/v1/traces"
        );
        assert_eq!(
            endpoint(Some("http://f:1/v1/traces"), &[]),
            "http://f:1/v1/traces"
        );
        for off in [("OTEL_SDK_DISABLED", "True"), ("OTEL_TRACES_EXPORTER", "none")] {
            assert!(read(None, &[(ALL, "http://c:4318"), off]).unwrap().is_none());
            assert!(read(Some("http://c:4318"), &[off]).unwrap().is_some());
        }
    }

    #[test]
    fn headers_and_attributes_are_lists_and_headers_are_not_shown() {
        let options = read(
            Some("http://c"),
            &[
                (
                    "OTEL_EXPORTER_OTLP_HEADERS",
                    "authorization=Bearer%20s3cr3t, x-scope = team%2Cone",
                ),
                (
                    "OTEL_RESOURCE_ATTRIBUTES",
                    "deployment.environment.name=lab,service.name=other",
                ),
                ("OTEL_SERVICE_NAME", "cell-7"),
                ("OTEL_EXPORTER_OTLP_TIMEOUT", "2500"),
                ("OTEL_EXPORTER_OTLP_COMPRESSION", "gzip"),
            ],
        );
        let options = options.unwrap().unwrap();
        assert_eq!(options.headers["authorization"], "Bearer s3cr3t");
        assert_eq!(options.headers["x-scope"], "team,one");
        assert!(!format!("{options:?}").contains("s3cr3t"));
        let said = |key: &str| {
            let mut of = options.resource.iter().filter(|(known, _)| known == key);
            (of.next().map(|(_, value)| value.as_str()), of.next())
        };
        assert_eq!(said("service.name"), (Some("cell-7"), None));
        assert_eq!(said("deployment.environment.name"), (Some("lab"), None));
        assert_eq!(options.time_limit, Duration::from_millis(2500));
        assert!(options.gzip);
    }

    #[test]
    fn what_cannot_be_used_is_refused_by_name_and_without_secrets() {
        for (flag, variables, what) in [
            (Some("collector:4318"), vec![], "--otlp"),
            (Some(""), vec![], "--otlp"),
            (Some("ftp://c"), vec![], "only http and https"),
            (Some("http://"), vec![], "--otlp"),
            (Some("http://u:s3cr3t@c"), vec![], "OTEL_EXPORTER_OTLP_HEADERS"),
            (Some("http://c#x"), vec![], "fragment"),
            (None, vec![(ALL, "nonsense")], ALL),
            (None, vec![(OWN, "nonsense")], OWN),
            (
                Some("http://c"),
                vec![("OTEL_EXPORTER_OTLP_HEADERS", "s3cr3t")],
                "OTEL_EXPORTER_OTLP_HEADERS",
            ),
            (
                Some("http://c"),
                vec![("OTEL_EXPORTER_OTLP_HEADERS", "a=s3cr3t%zz")],
                "name=value",
            ),
            (
                Some("http://c"),
                vec![("OTEL_EXPORTER_OTLP_HEADERS", "a b=s3cr3t")],
                "name=value",
            ),
            (
                Some("http://c"),
                vec![("OTEL_EXPORTER_OTLP_HEADERS", "a=s3cr3t%0Ax")],
                "name=value",
            ),
            (
                Some("http://c"),
                vec![("OTEL_EXPORTER_OTLP_PROTOCOL", "grpc")],
                "4318",
            ),
            (
                Some("http://c"),
                vec![("OTEL_EXPORTER_OTLP_TIMEOUT", "soon")],
                "milliseconds",
            ),
            (
                Some("http://c"),
                vec![("OTEL_EXPORTER_OTLP_COMPRESSION", "zip")],
                "gzip",
            ),
            (
                Some("http://c"),
                vec![("OTEL_EXPORTER_OTLP_CERTIFICATE", "/absent.pem")],
                "/absent.pem",
            ),
            (
                Some("http://c"),
                vec![("OTEL_RESOURCE_ATTRIBUTES", "=x")],
                "OTEL_RESOURCE_ATTRIBUTES",
            ),
            (
                Some("http://c"),
                vec![("OTEL_TRACES_SAMPLER", "sometimes")],
                "OTEL_TRACES_SAMPLER",
            ),
            (
                Some("http://c"),
                vec![
                    ("OTEL_TRACES_SAMPLER", "traceidratio"),
                    ("OTEL_TRACES_SAMPLER_ARG", "2"),
                ],
                "OTEL_TRACES_SAMPLER_ARG",
            ),
        ] {
            let why = read(flag, &variables).expect_err(what);
            assert!(why.contains(what) && !why.contains("s3cr3t"), "{why}");
        }
    }

    #[test]
    fn a_share_of_the_traces_is_about_that_share_and_a_caller_has_its_word() {
        let sampler = |name: &str, share: &str| Sampler::read(Some(name.into()), Some(share.into())).unwrap();
        let quarter = sampler("parentbased_traceidratio", "0.25");
        let ids: Vec<TraceId> = (1..=4000u32)
            .map(|n| {
                let hash: [u8; 32] = Sha256::digest(n.to_be_bytes()).into();
                TraceId::new(std::array::from_fn(|at| hash[at])).unwrap()
            })
            .collect();
        let taken = ids.iter().filter(|id| quarter.takes(id, None)).count();
        assert!((900..1100).contains(&taken), "{taken}");
        let caller = |flags: &str| -> TraceParent {
            format!("00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-{flags}")
                .parse()
                .unwrap()
        };
        assert!(quarter.takes(&ids[0], Some(caller("01"))) && !quarter.takes(&ids[0], Some(caller("00"))));
        assert!(Sampler::default().takes(&ids[0], None));
        assert!(sampler("always_on", "").takes(&ids[0], Some(caller("00"))));
        assert!(!sampler("always_off", "").takes(&ids[0], Some(caller("01"))));
    }
}
