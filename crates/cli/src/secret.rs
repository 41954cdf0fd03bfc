//! `tenure secret`: values that jobs get as environment variables. A value is read from stdin or a file, never
//! from the command line, where other users of the machine could see it; and it never comes back.

use std::path::PathBuf;

use clap::Subcommand;
use tenure_api::v1::secret::SetSecret;

use crate::context::Context;
use crate::refusal::Failure;
use crate::table::{Table, text};
use crate::{input, resolve};

#[derive(Debug, Subcommand)]
pub enum Command {
    /// Store a secret, its value from stdin or a file
    Set {
        name: String,
        /// Whose it is; yours unless said
        #[arg(long)]
        scope: Option<String>,
        /// Read the value from this file
        #[arg(short, long)]
        file: Option<PathBuf>,
    },
    /// List the names of secrets
    #[command(visible_alias = "ls")]
    List {
        /// Whose; yours unless said
        #[arg(long)]
        scope: Option<String>,
    },
    /// Erase a secret for good
    Erase {
        name: String,
        /// Whose it is; yours unless said
        #[arg(long)]
        scope: Option<String>,
    },
}

impl Command {
    pub async fn run(self, context: &Context) -> Result<(), Failure> {
        match self {
            Command::Set { name, scope, file } => {
                tenure_domain::name::check(&name, "/name")?;
                let value = input::read_secret(file.as_deref(), "value of the secret")?;
                let client = context.client()?;
                let scope = resolve::scope_or_me(&client, scope.as_deref()).await?;
                let stored = client
                    .set_secret(&scope.id.to_string(), &name, &SetSecret { value })
                    .await?;
                context.out.note(format!(
                    "stored; a job gets it with `tenure run --secret VARIABLE={name} …`"
                ));
                list(context, &[stored], &scope.path)
            }
            Command::List { scope } => {
                let client = context.client()?;
                let scope = resolve::scope_or_me(&client, scope.as_deref()).await?;
                list(
                    context,
                    &client.secrets(&scope.id.to_string()).await?.items,
                    &scope.path,
                )
            }
            Command::Erase { name, scope } => {
                tenure_domain::name::check(&name, "/name")?;
                let client = context.client()?;
                let scope = resolve::scope_or_me(&client, scope.as_deref()).await?;
                client.erase_secret(&scope.id.to_string(), &name).await?;
                context.out.note(format!("erased {name} of {}", scope.path));
                Ok(())
            }
        }
    }
}

fn list(
    context: &Context,
    secrets: &[tenure_api::v1::secret::SecretView],
    path: &str,
) -> Result<(), Failure> {
    context.out.list(
        secrets,
        |secret| secret.name.clone(),
        &format!("{path} has no secrets"),
        |secrets| {
            let mut table = Table::new(&["SECRET", "OF"]);
            for secret in secrets {
                table.row(vec![text(&secret.name), text(path)]);
            }
            table
        },
    )
}
