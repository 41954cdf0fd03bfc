//! The server's end of a stream to a job: a sender that waits for credit, a receiver that gives it back.
//!
//! Whatever carries a stream holds its `Far` end and hands it what the node says; dropping both halves tells
//! the node that nobody is there any more. Deliberately absent: what the bytes mean.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use tenure_api::channel::stream::{Down, MAX_CHUNK, Size, Up, WINDOW, cost};
use tokio::sync::{Semaphore, mpsc};

/// Both halves of a stream.
pub struct Stream {
    pub sender: StreamSender,
    pub receiver: StreamReceiver,
}

/// The stream is over; its receiver says why.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("the stream is over")]
pub struct Over;

struct Line {
    number: u64,
    down: mpsc::Sender<(u64, Down)>,
}

impl Line {
    async fn say(&self, says: Down) -> Result<(), Over> {
        self.down.send((self.number, says)).await.map_err(|_| Over)
    }
}

impl Drop for Line {
    fn drop(&mut self) {
        let close = (self.number, Down::Close);
        if let Err(mpsc::error::TrySendError::Full(close)) = self.down.try_send(close)
            && let Ok(runtime) = tokio::runtime::Handle::try_current()
        {
            let down = self.down.clone();
            runtime.spawn(async move { down.send(close).await });
        }
    }
}

/// Sends to the node.
pub struct StreamSender {
    line: Arc<Line>,
    credit: Arc<Semaphore>,
}

impl StreamSender {
    /// Sends bytes, as fast as the other end takes them.
    pub async fn send(&self, bytes: &[u8]) -> Result<(), Over> {
        for piece in bytes.chunks(MAX_CHUNK) {
            let permit = self.credit.acquire_many(cost(piece)).await.map_err(|_| Over)?;
            permit.forget();
            let bytes = piece.to_vec();
            self.line.say(Down::Data { bytes }).await?;
        }
        Ok(())
    }

    /// No more will be sent.
    pub async fn end(&self) -> Result<(), Over> {
        self.line.say(Down::End).await
    }

    pub async fn resize(&self, size: Size) -> Result<(), Over> {
        self.line.say(Down::Resize { size }).await
    }
}

/// Hears the node.
pub struct StreamReceiver {
    line: Arc<Line>,
    heard: mpsc::UnboundedReceiver<Up>,
    held: Arc<AtomicU32>,
    /// What was given to the caller and not yet given back to the node.
    owed: u32,
}

impl StreamReceiver {
    /// What the node says next; none once its connection has ended. Asking again means that the last was
    /// passed on. Safe to cancel.
    pub async fn next(&mut self) -> Option<Up> {
        // In larger pieces, so that not each chunk has an answer; but never so late that the node waits.
        if self.owed > WINDOW / 4 || (self.owed > 0 && self.heard.is_empty()) {
            // Room first: given up in between, nothing is lost.
            if let Ok(room) = self.line.down.reserve().await {
                let credit = std::mem::take(&mut self.owed);
                // Before it is said: the node may use it at once.
                self.held.fetch_sub(credit, Ordering::AcqRel);
                room.send((self.line.number, Down::Window { credit }));
            }
        }
        let up = self.heard.recv().await?;
        if let Up::Data { bytes, .. } = &up {
            self.owed += cost(bytes);
        }
        Some(up)
    }
}

/// Where what the node says of a stream is handed in.
pub struct Far {
    heard: mpsc::UnboundedSender<Up>,
    credit: Arc<Semaphore>,
    held: Arc<AtomicU32>,
}

impl Far {
    /// Takes one saying; what breaks the rules is not taken.
    pub fn take(&self, up: Up) -> Result<(), &'static str> {
        match &up {
            Up::Data { bytes, .. } => {
                if bytes.len() > MAX_CHUNK {
                    return Err("a chunk longer than a stream's");
                }
                let held = self.held.fetch_add(cost(bytes), Ordering::AcqRel) + cost(bytes);
                if held > WINDOW {
                    return Err("more than the stream's window");
                }
            }
            Up::Window { credit } => {
                if self.credit.available_permits() + *credit as usize > WINDOW as usize {
                    return Err("credit for what was never sent");
                }
                self.credit.add_permits(*credit as usize);
                return Ok(());
            }
            Up::Closed { .. } => self.credit.close(),
            Up::Opened { .. } => {}
        }
        let _ = self.heard.send(up);
        Ok(())
    }

    /// Whether nobody listens any more.
    pub fn is_left(&self) -> bool {
        self.heard.is_closed()
    }
}

impl Drop for Far {
    fn drop(&mut self) {
        self.credit.close();
    }
}

/// A stream whose sayings go to `down` under its number.
pub fn stream(number: u64, down: mpsc::Sender<(u64, Down)>) -> (Stream, Far) {
    let (hear, heard) = mpsc::unbounded_channel();
    let line = Arc::new(Line { number, down });
    let credit = Arc::new(Semaphore::new(WINDOW as usize));
    let held = Arc::new(AtomicU32::new(0));
    let stream = Stream {
        sender: StreamSender {
            line: line.clone(),
            credit: credit.clone(),
        },
        receiver: StreamReceiver {
            line,
            heard,
            held: held.clone(),
            owed: 0,
        },
    };
    let far = Far {
        heard: hear,
        credit,
        held,
    };
    (stream, far)
}

#[cfg(test)]
mod tests {
    use tenure_api::channel::LogStream;

    use super::*;

    fn data(length: usize) -> Up {
        Up::Data {
            from: LogStream::Stdout,
            bytes: vec![7; length],
        }
    }

    #[tokio::test]
    async fn a_sender_waits_for_credit_and_goes_on_with_it() {
        let (down, mut sayings) = mpsc::channel(1000);
        let (stream, far) = stream(1, down);
        let sending =
            tokio::spawn(async move { stream.sender.send(&vec![1; 1 << 20]).await.map(|()| stream) });
        let mut sent = 0;
        let mut under_way = 0;
        while sent < 1 << 20 {
            let (_, Down::Data { bytes }) = sayings.recv().await.unwrap() else {
                panic!("not data")
            };
            sent += bytes.len();
            under_way += cost(&bytes);
            assert!(under_way <= WINDOW);
            if under_way + MAX_CHUNK as u32 + 64 > WINDOW {
                assert!(sayings.try_recv().is_err());
                far.take(Up::Window { credit: under_way }).unwrap();
                under_way = 0;
            }
        }
        assert!(far.take(Up::Window { credit: WINDOW }).is_err());
        drop(sending.await.unwrap().unwrap());
        assert!(matches!(sayings.recv().await, Some((1, Down::Close))));
    }

    #[tokio::test]
    async fn what_comes_without_credit_is_not_taken() {
        let (down, mut sayings) = mpsc::channel(1000);
        let (mut stream, far) = stream(1, down);
        assert!(far.take(data(MAX_CHUNK + 1)).is_err());
        let mut taken = 0;
        while far.take(data(1000)).is_ok() {
            taken += 1;
        }
        assert_eq!(taken, WINDOW / 1064);
        for _ in 0..taken {
            stream.receiver.next().await.unwrap();
        }
        let next = tokio::time::timeout(std::time::Duration::from_millis(20), stream.receiver.next());
        assert!(next.await.is_err());
        let mut back = 0;
        while let Ok((_, Down::Window { credit })) = sayings.try_recv() {
            back += credit;
        }
        assert_eq!(back, taken * 1064);
        drop(far);
        assert_eq!(stream.receiver.next().await, None);
        assert_eq!(stream.sender.send(b"late").await, Err(Over));
    }
}
