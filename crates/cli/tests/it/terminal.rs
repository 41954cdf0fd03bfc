//! Closed streams, narrow terminals, and colour where it was not asked for.

use std::os::fd::OwnedFd;
use std::process::Stdio;

use crate::tenure::{Tenure, done};

#[test]
fn a_reader_that_goes_away_ends_it_quietly() {
    let tenure = Tenure::alone();
    for args in [&["completions", "bash"][..], &["--help"], &["run", "--help"]] {
        let (read, write) = std::io::pipe().unwrap();
        drop(read);
        let mut command = tenure.command();
        let out = done(
            command
                .args(args)
                .stdout(Stdio::from(OwnedFd::from(write)))
                .output()
                .unwrap(),
        );
        assert_eq!((out.code, out.stderr.as_str()), (0, ""), "{args:?}");
    }
}

#[test]
fn a_full_disk_is_told() {
    let tenure = Tenure::alone();
    let full = std::fs::OpenOptions::new().write(true).open("/dev/full").unwrap();
    let out = done(
        tenure
            .command()
            .args(["completions", "bash"])
            .stdout(full)
            .output()
            .unwrap(),
    );
    out.expect(1, "writing the answer failed");
}

#[test]
fn closed_streams_do_no_harm() {
    let tenure = Tenure::alone();
    let bin = env!("CARGO_BIN_EXE_tenure");
    for redirect in ["<&-", ">&-", "2>&-", "<&- >&- 2>&-"] {
        let script = format!("exec \"$0\" ps {redirect}");
        let mut command = std::process::Command::new("sh");
        command.env_clear().envs(
            tenure
                .command()
                .get_envs()
                .filter_map(|(name, value)| Some((name, value?))),
        );
        let out = done(command.args(["-c", &script, bin]).output().unwrap());
        assert_eq!(out.code, 5, "{redirect}: {}", out.stderr);
    }
    let mut command = std::process::Command::new("sh");
    command.env_clear().env("HOME", tenure.home.path());
    done(
        command
            .args(["-c", "exec \"$0\" login <&-", bin])
            .output()
            .unwrap(),
    )
    .expect(2, "no token was given");
}

/// Runs the command on a terminal of its own, through script(1).
fn on_terminal(tenure: &Tenure, columns: u16, args: &str) -> (i32, String) {
    let line = format!(
        "stty cols {columns} rows 24; exec {} {args}",
        env!("CARGO_BIN_EXE_tenure")
    );
    let mut command = std::process::Command::new("script");
    command.env_clear().envs(
        tenure
            .command()
            .get_envs()
            .filter_map(|(name, value)| Some((name, value?))),
    );
    command
        .args(["-qec", &line, "/dev/null"])
        .stdin(Stdio::null())
        .env("TERM", "xterm");
    let out = command
        .output()
        .expect("script is there: it comes with util-linux, and nothing else here makes a terminal");
    (
        out.status.code().unwrap_or(-1),
        String::from_utf8_lossy(&out.stdout).into_owned(),
    )
}

#[test]
fn no_width_of_a_terminal_is_too_small() {
    let tenure = Tenure::alone();
    let wrong = tenure.write("wrong.yaml", "name: a\ncommand: [x]\nnosuch: 1\n");
    for columns in [1, 2, 7, 39, 40, 80, 500] {
        for (args, code) in [
            ("--help", 0),
            ("run --help", 0),
            ("ps", 5),
            ("doctor", 5),
            (&*format!("apply -f {wrong}"), 2),
        ] {
            let (ended, said) = on_terminal(&tenure, columns, args);
            assert_eq!(ended, code, "{args} at {columns}: {said}");
            assert!(!said.contains("panicked"), "{args} at {columns}: {said}");
        }
    }
}

#[test]
fn colour_is_for_terminals_that_want_it() {
    let tenure = Tenure::alone();
    assert!(!tenure.run(&["ps"]).stderr.contains('\u{1b}'));
    let (_, plain) = on_terminal(&tenure, 80, "ps");
    assert!(plain.contains("\u{1b}[31munreachable:"), "{plain:?}");
    for (variable, value) in [("NO_COLOR", "1"), ("TERM", "dumb")] {
        let line = format!("{variable}={value} exec {} ps", env!("CARGO_BIN_EXE_tenure"));
        let mut command = std::process::Command::new("script");
        command.env_clear().envs(
            tenure
                .command()
                .get_envs()
                .filter_map(|(name, value)| Some((name, value?))),
        );
        let out = command
            .args(["-qec", &line, "/dev/null"])
            .env("TERM", "xterm")
            .stdin(Stdio::null())
            .output()
            .unwrap();
        let said = String::from_utf8_lossy(&out.stdout);
        assert!(
            said.contains("unreachable:") && !said.contains('\u{1b}'),
            "{variable}: {said:?}"
        );
    }
}

#[test]
fn completions_are_printed_for_every_shell() {
    let tenure = Tenure::alone();
    for shell in ["bash", "zsh", "fish", "elvish", "powershell"] {
        let out = tenure.run(&["completions", shell]);
        out.expect(0, "");
        assert!(out.stdout.contains("tenure"));
    }
    let out = done(tenure.command().env("COMPLETE", "bash").output().unwrap());
    out.expect(0, "");
    assert!(out.stdout.contains("complete"), "{}", out.stdout);
}
