//! `tenure webhook`: receivers outside that are told what happens. URLs are read from a file or stdin where they are
//! secrets themselves; the key that signs is printed once, on stdout and nowhere else.

use std::path::PathBuf;

use clap::Subcommand;
use tenure_api::client::Client;
use tenure_api::secret_text::SecretText;
use tenure_api::v1::webhook::{
    CreateWebhook, NewWebhook, ResumeWebhook, RotateWebhook, WebhookQuery, WebhookStanding, WebhookView,
};
use tenure_domain::id::WebhookId;

use crate::context::Context;
use crate::moment::{ago, full, now};
use crate::output::{Form, Paint};
use crate::refusal::Failure;
use crate::table::{Table, figure, text};
use crate::{input, resolve, units};

#[derive(Debug, Subcommand)]
pub enum Command {
    /// Have a receiver told what happens at a scope and below, and print the key it checks signatures with, this once
    #[command(after_help = "Examples:\n  \
                            tenure webhook create ended --for acme --url https://hooks.example.com/tenure --kind JobEnded\n  \
                            tenure webhook create all --for acme/research --url-file url.txt\n\n\
                            What is sent is a CloudEvent in JSON, signed as Standard Webhooks say.")]
    Create {
        name: String,
        /// Of where it is told: the platform, a tenant, a subscriber or a user
        #[arg(long = "for", value_name = "SCOPE")]
        scope: String,
        /// Where it is; anybody on this machine could read it here, so read it from a file where it is a secret itself
        #[arg(
            long,
            value_name = "URL",
            conflicts_with = "url_file",
            required_unless_present = "url_file"
        )]
        url: Option<String>,
        /// Read its URL from this file, or from stdin with -
        #[arg(long, value_name = "FILE")]
        url_file: Option<PathBuf>,
        /// Only these kinds of events, such as JobSubmitted,JobEnded
        #[arg(long = "kind", value_delimiter = ',', value_name = "KIND")]
        kinds: Vec<String>,
    },
    /// List webhooks and how far each has come
    #[command(visible_alias = "ls")]
    List {
        /// Those of this scope and below
        #[arg(long = "for", value_name = "SCOPE")]
        scope: Option<String>,
    },
    /// Show a webhook: what it took last, what fails, and what is next
    Show { webhook: String },
    /// Send nothing more until it is resumed
    Pause { webhook: String },
    /// Go on where it was paused, or where it failed
    Resume {
        webhook: String,
        /// Do not tell what happened meanwhile
        #[arg(long)]
        skip: bool,
    },
    /// Sign with another key from now on, and print it, this once
    Rotate {
        webhook: String,
        /// For how long the old key signs too
        #[arg(long, value_parser = units::seconds, value_name = "TIME", default_value = "24h")]
        keep_old: u64,
    },
    /// Send a test now
    Ping { webhook: String },
    /// Remove a webhook
    Remove {
        webhook: String,
        /// Do not ask
        #[arg(short, long)]
        yes: bool,
    },
}

impl Command {
    pub async fn run(self, context: &Context) -> Result<(), Failure> {
        let client = context.client()?;
        match self {
            Command::Create {
                name,
                scope,
                url,
                url_file,
                kinds,
            } => {
                tenure_domain::name::check(&name, "/name")?;
                let url = match (url, url_file) {
                    (Some(url), _) => SecretText::new(url),
                    (None, file) => {
                        let file = file.filter(|file| file.as_os_str() != "-");
                        let read = input::read_secret(file.as_deref(), "URL of the receiver")?;
                        SecretText::new(read.reveal().trim())
                    }
                };
                let body = CreateWebhook {
                    scope: resolve::scope(&client, &scope).await?.id.to_string(),
                    name,
                    url,
                    kinds: kinds.into_iter().collect(),
                };
                once(context, &client.create_webhook(&body).await?)
            }
            Command::List { scope } => {
                let scope = match scope {
                    Some(scope) => Some(resolve::scope(&client, &scope).await?.id.to_string()),
                    None => None,
                };
                list(context, &all(&client, scope).await?)
            }
            Command::Show { webhook } => show(context, &find(&client, &webhook).await?),
            Command::Pause { webhook } => {
                let id = find(&client, &webhook).await?.id.to_string();
                show(context, &client.pause_webhook(&id).await?)
            }
            Command::Resume { webhook, skip } => {
                let id = find(&client, &webhook).await?.id.to_string();
                let body = ResumeWebhook { skip };
                show(context, &client.resume_webhook(&id, &body).await?)
            }
            Command::Rotate { webhook, keep_old } => {
                let id = find(&client, &webhook).await?.id.to_string();
                let body = RotateWebhook {
                    keep_old_s: Some(keep_old),
                };
                once(context, &client.rotate_webhook(&id, &body).await?)
            }
            Command::Ping { webhook } => {
                let webhook = find(&client, &webhook).await?;
                let said = client.ping_webhook(&webhook.id.to_string()).await?;
                if said.taken {
                    context
                        .out
                        .note(format!("{} took it in {} ms", webhook.origin, said.took_ms));
                    return Ok(());
                }
                let why = said.why.unwrap_or_default();
                Err(Failure::Local(format!(
                    "{} did not take it: {}",
                    webhook.origin,
                    crate::safe::safe(&why)
                )))
            }
            Command::Remove { webhook, yes } => {
                let webhook = find(&client, &webhook).await?;
                let asked = format!(
                    "Remove webhook {} of {} to {}?",
                    webhook.name, webhook.scope_path, webhook.origin
                );
                input::confirm(&asked, yes)?;
                client.remove_webhook(&webhook.id.to_string()).await?;
                context
                    .out
                    .note(format!("removed {} of {}", webhook.name, webhook.scope_path));
                Ok(())
            }
        }
    }
}

async fn all(client: &Client, scope: Option<String>) -> Result<Vec<WebhookView>, Failure> {
    resolve::all(async |cursor| {
        let query = WebhookQuery {
            scope: scope.clone(),
            limit: Some(1000),
            cursor,
        };
        client.webhooks(&query).await
    })
    .await
}

/// A webhook by id; by name where there is one such; or by scope and name, such as `acme/research/chat`.
async fn find(client: &Client, text: &str) -> Result<WebhookView, Failure> {
    if let Ok(id) = text.parse::<WebhookId>() {
        return Ok(client.webhook(&id.to_string()).await?);
    }
    let (scope, name) = match text.rsplit_once('/') {
        Some((scope, name)) => (Some(resolve::scope(client, scope).await?.id.to_string()), name),
        None => (None, text),
    };
    let mut named: Vec<WebhookView> = all(client, scope.clone()).await?;
    named
        .retain(|webhook| webhook.name == name && scope.as_ref().is_none_or(|scope| webhook.scope == *scope));
    match named.len() {
        1 => Ok(named.remove(0)),
        0 => Err(Failure::not_found(format!("there is no webhook {text}"))
            .hint("`tenure webhook list` shows them")),
        many => Err(Failure::not_found(format!("{many} webhooks are named {text}"))
            .hint("say of which scope, such as acme/research/chat, or give its id")),
    }
}

/// A webhook with its key, which is not shown again.
fn once(context: &Context, made: &NewWebhook) -> Result<(), Failure> {
    match context.out.form {
        Form::Json | Form::Yaml => context.out.value(made),
        Form::Name => context.out.line(made.webhook.id),
        Form::Table | Form::Wide => {
            context.out.note(format!(
                "webhook {} to {}; the key it signs with is shown this once:",
                made.webhook.id, made.webhook.origin
            ));
            context.out.line(crate::safe::safe(made.secret.reveal()))
        }
    }
}

fn standing(webhook: &WebhookView) -> &'static str {
    match webhook.standing {
        WebhookStanding::Active => "active",
        WebhookStanding::Retrying => "retrying",
        WebhookStanding::Paused => "paused",
        WebhookStanding::Failed => "failed",
    }
}

fn kinds(webhook: &WebhookView) -> String {
    if webhook.kinds.is_empty() {
        return "all".into();
    }
    let kinds: Vec<&str> = webhook.kinds.iter().map(String::as_str).collect();
    kinds.join(",")
}

fn list(context: &Context, webhooks: &[WebhookView]) -> Result<(), Failure> {
    let wide = context.out.wide();
    context.out.list(
        webhooks,
        |webhook| webhook.id.to_string(),
        "no webhooks; `tenure webhook create NAME --for SCOPE --url URL` makes one",
        |webhooks| {
            let head: &[&str] = if wide {
                &[
                    "WEBHOOK", "OF", "TO", "STANDING", "TOOK", "LAST", "BEHIND", "KINDS", "OWNER", "ID",
                ]
            } else {
                &["WEBHOOK", "OF", "TO", "STANDING", "TOOK", "LAST", "BEHIND"]
            };
            let mut table = Table::new(head);
            for webhook in webhooks {
                let delivery = &webhook.delivery;
                let last = delivery.last_success.map_or("-".into(), |at| ago(at, now()));
                let mut row = vec![
                    text(&webhook.name),
                    text(&webhook.scope_path),
                    text(&webhook.origin),
                    text(standing(webhook)),
                    figure(delivery.delivered),
                    text(last),
                    figure(delivery.behind),
                ];
                if wide {
                    row.extend([
                        text(kinds(webhook)),
                        text(&webhook.owner_path),
                        text(webhook.id.to_string()),
                    ]);
                }
                table.row(row);
            }
            table
        },
    )
}

fn show(context: &Context, webhook: &WebhookView) -> Result<(), Failure> {
    context.out.one(
        webhook,
        |webhook| webhook.id.to_string(),
        |webhook| {
            let mut table = Table::fields();
            let (delivery, now) = (&webhook.delivery, now());
            table
                .field("webhook", text(&webhook.name).paint(Paint::Bold))
                .field("id", webhook.id.to_string())
                .field("of", text(&webhook.scope_path))
                .field("sees as", text(&webhook.owner_path))
                .field("to", text(&webhook.origin))
                .field("kinds", text(kinds(webhook)))
                .field("standing", text(standing(webhook)));
            if let Some(why) = &webhook.why {
                table.field("why", text(why));
            }
            table
                .field("took", delivery.delivered.to_string())
                .field(
                    "last",
                    delivery.last_success.map_or("-".into(), |at| full(at, now)),
                )
                .field("next event", (delivery.done + 1).to_string())
                .field("behind", delivery.behind.to_string());
            if let Some(failing) = &delivery.failing {
                table
                    .field("failing", text(&failing.why))
                    .field("since", full(failing.since, now))
                    .field("tries", failing.tries.to_string())
                    .field("next try", failing.next_try.to_string());
            }
            table
        },
    )
}
