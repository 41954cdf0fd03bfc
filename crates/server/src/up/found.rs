//! Founding an empty platform, and telling the person at the terminal what there is.

use std::io::Write;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};

use sha2::{Digest as _, Sha256};
use tenure_api::secret_text::SecretText;
use tenure_api::token;
use tenure_domain::ledger::price::Prices;
use tenure_domain::tenancy::key::Digest;
use tenure_domain::{Actor, Wish};

use super::UpError;
use super::demo::Demo;
use crate::controller::{Controller, NotDone};
use crate::keyring::random;

/// Where the owner's token is.
pub struct Founded {
    pub token_file: PathBuf,
}

/// A new API key and its digest.
pub(super) fn new_key() -> (SecretText, Digest) {
    let bytes: [u8; 32] = random();
    (
        token::write(token::Kind::Key, &bytes),
        Digest(Sha256::digest(bytes).into()),
    )
}

pub(super) async fn wish(controller: &Controller, by: Actor, wish: Wish) -> Result<u64, UpError> {
    match controller.submit(by, wish, None, None).await {
        Ok(accepted) => Ok(accepted.ids),
        Err(NotDone::Refused(refusal)) => Err(UpError::Found(refusal.to_string())),
        Err(NotDone::NotLeading) => Err(UpError::Found("the writer has ended".into())),
    }
}

/// Sets up the platform and its owner where the journal is empty.
pub async fn found(controller: &Controller, data_dir: &Path) -> Result<Founded, UpError> {
    let token_file = data_dir.join("owner.token");
    if !controller.view().read().tree.is_empty() {
        return Ok(Founded { token_file });
    }
    let (token, digest) = new_key();
    // The file first: a platform whose owner's token was lost in a crash could not be entered.
    write_secret(&token_file, token.reveal()).map_err(|error| UpError::DataDir(token_file.clone(), error))?;
    let found = Wish::Found {
        platform: "tenure".into(),
        owner: "owner".into(),
        key: digest,
        prices: Prices::default(),
    };
    wish(controller, Actor::System, found).await?;
    Ok(Founded { token_file })
}

/// Writes a file only its owner may read, whole or not at all.
pub(super) fn write_secret(path: &Path, text: &str) -> std::io::Result<()> {
    use std::os::unix::fs::OpenOptionsExt;
    let unfinished = path.with_extension("unfinished");
    let mut file = std::fs::OpenOptions::new()
        .write(true)
        .create(true)
        .truncate(true)
        .mode(0o600)
        .open(&unfinished)?;
    writeln!(file, "{text}")?;
    file.sync_all()?;
    std::fs::rename(unfinished, path)
}

/// Says where the server is and who may enter.
pub fn announce(server: &str, agents: SocketAddr, founded: &Founded, demo: Option<&Demo>) {
    let mut out = std::io::stdout().lock();
    let mut say = |line: String| {
        let _ = writeln!(out, "{line}");
    };
    say(String::new());
    say(format!("  Tenure is up      {server}"));
    say(format!("  console           {server}/console"));
    say(format!("  API reference     {server}/docs"));
    say(format!("  agents join at    {agents}"));
    say(format!("  owner's token in  {}", founded.token_file.display()));
    if let Some(demo) = demo {
        say(String::new());
        say("  The demo platform, with a token for each:".into());
        let width = demo.users.iter().map(|user| user.path.len()).max().unwrap_or(0);
        for user in &demo.users {
            say(format!(
                "    {:width$}  {:9}  {}",
                user.path,
                user.role,
                user.token.reveal()
            ));
        }
        say(String::new());
        say("  In another terminal:".into());
        say(format!("    export TENURE_SERVER={server}"));
        if let Some(user) = demo.users.iter().find(|user| user.role == "member") {
            say(format!("    export TENURE_TOKEN={}", user.token.reveal()));
        }
        say("    tenure run -- sh -c 'echo hello from $(hostname)'".into());
    }
    say(String::new());
    say("  Ctrl-C stops it; the data stays.".into());
    say(String::new());
}
