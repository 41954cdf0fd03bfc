//! Logging in through an OpenID Connect issuer: authorization code with PKCE, answered on a loopback port
//! (RFC 8252). The ID token is not checked here but by the server, which it is for.

use std::time::Duration;

use serde::Deserialize;
use sha2::{Digest, Sha256};
use tenure_api::secret_text::SecretText;
use tokio::io::{AsyncBufReadExt, AsyncWriteExt, BufReader};
use tokio::net::{TcpListener, TcpStream};

use crate::context::Context;
use crate::refusal::Failure;
use crate::run::fresh_key;
use crate::safe::safe;

/// How long the user has to log in.
const PATIENCE: Duration = Duration::from_secs(300);

pub struct Proof {
    pub id_token: SecretText,
    pub nonce: String,
}

#[derive(Deserialize)]
struct Discovery {
    issuer: String,
    authorization_endpoint: String,
    token_endpoint: String,
}

#[derive(Deserialize)]
struct Tokens {
    id_token: Option<SecretText>,
    #[serde(default)]
    error: Option<String>,
    #[serde(default)]
    error_description: Option<String>,
}

pub async fn log_in(context: &Context, issuer: &str, client_id: &str) -> Result<Proof, Failure> {
    let http = reqwest::Client::builder()
        .timeout(Duration::from_secs(20))
        // An endpoint that points elsewhere would carry the code there.
        .redirect(reqwest::redirect::Policy::none())
        .build()
        .map_err(|error| Failure::Local(error.to_string()))?;
    let discovery = discover(&http, issuer).await?;
    let listener = TcpListener::bind("127.0.0.1:0")
        .await
        .map_err(|error| Failure::Local(format!("no port for the answer: {error}")))?;
    let port = listener
        .local_addr()
        .map_err(|error| Failure::Local(error.to_string()))?
        .port();
    let redirect = format!("http://127.0.0.1:{port}/callback");
    let (state, nonce) = (fresh_key()?, fresh_key()?);
    let verifier = fresh_key()? + &fresh_key()?;
    let query = form(&[
        ("response_type", "code"),
        ("client_id", client_id),
        ("redirect_uri", &redirect),
        ("scope", "openid"),
        ("state", &state),
        ("nonce", &nonce),
        ("code_challenge", &challenge(&verifier)),
        ("code_challenge_method", "S256"),
    ]);
    let joint = if discovery.authorization_endpoint.contains('?') {
        '&'
    } else {
        '?'
    };
    context
        .out
        .say("Open this address in a browser on this machine to log in:");
    context.out.say(&format!(
        "  {}{joint}{query}",
        safe(&discovery.authorization_endpoint)
    ));
    let code = tokio::time::timeout(PATIENCE, callback(&listener, &state))
        .await
        .map_err(|_| {
            Failure::usage(format!(
                "nobody logged in within {} minutes",
                PATIENCE.as_secs() / 60
            ))
        })??;
    let body = form(&[
        ("grant_type", "authorization_code"),
        ("code", &code),
        ("redirect_uri", &redirect),
        ("client_id", client_id),
        ("code_verifier", &verifier),
    ]);
    let tokens: Tokens = answer(
        http.post(&discovery.token_endpoint)
            .header("content-type", "application/x-www-form-urlencoded")
            .body(body),
        "the identity provider's tokens",
    )
    .await?;
    match tokens.id_token {
        Some(id_token) => Ok(Proof { id_token, nonce }),
        None => {
            let why = tokens
                .error_description
                .or(tokens.error)
                .unwrap_or_else(|| "it gave no ID token".into());
            Err(Failure::Unreachable {
                what: format!("the identity provider did not log you in: {why}"),
                hint: None,
            })
        }
    }
}

async fn discover(http: &reqwest::Client, issuer: &str) -> Result<Discovery, Failure> {
    let url = format!(
        "{}/.well-known/openid-configuration",
        issuer.trim_end_matches('/')
    );
    let found: Discovery = answer(http.get(&url), "the identity provider's description of itself").await?;
    if found.issuer.trim_end_matches('/') != issuer.trim_end_matches('/') {
        return Err(Failure::Unreachable {
            what: format!(
                "the identity provider calls itself {}, but the server trusts {issuer}",
                found.issuer
            ),
            hint: Some("the operator of the server must set the issuer as the provider writes it".into()),
        });
    }
    for endpoint in [&found.authorization_endpoint, &found.token_endpoint] {
        if !endpoint.starts_with("https://") && !endpoint.starts_with("http://") {
            return Err(Failure::Unreachable {
                what: format!("the identity provider's endpoint {endpoint} is not a web address"),
                hint: None,
            });
        }
    }
    Ok(found)
}

async fn answer<T: serde::de::DeserializeOwned>(
    request: reqwest::RequestBuilder,
    what: &str,
) -> Result<T, Failure> {
    let failed = |error: &dyn std::fmt::Display| Failure::Unreachable {
        what: format!("{what} did not come: {error}"),
        hint: None,
    };
    let bytes = request
        .send()
        .await
        .map_err(|error| failed(&error))?
        .bytes()
        .await
        .map_err(|error| failed(&error))?;
    serde_json::from_slice(&bytes).map_err(|error| failed(&format!("not understood, {error}")))
}

/// Waits for the browser to come back with the code. Whatever else knocks is answered and ignored.
async fn callback(listener: &TcpListener, state: &str) -> Result<String, Failure> {
    loop {
        let Ok((stream, _)) = listener.accept().await else {
            continue;
        };
        let target = tokio::time::timeout(Duration::from_secs(5), request_target(stream, state)).await;
        match target {
            Ok(Some(Ok(code))) => return Ok(code),
            Ok(Some(Err(why))) => return Err(Failure::usage(format!("the login was not completed: {why}"))),
            Ok(None) | Err(_) => {}
        }
    }
}

/// Reads one request and answers it; gives the code or the error it brought, if it is ours.
async fn request_target(stream: TcpStream, state: &str) -> Option<Result<String, String>> {
    let mut reader = BufReader::new(tokio::io::AsyncReadExt::take(stream, 16 * 1024));
    let mut line = String::new();
    reader.read_line(&mut line).await.ok()?;
    let mut header = String::new();
    while reader.read_line(&mut header).await.ok()? > 2 {
        header.clear();
    }
    let result = read_target(&line, state);
    let (status, page) = match &result {
        Some(Ok(_)) => (
            "200 OK",
            "You are logged in. You can close this page and return to the terminal.",
        ),
        Some(Err(_)) => (
            "400 Bad Request",
            "The login was not completed. The terminal says why.",
        ),
        None => ("404 Not Found", "There is nothing here."),
    };
    let answer = format!(
        "HTTP/1.1 {status}\r\ncontent-type: text/plain; charset=utf-8\r\ncontent-length: {}\r\nconnection: close\r\n\r\n{page}",
        page.len()
    );
    // The code is in hand; a browser that does not wait for the page changes nothing.
    let _ = reader
        .into_inner()
        .into_inner()
        .write_all(answer.as_bytes())
        .await;
    result
}

fn read_target(line: &str, state: &str) -> Option<Result<String, String>> {
    let target = line.strip_prefix("GET ")?.split(' ').next()?;
    let url = reqwest::Url::parse("http://127.0.0.1").ok()?.join(target).ok()?;
    if url.path() != "/callback" {
        return None;
    }
    let find = |name: &str| {
        url.query_pairs()
            .find(|(key, _)| key == name)
            .map(|(_, value)| value.into_owned())
    };
    // Another page cannot know the state, so what comes without it is not the answer we wait for.
    if find("state").as_deref() != Some(state) {
        return None;
    }
    match (find("code"), find("error")) {
        (Some(code), None) => Some(Ok(code)),
        (_, Some(error)) => Some(Err(find("error_description").unwrap_or(error))),
        (None, None) => None,
    }
}

fn form(fields: &[(&str, &str)]) -> String {
    let mut url = reqwest::Url::parse("http://127.0.0.1").expect("a fixed address parses");
    url.query_pairs_mut().extend_pairs(fields);
    url.query().unwrap_or_default().to_owned()
}

/// Base64url of the verifier's SHA-256, without padding (RFC 7636).
fn challenge(verifier: &str) -> String {
    const ALPHABET: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_";
    let digest = Sha256::digest(verifier.as_bytes());
    let mut text = String::new();
    for chunk in digest.chunks(3) {
        let word =
            chunk.iter().fold(0u32, |word, &byte| word << 8 | u32::from(byte)) << (8 * (3 - chunk.len()));
        for i in 0..=chunk.len() {
            text.push(char::from(ALPHABET[(word >> (18 - 6 * i)) as usize & 63]));
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_challenge_is_that_of_rfc_7636() {
        assert_eq!(
            challenge("dBjftJeZ4CVP-mB92K27uhbUJU1p1r_wW1gFWFOEjXk"),
            "E9Melhoa2OwvFrEMTJguCHaoeK1t8URWbuGJSstw-cM"
        );
    }

    #[test]
    fn only_the_answer_with_our_state_counts() {
        let read = |target: &str| read_target(&format!("GET {target} HTTP/1.1\r\n"), "s1");
        assert_eq!(read("/callback?code=a%2Fb&state=s1"), Some(Ok("a/b".into())));
        assert_eq!(
            read("/callback?error=access_denied&state=s1"),
            Some(Err("access_denied".into()))
        );
        for other in [
            "/callback?code=x&state=s2",
            "/callback?code=x",
            "/favicon.ico",
            "/callback",
            "//evil/callback?code=x&state=s2",
            "",
        ] {
            assert_eq!(read(other), None, "{other}");
        }
    }

    #[test]
    fn forms_are_escaped() {
        assert_eq!(form(&[("a", "b c&d"), ("e", "ü")]), "a=b+c%26d&e=%C3%BC");
    }

    #[tokio::test]
    async fn the_browser_brings_the_code_and_strangers_are_sent_away() {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let waiting = tokio::spawn(async move { callback(&listener, "s1").await });
        for (target, status) in [
            ("/favicon.ico", "404"),
            ("/callback?code=x&state=no", "404"),
            ("/callback?code=c1&state=s1", "200"),
        ] {
            let mut stream = TcpStream::connect(address).await.unwrap();
            stream
                .write_all(format!("GET {target} HTTP/1.1\r\nhost: x\r\n\r\n").as_bytes())
                .await
                .unwrap();
            let mut answer = String::new();
            tokio::io::AsyncReadExt::read_to_string(&mut stream, &mut answer)
                .await
                .unwrap();
            assert!(
                answer.starts_with(&format!("HTTP/1.1 {status}")),
                "{target}: {answer}"
            );
        }
        assert_eq!(waiting.await.unwrap().ok().as_deref(), Some("c1"));
    }
}
