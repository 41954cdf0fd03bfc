//! Whom the command speaks to and as whom: named profiles in `$XDG_CONFIG_HOME/tenure/config.json`, readable
//! by their owner alone. The environment outranks the file, and a token goes only to the server it was
//! given for.

use std::collections::BTreeMap;
use std::io::Write;
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};
use tenure_api::secret_text::SecretText;

use crate::refusal::Failure;

pub const DEFAULT_SERVER: &str = "http://127.0.0.1:7070";
pub const DEFAULT_PROFILE: &str = "default";

#[derive(Debug, Clone, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Config {
    /// The profile used when none is named.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub current: Option<String>,
    #[serde(default)]
    pub profiles: BTreeMap<String, Profile>,
}

#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Profile {
    pub server: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub token: Option<SecretText>,
    /// A certificate authority to trust beside the system's.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ca_file: Option<PathBuf>,
}

/// Where the file is; none on a system without a home.
pub fn path() -> Option<PathBuf> {
    directory("XDG_CONFIG_HOME", ".config").map(|dir| dir.join("tenure/config.json"))
}

/// Where `tenure up` keeps its data unless told otherwise.
pub fn data_dir() -> Option<PathBuf> {
    directory("XDG_DATA_HOME", ".local/share").map(|dir| dir.join("tenure"))
}

fn directory(variable: &str, below_home: &str) -> Option<PathBuf> {
    let set = |name: &str| {
        std::env::var_os(name)
            .map(PathBuf::from)
            .filter(|path| path.is_absolute())
    };
    set(variable).or_else(|| set("HOME").map(|home| home.join(below_home)))
}

impl Config {
    /// Reads the file; a missing one is an empty one. What is wrong with its permissions comes beside it.
    pub fn load(path: &Path) -> Result<(Config, Option<String>), Failure> {
        let metadata = match std::fs::metadata(path) {
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => {
                return Ok((Config::default(), None));
            }
            Err(error) => {
                return Err(Failure::usage(format!(
                    "{} cannot be read: {}",
                    path.display(),
                    crate::input::plain(&error)
                )));
            }
            Ok(metadata) => metadata,
        };
        let document = crate::input::read_text(path)?;
        let config = serde_json::from_str(&document.text).map_err(|error| {
            Failure::usage(format!(
                "{} is not a config file of tenure: {error}",
                document.name
            ))
            .hint("put it right, or move it away and log in again")
        })?;
        let mode = metadata.permissions().mode() & 0o777;
        let open = mode & 0o077 != 0;
        let warning = open.then(|| {
            format!(
                "{} can be read by others (mode {mode:03o}) and holds tokens; close it with `chmod 600 {0}`",
                path.display()
            )
        });
        Ok((config, warning))
    }

    /// Writes the file anew beside the old one and puts it in its place, so that no moment has half a file
    /// or one that others can read.
    pub fn save(&self, path: &Path) -> Result<(), Failure> {
        let failed =
            |error: std::io::Error| Failure::Local(format!("{} cannot be written: {error}", path.display()));
        let dir = path.parent().unwrap_or(Path::new("."));
        std::fs::DirBuilder::new()
            .recursive(true)
            .mode(0o700)
            .create(dir)
            .map_err(failed)?;
        let fresh = dir.join(format!(".config.json.{}", std::process::id()));
        let written = (|| {
            let mut file = std::fs::OpenOptions::new()
                .write(true)
                .create_new(true)
                .mode(0o600)
                .open(&fresh)?;
            file.write_all(serde_json::to_string_pretty(self).unwrap_or_default().as_bytes())?;
            file.write_all(b"\n")?;
            file.sync_all()?;
            std::fs::rename(&fresh, path)
        })();
        if written.is_err() {
            // The half-written file is of no use; that it could not be removed either changes nothing.
            let _ = std::fs::remove_file(&fresh);
        }
        written.map_err(failed)
    }
}

/// What the command line and the environment say, before the file is asked.
#[derive(Debug, Clone, Default)]
pub struct Said {
    pub profile: Option<String>,
    pub server_flag: Option<String>,
    pub server_env: Option<String>,
    pub token_env: Option<SecretText>,
    pub ca_file: Option<PathBuf>,
}

/// Whom to speak to, and what to tell the user about how that was settled.
#[derive(Debug)]
pub struct Target {
    pub profile: String,
    pub server: String,
    pub token: Option<SecretText>,
    pub ca_file: Option<PathBuf>,
    pub notes: Vec<String>,
}

/// Settles flag over environment over file.
pub fn settle(config: &Config, said: &Said) -> Result<Target, Failure> {
    let name = said
        .profile
        .as_ref()
        .or(config.current.as_ref())
        .map_or(DEFAULT_PROFILE, String::as_str);
    let profile = config.profiles.get(name);
    if profile.is_none() && said.profile.is_some() {
        let known: Vec<&str> = config.profiles.keys().map(String::as_str).collect();
        let hint = if known.is_empty() {
            format!("make it with `tenure login --profile {name}`")
        } else {
            format!("there are: {}", known.join(", "))
        };
        return Err(Failure::usage(format!("there is no profile named {name}")).hint(hint));
    }
    let mut notes = Vec::new();
    let over = said.server_flag.as_ref().or(said.server_env.as_ref());
    let server = match (over, profile) {
        (Some(server), _) => server.clone(),
        (None, Some(profile)) => profile.server.clone(),
        (None, None) => DEFAULT_SERVER.to_owned(),
    };
    let same_server =
        |profile: &&Profile| profile.server.trim_end_matches('/') == server.trim_end_matches('/');
    let at_home = profile.filter(same_server);
    if let (None, Some(profile), None) = (at_home, profile, &said.server_flag) {
        notes.push(format!(
            "TENURE_SERVER ({server}) outranks the profile {name} ({})",
            profile.server
        ));
    }
    let kept = profile.and_then(|profile| profile.token.as_ref());
    if let (Some(env), Some(kept), true) = (&said.token_env, kept, at_home.is_some())
        && env != kept
    {
        notes.push(format!("TENURE_TOKEN outranks the token of the profile {name}"));
    }
    if said.token_env.is_none() && at_home.is_none() && kept.is_some() {
        notes.push(format!(
            "the token of the profile {name} is for another server and was not sent"
        ));
    }
    let token = said
        .token_env
        .clone()
        .or_else(|| at_home.and_then(|profile| profile.token.clone()));
    let ca_file = said
        .ca_file
        .clone()
        .or_else(|| at_home.and_then(|profile| profile.ca_file.clone()));
    Ok(Target {
        profile: name.to_owned(),
        server,
        token,
        ca_file,
        notes,
    })
}

/// Refuses what is not the address of a server, before anything is sent there.
pub fn check_server(server: &str) -> Result<(), Failure> {
    let wrong = |why: &str| {
        Failure::usage(format!("'{server}' is not the address of a server: {why}"))
            .hint(format!("write it like {DEFAULT_SERVER}"))
    };
    let url = reqwest::Url::parse(server).map_err(|error| wrong(&error.to_string()))?;
    match url.scheme() {
        "http" | "https" => {}
        _ => return Err(wrong("it starts with http:// or https://")),
    }
    if url.host().is_none() || url.port() == Some(0) {
        return Err(wrong("it names a host, and a port that is not 0"));
    }
    if !url.username().is_empty()
        || url.password().is_some()
        || url.query().is_some()
        || url.fragment().is_some()
    {
        return Err(wrong("it has no user, query or fragment"));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn config() -> Config {
        let profile = Profile {
            server: "http://a:1".into(),
            token: Some(SecretText::new("tok")),
            ca_file: None,
        };
        Config {
            current: None,
            profiles: [("default".into(), profile)].into(),
        }
    }

    fn settled(said: Said) -> Target {
        settle(&config(), &said).unwrap()
    }

    #[test]
    fn the_file_is_for_its_owner_alone_and_an_open_one_is_told() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("deep/tenure/config.json");
        config().save(&path).unwrap();
        assert_eq!(
            std::fs::metadata(&path).unwrap().permissions().mode() & 0o777,
            0o600
        );
        assert_eq!(
            std::fs::metadata(path.parent().unwrap())
                .unwrap()
                .permissions()
                .mode()
                & 0o777,
            0o700
        );
        assert!(Config::load(&path).unwrap().1.is_none());
        std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o644)).unwrap();
        let (read, warning) = Config::load(&path).unwrap();
        assert!(warning.unwrap().contains("mode 644"));
        assert_eq!(read.profiles["default"].server, "http://a:1");
        config().save(&path).unwrap();
        assert_eq!(
            std::fs::metadata(&path).unwrap().permissions().mode() & 0o777,
            0o600,
            "saving closes it"
        );
        assert_eq!(
            std::fs::read_dir(path.parent().unwrap()).unwrap().count(),
            1,
            "nothing is left beside it"
        );
    }

    #[test]
    fn a_missing_file_is_empty_and_a_broken_one_is_told() {
        let dir = tempfile::tempdir().unwrap();
        assert!(
            Config::load(&dir.path().join("none"))
                .unwrap()
                .0
                .profiles
                .is_empty()
        );
        for (index, text) in [
            "{",
            "3",
            r#"{"profile":{}}"#,
            r#"{"profiles":{"a":{"server":"x","tokne":"y"}}}"#,
        ]
        .iter()
        .enumerate()
        {
            let path = dir.path().join(index.to_string());
            std::fs::write(&path, text).unwrap();
            assert_eq!(Config::load(&path).unwrap_err().exit_code(), 2, "{text}");
        }
    }

    #[test]
    fn a_token_goes_only_to_the_server_it_was_given_for() {
        let target = settled(Said {
            server_env: Some("http://b:1".into()),
            ..Said::default()
        });
        assert!(target.token.is_none());
        assert_eq!(target.notes.len(), 2, "{:?}", target.notes);
        let target = settled(Said {
            server_flag: Some("http://a:1/".into()),
            ..Said::default()
        });
        assert_eq!(target.token.unwrap().reveal(), "tok");
        assert!(target.notes.is_empty());
    }

    #[test]
    fn the_environment_outranks_the_file_and_says_so() {
        let target = settled(Said {
            token_env: Some(SecretText::new("env")),
            ..Said::default()
        });
        assert_eq!(target.token.unwrap().reveal(), "env");
        assert_eq!(
            target.notes,
            ["TENURE_TOKEN outranks the token of the profile default"]
        );
        let target = settled(Said {
            token_env: Some(SecretText::new("tok")),
            ..Said::default()
        });
        assert!(target.notes.is_empty());
    }

    #[test]
    fn an_unknown_profile_is_refused_by_name() {
        let said = Said {
            profile: Some("prod".into()),
            ..Said::default()
        };
        assert!(
            settle(&config(), &said)
                .unwrap_err()
                .text(false)
                .contains("there is no profile named prod")
        );
    }

    #[test]
    fn only_addresses_of_servers_pass() {
        for good in [
            "http://127.0.0.1:7070",
            "https://tenure.example/",
            "http://[::1]:80",
        ] {
            assert!(check_server(good).is_ok(), "{good}");
        }
        for bad in [
            "",
            "127.0.0.1:7070",
            "localhost:65536",
            "http://h:65536",
            "http://h:0",
            "ftp://h",
            "http://u:p@h",
            "http://h?q",
            "file:///x",
        ] {
            assert!(check_server(bad).is_err(), "{bad}");
        }
    }
}
