//! `tenure user key`: API keys of a user. A key's secret is printed once, on stdout and nowhere else.

use std::collections::BTreeSet;

use clap::Subcommand;
use tenure_api::client::Client;
use tenure_api::v1::access::CreateKey;
use tenure_api::v1::scope::ScopeView;
use tenure_api::v1::time::Moment;
use tenure_domain::id::KeyId;
use tenure_domain::tenancy::role::Action;
use tenure_domain::tenancy::scope::Level;

use crate::context::Context;
use crate::moment::{ago, now, parse_until};
use crate::output::Form;
use crate::refusal::Failure;
use crate::resolve;
use crate::table::{Table, text};

#[derive(Debug, Subcommand)]
pub enum Command {
    /// Make a key and print it, this once
    Create {
        user: String,
        /// What it is for
        #[arg(long, default_value = "cli")]
        label: String,
        /// When it ends: 30d, 12h, or a date
        #[arg(long, value_parser = parse_until, value_name = "WHEN")]
        expires: Option<Moment>,
        /// Limit it to these of its user's actions
        #[arg(long, value_delimiter = ',', value_name = "ACTION")]
        allow: Option<Vec<Action>>,
    },
    /// List a user's keys
    #[command(visible_alias = "ls")]
    List { user: String },
    /// Make a key good for nothing
    Revoke {
        #[arg(value_name = "KEY")]
        key: KeyId,
    },
}

impl Command {
    pub async fn run(self, context: &Context, client: &Client) -> Result<(), Failure> {
        match self {
            Command::Create {
                user,
                label,
                expires,
                allow,
            } => {
                let user = resolve::scope_at(client, &user, Level::User).await?;
                create(
                    context,
                    client,
                    &user,
                    &label,
                    expires,
                    allow.map(|allow| allow.into_iter().collect()),
                )
                .await
            }
            Command::List { user } => {
                let user = resolve::scope_at(client, &user, Level::User).await?;
                list(context, client, &user).await
            }
            Command::Revoke { key } => {
                client.revoke_key(&key.to_string()).await?;
                context.out.note(format!("revoked {key}"));
                Ok(())
            }
        }
    }
}

pub async fn create(
    context: &Context,
    client: &Client,
    user: &ScopeView,
    label: &str,
    expires: Option<Moment>,
    allow: Option<BTreeSet<Action>>,
) -> Result<(), Failure> {
    tenure_domain::name::check(label, "/label")?;
    let body = CreateKey {
        label: label.to_owned(),
        expires,
        allow,
    };
    let made = client.create_key(&user.id.to_string(), &body).await?;
    match context.out.form {
        Form::Json | Form::Yaml => context.out.value(&made),
        Form::Name => context.out.line(made.key.id),
        Form::Table | Form::Wide => {
            let until = made
                .key
                .expires
                .map_or("until it is revoked".into(), |at| format!("until {at}"));
            context.out.note(format!(
                "key {} of {}, good {until}; it is shown this once:",
                made.key.id, user.path
            ));
            context.out.line(crate::safe::safe(&made.token))
        }
    }
}

async fn list(context: &Context, client: &Client, user: &ScopeView) -> Result<(), Failure> {
    let keys = client.keys(&user.id.to_string()).await?.items;
    context.out.list(
        &keys,
        |key| key.id.to_string(),
        &format!("{} has no keys", user.path),
        |keys| {
            let mut table = Table::new(&["KEY", "LABEL", "MADE", "ENDS", "MAY"]);
            let now = now();
            for key in keys {
                let may = key
                    .allow
                    .as_ref()
                    .map_or("everything its user may".to_owned(), |allow| {
                        allow
                            .iter()
                            .map(|action| action.as_str())
                            .collect::<Vec<_>>()
                            .join(", ")
                    });
                let ends = key.expires.map_or("never".to_owned(), |at| ago(at, now));
                table.row(vec![
                    text(key.id.to_string()),
                    text(&key.label),
                    text(ago(key.created, now)),
                    text(ends),
                    text(may),
                ]);
            }
            table
        },
    )
}
