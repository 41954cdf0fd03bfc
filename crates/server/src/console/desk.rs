//! The API, asked in process on behalf of who reads the page: the same router, so the same authorization, limits and
//! audit as for every client.

use axum::Router;
use axum::body::Body;
use axum::http::{Method, Request, Response, StatusCode, header};
use http_body_util::BodyExt;
use serde::Serialize;
use serde::de::DeserializeOwned;
use tenure_api::problem::Problem;
use tenure_api::secret_text::SecretText;
use tower::ServiceExt;

use crate::http::Peer;

pub(super) type Said<T> = Result<T, Box<Problem>>;

/// A way to the API for one caller.
#[derive(Clone)]
pub(super) struct Desk {
    api: Router,
    token: Option<SecretText>,
    peer: Option<Peer>,
}

impl Desk {
    pub fn new(api: Router, token: SecretText, peer: Option<Peer>) -> Desk {
        Desk {
            api,
            token: Some(token),
            peer,
        }
    }

    /// For routes that need no key.
    pub fn stranger(api: Router, peer: Option<Peer>) -> Desk {
        Desk {
            api,
            token: None,
            peer,
        }
    }

    pub async fn get<T: DeserializeOwned>(&self, path: &str) -> Said<T> {
        read(self.send(Method::GET, path, Body::empty(), None).await).await
    }

    /// Text of a route that gives no JSON.
    pub async fn text(&self, path: &str) -> Said<Vec<u8>> {
        bytes(self.send(Method::GET, path, Body::empty(), None).await).await
    }

    /// Text of a route that gives no JSON, and one of its headers.
    pub async fn with_header(&self, path: &str, name: &str) -> Said<(Vec<u8>, Option<String>)> {
        let response = self.send(Method::GET, path, Body::empty(), None).await;
        let value = response.headers().get(name).and_then(|value| value.to_str().ok());
        let value = value.map(str::to_owned);
        Ok((bytes(response).await?, value))
    }

    /// An answer that is passed on as it comes.
    pub async fn pass(&self, path: &str) -> Said<Response<Body>> {
        let response = self.send(Method::GET, path, Body::empty(), None).await;
        match response.status().is_success() {
            true => Ok(response),
            false => bytes(response)
                .await
                .and(Err(broken("an error without a problem"))),
        }
    }

    pub async fn post<B: Serialize, T: DeserializeOwned>(&self, path: &str, body: &B) -> Said<T> {
        read(self.body(Method::POST, path, body, None).await?).await
    }

    pub async fn put<B: Serialize, T: DeserializeOwned>(&self, path: &str, body: &B) -> Said<T> {
        read(self.body(Method::PUT, path, body, None).await?).await
    }

    /// Once only, however often the form is sent.
    pub async fn create<B: Serialize, T: DeserializeOwned>(
        &self,
        path: &str,
        body: &B,
        repeat: &str,
    ) -> Said<T> {
        read(self.body(Method::POST, path, body, Some(repeat)).await?).await
    }

    /// For routes that take no body; what they answer is asked for anew by the page that follows.
    pub async fn act(&self, method: Method, path: &str) -> Said<()> {
        bytes(self.send(method, path, Body::empty(), None).await)
            .await
            .map(drop)
    }

    async fn body<B: Serialize>(
        &self,
        method: Method,
        path: &str,
        body: &B,
        repeat: Option<&str>,
    ) -> Said<Response<Body>> {
        let bytes = serde_json::to_vec(body).map_err(|error| broken(&error.to_string()))?;
        Ok(self.send(method, path, bytes.into(), repeat).await)
    }

    async fn send(&self, method: Method, path: &str, body: Body, repeat: Option<&str>) -> Response<Body> {
        let mut request = Request::builder()
            .method(method)
            .uri(path)
            .header(header::CONTENT_TYPE, "application/json");
        if let Some(token) = &self.token {
            request = request.header(header::AUTHORIZATION, format!("Bearer {}", token.reveal()));
        }
        if let Some(repeat) = repeat {
            request = request.header("idempotency-key", repeat);
        }
        let Ok(mut request) = request.body(body) else {
            // What somebody typed into an address cannot be part of one.
            return Response::builder()
                .status(StatusCode::NOT_FOUND)
                .body(Body::empty())
                .expect("nothing in it is wrong");
        };
        if let Some(peer) = self.peer {
            request.extensions_mut().insert(peer);
        }
        let answer = self.api.clone().oneshot(request).await;
        answer.unwrap_or_else(|never| match never {})
    }
}

async fn bytes(response: Response<Body>) -> Said<Vec<u8>> {
    let status = response.status();
    let body = response.into_body().collect().await;
    let bytes = body.map_err(|error| broken(&error.to_string()))?.to_bytes();
    if status.is_success() {
        return Ok(bytes.into());
    }
    let problem = serde_json::from_slice(&bytes);
    Err(problem.unwrap_or_else(|_| Box::new(Problem::new(404, "not_found", "there is no such thing"))))
}

async fn read<T: DeserializeOwned>(response: Response<Body>) -> Said<T> {
    let bytes = bytes(response).await?;
    // Who answers nothing has done it and has no more to say.
    let said = if bytes.is_empty() { &b"null"[..] } else { &bytes };
    serde_json::from_slice(said).map_err(|error| broken(&error.to_string()))
}

fn broken(why: &str) -> Box<Problem> {
    tracing::error!(why, "the console does not understand the API");
    Box::new(Problem::new(
        500,
        "internal",
        "something went wrong here; the server's log says what",
    ))
}

/// One piece of a path or a query's value, with what means something in an address written out.
pub(super) fn piece(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for byte in text.bytes() {
        match byte {
            b'a'..=b'z' | b'A'..=b'Z' | b'0'..=b'9' | b'-' | b'_' | b'.' | b'~' => out.push(byte.into()),
            byte => out.push_str(&format!("%{byte:02X}")),
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::piece;

    #[test]
    fn a_piece_of_an_address_stays_one() {
        assert_eq!(piece("a/b?c=ä#"), "a%2Fb%3Fc%3D%C3%A4%23");
        assert_eq!(piece("job_1.x-y~z"), "job_1.x-y~z");
    }
}
