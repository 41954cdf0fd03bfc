//! Work on a journal at rest or in use, without a server: checking, proving, copying, restoring. For `tenure journal`.

use std::path::Path;

use serde::Serialize;
use tenure_api::v1::journal::{HeadView, ProofView};
use tenure_journal::{
    Hash, JournalReader, Location, Proof, PublicKey, SignedHead, SigningKey, VerifyOptions,
};

use crate::keyring::Keyring;

pub use tenure_journal::{JournalError, Until};

/// What a check found.
#[derive(Debug, Clone, Serialize)]
pub struct Verdict {
    pub sound: bool,
    /// Events found sound, from the first on.
    pub events: u64,
    /// Hash of the last of them.
    pub hash: String,
    pub heads_checked: usize,
    /// What is wrong, in sentences that name the event.
    pub faults: Vec<String>,
}

/// Why a journal could not be worked on.
#[derive(Debug, thiserror::Error)]
pub enum ToolError {
    #[error("the journal cannot be used")]
    Journal(#[from] JournalError),
    #[error("a head is not one: {0}")]
    Head(String),
}

/// The journal of a data directory, or in a database.
pub(crate) fn location(data_dir: &Path, database: Option<&str>) -> Location {
    match database {
        Some(url) => Location::Postgres(url.to_owned(), "tenure".into()),
        None => Location::Sqlite(data_dir.to_owned()),
    }
}

/// Checks every event. Heads are those given, those stored, and those signed into the file beside the journal;
/// keys are the platform's own where its master key is at hand, and those the given heads name.
pub async fn verify(
    data_dir: &Path,
    database: Option<&str>,
    heads: &[HeadView],
) -> Result<Verdict, ToolError> {
    let journal = JournalReader::open(&location(data_dir, database)).await?;
    let mut options = VerifyOptions::default();
    for view in heads {
        let (head, key) = signed(view)?;
        options.heads.push(head);
        options.keys.push(key);
    }
    options.keys.extend(own_key(data_dir, &journal).await);
    options.heads.extend(heads_beside(data_dir));
    let report = journal.verify(options).await?;
    let mut faults: Vec<String> = Vec::new();
    faults.extend(
        report
            .first_bad
            .as_ref()
            .map(|bad| format!("event {} {}", bad.seq, bad.what)),
    );
    faults.extend(report.cut_tail.map(|cut| {
        let signed = tenure_domain::Time(cut.signed_at_ms).rfc3339();
        format!(
            "the tail was cut: {} events were there when a head was signed at {signed}, {} are left",
            cut.signed_seq, cut.found_seq
        )
    }));
    faults.extend(report.damaged_row.clone());
    faults.extend(
        report
            .bad_heads
            .iter()
            .map(|bad| format!("the head over {} events counts for nothing: {}", bad.seq, bad.why)),
    );
    Ok(Verdict {
        sound: report.is_sound(),
        events: report.events,
        hash: report.head.hash.to_string(),
        heads_checked: report.heads_checked,
        faults,
    })
}

/// The platform's public key, where its master key is at hand.
async fn own_key(data_dir: &Path, journal: &JournalReader) -> Option<PublicKey> {
    let file = data_dir.join("master.key");
    if !file.exists() {
        return None;
    }
    let keyring = Keyring::open(&file).ok()?;
    let pkcs8 = keyring.find(journal, crate::up::SIGNING_KEY).await.ok()??;
    SigningKey::from_pkcs8(&pkcs8).ok().map(|key| key.public_key())
}

/// Heads signed into the file beside the journal. A torn last line counts for nothing.
fn heads_beside(data_dir: &Path) -> Vec<SignedHead> {
    let text = std::fs::read_to_string(data_dir.join("heads.jsonl")).unwrap_or_default();
    text.lines()
        .filter_map(|line| serde_json::from_str(line).ok())
        .collect()
}

fn signed(view: &HeadView) -> Result<(SignedHead, PublicKey), ToolError> {
    let bad = |what: &str| ToolError::Head(format!("{what} is not hexadecimal of the right length"));
    let head = SignedHead {
        platform: view.platform.clone(),
        seq: view.seq,
        hash: parse_hash(&view.hash).ok_or_else(|| bad("hash"))?,
        root: parse_hash(&view.root).ok_or_else(|| bad("root"))?,
        at_ms: view.at_ms,
        key_id: view.key_id.clone(),
        signature: view.signature.clone(),
    };
    let key = parse_hash(&view.public_key).ok_or_else(|| bad("public_key"))?;
    Ok((head, PublicKey(key.0)))
}

/// A hash as views spell it.
pub(crate) fn parse_hash(text: &str) -> Option<Hash> {
    text.parse().ok()
}

/// Checks a proof offline, against a head kept elsewhere or the one that came with it.
pub fn check_proof(proof: &ProofView, head: Option<&HeadView>) -> Result<(), ToolError> {
    let (head, key) = signed(head.unwrap_or(&proof.head))?;
    let path = proof
        .path
        .iter()
        .map(|text| parse_hash(text).ok_or_else(|| ToolError::Head("a path step is not a hash".into())));
    let proof = Proof {
        line: proof.line.clone(),
        index: proof.index,
        size: proof.size,
        path: path.collect::<Result<_, _>>()?,
    };
    tenure_journal::check_proof(&proof, &head, &key)
        .map(drop)
        .map_err(|error| ToolError::Head(error.to_string()))
}

/// Copies a journal while it is in use; gives the number of events copied.
pub async fn backup(data_dir: &Path, database: Option<&str>, to: &Path) -> Result<u64, ToolError> {
    let journal = JournalReader::open(&location(data_dir, database)).await?;
    Ok(journal.backup(to).await?.seq)
}

/// Puts a backup where there is no journal yet; gives the number of events restored.
pub async fn restore(
    from: &Path,
    data_dir: &Path,
    database: Option<&str>,
    until: Until,
) -> Result<u64, ToolError> {
    Ok(
        tenure_journal::restore(from, &location(data_dir, database), until)
            .await?
            .seq,
    )
}
