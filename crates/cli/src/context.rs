//! What every command works with: the output, whom to speak to, and the client once it is needed.

use std::path::PathBuf;

use clap::{ArgAction, Args};
use tenure_api::client::Client;
use tenure_api::secret_text::SecretText;
use tenure_domain::workload::spec::TRACE_PARENT;

use crate::input;
use crate::output::{Form, Output};
use crate::profile::{self, Config, Said, Target};
use crate::refusal::Failure;

/// Flags that every command takes.
#[derive(Debug, Clone, Args)]
pub struct Globals {
    /// How to print the answer
    #[arg(short = 'o', long = "output", global = true, value_enum, default_value_t = Form::Table, hide_default_value = true)]
    pub output: Form,
    /// The server to speak to; outranks TENURE_SERVER and the profile
    #[arg(long, global = true, value_name = "URL")]
    pub server: Option<String>,
    /// The profile of the config file to use
    #[arg(long, global = true, value_name = "NAME", env = "TENURE_PROFILE")]
    pub profile: Option<String>,
    /// A certificate authority to trust, in PEM
    #[arg(
        long,
        global = true,
        value_name = "FILE",
        env = "TENURE_CA_FILE",
        hide_env_values = true
    )]
    pub ca_file: Option<PathBuf>,
    /// Say nothing but answers, warnings and errors
    #[arg(short, long, global = true, action = ArgAction::SetTrue)]
    pub quiet: bool,
}

pub struct Context {
    pub out: Output,
    said: Said,
}

impl Context {
    pub fn new(globals: Globals) -> Result<Context, Failure> {
        let said = Said {
            profile: globals.profile,
            server_flag: globals.server,
            server_env: variable("TENURE_SERVER")?,
            token_env: variable("TENURE_TOKEN")?.map(SecretText::new),
            ca_file: globals.ca_file,
        };
        Ok(Context {
            out: Output::new(globals.output, globals.quiet),
            said,
        })
    }

    pub fn said(&self) -> &Said {
        &self.said
    }

    /// The config file's path and content, with a warning about who may read it.
    pub fn config(&self) -> Result<(Option<PathBuf>, Config), Failure> {
        let Some(path) = profile::path() else {
            return Ok((None, Config::default()));
        };
        let (config, warning) = Config::load(&path)?;
        if let Some(warning) = warning {
            self.out.warn(warning);
        }
        Ok((Some(path), config))
    }

    pub fn target(&self) -> Result<Target, Failure> {
        let (_, config) = self.config()?;
        let target = profile::settle(&config, &self.said)?;
        profile::check_server(&target.server)?;
        Ok(target)
    }

    /// The client, as the user logged in; says what it could not use.
    pub fn client(&self) -> Result<Client, Failure> {
        let target = self.target()?;
        for note in &target.notes {
            self.out.warn(note);
        }
        client_for(&target)
    }
}

pub fn client_for(target: &Target) -> Result<Client, Failure> {
    let pem = target.ca_file.as_deref().map(input::read_text).transpose()?;
    let authority = pem.as_ref().map(|document| document.text.as_bytes());
    let client = Client::new(&target.server, target.token.clone(), authority);
    // As W3C Trace Context has it, anything else there is ignored.
    let trace = std::env::var(TRACE_PARENT).ok();
    let trace = trace.and_then(|trace| trace.parse().ok());
    client
        .map(|client| client.within(trace))
        .map_err(|error| match &pem {
            Some(pem) => Failure::usage(format!(
                "{} is not a certificate authority in PEM: {error}",
                pem.name
            )),
            None => Failure::Local(error.to_string()),
        })
}

fn variable(name: &str) -> Result<Option<String>, Failure> {
    match std::env::var(name) {
        Ok(value) if value.is_empty() => Ok(None),
        Ok(value) => Ok(Some(value)),
        Err(std::env::VarError::NotPresent) => Ok(None),
        Err(std::env::VarError::NotUnicode(_)) => Err(Failure::usage(format!("{name} is not UTF-8 text"))),
    }
}
