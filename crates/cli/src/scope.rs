//! `tenure tenant`, `subscriber` and `user`: the tenancy tree. All three share their verbs; only making one
//! differs.

use clap::{Args, Subcommand, ValueEnum};
use tenure_api::client::Client;
use tenure_api::v1::scope::{CreateSubscriber, CreateTenant, CreateUser, MoveScope, ScopeView, SetIdentity};
use tenure_domain::tenancy::role::Role;
use tenure_domain::tenancy::scope::{Identity, Level, UserKind};

use crate::context::Context;
use crate::key;
use crate::moment::{ago, full, now};
use crate::output::Paint;
use crate::refusal::Failure;
use crate::resolve;
use crate::table::{Table, text};

#[derive(Debug, Subcommand)]
pub enum Tenant {
    /// Make a tenant
    Create {
        /// Its name
        name: String,
    },
    /// List tenants
    #[command(visible_alias = "ls")]
    List,
    #[command(flatten)]
    Common(Common),
}

#[derive(Debug, Subcommand)]
pub enum Subscriber {
    /// Make a subscriber
    Create {
        /// Its tenant and its name, as TENANT/NAME
        #[arg(value_name = "TENANT/NAME")]
        path: String,
    },
    /// List the subscribers of a tenant, or all
    #[command(visible_alias = "ls")]
    List {
        /// The tenant
        tenant: Option<String>,
    },
    /// Move a subscriber to another tenant
    Move(MoveArgs),
    #[command(flatten)]
    Common(Common),
}

#[derive(Debug, Subcommand)]
pub enum User {
    /// Make a user
    Create(CreateUserArgs),
    /// List the users of a scope, or all
    #[command(visible_alias = "ls")]
    List {
        /// The subscriber, tenant or platform they belong to
        scope: Option<String>,
    },
    /// Move a user to another subscriber, tenant or the platform
    Move(MoveArgs),
    /// Say which login stands for a user; with neither issuer nor subject, none does
    Identity {
        user: String,
        #[arg(long, requires = "subject", value_name = "URL")]
        issuer: Option<String>,
        #[arg(long, requires = "issuer")]
        subject: Option<String>,
    },
    /// A user's API keys
    #[command(subcommand)]
    Key(key::Command),
    #[command(flatten)]
    Common(Common),
}

#[derive(Debug, Args)]
pub struct CreateUserArgs {
    /// Its parent and its name: acme/research/ada, acme/ops or platform/root
    #[arg(value_name = "PARENT/NAME")]
    path: String,
    /// A program, not a person
    #[arg(long)]
    service: bool,
    /// A role at the parent, granted at once
    #[arg(long, value_enum)]
    role: Option<RoleArg>,
    /// Make an API key too, and print it
    #[arg(long)]
    key: bool,
}

#[derive(Debug, Clone, Copy, ValueEnum)]
pub enum RoleArg {
    Owner,
    Operator,
    Member,
    Billing,
    Auditor,
}

impl From<RoleArg> for Role {
    fn from(role: RoleArg) -> Role {
        match role {
            RoleArg::Owner => Role::Owner,
            RoleArg::Operator => Role::Operator,
            RoleArg::Member => Role::Member,
            RoleArg::Billing => Role::Billing,
            RoleArg::Auditor => Role::Auditor,
        }
    }
}

#[derive(Debug, Args)]
pub struct MoveArgs {
    scope: String,
    /// The new parent
    #[arg(long)]
    to: String,
}

#[derive(Debug, Subcommand)]
pub enum Common {
    /// Show one
    Show { scope: String },
    /// Let nothing new start here until it is resumed
    Suspend { scope: String },
    /// Take a suspension back
    Resume { scope: String },
    /// Close it for good
    Close {
        scope: String,
        /// Do not ask
        #[arg(short, long)]
        yes: bool,
    },
}

impl Tenant {
    pub async fn run(self, context: &Context) -> Result<(), Failure> {
        let client = context.client()?;
        match self {
            Tenant::Create { name } => {
                tenure_domain::name::check(&name, "/name")?;
                made(
                    context,
                    &client
                        .create_tenant(&CreateTenant { name }, Some(&crate::run::fresh_key()?))
                        .await?,
                )
            }
            Tenant::List => show_list(
                context,
                &children(&client, "platform", Level::Tenant).await?,
                "no tenants yet",
            ),
            Tenant::Common(command) => command.run(context, &client, Level::Tenant).await,
        }
    }
}

impl Subscriber {
    pub async fn run(self, context: &Context) -> Result<(), Failure> {
        let client = context.client()?;
        match self {
            Subscriber::Create { path } => {
                let (parent, name) = split(&path, "TENANT/NAME")?;
                let tenant = resolve::scope_at(&client, parent, Level::Tenant)
                    .await?
                    .id
                    .to_string();
                let body = CreateSubscriber {
                    tenant,
                    name: name.to_owned(),
                };
                made(
                    context,
                    &client
                        .create_subscriber(&body, Some(&crate::run::fresh_key()?))
                        .await?,
                )
            }
            Subscriber::List { tenant } => {
                let top = tenant.as_deref().unwrap_or("platform");
                show_list(
                    context,
                    &children(&client, top, Level::Subscriber).await?,
                    "no subscribers yet",
                )
            }
            Subscriber::Move(args) => args.run(context, &client, Level::Subscriber).await,
            Subscriber::Common(command) => command.run(context, &client, Level::Subscriber).await,
        }
    }
}

impl User {
    pub async fn run(self, context: &Context) -> Result<(), Failure> {
        let client = context.client()?;
        match self {
            User::Create(args) => create_user(context, &client, args).await,
            User::List { scope } => {
                let top = scope.as_deref().unwrap_or("platform");
                show_list(
                    context,
                    &children(&client, top, Level::User).await?,
                    "no users yet",
                )
            }
            User::Move(args) => args.run(context, &client, Level::User).await,
            User::Identity {
                user,
                issuer,
                subject,
            } => {
                let user = resolve::scope_at(&client, &user, Level::User).await?;
                let identity = issuer
                    .zip(subject)
                    .map(|(issuer, subject)| Identity { issuer, subject });
                made(
                    context,
                    &client
                        .set_identity(&user.id.to_string(), &SetIdentity { identity })
                        .await?,
                )
            }
            User::Key(command) => command.run(context, &client).await,
            User::Common(command) => command.run(context, &client, Level::User).await,
        }
    }
}

async fn create_user(context: &Context, client: &Client, args: CreateUserArgs) -> Result<(), Failure> {
    let (parent, name) = split(&args.path, "PARENT/NAME")?;
    let body = CreateUser {
        parent: resolve::scope(client, parent).await?.id.to_string(),
        name: name.to_owned(),
        kind: if args.service {
            UserKind::Service
        } else {
            UserKind::Person
        },
        identity: None,
        role: args.role.map(Into::into),
    };
    let user = client.create_user(&body, Some(&crate::run::fresh_key()?)).await?;
    if args.key {
        context.out.note(format!("made {}", user.path));
        return key::create(context, client, &user, "first", None, None).await;
    }
    made(context, &user)
}

impl MoveArgs {
    async fn run(self, context: &Context, client: &Client, level: Level) -> Result<(), Failure> {
        let scope = resolve::scope_at(client, &self.scope, level).await?;
        let parent = resolve::scope(client, &self.to).await?.id.to_string();
        made(
            context,
            &client
                .move_scope(&scope.id.to_string(), &MoveScope { parent })
                .await?,
        )
    }
}

impl Common {
    async fn run(self, context: &Context, client: &Client, level: Level) -> Result<(), Failure> {
        match self {
            Common::Show { scope } => show_one(context, &resolve::scope_at(client, &scope, level).await?),
            Common::Suspend { scope } => {
                let id = resolve::scope_at(client, &scope, level).await?.id.to_string();
                made(context, &client.suspend(&id).await?)
            }
            Common::Resume { scope } => {
                let id = resolve::scope_at(client, &scope, level).await?.id.to_string();
                made(context, &client.resume(&id).await?)
            }
            Common::Close { scope, yes } => {
                let scope = resolve::scope_at(client, &scope, level).await?;
                crate::input::confirm(&format!("Close {} for good?", scope.path), yes)?;
                client.close(&scope.id.to_string()).await?;
                context.out.note(format!("closed {}", scope.path));
                Ok(())
            }
        }
    }
}

/// Everything of one level at or below a scope.
async fn children(client: &Client, top: &str, level: Level) -> Result<Vec<ScopeView>, Failure> {
    let mut found = Vec::new();
    let mut open = vec![resolve::scope(client, top).await?.id.to_string()];
    while let Some(parent) = open.pop() {
        let below = resolve::all(async |cursor| client.children(&parent, cursor.as_deref()).await).await?;
        for scope in below {
            if scope.level < level {
                open.push(scope.id.to_string());
            } else if scope.level == level {
                found.push(scope);
            }
        }
    }
    found.sort_by(|a, b| a.path.cmp(&b.path));
    Ok(found)
}

fn split<'a>(path: &'a str, form: &str) -> Result<(&'a str, &'a str), Failure> {
    let (parent, name) = path
        .rsplit_once('/')
        .filter(|(parent, _)| !parent.is_empty())
        .ok_or_else(|| Failure::usage(format!("'{path}' does not say under whom; write {form}")))?;
    tenure_domain::name::check(name, "/name")?;
    Ok((parent, name))
}

fn show_list(context: &Context, scopes: &[ScopeView], empty: &str) -> Result<(), Failure> {
    let wide = context.out.wide();
    context.out.list(
        scopes,
        |scope| scope.path.clone(),
        empty,
        |scopes| {
            let mut table = Table::new(if wide {
                &["NAME", "STATUS", "KIND", "MADE", "ID"]
            } else {
                &["NAME", "STATUS", "MADE"]
            });
            let now = now();
            for scope in scopes {
                let mut row = vec![text(&scope.path), status(scope)];
                if wide {
                    row.push(text(kind(scope)));
                }
                row.push(text(ago(scope.created, now)));
                if wide {
                    row.push(text(scope.id.to_string()));
                }
                table.row(row);
            }
            table
        },
    )
}

fn status(scope: &ScopeView) -> crate::table::Text {
    if scope.suspended {
        text("suspended").paint(Paint::Bad)
    } else {
        text("active").paint(Paint::Good)
    }
}

fn kind(scope: &ScopeView) -> &'static str {
    match scope.kind {
        Some(UserKind::Service) => "service",
        Some(UserKind::Person) => "person",
        None => scope.level.as_str(),
    }
}

/// What came of a change: the thing itself for machines, a word for people.
fn made(context: &Context, scope: &ScopeView) -> Result<(), Failure> {
    show_one(context, scope)
}

pub fn show_one(context: &Context, scope: &ScopeView) -> Result<(), Failure> {
    context.out.one(
        scope,
        |scope| scope.path.clone(),
        |scope| {
            let mut table = Table::fields();
            table
                .field("name", text(&scope.path).paint(Paint::Bold))
                .field("kind", kind(scope))
                .field("status", status(scope));
            table
                .field("made", full(scope.created, now()))
                .field("id", scope.id.to_string());
            table.field_if(
                "login",
                scope
                    .identity
                    .as_ref()
                    .map(|identity| format!("{} at {}", identity.subject, identity.issuer)),
            );
            table
        },
    )
}
