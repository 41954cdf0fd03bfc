//! Recovering: the newest snapshot, and every event since.

use tenure_domain::state::SNAPSHOT_FORMAT;
use tenure_domain::{Event, State, Time};
use tenure_journal::{JournalError, JournalReader, Line};

/// Events read at a time.
const CHUNK: usize = 20_000;

/// The state as of one event.
pub struct Recovered {
    pub state: State,
    pub seq: u64,
}

/// Why a journal's events could not be folded.
#[derive(Debug, thiserror::Error)]
pub enum RecoverError {
    #[error("reading the journal failed")]
    Journal(#[from] JournalError),
    #[error("event {seq} is of a kind this version does not know; a newer version wrote it")]
    UnknownEvent { seq: u64, source: serde_json::Error },
}

/// Folds the journal into a state.
pub async fn recover(journal: &JournalReader) -> Result<Recovered, RecoverError> {
    let mut recovered = match journal.latest_snapshot(SNAPSHOT_FORMAT).await? {
        Some(snapshot) => match serde_json::from_slice::<State>(&snapshot.bytes) {
            Ok(mut state) => {
                state.rebuild_indexes();
                Recovered {
                    state,
                    seq: snapshot.seq,
                }
            }
            Err(error) => {
                tracing::warn!(%error, seq = snapshot.seq, "the snapshot is not readable; replaying the whole journal");
                Recovered {
                    state: State::default(),
                    seq: 0,
                }
            }
        },
        None => Recovered {
            state: State::default(),
            seq: 0,
        },
    };
    loop {
        let lines = journal.read(recovered.seq + 1, CHUNK).await?;
        if lines.is_empty() {
            return Ok(recovered);
        }
        for line in &lines {
            recovered.state.apply(Time(line.at_ms), &event(line)?);
            recovered.seq = line.seq;
        }
    }
}

/// The event a line carries.
pub fn event(line: &Line) -> Result<Event, RecoverError> {
    serde_json::from_str(&line.event).map_err(|source| RecoverError::UnknownEvent {
        seq: line.seq,
        source,
    })
}
