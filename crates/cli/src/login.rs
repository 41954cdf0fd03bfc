//! `tenure login` and `logout`: which server, and as whom, kept in a profile.

use std::path::PathBuf;

use clap::Args as ClapArgs;
use tenure_api::client::Client;
use tenure_api::secret_text::SecretText;
use tenure_api::token;
use tenure_api::v1::login::Login;

use crate::context::{Context, client_for};
use crate::input;
use crate::oidc;
use crate::profile::{self, Config, DEFAULT_PROFILE, DEFAULT_SERVER, Profile, Target};
use crate::refusal::Failure;

#[derive(Debug, ClapArgs)]
pub struct Args {
    /// Read the token from this file instead of stdin or a prompt
    #[arg(long, value_name = "FILE", conflicts_with = "oidc")]
    token_file: Option<PathBuf>,
    /// Log in through the server's identity provider, in a browser
    #[arg(long)]
    oidc: bool,
    /// Which user, where the login stands for several
    #[arg(long, requires = "oidc")]
    user: Option<String>,
}

#[derive(Debug, ClapArgs)]
pub struct LogoutArgs {
    /// Forget every profile
    #[arg(long)]
    all: bool,
}

pub async fn run(context: &Context, args: Args) -> Result<(), Failure> {
    let (path, mut config) = context.config()?;
    let path = path.ok_or_else(no_home)?;
    let said = context.said();
    let name = said
        .profile
        .clone()
        .or_else(|| config.current.clone())
        .unwrap_or_else(|| DEFAULT_PROFILE.into());
    tenure_domain::name::check(&name, "/profile")?;
    let before = config.profiles.get(&name);
    let server = said.server_flag.clone().or_else(|| said.server_env.clone());
    let server = server
        .or_else(|| before.map(|profile| profile.server.clone()))
        .unwrap_or_else(|| DEFAULT_SERVER.into());
    profile::check_server(&server)?;
    let kept = || before.and_then(|profile| profile.ca_file.clone());
    let ca_file = said
        .ca_file
        .clone()
        .or_else(kept)
        .map(|file| std::path::absolute(&file).unwrap_or(file));
    let mut target = Target {
        profile: name.clone(),
        server,
        token: None,
        ca_file,
        notes: Vec::new(),
    };
    warn_plaintext(context, &target.server);
    let key = if args.oidc {
        through_issuer(context, &client_for(&target)?, args.user.clone()).await?
    } else {
        let key = input::read_secret(args.token_file.as_deref(), "token")?;
        let key = SecretText::new(key.reveal().trim());
        token::read(token::Kind::Key, key.reveal()).map_err(|why| {
            Failure::usage(format!("that is not a token: {why}"))
                .hint("a token starts with tnr_ and is 53 characters long")
        })?;
        key
    };
    target.token = Some(key);
    let me = client_for(&target)?.whoami().await?;
    let profile = Profile {
        server: target.server.clone(),
        token: target.token,
        ca_file: target.ca_file,
    };
    config.profiles.insert(name.clone(), profile);
    config.current = Some(name.clone());
    config.save(&path)?;
    context.out.note(format!(
        "logged in at {} as {} (profile {name})",
        target.server, me.user.path
    ));
    if said.token_env.is_some() {
        context
            .out
            .warn("TENURE_TOKEN is set and outranks what was just stored");
    }
    Ok(())
}

async fn through_issuer(
    context: &Context,
    client: &Client,
    user: Option<String>,
) -> Result<SecretText, Failure> {
    let view = client.login_view().await?;
    let (Some(issuer), Some(client_id)) = (view.issuer, view.client_id) else {
        return Err(
            Failure::usage("this server takes tokens only; no identity provider is set up")
                .hint("run `tenure login` and paste a token"),
        );
    };
    let proof = oidc::log_in(context, &issuer, &client_id).await?;
    let made = client
        .login(&Login {
            id_token: proof.id_token,
            nonce: proof.nonce,
            user,
        })
        .await?;
    if let Some(at) = made.key.expires {
        context.out.note(format!("the login is good until {at}"));
    }
    Ok(SecretText::new(made.token))
}

/// A token sent in the clear beyond this machine can be read on the way.
fn warn_plaintext(context: &Context, server: &str) {
    let Ok(url) = reqwest::Url::parse(server) else {
        return;
    };
    let local = match url.host_str() {
        Some("localhost") => true,
        Some(host) => host
            .trim_matches(['[', ']'])
            .parse::<std::net::IpAddr>()
            .is_ok_and(|ip| ip.is_loopback()),
        None => false,
    };
    if url.scheme() == "http" && !local {
        context.out.warn(format!(
            "{server} is not encrypted: whoever is on the way can read the token"
        ));
    }
}

pub async fn logout(context: &Context, args: LogoutArgs) -> Result<(), Failure> {
    let (path, mut config) = context.config()?;
    let path = path.ok_or_else(no_home)?;
    let name = context
        .said()
        .profile
        .clone()
        .or_else(|| config.current.clone())
        .unwrap_or_else(|| DEFAULT_PROFILE.into());
    if args.all {
        config = Config::default();
        context.out.note("forgot every profile");
    } else if config.profiles.remove(&name).is_some() {
        context.out.note(format!(
            "forgot the profile {name}; its key stays good until it ends or is revoked"
        ));
    } else {
        context
            .out
            .note(format!("there is no profile {name}; nothing to forget"));
        return Ok(());
    }
    if config
        .current
        .as_ref()
        .is_some_and(|current| !config.profiles.contains_key(current))
    {
        config.current = config.profiles.keys().next().cloned();
    }
    config.save(&path)
}

fn no_home() -> Failure {
    Failure::usage("there is no place for a config file: neither XDG_CONFIG_HOME nor HOME is set")
        .hint("set one of them, or use TENURE_SERVER and TENURE_TOKEN")
}
