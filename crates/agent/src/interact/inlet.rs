//! What comes from a person, on its way to the job: bounded, whatever the person does and the job does not read.
//!
//! Bytes are bounded by the stream's window, its end comes once, and of a terminal's sizes only the last one counts.
//! Filled by the connection, emptied by the stream's own task.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use tenure_api::channel::stream::{MAX_CHUNK, Size, WINDOW, cost};
use tokio::sync::{mpsc, watch};

pub(super) enum Input {
    Data(Vec<u8>),
    End,
    Resize(Size),
}

/// Where what the person says is put in.
pub(super) struct Inlet {
    // INVARIANT: a window's worth of bytes and one end; that is why it needs no bound of its own.
    input: mpsc::UnboundedSender<Input>,
    size: watch::Sender<Size>,
    held: Arc<AtomicU32>,
    ended: bool,
}

/// What comes from the person, to be passed on before more comes.
pub(super) struct Inbox {
    input: mpsc::UnboundedReceiver<Input>,
    size: watch::Receiver<Size>,
    held: Arc<AtomicU32>,
}

pub(super) fn inlet() -> (Inlet, Inbox) {
    let (input, receiver) = mpsc::unbounded_channel();
    let (size, sizes) = watch::channel(Size { rows: 0, cols: 0 });
    let held = Arc::new(AtomicU32::new(0));
    let inbox = Inbox {
        input: receiver,
        size: sizes,
        held: held.clone(),
    };
    let inlet = Inlet {
        input,
        size,
        held,
        ended: false,
    };
    (inlet, inbox)
}

/// Who does not keep to the rules is not served.
#[derive(Debug)]
pub(super) struct Broken;

impl Inlet {
    pub fn take(&mut self, input: Input) -> Result<(), Broken> {
        match input {
            Input::Resize(size) => {
                self.size.send_replace(size);
                return Ok(());
            }
            Input::End if self.ended => return Err(Broken),
            Input::End => self.ended = true,
            Input::Data(ref bytes) => {
                let held = self.held.fetch_add(cost(bytes), Ordering::AcqRel) + cost(bytes);
                if held > WINDOW || bytes.len() > MAX_CHUNK {
                    return Err(Broken);
                }
            }
        }
        let _ = self.input.send(input);
        Ok(())
    }

    /// Whether nobody takes anything out any more.
    pub fn is_left(&self) -> bool {
        self.input.is_closed()
    }
}

impl Inbox {
    /// None when nobody is there any more. Safe to cancel.
    pub async fn next(&mut self) -> Option<Input> {
        tokio::select! {
            // First, so that what is typed after a resize finds the terminal in its new size.
            biased;
            Ok(()) = self.size.changed() => Some(Input::Resize(*self.size.borrow_and_update())),
            input = self.input.recv() => input,
        }
    }

    /// The bytes were passed on, or nobody wants them: there is room for more.
    pub fn give_back(&self, credit: u32) {
        self.held.fetch_sub(credit, Ordering::AcqRel);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    async fn rest(inlet: Inlet, mut inbox: Inbox) -> Vec<Input> {
        drop(inlet);
        let mut rest = Vec::new();
        while let Some(input) = inbox.next().await {
            rest.push(input);
        }
        rest
    }

    #[tokio::test]
    async fn of_a_million_sizes_the_last_is_kept() {
        let (mut inlet, inbox) = inlet();
        for number in 0..1_000_000_u32 {
            let size = Size {
                rows: (number % 1000) as u16,
                cols: (number / 1000) as u16,
            };
            inlet.take(Input::Resize(size)).unwrap();
        }
        inlet.take(Input::Data(b"x".to_vec())).unwrap();
        assert!(inbox.input.len() <= 1, "{} wait to be read", inbox.input.len());
        let mut sizes = Vec::new();
        let mut inbox = inbox;
        for _ in 0..2 {
            match inbox.next().await {
                Some(Input::Resize(size)) => sizes.push((size.rows, size.cols)),
                Some(Input::Data(bytes)) => assert_eq!(bytes, b"x"),
                _ => panic!("nothing has ended"),
            }
        }
        assert_eq!(sizes, [(999, 999)]);
        assert!(rest(inlet, inbox).await.is_empty());
    }

    #[tokio::test]
    async fn an_end_comes_once() {
        let (mut inlet, inbox) = inlet();
        inlet.take(Input::End).unwrap();
        inlet.take(Input::End).unwrap_err();
        assert!(matches!(rest(inlet, inbox).await.as_slice(), [Input::End]));
    }

    #[tokio::test]
    async fn bytes_are_taken_up_to_the_window_and_again_when_they_were_passed_on() {
        let (mut inlet, inbox) = inlet();
        let chunk = || Input::Data(vec![0; MAX_CHUNK]);
        let fit = WINDOW / cost(&[0; MAX_CHUNK]);
        for _ in 0..fit {
            inlet.take(chunk()).unwrap();
        }
        inlet.take(chunk()).unwrap_err();
        let (mut inlet, inbox_of_other) = self::inlet();
        inlet.take(Input::Data(vec![0; MAX_CHUNK + 1])).unwrap_err();
        drop((inbox, inbox_of_other));
        let (mut inlet, inbox) = self::inlet();
        for _ in 0..3 * fit {
            inlet.take(chunk()).unwrap();
            inbox.give_back(cost(&[0; MAX_CHUNK]));
        }
    }
}
