//! Receipts the server has not taken note of, a file each: an agent that is started anew tells them.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};

use tenure_domain::schedule::receipt::Receipt;
use tokio::sync::watch;

use crate::record::write_synced;

/// Told at once at most; the rest follows when these are taken.
const AT_ONCE: usize = 64;

pub struct Receipts {
    dir: PathBuf,
    last: Mutex<u64>,
    /// Raised when there is one more to tell.
    news: watch::Sender<u64>,
}

impl Receipts {
    pub(super) fn open(above: &Path) -> io::Result<Receipts> {
        let dir = above.join("receipts");
        fs::create_dir_all(&dir)?;
        let noted = fs::read_to_string(above.join("last")).unwrap_or_default();
        let noted: u64 = noted.trim().parse().unwrap_or(0);
        let last = numbers(&dir)?.last().copied().unwrap_or(0).max(noted);
        Ok(Receipts {
            dir,
            last: Mutex::new(last),
            news: watch::Sender::new(last),
        })
    }

    /// Gives a receipt its number, has it signed, and writes it down.
    pub(super) fn add(
        &self,
        receipt: Receipt,
        sign: impl FnOnce(Receipt) -> io::Result<Receipt>,
    ) -> io::Result<()> {
        let mut last = self.last.lock().unwrap_or_else(PoisonError::into_inner);
        let number = *last + 1;
        let receipt = sign(Receipt { number, ..receipt })?;
        // The number first: one that was given is never given again, whatever is lost.
        let above = self.dir.parent().unwrap_or(&self.dir);
        write_synced(above, "last", number.to_string().as_bytes())?;
        write_synced(&self.dir, &name(number), &serde_json::to_vec(&receipt)?)?;
        *last = number;
        self.news.send_replace(number);
        Ok(())
    }

    /// The oldest that nobody has.
    pub(super) fn untold(&self) -> io::Result<Vec<Receipt>> {
        let mut untold = Vec::new();
        for number in numbers(&self.dir)?.into_iter().take(AT_ONCE) {
            match serde_json::from_slice(&fs::read(self.dir.join(name(number)))?) {
                Ok(receipt) => untold.push(receipt),
                Err(error) => tracing::warn!(number, %error, "a receipt cannot be read, and is not told"),
            }
        }
        Ok(untold)
    }

    /// The server has all up to this one.
    pub fn taken(&self, number: u64) -> io::Result<()> {
        let known = numbers(&self.dir)?;
        for &old in known.iter().filter(|&&old| old <= number) {
            fs::remove_file(self.dir.join(name(old)))?;
        }
        if known.iter().any(|&left| left > number) {
            self.news.send_modify(|_| {});
        }
        Ok(())
    }

    pub fn subscribe(&self) -> watch::Receiver<u64> {
        let mut news = self.news.subscribe();
        // What there is already is news to whoever begins to listen.
        news.mark_changed();
        news
    }
}

fn name(number: u64) -> String {
    format!("{number:020}.json")
}

fn numbers(dir: &Path) -> io::Result<Vec<u64>> {
    let mut numbers = Vec::new();
    for entry in fs::read_dir(dir)? {
        let name = entry?.file_name();
        let number = name.to_str().and_then(|name| name.strip_suffix(".json"));
        numbers.extend(number.and_then(|number| number.parse::<u64>().ok()));
    }
    numbers.sort_unstable();
    Ok(numbers)
}
