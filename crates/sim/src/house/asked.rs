//! The house asked from the command line, by the people of its demo platform. Called by tests.

use std::process::{Command, Output, Stdio};

use serde_json::Value;

use super::{House, program};

/// Who may do everything, beside the demo platform's users.
pub const OWNER: &str = "owner";

impl House {
    /// The `tenure` command as this user, by path.
    pub fn tenure(&self, user: &str, args: &[&str]) -> Output {
        let token = match user {
            OWNER => std::fs::read_to_string(self.data().join("owner.token")).unwrap(),
            user => self.demo_token(user),
        };
        Command::new(program("tenure"))
            .args(args)
            .env("TENURE_SERVER", self.url())
            .env("TENURE_TOKEN", token.trim())
            .env("HOME", self.dir.path())
            .stdin(Stdio::null())
            .output()
            .unwrap()
    }

    /// What a command that succeeds prints.
    pub fn done(&self, user: &str, args: &[&str]) -> String {
        let output = self.tenure(user, args);
        assert!(output.status.success(), "{args:?}: {}", said(&output));
        String::from_utf8_lossy(&output.stdout).into_owned()
    }

    /// The same as JSON.
    pub fn json(&self, user: &str, args: &[&str]) -> Value {
        let args: Vec<&str> = args.iter().copied().chain(["-o", "json"]).collect();
        serde_json::from_str(&self.done(user, &args)).unwrap()
    }
}

/// All that a command printed.
pub fn said(output: &Output) -> String {
    String::from_utf8_lossy(&output.stdout).into_owned() + &String::from_utf8_lossy(&output.stderr)
}
