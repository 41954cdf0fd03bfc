//! Everything that keeps a command from being done, its exit code, and how it is said: what, why, what
//! would change it, and the stable code.

use std::fmt::Write as _;
use std::process::ExitCode;

use tenure_api::client::ClientError;
use tenure_api::problem::Problem;
use tenure_domain::refusal::{Class, Code, Refusal};

use crate::output::{Paint, paint};
use crate::safe::safe;

pub const JOB_FAILED: u8 = 1;
pub const USAGE: u8 = 2;
pub const REFUSED: u8 = 3;
pub const NO_CAPACITY: u8 = 4;
pub const UNREACHABLE: u8 = 5;

#[derive(Debug)]
pub enum Failure {
    /// The command line or a file is wrong.
    Usage { what: String, hint: Option<String> },
    /// A file is wrong, drawn with a caret at the place.
    File(Box<crate::spec_file::FileError>),
    /// The server says no.
    Refused(Box<Problem>),
    /// There is no answer.
    Unreachable { what: String, hint: Option<String> },
    /// Something of this machine failed.
    Local(String),
    /// What was asked about is not as it should be; all is said already.
    Said(u8),
    /// Nobody reads stdout any more.
    Hangup,
}

impl Failure {
    pub fn usage(what: impl Into<String>) -> Failure {
        Failure::Usage {
            what: what.into(),
            hint: None,
        }
    }

    pub fn hint(self, hint: impl Into<String>) -> Failure {
        match self {
            Failure::Usage { what, .. } => Failure::Usage {
                what,
                hint: Some(hint.into()),
            },
            Failure::Unreachable { what, .. } => Failure::Unreachable {
                what,
                hint: Some(hint.into()),
            },
            Failure::Refused(mut problem) => {
                problem.hint = Some(hint.into());
                Failure::Refused(problem)
            }
            other => other,
        }
    }

    /// The same answer the server gives for what is absent or hidden.
    pub fn not_found(what: impl Into<String>) -> Failure {
        Failure::Refused(Box::new(Problem::from(Refusal::new(Code::NotFound, what.into()))))
    }

    pub fn exit_code(&self) -> u8 {
        match self {
            Failure::Usage { .. } | Failure::File(_) => USAGE,
            Failure::Refused(problem) => exit_code_of(problem),
            Failure::Unreachable { .. } => UNREACHABLE,
            Failure::Local(_) => 1,
            Failure::Said(code) => *code,
            Failure::Hangup => 0,
        }
    }

    /// Says it on stderr and gives the exit code.
    pub fn report(&self, colour: bool) -> ExitCode {
        let text = self.text(colour);
        // A closed stderr leaves nobody to tell; the exit code still does.
        let _ = std::io::Write::write_all(&mut std::io::stderr().lock(), text.as_bytes());
        ExitCode::from(self.exit_code())
    }

    pub fn text(&self, colour: bool) -> String {
        match self {
            Failure::Usage { what, hint } => said("error", what, hint.as_deref(), None, colour),
            Failure::File(error) => error.draw(colour),
            Failure::Refused(problem) => refused(problem, colour),
            Failure::Unreachable { what, hint } => said("unreachable", what, hint.as_deref(), None, colour),
            Failure::Local(what) => said("error", what, None, None, colour),
            Failure::Said(_) | Failure::Hangup => String::new(),
        }
    }
}

fn refused(problem: &Problem, colour: bool) -> String {
    let word = if exit_code_of(problem) == UNREACHABLE {
        "unavailable"
    } else {
        "refused"
    };
    let mut text = said(
        word,
        &problem.detail,
        problem.hint.as_deref(),
        Some(&problem.code),
        colour,
    );
    for error in &problem.errors {
        let field = error.pointer.trim_start_matches('/').replace('/', ".");
        if error.detail == problem.detail {
            let _ = writeln!(text, "  field: {}", safe(&field));
        } else {
            let _ = writeln!(text, "  field: {}: {}", safe(&field), safe(&error.detail));
        }
    }
    if problem.status >= 500
        && let Some(id) = &problem.request_id
    {
        let _ = writeln!(text, "  request: {}", safe(id));
    }
    text
}

/// One "no" in its usual form, each part made safe to print.
fn said(word: &str, what: &str, hint: Option<&str>, code: Option<&str>, colour: bool) -> String {
    let mut text = format!(
        "{} {}",
        paint(Paint::Bad, &format!("{word}:"), colour),
        safe(what)
    );
    if let Some(code) = code {
        let _ = write!(
            text,
            "  {}",
            paint(Paint::Dim, &format!("[{}]", safe(code)), colour)
        );
    }
    text.push('\n');
    if let Some(hint) = hint {
        let _ = writeln!(text, "  {} {}", paint(Paint::Dim, "hint:", colour), safe(hint));
    }
    text
}

fn exit_code_of(problem: &Problem) -> u8 {
    let code = Code::ALL
        .iter()
        .copied()
        .find(|code| code.as_str() == problem.code);
    match code {
        Some(Code::NoCapacity | Code::NoNodes | Code::ExceedsFleet) => NO_CAPACITY,
        Some(code) => match code.class() {
            Class::Invalid => USAGE,
            Class::Waiting => NO_CAPACITY,
            Class::Forbidden | Class::Absent | Class::Conflict | Class::Denied => REFUSED,
        },
        None => match problem.status {
            429 | 500.. => UNREACHABLE,
            401 | 403 | 404 | 409 => REFUSED,
            _ => USAGE,
        },
    }
}

impl From<ClientError> for Failure {
    fn from(error: ClientError) -> Failure {
        match error {
            ClientError::Refused(problem) if problem.code == "unauthenticated" && problem.hint.is_none() => {
                Failure::Refused(problem).hint("log in with `tenure login`")
            }
            ClientError::Refused(problem) => Failure::Refused(problem),
            ClientError::Unreachable { server, source } => Failure::Unreachable {
                what: format!("no answer from {server}: {}", root_cause(&source)),
                hint: Some(
                    "is it running? `tenure up` starts one here, `tenure doctor` looks for what is wrong"
                        .into(),
                ),
            },
            ClientError::Unreadable(why) => Failure::Unreachable {
                what: format!("the server's answer was not understood: {why}"),
                hint: Some(
                    "is this the address of a Tenure server, and of this version? `tenure doctor` tells"
                        .into(),
                ),
            },
        }
    }
}

impl From<Refusal> for Failure {
    fn from(refusal: Refusal) -> Failure {
        Failure::Refused(Box::new(refusal.into()))
    }
}

impl From<std::io::Error> for Failure {
    fn from(error: std::io::Error) -> Failure {
        match error.kind() {
            std::io::ErrorKind::BrokenPipe => Failure::Hangup,
            _ => Failure::Local(format!("writing the answer failed: {error}")),
        }
    }
}

/// The innermost reason, which is the one a person can act on.
fn root_cause(error: &dyn std::error::Error) -> String {
    let mut cause = error;
    while let Some(next) = cause.source() {
        cause = next;
    }
    cause.to_string()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_refusal_reads_as_documented() {
        let refusal = Refusal::new(
            Code::ExceedsQuota,
            "2000 of gpu_milli asked, but acme may have 1000 at most",
        )
        .hint("ask for at most 1000 of gpu_milli, or have the quota of acme raised")
        .field("/demand/gpus");
        let failure = Failure::from(refusal);
        assert_eq!(failure.exit_code(), REFUSED);
        assert_eq!(
            failure.text(false),
            "refused: 2000 of gpu_milli asked, but acme may have 1000 at most  [exceeds_quota]\n  \
             hint: ask for at most 1000 of gpu_milli, or have the quota of acme raised\n  \
             field: demand.gpus\n"
        );
    }

    #[test]
    fn each_kind_of_no_has_its_exit_code() {
        let code = |code: Code| Failure::from(Refusal::new(code, "no")).exit_code();
        assert_eq!(code(Code::InvalidField), USAGE);
        assert_eq!(code(Code::NotFound), REFUSED);
        assert_eq!(code(Code::NoCapacity), NO_CAPACITY);
        assert_eq!(code(Code::ExceedsFleet), NO_CAPACITY);
        let http = |status, code| Failure::Refused(Box::new(Problem::new(status, code, "no"))).exit_code();
        assert_eq!(http(401, "unauthenticated"), REFUSED);
        assert_eq!(http(400, "malformed_request"), USAGE);
        assert_eq!(http(429, "too_many_requests"), UNREACHABLE);
        assert_eq!(http(503, "not_leader"), UNREACHABLE);
    }

    #[test]
    fn escapes_in_a_servers_words_do_not_reach_the_terminal() {
        let failure = Failure::Refused(Box::new(Problem::new(
            403,
            "not_permitted",
            "\u{1b}]0;owned\u{7}no\u{202e}",
        )));
        assert!(!failure.text(false).contains(['\u{1b}', '\u{7}', '\u{202e}']));
    }
}
