//! Our own terminal while a program elsewhere has it: every key goes there as it is, and however we end, the
//! terminal is given back as it was.

use std::io::{IsTerminal, stdin};
use std::sync::{Mutex, Once, PoisonError};

use rustix::termios::{OptionalActions, Termios, tcgetattr, tcgetwinsize, tcsetattr};

use crate::refusal::Failure;

/// As it was; here, so that a panic finds it too.
static BEFORE: Mutex<Option<Termios>> = Mutex::new(None);

/// The terminal is raw while this lives.
pub struct Raw(());

impl Raw {
    pub fn enter() -> Result<Raw, Failure> {
        let failed =
            |error: rustix::io::Errno| Failure::Local(format!("the terminal cannot be set: {error}"));
        let before = tcgetattr(stdin()).map_err(failed)?;
        let mut raw = before.clone();
        raw.make_raw();
        static HOOK: Once = Once::new();
        HOOK.call_once(|| {
            let hook = std::panic::take_hook();
            // Before the message, which would come out crooked.
            std::panic::set_hook(Box::new(move |panic| {
                give_back();
                hook(panic);
            }));
        });
        *BEFORE.lock().unwrap_or_else(PoisonError::into_inner) = Some(before);
        let entered = Raw(());
        tcsetattr(stdin(), OptionalActions::Drain, &raw).map_err(failed)?;
        Ok(entered)
    }
}

impl Drop for Raw {
    fn drop(&mut self) {
        give_back();
    }
}

fn give_back() {
    if let Some(before) = BEFORE.lock().unwrap_or_else(PoisonError::into_inner).take() {
        let _ = tcsetattr(stdin(), OptionalActions::Drain, &before);
    }
}

/// Rows and columns, where there is a terminal that knows them.
pub fn size() -> Option<(u16, u16)> {
    let size = tcgetwinsize(stdin()).ok()?;
    (size.ws_row > 0 && size.ws_col > 0).then_some((size.ws_row, size.ws_col))
}

/// What the terminal is called, if that can be said.
pub fn name() -> Option<String> {
    let name = std::env::var("TERM").ok()?;
    tenure_api::channel::stream::Terminal::is_name(&name).then_some(name)
}

/// `-t` is only for those who have one.
pub fn needed() -> Result<(), Failure> {
    if stdin().is_terminal() {
        Ok(())
    } else {
        Err(Failure::usage("-t needs a terminal, and stdin is none")
            .hint("leave -t out; -i alone passes stdin on as it is"))
    }
}
