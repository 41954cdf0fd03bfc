//! Signing the journal's head every few seconds into a file beside it: who cuts the journal's tail, or rewrites
//! the whole chain, contradicts a signed head. Copy the file elsewhere for an auditor.

use std::io::Write;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use tenure_journal::{JournalHandle, SigningKey};

const EVERY: Duration = Duration::from_secs(5);

pub async fn sign(journal: JournalHandle, key: Arc<SigningKey>, file: PathBuf) {
    let mut signed = 0;
    let mut tick = tokio::time::interval(EVERY);
    loop {
        tick.tick().await;
        if journal.head().seq == signed {
            continue;
        }
        match journal.sign_head(&key, crate::controller::now().0).await {
            Ok(head) => {
                signed = head.seq;
                let line = serde_json::to_string(&head).expect("a head encodes");
                let file = std::fs::OpenOptions::new().append(true).create(true).open(&file);
                if let Err(error) = file.and_then(|mut file| writeln!(file, "{line}")) {
                    tracing::warn!(%error, "a signed head was not written to its file");
                }
            }
            Err(error) => tracing::warn!(%error, "the journal's head was not signed"),
        }
    }
}
