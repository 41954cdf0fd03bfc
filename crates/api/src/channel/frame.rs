//! Frames over a stream: the channel's rules applied to bytes as they come. For both of its ends.

use serde::Serialize;
use serde::de::DeserializeOwned;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};

use super::{BadFrame, Reader, Writer};

/// Why no frame came or went.
#[derive(Debug, thiserror::Error)]
pub enum FrameError {
    #[error("the stream ended")]
    Closed,
    #[error("the stream failed")]
    Io(#[from] std::io::Error),
    #[error(transparent)]
    Bad(#[from] BadFrame),
}

/// Incoming frames of one stream. Not cancel-safe: a dropped `next` loses its place.
pub struct FrameReader<R> {
    stream: R,
    rules: Reader,
}

impl<R: AsyncRead + Unpin> FrameReader<R> {
    pub fn new(stream: R, rules: Reader) -> Self {
        FrameReader { stream, rules }
    }

    pub async fn next<T: DeserializeOwned>(&mut self) -> Result<T, FrameError> {
        let mut header = [0; 4];
        let mut have = 0;
        while have < header.len() {
            match self.stream.read(&mut header[have..]).await? {
                0 => return Err(FrameError::Closed),
                more => have += more,
            }
        }
        let length = self.rules.length(header)?;
        // Grows with what arrives, not with what is announced.
        let mut body = Vec::with_capacity(length.min(16 * 1024));
        let got = (&mut self.stream)
            .take(length as u64)
            .read_to_end(&mut body)
            .await?;
        if got < length {
            return Err(FrameError::Closed);
        }
        Ok(self.rules.take(&body)?)
    }
}

/// Outgoing frames of one stream.
pub struct FrameWriter<W> {
    stream: W,
    rules: Writer,
}

impl<W: AsyncWrite + Unpin> FrameWriter<W> {
    pub fn new(stream: W) -> Self {
        FrameWriter {
            stream,
            rules: Writer::default(),
        }
    }

    pub async fn send<T: Serialize>(&mut self, message: &T) -> Result<(), FrameError> {
        let mut bytes = self.rules.frame(message)?;
        let written = async {
            self.stream.write_all(&bytes).await?;
            self.stream.flush().await
        };
        let result = written.await;
        // Orders carry secrets; the copy made here must not outlive its sending.
        bytes.fill(0);
        Ok(result?)
    }

    pub async fn close(&mut self) {
        let _ = self.stream.shutdown().await;
    }
}
