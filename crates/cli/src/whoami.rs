//! `tenure whoami`.

use crate::context::Context;
use crate::output::Paint;
use crate::refusal::Failure;
use crate::table::{Table, text};

pub async fn run(context: &Context) -> Result<(), Failure> {
    let target = context.target()?;
    let me = context.client()?.whoami().await?;
    context.out.one(
        &me,
        |me| me.user.path.clone(),
        |me| {
            let mut table = Table::fields();
            table
                .field("user", text(&me.user.path).paint(Paint::Bold))
                .field("id", me.user.id.to_string());
            table.field(
                "server",
                format!("{} ({}, version {})", target.server, me.platform, me.version),
            );
            table.field("profile", target.profile.as_str());
            for grant in &me.grants {
                table.field("role", format!("{} at {}", grant.role.as_str(), grant.scope_path));
            }
            if me.grants.is_empty() {
                table.field("role", "none");
            }
            table
        },
    )
}
