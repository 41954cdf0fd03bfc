//! A session at this end: keys and bytes there, output here, until it ends or is left.

use std::io::Read;

use tenure_api::client::session::{Heard, Lost, Session, SessionReceiver, SessionSender};
use tenure_api::v1::session::{ClientSays, ServerSays};
use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::{mpsc, oneshot};

use crate::logs::{Sink, Stream};
use crate::refusal::Failure;
use crate::terminal::{self, Raw};

/// Ctrl-P Ctrl-Q leaves a job running.
const LEAVE: [u8; 2] = [0x10, 0x11];
const PIECE: usize = 16 * 1024;
/// Pieces of output that wait for a slow reader; beyond them the other side waits.
const WAITING: usize = 8;

/// What is wanted of a session.
pub struct Wanted {
    /// Our stdin goes there.
    pub input: bool,
    /// Our terminal is raw, where there is one at the other end too.
    pub terminal: bool,
    /// Ctrl-P Ctrl-Q leaves.
    pub leave: bool,
}

/// How a session ended.
#[derive(Debug)]
pub enum Ended {
    Closed {
        exit_code: Option<i32>,
        signal: Option<i32>,
        why: Option<String>,
    },
    /// Left by the user, who is still here.
    Left,
    /// Told to end by a signal.
    Told(i32),
}

impl Ended {
    /// The exit code of what was at the other end.
    pub fn code(&self) -> Option<u8> {
        match self {
            Ended::Closed {
                exit_code: Some(code),
                ..
            } => Some((code & 0xff) as u8),
            Ended::Closed {
                signal: Some(signal), ..
            } => Some((128 + (signal & 0x7f)) as u8),
            Ended::Closed { .. } | Ended::Left => None,
            Ended::Told(signal) => Some((128 + signal) as u8),
        }
    }

    /// Why, where there is no exit code that says it.
    pub fn why(&self) -> String {
        match self {
            Ended::Closed { why: Some(why), .. } => why.clone(),
            _ => "the session ended".to_owned(),
        }
    }
}

/// Stays until the session ends. The terminal is as it was when this returns.
pub async fn stay(session: Session, wanted: Wanted) -> Result<Ended, Failure> {
    let Session {
        mut sender,
        mut receiver,
    } = session;
    let (has_terminal, has_input) = opened(&mut receiver).await?;
    let raw = if has_terminal && wanted.terminal {
        Some(Raw::enter()?)
    } else {
        None
    };
    if raw.is_some() {
        resize(&mut sender).await;
    }
    let input = (wanted.input && has_input).then(read_stdin);
    let (mut output, written) = write_output(raw.is_some());
    let leave = wanted.leave && raw.is_some();
    let ended = tokio::select! {
        ended = outward(&mut receiver, &mut output) => ended,
        ended = inward(&mut sender, input, raw.is_some(), leave) => Ok(ended),
        told = told() => told,
    };
    if !matches!(ended, Ok(Ended::Closed { .. })) {
        sender.close().await;
    }
    drop(output);
    let written = written.await.unwrap_or(Ok(()));
    drop(raw);
    match ended {
        // Whoever no longer reads has ended it, quietly.
        Err(Failure::Hangup) => Err(written.err().unwrap_or(Failure::Hangup)),
        other => {
            written?;
            other
        }
    }
}

/// Waits for the first words.
async fn opened(receiver: &mut SessionReceiver) -> Result<(bool, bool), Failure> {
    loop {
        match receiver.next().await.map_err(lost)? {
            Heard::Says(ServerSays::Opened { terminal, input, .. }) => return Ok((terminal, input)),
            Heard::Says(ServerSays::Closed { why, .. }) => {
                return Err(Failure::Local(
                    why.unwrap_or_else(|| "it was closed at once".into()),
                ));
            }
            Heard::Stdout(_) | Heard::Stderr(_) => {}
        }
    }
}

pub fn lost(_: Lost) -> Failure {
    Failure::Unreachable {
        what: "the connection with the server ended".into(),
        hint: Some("what runs goes on; `tenure attach` goes to it again".into()),
    }
}

async fn resize(sender: &mut SessionSender) {
    if let Some((rows, cols)) = terminal::size() {
        let _ = sender.say(&ClientSays::Resize { rows, cols }).await;
    }
}

async fn outward(
    receiver: &mut SessionReceiver,
    output: &mut mpsc::Sender<(Stream, Vec<u8>)>,
) -> Result<Ended, Failure> {
    loop {
        let piece = match receiver.next().await.map_err(lost)? {
            Heard::Stdout(bytes) => (Stream::Stdout, bytes),
            Heard::Stderr(bytes) => (Stream::Stderr, bytes),
            Heard::Says(ServerSays::Closed {
                exit_code,
                signal,
                why,
            }) => {
                return Ok(Ended::Closed {
                    exit_code,
                    signal,
                    why,
                });
            }
            Heard::Says(ServerSays::Opened { .. }) => continue,
        };
        if output.send(piece).await.is_err() {
            return Err(Failure::Hangup);
        }
    }
}

/// Passes keys and sizes on; returns only when the user leaves.
async fn inward(
    sender: &mut SessionSender,
    mut input: Option<mpsc::Receiver<Vec<u8>>>,
    resizes: bool,
    leave: bool,
) -> Ended {
    let mut resized = resizes
        .then(|| signal(SignalKind::window_change()).ok())
        .flatten();
    let mut keys = Keys::default();
    loop {
        tokio::select! {
            bytes = next(&mut input) => match bytes {
                Some(bytes) => {
                    let (pass, left) = if leave { keys.take(&bytes) } else { (bytes, false) };
                    if !pass.is_empty() && sender.input(&pass).await.is_err() {
                        input = None;
                    }
                    if left {
                        return Ended::Left;
                    }
                }
                None => {
                    input = None;
                    let _ = sender.say(&ClientSays::End).await;
                }
            },
            () = changed(&mut resized) => resize(sender).await,
        }
    }
}

async fn next(input: &mut Option<mpsc::Receiver<Vec<u8>>>) -> Option<Vec<u8>> {
    match input {
        Some(input) => input.recv().await,
        None => std::future::pending().await,
    }
}

async fn changed(resized: &mut Option<tokio::signal::unix::Signal>) {
    match resized {
        Some(resized) => drop(resized.recv().await),
        None => std::future::pending().await,
    }
}

/// Finds the two keys that leave, wherever a read cuts between them.
#[derive(Default)]
struct Keys {
    first: bool,
}

impl Keys {
    /// What is to be passed on, and whether the user leaves.
    fn take(&mut self, bytes: &[u8]) -> (Vec<u8>, bool) {
        let mut pass = Vec::with_capacity(bytes.len() + 1);
        for &byte in bytes {
            if self.first && byte == LEAVE[1] {
                return (pass, true);
            }
            if std::mem::replace(&mut self.first, byte == LEAVE[0]) {
                pass.push(LEAVE[0]);
            }
            if !self.first {
                pass.push(byte);
            }
        }
        (pass, false)
    }
}

/// A signal that ends us, taken so that the terminal is given back first.
async fn told() -> Result<Ended, Failure> {
    let failed = |error: std::io::Error| Failure::Local(format!("signals cannot be heard: {error}"));
    let kinds = [
        SignalKind::terminate(),
        SignalKind::hangup(),
        SignalKind::interrupt(),
    ];
    let [mut terminate, mut hang_up, mut interrupt] = kinds.map(|kind| signal(kind).map_err(failed));
    let number = tokio::select! {
        _ = terminate.as_mut().map_err(|_| Failure::Hangup)?.recv() => SignalKind::terminate(),
        _ = hang_up.as_mut().map_err(|_| Failure::Hangup)?.recv() => SignalKind::hangup(),
        _ = interrupt.as_mut().map_err(|_| Failure::Hangup)?.recv() => SignalKind::interrupt(),
    };
    Ok(Ended::Told(number.as_raw_value()))
}

/// Reads stdin in a thread of its own: it may wait there for ever, and holds nothing up.
fn read_stdin() -> mpsc::Receiver<Vec<u8>> {
    let (sender, receiver) = mpsc::channel(2);
    std::thread::spawn(move || {
        let mut stdin = std::io::stdin().lock();
        let mut buffer = vec![0; PIECE];
        loop {
            match stdin.read(&mut buffer) {
                Err(error) if error.kind() == std::io::ErrorKind::Interrupted => {}
                Ok(0) | Err(_) => return,
                Ok(got) => {
                    if sender.blocking_send(buffer[..got].to_vec()).is_err() {
                        return;
                    }
                }
            }
        }
    });
    receiver
}

type Written = oneshot::Receiver<Result<(), Failure>>;

/// Writes in a thread of its own: who reads slowly must not keep us from hearing the server.
fn write_output(raw: bool) -> (mpsc::Sender<(Stream, Vec<u8>)>, Written) {
    let (sender, mut pieces) = mpsc::channel::<(Stream, Vec<u8>)>(WAITING);
    let (done, written) = oneshot::channel();
    std::thread::spawn(move || {
        let (mut stdout, mut stderr) = (Sink::new(Stream::Stdout, raw), Sink::new(Stream::Stderr, raw));
        let mut write = || -> Result<(), Failure> {
            while let Some((stream, bytes)) = pieces.blocking_recv() {
                match stream {
                    Stream::Stdout => stdout.write(&bytes)?,
                    Stream::Stderr => stderr.write(&bytes)?,
                }
            }
            stdout.finish()?;
            stderr.finish()
        };
        let _ = done.send(write());
    });
    (sender, written)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_leaving_keys_are_found_wherever_they_are_cut() {
        let mut keys = Keys::default();
        assert_eq!(keys.take(b"ab\x10"), (b"ab".to_vec(), false));
        assert_eq!(keys.take(b"c"), (b"\x10c".to_vec(), false));
        assert_eq!(keys.take(b"\x10"), (b"".to_vec(), false));
        assert_eq!(keys.take(b"\x10x"), (b"\x10\x10x".to_vec(), false));
        assert_eq!(keys.take(b"\x11y\x10\x11z"), (b"\x11y".to_vec(), true));
    }

    #[test]
    fn codes_and_signals_are_passed_through() {
        let closed = |exit_code, signal| Ended::Closed {
            exit_code,
            signal,
            why: None,
        };
        assert_eq!(closed(Some(7), None).code(), Some(7));
        assert_eq!(closed(None, Some(9)).code(), Some(137));
        assert_eq!(closed(None, None).code(), None);
        assert_eq!(Ended::Told(15).code(), Some(143));
    }
}
