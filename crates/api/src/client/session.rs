//! The client's end of a session: a WebSocket over the same connection, keys and trust as every other request.

use futures_util::stream::{SplitSink, SplitStream};
use futures_util::{SinkExt, StreamExt};
use reqwest::{Method, StatusCode, Upgraded};
use tokio_tungstenite::WebSocketStream;
use tokio_tungstenite::tungstenite::handshake::client::generate_key;
use tokio_tungstenite::tungstenite::handshake::derive_accept_key;
use tokio_tungstenite::tungstenite::protocol::{Message, Role, WebSocketConfig};

use super::{Answer, Client, ClientError, with_query};
use crate::channel::stream::MAX_CHUNK;
use crate::v1::session::{
    AttachQuery, COMMAND_HEADER, ClientSays, ExecQuery, INPUT, MAX_MESSAGE, PortQuery, STDERR, STDOUT,
    ServerSays, write_command,
};

type Socket = WebSocketStream<Upgraded>;

/// An open session, in two halves that do not wait for one another.
pub struct Session {
    pub sender: SessionSender,
    pub receiver: SessionReceiver,
}

pub struct SessionSender(SplitSink<Socket, Message>);

pub struct SessionReceiver(SplitStream<Socket>);

/// What is heard of a session.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Heard {
    Says(ServerSays),
    Stdout(Vec<u8>),
    Stderr(Vec<u8>),
}

/// The server is gone.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("the connection with the server ended")]
pub struct Lost;

impl SessionSender {
    pub async fn input(&mut self, bytes: &[u8]) -> Result<(), Lost> {
        for piece in bytes.chunks(MAX_CHUNK) {
            let mut message = Vec::with_capacity(piece.len() + 1);
            message.push(INPUT);
            message.extend_from_slice(piece);
            self.0
                .send(Message::Binary(message.into()))
                .await
                .map_err(|_| Lost)?;
        }
        Ok(())
    }

    pub async fn say(&mut self, says: &ClientSays) -> Result<(), Lost> {
        let text = serde_json::to_string(says).map_err(|_| Lost)?;
        self.0.send(Message::Text(text.into())).await.map_err(|_| Lost)
    }

    pub async fn close(&mut self) {
        let _ = self.0.close().await;
    }
}

impl SessionReceiver {
    /// What is heard next. Safe to cancel.
    pub async fn next(&mut self) -> Result<Heard, Lost> {
        loop {
            match self.0.next().await {
                Some(Ok(Message::Text(text))) => {
                    // What a newer server says besides is not for this client.
                    if let Ok(says) = serde_json::from_str(&text) {
                        return Ok(Heard::Says(says));
                    }
                }
                Some(Ok(Message::Binary(bytes))) => match bytes.split_first() {
                    Some((&STDOUT, bytes)) => return Ok(Heard::Stdout(bytes.to_vec())),
                    Some((&STDERR, bytes)) => return Ok(Heard::Stderr(bytes.to_vec())),
                    _ => {}
                },
                Some(Ok(Message::Ping(_) | Message::Pong(_) | Message::Frame(_))) => {}
                Some(Ok(Message::Close(_)) | Err(_)) | None => return Err(Lost),
            }
        }
    }
}

impl Client {
    pub async fn attach_job(&self, job: &str, query: &AttachQuery) -> Answer<Session> {
        let path = with_query(&format!("/v1/jobs/{job}/attach"), query);
        self.session(&path, None).await
    }

    pub async fn exec_job(&self, job: &str, command: &[String], query: &ExecQuery) -> Answer<Session> {
        let path = with_query(&format!("/v1/jobs/{job}/exec"), query);
        self.session(&path, Some(write_command(command))).await
    }

    pub async fn port_job(&self, job: &str, query: &PortQuery) -> Answer<Session> {
        let path = with_query(&format!("/v1/jobs/{job}/port"), query);
        self.session(&path, None).await
    }

    async fn session(&self, path: &str, command: Option<String>) -> Answer<Session> {
        let key = generate_key();
        let mut request = self
            .request(Method::GET, path)
            .header("connection", "Upgrade")
            .header("upgrade", "websocket")
            .header("sec-websocket-version", "13")
            .header("sec-websocket-key", &key);
        if let Some(command) = command {
            request = request.header(COMMAND_HEADER, command);
        }
        let response = self.send(request).await?;
        let not_understood = || ClientError::Unreadable("it does not speak WebSocket".to_owned());
        let accepted = response.headers().get("sec-websocket-accept");
        if response.status() != StatusCode::SWITCHING_PROTOCOLS
            || accepted
                .is_none_or(|accepted| accepted.as_bytes() != derive_accept_key(key.as_bytes()).as_bytes())
        {
            return Err(not_understood());
        }
        let upgraded = response
            .upgrade()
            .await
            .map_err(|source| ClientError::Unreachable {
                server: self.server.clone(),
                source,
            })?;
        let config = WebSocketConfig::default()
            .max_message_size(Some(MAX_MESSAGE))
            .max_frame_size(Some(MAX_MESSAGE));
        let socket = WebSocketStream::from_raw_socket(upgraded, Role::Client, Some(config)).await;
        let (sender, receiver) = socket.split();
        Ok(Session {
            sender: SessionSender(sender),
            receiver: SessionReceiver(receiver),
        })
    }
}
