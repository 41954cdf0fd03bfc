//! What is read from files and stdin: bounded, never blocking for ever, and never a secret on the command line.

use std::fs::File;
use std::io::{IsTerminal, Read};
use std::os::unix::fs::FileTypeExt;
use std::path::{Path, PathBuf};
use std::time::Duration;

use tenure_api::secret_text::SecretText;

use crate::refusal::Failure;

/// Larger than any file a person writes.
const MAX_BYTES: u64 = 4 << 20;
/// How long a named pipe may stay without a writer or an end.
const PIPE_PATIENCE: Duration = Duration::from_secs(10);

pub struct Document {
    /// What errors call it.
    pub name: String,
    pub text: String,
}

/// Reads a text file, or stdin for `-`, without the byte-order mark some editors leave.
pub fn read_text(path: &Path) -> Result<Document, Failure> {
    let (name, bytes) = read_bytes(path)?;
    let text = String::from_utf8(bytes).map_err(|error| {
        Failure::usage(format!(
            "{name} is not UTF-8 text: byte {} is not",
            error.utf8_error().valid_up_to()
        ))
        .hint("save it as UTF-8")
    })?;
    let text = text.strip_prefix('\u{feff}').map(str::to_owned).unwrap_or(text);
    Ok(Document { name, text })
}

fn read_bytes(path: &Path) -> Result<(String, Vec<u8>), Failure> {
    if path == Path::new("-") {
        return Ok(("stdin".into(), bounded("stdin", std::io::stdin())?));
    }
    let name = path.display().to_string();
    let unreadable =
        |error: std::io::Error| Failure::usage(format!("{name} cannot be read: {}", plain(&error)));
    let kind = std::fs::metadata(path).map_err(unreadable)?.file_type();
    if kind.is_dir() {
        return Err(Failure::usage(format!("{name} is a directory")).hint("give a file, or - for stdin"));
    }
    // A shell's `<(…)` is a pipe that already has its writer; a named one may never get any.
    let bytes = if kind.is_fifo() && !path.starts_with("/dev/fd") && !path.starts_with("/proc") {
        read_named_pipe(path.to_owned(), name.clone())?
    } else {
        bounded(&name, File::open(path).map_err(unreadable)?)?
    };
    Ok((name, bytes))
}

fn read_named_pipe(path: PathBuf, name: String) -> Result<Vec<u8>, Failure> {
    let (send, receive) = std::sync::mpsc::channel();
    let shown = name.clone();
    std::thread::spawn(move || {
        let bytes = File::open(&path)
            .map_err(Failure::from)
            .and_then(|file| bounded(&name, file));
        // The reader has given up waiting when nobody takes this.
        let _ = send.send(bytes);
    });
    receive.recv_timeout(PIPE_PATIENCE).unwrap_or_else(|_| {
        Err(Failure::usage(format!(
            "{shown} is a named pipe, and nothing was written to it within {} s",
            PIPE_PATIENCE.as_secs()
        )))
    })
}

fn bounded(name: &str, from: impl Read) -> Result<Vec<u8>, Failure> {
    let mut bytes = Vec::new();
    match from.take(MAX_BYTES + 1).read_to_end(&mut bytes) {
        // A closed stdin reads as an empty one.
        Err(error) if error.raw_os_error() == Some(rustix::io::Errno::BADF.raw_os_error()) => {}
        Err(error) => {
            return Err(Failure::usage(format!(
                "{name} cannot be read: {}",
                plain(&error)
            )));
        }
        Ok(_) => {}
    }
    if bytes.len() as u64 > MAX_BYTES {
        return Err(Failure::usage(format!(
            "{name} is larger than {} MiB",
            MAX_BYTES >> 20
        )));
    }
    Ok(bytes)
}

/// Reads a secret from a file, from a pipe, or without echo from the terminal. One line end is taken off.
pub fn read_secret(file: Option<&Path>, what: &str) -> Result<SecretText, Failure> {
    let text = match file {
        Some(path) => read_text(path)?.text,
        None if std::io::stdin().is_terminal() => ask_hidden(what)?,
        None => read_text(Path::new("-"))?.text,
    };
    let trimmed = text
        .strip_suffix("\r\n")
        .or_else(|| text.strip_suffix('\n'))
        .unwrap_or(&text);
    let secret = SecretText::new(trimmed);
    if trimmed.is_empty() {
        return Err(
            Failure::usage(format!("no {what} was given")).hint("pipe it in, or name a file that holds it")
        );
    }
    Ok(secret)
}

fn ask_hidden(what: &str) -> Result<String, Failure> {
    use rustix::termios::{LocalModes, OptionalActions, tcgetattr, tcsetattr};
    let stdin = std::io::stdin();
    let failed = |error: rustix::io::Errno| {
        Failure::Local(format!("the terminal does not hide what is typed: {error}"))
    };
    let before = tcgetattr(&stdin).map_err(failed)?;
    let mut silent = before.clone();
    silent.local_modes &= !(LocalModes::ECHO | LocalModes::ECHOE | LocalModes::ECHOK);
    silent.local_modes |= LocalModes::ECHONL;
    eprint!("{what}: ");
    tcsetattr(&stdin, OptionalActions::Flush, &silent).map_err(failed)?;
    let mut line = String::new();
    let read = stdin.read_line(&mut line);
    tcsetattr(&stdin, OptionalActions::Flush, &before).map_err(failed)?;
    read.map_err(|error| Failure::usage(format!("the {what} cannot be read: {error}")))?;
    Ok(line)
}

/// Asks before something that cannot be taken back. Without a terminal nobody is asked, and `--yes` decides.
pub fn confirm(question: &str, yes: bool) -> Result<(), Failure> {
    if yes {
        return Ok(());
    }
    if !std::io::stdin().is_terminal() || !std::io::stderr().is_terminal() {
        return Err(Failure::usage(format!("{question} Nobody is here to ask")).hint("add --yes to go ahead"));
    }
    if ask(question, false)? {
        Ok(())
    } else {
        Err(Failure::Said(crate::refusal::REFUSED))
    }
}

/// A yes or no from the terminal.
pub fn ask(question: &str, otherwise: bool) -> Result<bool, Failure> {
    eprint!("{question} {} ", if otherwise { "[Y/n]" } else { "[y/N]" });
    let mut line = String::new();
    if std::io::stdin().read_line(&mut line)? == 0 {
        return Ok(false);
    }
    Ok(match line.trim().to_lowercase().as_str() {
        "" => otherwise,
        "y" | "yes" => true,
        _ => false,
    })
}

/// The reason without the number after it.
pub fn plain(error: &std::io::Error) -> String {
    match error.kind() {
        std::io::ErrorKind::NotFound => "there is no such file".into(),
        std::io::ErrorKind::PermissionDenied => "permission denied".into(),
        _ => error.to_string(),
    }
}
