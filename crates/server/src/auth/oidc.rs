//! Logins at an OIDC issuer. Only ID tokens signed by the issuer's published keys with RS256, ES256 or EdDSA
//! are believed; keys are fetched when first needed, and again for an unknown one, at most once a minute.

mod code;
mod jose;

use std::time::{Duration, Instant};

use serde::Deserialize;
use serde::de::DeserializeOwned;
use subtle::ConstantTimeEq;
use tenure_domain::tenancy::scope::Identity;
use tenure_domain::{Code, Refusal, Time};
use tokio::sync::Mutex;

use crate::http::fail::{Answer, Fail};
use jose::{Jwk, Signed};

const LEEWAY_S: i64 = 60;
const REFRESH: Duration = Duration::from_secs(60);
const MAX_TOKEN_BYTES: usize = 16 * 1024;
const MAX_DOCUMENT_BYTES: usize = 256 * 1024;
const PATIENCE: Duration = Duration::from_secs(5);

/// The issuer whose logins are taken, and what this platform is called there.
#[derive(Debug, Clone)]
pub struct OidcOptions {
    /// https, or plain http on loopback.
    pub issuer: String,
    pub client_id: String,
}

pub(crate) struct Oidc {
    pub options: OidcOptions,
    http: reqwest::Client,
    keys: Mutex<Keys>,
}

#[derive(Default)]
struct Keys {
    list: Vec<Jwk>,
    asked: Option<Instant>,
}

#[derive(Deserialize)]
struct Discovery {
    issuer: String,
    jwks_uri: String,
    #[serde(default)]
    authorization_endpoint: String,
    #[serde(default)]
    token_endpoint: String,
}

#[derive(Deserialize)]
struct KeySet {
    keys: Vec<serde_json::Value>,
}

#[derive(Deserialize)]
struct Claims {
    iss: String,
    sub: String,
    aud: Audience,
    azp: Option<String>,
    exp: i64,
    iat: i64,
    nbf: Option<i64>,
    nonce: Option<String>,
}

#[derive(Deserialize)]
#[serde(untagged)]
enum Audience {
    One(String),
    Several(Vec<String>),
}

impl Audience {
    fn is_for(&self, client: &str, azp: Option<&str>) -> bool {
        match self {
            Audience::One(one) => one == client && azp.is_none_or(|azp| azp == client),
            // Meant for others too: then the issuer must say that it was given to us.
            Audience::Several(all) => {
                let ours = all.iter().any(|one| one == client);
                ours && if all.len() > 1 {
                    azp == Some(client)
                } else {
                    azp.is_none_or(|azp| azp == client)
                }
            }
        }
    }
}

impl Oidc {
    pub fn new(options: OidcOptions) -> Oidc {
        // Fails only where a provider was chosen before, which is as good.
        let _ = rustls::crypto::ring::default_provider().install_default();
        let http = reqwest::Client::builder()
            .redirect(reqwest::redirect::Policy::none())
            .timeout(PATIENCE)
            .user_agent(concat!("tenure/", env!("CARGO_PKG_VERSION")))
            .build()
            .expect("a client without special wishes");
        Oidc {
            options,
            http,
            keys: Mutex::default(),
        }
    }

    /// Proves an ID token and says whom it stands for.
    pub async fn verify(&self, token: &str, nonce: &str, now: Time) -> Answer<Identity> {
        if token.len() > MAX_TOKEN_BYTES {
            return Err(bad("it is too long"));
        }
        let signed = Signed::read(token).map_err(bad)?;
        let key = self.key_for(&signed).await?;
        let payload = signed.verify(&key).map_err(bad)?;
        let claims: Claims =
            serde_json::from_slice(&payload).map_err(|_| bad("its claims are not those of an ID token"))?;
        self.check(claims, nonce, now.0.div_euclid(1000))
    }

    fn check(&self, claims: Claims, nonce: &str, now_s: i64) -> Answer<Identity> {
        if claims.iss != self.options.issuer {
            return Err(bad("it is from another issuer"));
        }
        if !claims.aud.is_for(&self.options.client_id, claims.azp.as_deref()) {
            return Err(bad("it was not given to this platform"));
        }
        if claims.exp.saturating_add(LEEWAY_S) <= now_s {
            return Err(bad("it has expired"));
        }
        let soon = now_s.saturating_add(LEEWAY_S);
        if claims.iat > soon || claims.nbf.is_some_and(|nbf| nbf > soon) {
            return Err(bad("it is not valid yet"));
        }
        let same: bool = claims
            .nonce
            .as_deref()
            .unwrap_or_default()
            .as_bytes()
            .ct_eq(nonce.as_bytes())
            .into();
        if nonce.is_empty() || !same {
            return Err(bad("its nonce is not the one this login was started with"));
        }
        if claims.sub.is_empty() || claims.sub.len() > 255 {
            return Err(bad("it names nobody"));
        }
        Ok(Identity {
            issuer: claims.iss,
            subject: claims.sub,
        })
    }

    /// The issuer's key that the token says it was signed with.
    async fn key_for(&self, signed: &Signed) -> Answer<Jwk> {
        // Held while fetching: of many logins at once, one asks the issuer.
        let mut keys = self.keys.lock().await;
        if let Some(key) = signed.choose(&keys.list) {
            return Ok(key.clone());
        }
        if keys.asked.is_some_and(|asked| asked.elapsed() < REFRESH) {
            return Err(bad("it is signed with a key its issuer does not publish"));
        }
        keys.asked = Some(Instant::now());
        match self.fetch_keys().await {
            Ok(list) => keys.list = list,
            Err(why) => {
                // Nothing was learnt, so the next login may ask again.
                keys.asked = None;
                tracing::warn!(
                    why,
                    issuer = self.options.issuer,
                    "the issuer's keys were not fetched"
                );
                return Err(Fail::unavailable("the login issuer does not answer as it should")
                    .hint("try again in a moment, or use a key"));
            }
        }
        signed
            .choose(&keys.list)
            .cloned()
            .ok_or_else(|| bad("it is signed with a key its issuer does not publish"))
    }

    /// What the issuer says of itself.
    async fn discover(&self) -> Result<Discovery, String> {
        let issuer = &self.options.issuer;
        let place = format!(
            "{}/.well-known/openid-configuration",
            issuer.trim_end_matches('/')
        );
        let discovery: Discovery = self.fetch(&place).await?;
        if discovery.issuer != *issuer {
            return Err(format!("it calls itself {}", discovery.issuer));
        }
        Ok(discovery)
    }

    async fn fetch_keys(&self) -> Result<Vec<Jwk>, String> {
        let discovery = self.discover().await?;
        let set: KeySet = self.fetch(&discovery.jwks_uri).await?;
        // Keys of kinds we do not know are none of our business.
        Ok(set
            .keys
            .into_iter()
            .filter_map(|key| serde_json::from_value(key).ok())
            .collect())
    }

    async fn fetch<T: DeserializeOwned>(&self, place: &str) -> Result<T, String> {
        if !is_trustworthy(place) {
            return Err(format!("{place} is neither https nor on loopback"));
        }
        self.answer(self.http.get(place)).await
    }

    async fn answer<T: DeserializeOwned>(&self, request: reqwest::RequestBuilder) -> Result<T, String> {
        let said = |error: reqwest::Error| error.without_url().to_string();
        let mut response = request
            .send()
            .await
            .map_err(said)?
            .error_for_status()
            .map_err(said)?;
        let mut bytes = Vec::new();
        while let Some(piece) = response.chunk().await.map_err(said)? {
            bytes.extend_from_slice(&piece);
            if bytes.len() > MAX_DOCUMENT_BYTES {
                return Err("its answer is too long".into());
            }
        }
        serde_json::from_slice(&bytes).map_err(|error| error.to_string())
    }
}

/// https anywhere; plain http only where nobody is in between.
fn is_trustworthy(place: &str) -> bool {
    let Ok(url) = reqwest::Url::parse(place) else {
        return false;
    };
    let loopback = || match url.host_str() {
        Some("localhost" | "[::1]") => true,
        Some(host) => host
            .parse::<std::net::Ipv4Addr>()
            .is_ok_and(|ip| ip.is_loopback()),
        None => false,
    };
    url.scheme() == "https" || (url.scheme() == "http" && loopback())
}

fn bad(why: &str) -> Fail {
    Fail::unauthenticated(format!("the ID token is not taken: {why}"))
        .hint("log in again")
        .field("/id_token")
}

/// What a proven login that nobody here answers to is told.
pub(crate) fn nobody() -> Refusal {
    Refusal::new(Code::NotPermitted, "this login may not enter here")
        .hint("ask an operator to add it to your user")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn plain_http_is_for_loopback_alone() {
        for good in [
            "https://id.example",
            "http://127.0.0.1:9/x",
            "http://localhost/",
            "http://[::1]:8/",
        ] {
            assert!(is_trustworthy(good), "{good}");
        }
        for bad in [
            "http://id.example",
            "http://127.0.0.1.evil.example/",
            "http://169.254.169.254/",
            "ftp://localhost",
            "file:///etc/passwd",
            "",
        ] {
            assert!(!is_trustworthy(bad), "{bad}");
        }
    }

    #[test]
    fn a_token_is_good_for_its_time_and_its_login() {
        let oidc = Oidc::new(OidcOptions {
            issuer: "https://id.example".into(),
            client_id: "us".into(),
        });
        let check = |change: serde_json::Value, nonce: &str| {
            let mut claims = serde_json::json!({ "iss": "https://id.example", "sub": "ada", "aud": "us", "exp": 2000, "iat": 1000, "nonce": "n" });
            for (name, value) in change.as_object().unwrap() {
                claims[name] = value.clone();
            }
            oidc.check(serde_json::from_value(claims).unwrap(), nonce, 1500)
                .is_ok()
        };
        for good in [
            serde_json::json!({}),
            serde_json::json!({ "exp": 1441 }),
            serde_json::json!({ "iat": 1560, "nbf": 1560 }),
        ] {
            assert!(check(good.clone(), "n"), "{good}");
        }
        for bad in [
            serde_json::json!({ "exp": 1440 }),
            serde_json::json!({ "iat": 1561 }),
            serde_json::json!({ "nbf": 1561 }),
            serde_json::json!({ "iss": "https://id.example/" }),
            serde_json::json!({ "aud": ["them"] }),
            serde_json::json!({ "sub": "" }),
            serde_json::json!({ "nonce": "m" }),
            serde_json::json!({ "exp": i64::MIN }),
        ] {
            assert!(!check(bad.clone(), "n"), "{bad}");
        }
        assert!(!check(serde_json::json!({ "nonce": "" }), ""));
    }

    #[test]
    fn a_token_for_others_too_must_name_us() {
        let several = Audience::Several(vec!["them".into(), "us".into()]);
        assert!(several.is_for("us", Some("us")));
        assert!(!several.is_for("us", Some("them")));
        assert!(!several.is_for("us", None));
        assert!(Audience::One("us".into()).is_for("us", None));
        assert!(!Audience::One("us".into()).is_for("us", Some("them")));
    }
}
