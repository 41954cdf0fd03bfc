//! `tenure rules`: Cedar policies that forbid, as an operator wrote them.

use std::path::PathBuf;

use clap::Subcommand;
use tenure_api::v1::limit::{RulesView, SetRules};

use crate::context::Context;
use crate::output::Form;
use crate::refusal::Failure;
use crate::{input, resolve};

#[derive(Debug, Subcommand)]
pub enum Command {
    /// Show the rules of a scope, or of yourself
    Show { scope: Option<String> },
    /// Set the rules of a scope from a file of Cedar policies
    Set {
        scope: String,
        /// The file; - for stdin
        #[arg(short, long)]
        file: PathBuf,
    },
}

impl Command {
    pub async fn run(self, context: &Context) -> Result<(), Failure> {
        match self {
            Command::Show { scope } => {
                let client = context.client()?;
                let scope = resolve::scope_or_me(&client, scope.as_deref()).await?;
                show(context, &scope.path, &client.rules(&scope.id.to_string()).await?)
            }
            Command::Set { scope, file } => {
                let rules = input::read_text(&file)?.text;
                let client = context.client()?;
                let scope = resolve::scope(&client, &scope).await?;
                let id = scope.id.to_string();
                let before = client.rules(&id).await?;
                show(
                    context,
                    &scope.path,
                    &client
                        .set_rules(&id, &SetRules { rules }, Some(before.revision))
                        .await?,
                )
            }
        }
    }
}

fn show(context: &Context, path: &str, view: &RulesView) -> Result<(), Failure> {
    match context.out.form {
        Form::Json | Form::Yaml => context.out.value(view),
        Form::Name => context.out.line(path),
        Form::Table | Form::Wide if view.rules.trim().is_empty() => {
            context.out.note(format!("{path} has no rules of its own"));
            Ok(())
        }
        Form::Table | Form::Wide => {
            let text = crate::safe::safe_lines(view.rules.trim_end());
            context.out.line(text)
        }
    }
}
