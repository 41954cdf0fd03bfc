//! Logging in with a browser: the authorization code with PKCE (RFC 7636), for the console. The ID token that comes of it
//! is proven as every other.

use base64::prelude::{BASE64_URL_SAFE_NO_PAD, Engine as _};
use serde::Deserialize;
use sha2::{Digest as _, Sha256};
use tenure_api::secret_text::SecretText;

use super::{Oidc, bad, is_trustworthy};
use crate::http::fail::{Answer, Fail};

#[derive(Deserialize)]
struct Tokens {
    id_token: Option<SecretText>,
}

impl Oidc {
    /// The address at the issuer where a reader logs in, to come back to `back`.
    pub async fn begin(&self, back: &str, state: &str, nonce: &str, verifier: &str) -> Answer<String> {
        let discovery = self.discover().await.map_err(|why| self.silent(&why))?;
        let place = discovery.authorization_endpoint;
        let mut url = reqwest::Url::parse(&place)
            .ok()
            .filter(|_| is_trustworthy(&place))
            .ok_or_else(|| self.silent("it names no place to log in at"))?;
        let challenge = BASE64_URL_SAFE_NO_PAD.encode(Sha256::digest(verifier));
        url.query_pairs_mut().extend_pairs([
            ("response_type", "code"),
            ("client_id", &self.options.client_id),
            ("redirect_uri", back),
            ("scope", "openid"),
            ("state", state),
            ("nonce", nonce),
            ("code_challenge", &challenge),
            ("code_challenge_method", "S256"),
        ]);
        Ok(url.into())
    }

    /// The ID token for a code.
    pub async fn redeem(&self, code: &str, back: &str, verifier: &str) -> Answer<SecretText> {
        let discovery = self.discover().await.map_err(|why| self.silent(&why))?;
        let place = discovery.token_endpoint;
        let mut form = reqwest::Url::parse("http://form/").map_err(|error| Fail::internal(&error))?;
        form.query_pairs_mut().extend_pairs([
            ("grant_type", "authorization_code"),
            ("code", code),
            ("redirect_uri", back),
            ("client_id", &self.options.client_id),
            ("code_verifier", verifier),
        ]);
        if !is_trustworthy(&place) {
            return Err(self.silent("it names no place for tokens"));
        }
        let request = self
            .http
            .post(&place)
            .header("content-type", "application/x-www-form-urlencoded")
            .body(form.query().unwrap_or_default().to_owned());
        let tokens: Tokens = self.answer(request).await.map_err(|why| self.silent(&why))?;
        tokens.id_token.ok_or_else(|| bad("the issuer gave none"))
    }

    fn silent(&self, why: &str) -> Fail {
        tracing::warn!(
            why,
            issuer = self.options.issuer,
            "a login was not carried through"
        );
        Fail::unavailable("the login issuer does not answer as it should")
            .hint("try again in a moment, or use a key")
    }
}
