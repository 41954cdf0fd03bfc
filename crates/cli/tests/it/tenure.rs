//! Running the command in a home of its own.

use std::io::Write;
use std::path::Path;
use std::process::{Command, Output, Stdio};

pub struct Tenure {
    pub home: tempfile::TempDir,
    server: Option<String>,
}

pub struct Done {
    pub code: i32,
    pub stdout: String,
    pub stderr: String,
}

impl Tenure {
    /// Speaks to nobody: the port is one nothing listens on.
    pub fn alone() -> Tenure {
        Tenure {
            home: tempfile::tempdir().unwrap(),
            server: Some("http://127.0.0.1:1".into()),
        }
    }

    pub fn with_server(server: &str) -> Tenure {
        Tenure {
            home: tempfile::tempdir().unwrap(),
            server: Some(server.into()),
        }
    }

    /// Knows only what its config file says.
    pub fn without_environment() -> Tenure {
        Tenure {
            home: tempfile::tempdir().unwrap(),
            server: None,
        }
    }

    pub fn command(&self) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_tenure"));
        command
            .env_clear()
            .env("HOME", self.home.path())
            .env("PATH", "/usr/bin:/bin")
            .stdin(Stdio::null());
        if let Some(server) = &self.server {
            command
                .env("TENURE_SERVER", server)
                .env("TENURE_TOKEN", "tnr_test");
        }
        command
    }

    pub fn run(&self, args: &[&str]) -> Done {
        done(self.command().args(args).output().unwrap())
    }

    pub fn run_with_stdin(&self, args: &[&str], stdin: &[u8]) -> Done {
        let mut command = self.command();
        let mut child = command
            .args(args)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        child.stdin.take().unwrap().write_all(stdin).unwrap();
        done(child.wait_with_output().unwrap())
    }

    pub fn write(&self, name: &str, text: impl AsRef<[u8]>) -> String {
        let path = self.home.path().join(name);
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(&path, text).unwrap();
        path.display().to_string()
    }

    pub fn config(&self) -> std::path::PathBuf {
        self.home.path().join(".config/tenure/config.json")
    }
}

pub fn done(output: Output) -> Done {
    Done {
        code: output.status.code().unwrap_or(-1),
        stdout: String::from_utf8_lossy(&output.stdout).into_owned(),
        stderr: String::from_utf8_lossy(&output.stderr).into_owned(),
    }
}

impl Done {
    #[track_caller]
    pub fn expect(&self, code: i32, on_stderr: &str) -> &Done {
        assert!(
            self.code == code && self.stderr.contains(on_stderr),
            "wanted exit {code} and {on_stderr:?}, got {}\nstdout:\n{}\nstderr:\n{}",
            self.code,
            self.stdout,
            self.stderr
        );
        assert!(!self.stderr.contains("panicked"), "{}", self.stderr);
        self
    }
}

pub fn make_fifo(path: &Path) {
    rustix::fs::mknodat(
        rustix::fs::CWD,
        path,
        rustix::fs::FileType::Fifo,
        rustix::fs::Mode::RUSR | rustix::fs::Mode::WUSR,
        0,
    )
    .unwrap();
}
