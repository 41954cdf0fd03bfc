//! `tenure role`: who holds which role where.

use clap::Subcommand;
use tenure_api::v1::access::{GrantRole, GrantView};
use tenure_domain::tenancy::role::Role;
use tenure_domain::tenancy::scope::Level;

use crate::context::Context;
use crate::refusal::Failure;
use crate::resolve;
use crate::scope::RoleArg;
use crate::table::{Table, text};

#[derive(Debug, Subcommand)]
pub enum Command {
    /// Give a user a role at a scope and everything below it
    Grant {
        scope: String,
        user: String,
        #[arg(value_enum)]
        role: RoleArg,
    },
    /// Take a role away
    Revoke {
        scope: String,
        user: String,
        #[arg(value_enum)]
        role: RoleArg,
    },
    /// List the roles granted at a scope
    #[command(visible_alias = "ls")]
    List { scope: String },
}

impl Command {
    pub async fn run(self, context: &Context) -> Result<(), Failure> {
        let client = context.client()?;
        match self {
            Command::Grant { scope, user, role } => {
                let scope = resolve::scope(&client, &scope).await?;
                let user = resolve::scope_at(&client, &user, Level::User).await?;
                let body = GrantRole {
                    user: user.id.to_string(),
                    role: role.into(),
                };
                let grant = client.grant_role(&scope.id.to_string(), &body).await?;
                show(context, &[grant], &scope.path)
            }
            Command::Revoke { scope, user, role } => {
                let scope = resolve::scope(&client, &scope).await?;
                let user = resolve::scope_at(&client, &user, Level::User).await?;
                let role = Role::from(role).as_str();
                client
                    .revoke_role(&scope.id.to_string(), &user.id.to_string(), role)
                    .await?;
                context
                    .out
                    .note(format!("{} is no longer {role} at {}", user.path, scope.path));
                Ok(())
            }
            Command::List { scope } => {
                let scope = resolve::scope(&client, &scope).await?;
                show(
                    context,
                    &client.roles(&scope.id.to_string()).await?.items,
                    &scope.path,
                )
            }
        }
    }
}

fn show(context: &Context, grants: &[GrantView], path: &str) -> Result<(), Failure> {
    context.out.list(
        grants,
        |grant| grant.user_path.clone(),
        &format!("nobody holds a role at {path} itself"),
        |grants| {
            let mut table = Table::new(&["USER", "ROLE", "AT"]);
            for grant in grants {
                table.row(vec![
                    text(&grant.user_path),
                    text(grant.role.as_str()),
                    text(path),
                ]);
            }
            table
        },
    )
}
