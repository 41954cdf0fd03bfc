//! `tenure policy`: what jobs of a scope may ask for. A file of the policy's own fields; absent says nothing.

use std::path::PathBuf;

use clap::Subcommand;
use tenure_api::v1::limit::PolicyView;
use tenure_domain::tenancy::policy::Policy;

use crate::context::Context;
use crate::output::Form;
use crate::refusal::Failure;
use crate::{input, resolve, spec_file};

#[derive(Debug, Subcommand)]
pub enum Command {
    /// Show the policy of a scope, or of yourself
    Show { scope: Option<String> },
    /// Set the policy of a scope from a YAML file
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
                show(context, &scope.path, &client.policy(&scope.id.to_string()).await?)
            }
            Command::Set { scope, file } => {
                let document = input::read_text(&file)?;
                let policy: Policy = spec_file::read_one(&document)?;
                policy
                    .check()
                    .map_err(|refusal| spec_file::at_field(&document, 0, refusal))?;
                let client = context.client()?;
                let scope = resolve::scope(&client, &scope).await?;
                let id = scope.id.to_string();
                let before = client.policy(&id).await?;
                show(
                    context,
                    &scope.path,
                    &client.set_policy(&id, &policy, Some(before.revision)).await?,
                )
            }
        }
    }
}

/// People get it in the form in which they may set it again.
fn show(context: &Context, path: &str, view: &PolicyView) -> Result<(), Failure> {
    match context.out.form {
        Form::Json | Form::Yaml => context.out.value(view),
        Form::Name => context.out.line(path),
        Form::Table | Form::Wide if view.policy == Policy::default() => {
            context.out.note(format!(
                "the policy of {path} says nothing: all that scopes above allow is allowed"
            ));
            Ok(())
        }
        Form::Table | Form::Wide => {
            let text =
                serde_saphyr::to_string(&view.policy).map_err(|error| Failure::Local(error.to_string()))?;
            context.out.text(&format!(
                "# policy of {path}, revision {}\n{}",
                view.revision,
                crate::safe::safe_lines(&text)
            ))
        }
    }
}
