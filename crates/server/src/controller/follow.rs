//! Following: a server that does not lead folds what the leader commits into its own view.

use std::sync::Arc;

use futures_util::StreamExt;
use tenure_domain::Time;
use tenure_journal::JournalReader;

use super::recover::{RecoverError, event};
use crate::view::{Published, View};

/// Keeps the view at the journal's end until it is dropped or something fails.
pub async fn follow(journal: &JournalReader, view: &View) -> Result<(), RecoverError> {
    let mut lines = Box::pin(journal.follow(view.seq() + 1));
    while let Some(line) = lines.next().await {
        let line = line?;
        let event = Arc::new(event(&line)?);
        view.publish(Arc::new([Published {
            seq: line.seq,
            at: Time(line.at_ms),
            event,
        }]));
    }
    Ok(())
}

/// Brings the view to the journal's end once.
pub async fn catch_up(journal: &JournalReader, view: &View) -> Result<(), RecoverError> {
    loop {
        let lines = journal.read(view.seq() + 1, 20_000).await?;
        if lines.is_empty() {
            return Ok(());
        }
        let batch = lines.iter().map(|line| {
            Ok(Published {
                seq: line.seq,
                at: Time(line.at_ms),
                event: Arc::new(event(line)?),
            })
        });
        view.publish(batch.collect::<Result<_, RecoverError>>()?);
    }
}
