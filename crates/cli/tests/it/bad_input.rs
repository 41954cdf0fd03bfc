//! Bad input, row Config/CLI of the catalogue: each ends with exit 2 and says what is wrong, or does no harm.

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::PermissionsExt;
use std::process::Stdio;

use crate::tenure::{Tenure, done, make_fifo};

const JOB: &str = "name: a\ncommand: [x]\n";

#[test]
fn files_that_are_not_there_or_not_files() {
    let tenure = Tenure::alone();
    tenure
        .run(&["apply", "-f", "/no/such/file"])
        .expect(2, "/no/such/file cannot be read: there is no such file");
    tenure.run(&["apply", "-f", "/"]).expect(2, "/ is a directory");
    tenure
        .run(&["apply", "-f", "/dev/zero"])
        .expect(2, "larger than 4 MiB");
    tenure.run(&["policy", "set", "acme", "-f", ""]).expect(2, "");
    tenure
        .run(&["login", "--token-file", "/no/such"])
        .expect(2, "there is no such file");
}

#[test]
fn a_named_pipe_nobody_writes_to_does_not_hang_and_one_with_a_writer_is_read() {
    let tenure = Tenure::alone();
    let path = tenure.home.path().join("fifo");
    make_fifo(&path);
    let name = path.display().to_string();
    let reader = std::thread::spawn({
        let command = tenure
            .command()
            .args(["apply", "-f", &name])
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        move || done(command.wait_with_output().unwrap())
    });
    std::fs::write(&path, JOB).unwrap();
    reader.join().unwrap().expect(5, "unreachable");
    tenure
        .run(&["apply", "-f", &name])
        .expect(2, "nothing was written to it");
}

#[test]
fn byte_order_marks_and_windows_line_ends_are_taken() {
    let tenure = Tenure::alone();
    let file = tenure.write("bom.yaml", format!("\u{feff}{}", JOB.replace('\n', "\r\n")));
    tenure.run(&["apply", "-f", &file]).expect(5, "unreachable");
}

#[test]
fn wrong_files_are_drawn_with_the_line() {
    let tenure = Tenure::alone();
    let unknown = tenure.write("unknown.yaml", format!("{JOB}gpus: 3\n"));
    let out = tenure.run(&["apply", "-f", &unknown]);
    out.expect(2, "unknown.yaml:3");
    assert!(
        out.stderr.contains("gpus: 3") && out.stderr.contains('┬'),
        "{}",
        out.stderr
    );
    let twice = tenure.write("twice.yaml", format!("{JOB}name: b\n"));
    tenure.run(&["apply", "-f", &twice]).expect(2, "twice.yaml:3");
    let latin = tenure.write("latin.yaml", b"name: caf\xe9\n");
    tenure
        .run(&["apply", "-f", &latin])
        .expect(2, "is not UTF-8 text");
    tenure
        .run_with_stdin(&["apply", "-f", "-"], b"name: [")
        .expect(2, "stdin");
    tenure
        .run_with_stdin(&["apply", "-f", "-"], b"")
        .expect(2, "the file holds no job");
    let policy = tenure.write("policy.yaml", "max_run_time_s: 0\n");
    tenure
        .run(&["policy", "set", "acme", "-f", &policy])
        .expect(2, "policy.yaml:1");
}

#[test]
fn a_config_file_that_others_can_read_is_told_and_a_broken_one_refused() {
    let tenure = Tenure::without_environment();
    tenure.write(
        ".config/tenure/config.json",
        r#"{"profiles":{"default":{"server":"http://127.0.0.1:1","token":"tnr_x"}}}"#,
    );
    std::fs::set_permissions(tenure.config(), std::fs::Permissions::from_mode(0o644)).unwrap();
    tenure.run(&["ps"]).expect(5, "can be read by others (mode 644)");
    std::fs::set_permissions(tenure.config(), std::fs::Permissions::from_mode(0o600)).unwrap();
    assert!(!tenure.run(&["ps"]).stderr.contains("others"));
    for (text, said) in [
        ("{", "is not a config file of tenure"),
        (r#"{"profiles":{},"profiles":{}}"#, "duplicate field"),
        (r#"{"server":"x"}"#, "unknown field `server`"),
    ] {
        tenure.write(".config/tenure/config.json", text);
        tenure.run(&["ps"]).expect(2, said);
    }
    std::fs::remove_file(tenure.config()).unwrap();
    std::fs::create_dir(tenure.config()).unwrap();
    tenure.run(&["ps"]).expect(2, "is a directory");
}

#[test]
fn environment_and_file_that_disagree_are_told_and_no_token_goes_astray() {
    let tenure = Tenure::without_environment();
    tenure.write(
        ".config/tenure/config.json",
        r#"{"profiles":{"default":{"server":"http://127.0.0.1:2","token":"tnr_x"}}}"#,
    );
    std::fs::set_permissions(tenure.config(), std::fs::Permissions::from_mode(0o600)).unwrap();
    let out = done(
        tenure
            .command()
            .env("TENURE_SERVER", "http://127.0.0.1:1")
            .arg("ps")
            .output()
            .unwrap(),
    );
    out.expect(
        5,
        "TENURE_SERVER (http://127.0.0.1:1) outranks the profile default (http://127.0.0.1:2)",
    );
    out.expect(5, "is for another server and was not sent");
    tenure
        .run(&["ps", "--profile", "prod"])
        .expect(2, "there is no profile named prod");
}

#[test]
fn addresses_and_ports() {
    let tenure = Tenure::alone();
    tenure
        .run(&["up", "--listen", "127.0.0.1:65536"])
        .expect(2, "invalid value '127.0.0.1:65536'");
    tenure
        .run(&["up", "--listen", "localhost"])
        .expect(2, "invalid value");
    tenure
        .run(&["ps", "--server", "http://127.0.0.1:65536"])
        .expect(2, "is not the address of a server");
    tenure
        .run(&["ps", "--server", "http://127.0.0.1:0"])
        .expect(2, "a port that is not 0");
    tenure
        .run(&["ps", "--server", "127.0.0.1:7070"])
        .expect(2, "is not the address of a server");
    tenure.run(&["up", "--tls-cert", "x"]).expect(2, "--tls-key");
}

#[test]
fn an_unreachable_server_ends_with_5_on_every_command() {
    let tenure = Tenure::alone();
    for args in [
        &["ps"][..],
        &["whoami"],
        &["show", "job_0000000000001"],
        &["logs", "-f", "job_0000000000001"],
        &["stop", "job_0000000000001"],
        &["why", "train"],
        &["cost"],
        &["events", "-f"],
        &["quota", "show", "acme"],
        &["share", "show", "acme"],
        &["node", "list"],
        &["run", "--", "true"],
    ] {
        let out = tenure.run(args);
        out.expect(5, "no answer from http://127.0.0.1:1: ");
        assert!(out.stdout.is_empty(), "{args:?}: {}", out.stdout);
        assert!(out.stderr.contains("hint: is it running?"), "{}", out.stderr);
    }
    tenure.run(&["doctor"]).expect(5, "");
}

#[test]
fn flags_repeated_unknown_or_without_value() {
    let tenure = Tenure::alone();
    tenure
        .run(&["run", "--name", "a", "--name", "b", "--", "true"])
        .expect(2, "cannot be used multiple times");
    tenure
        .run(&["ps", "--nosuch"])
        .expect(2, "unexpected argument '--nosuch'");
    tenure
        .run(&["ps", "-o", "xml"])
        .expect(2, "possible values: table, wide, json, yaml, name");
    tenure
        .run(&["quota", "set", "acme", "gpus=1", "gpus=2"])
        .expect(2, "gpus is given twice");
    tenure
        .run(&["run", "--env", "A=1", "--env", "A=2", "--", "true"])
        .expect(2, "--env gives A twice");
    tenure.run(&["nosuch"]).expect(2, "unrecognized subcommand");
    tenure.run(&[]).expect(2, "Usage: tenure");
}

#[test]
fn the_command_stands_after_two_dashes() {
    let tenure = Tenure::alone();
    tenure.run(&["run"]).expect(2, "<CMD>");
    tenure.run(&["run", "--"]).expect(2, "<CMD>");
    tenure
        .run(&["run", "true"])
        .expect(2, "unexpected argument 'true'");
    tenure
        .run(&["run", "--", ""])
        .expect(2, "a command begins with a program");
    tenure.run(&["run", "--", "--", "-x", "--name"]).expect(5, "");
}

#[test]
fn amounts_that_mean_nothing() {
    let tenure = Tenure::alone();
    tenure
        .run(&["run", "--memory", "40", "--", "x"])
        .expect(2, "'40' has no unit; write 40MiB or 40GiB");
    tenure
        .run(&["run", "--time", "90", "--", "x"])
        .expect(2, "'90' has no unit");
    tenure
        .run(&["run", "--gpus", "1.5", "--", "x"])
        .expect(2, "a slice is a part of one GPU");
    tenure
        .run(&["run", "--gpus", "0.5", "--", "x"])
        .expect(2, "a slice needs its VRAM said");
    tenure
        .run(&["run", "--compute", "0", "--vram", "1GiB", "--", "x"])
        .expect(2, "is not a share of a GPU");
    tenure
        .run(&["run", "--cpu=-1", "--", "x"])
        .expect(2, "is not an amount");
    tenure
        .run(&["quota", "set", "acme", "gpus=NaN"])
        .expect(2, "is not an amount");
    tenure
        .run(&["quota", "set", "acme", "ram=1GiB"])
        .expect(2, "there is no meter 'ram'");
    tenure
        .run(&["budget", "set", "acme", "month", "money=-5"])
        .expect(2, "is not an amount of money");
    tenure
        .run(&["cost", "--since", "yesterday"])
        .expect(2, "is not a moment");
}

#[test]
fn names_that_could_do_harm_are_refused_before_anything_is_sent() {
    let tenure = Tenure::alone();
    for name in ["../../etc", "a b", "<script>", "\u{1b}[31m", "a/b/c/d", "é", ""] {
        let out = tenure.run(&["quota", "show", name]);
        out.expect(2, "");
        assert!(!out.stderr.contains('\u{1b}'), "{name:?}: {}", out.stderr);
    }
    tenure
        .run(&["tenant", "create", "a b"])
        .expect(2, "invalid_field");
    tenure.run(&["sku", "remove", "../x"]).expect(2, "invalid_field");
    tenure
        .run(&["secret", "erase", "a/../b"])
        .expect(2, "invalid_field");
    tenure
        .run(&["user", "key", "revoke", "key_../x"])
        .expect(2, "not a key id");
    tenure
        .run(&["subscriber", "create", "research"])
        .expect(2, "does not say under whom");
}

#[test]
fn arguments_that_are_not_text() {
    let tenure = Tenure::alone();
    let bytes = OsStr::from_bytes(b"\xff\xfe");
    for args in [
        &["show"][..],
        &["quota", "show"],
        &["run", "--"],
        &["tenant", "create"],
        &["run", "--name"],
    ] {
        done(tenure.command().args(args).arg(bytes).output().unwrap()).expect(2, "invalid UTF-8");
    }
    // A path need not be text.
    done(
        tenure
            .command()
            .args(["apply", "-f"])
            .arg(bytes)
            .output()
            .unwrap(),
    )
    .expect(2, "there is no such file");
    done(
        tenure
            .command()
            .env("TENURE_TOKEN", bytes)
            .arg("ps")
            .output()
            .unwrap(),
    )
    .expect(2, "TENURE_TOKEN is not UTF-8 text");
}

#[test]
fn tokens_mistyped_or_missing() {
    let tenure = Tenure::alone();
    tenure
        .run_with_stdin(&["login"], b"hello\n")
        .expect(2, "that is not a token: it does not start like a token");
    tenure
        .run_with_stdin(&["login"], b"tnr_abc\n")
        .expect(2, "wrong length");
    tenure
        .run_with_stdin(&["login"], b"")
        .expect(2, "no token was given");
    tenure.run(&["login"]).expect(2, "no token was given");
    assert!(!tenure.config().exists(), "nothing was kept");
}
