//! The README's walk-through, run exactly as it is written: every `$` line of its console blocks in one shell, each
//! line's output against what the README shows, where `…` stands for anything.

use std::process::Command;

use tenure_sim::house::{House, program};

/// A command of the README and what it shows beneath.
struct Shown {
    command: String,
    output: Vec<String>,
}

fn read(readme: &str) -> Vec<Shown> {
    let mut shown: Vec<Shown> = Vec::new();
    let mut inside = false;
    for line in readme.lines() {
        match line {
            "```console" => inside = true,
            "```" => inside = false,
            _ if !inside => {}
            _ => match (line.strip_prefix("$ "), shown.last_mut()) {
                (Some(command), _) => shown.push(Shown {
                    command: command.into(),
                    output: Vec::new(),
                }),
                (None, Some(last)) => last.output.push(line.into()),
                // `make run` itself, which the harness stands in for.
                (None, None) => {}
            },
        }
    }
    shown
}

/// Whether a line is as shown, `…` standing for anything.
fn matches(shown: &str, printed: &str) -> bool {
    let parts: Vec<&str> = shown.split('…').collect();
    let mut rest = printed;
    for (i, part) in parts.iter().enumerate() {
        let Some(at) = rest.find(part) else { return false };
        if i == 0 && at != 0 {
            return false;
        }
        rest = &rest[at + part.len()..];
    }
    parts.last() == Some(&"") || rest.is_empty()
}

/// The shown lines in order; a line of `…` alone stands for any number of lines.
fn agrees(shown: &[String], printed: &str) -> bool {
    let mut printed = printed.lines();
    let mut anything = false;
    for line in shown {
        if line == "…" {
            anything = true;
            continue;
        }
        let mut found = printed.next();
        while anything && found.is_some_and(|found| !matches(line, found)) {
            found = printed.next();
        }
        anything = line.starts_with('…') || line.ends_with('…');
        if !found.is_some_and(|found| matches(line, found))
            && !printed.any(|found| anything && matches(line, found))
        {
            return false;
        }
    }
    anything || printed.next().is_none()
}

#[tokio::test(flavor = "multi_thread")]
async fn the_readme_holds_as_written() {
    let root = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let shown = read(&std::fs::read_to_string(root.join("README.md")).unwrap());
    assert!(shown.len() > 10, "the README shows {} commands", shown.len());
    let mut house = House::new(None);
    house.with_agent = true;
    house.start_server().await;
    let home = house.dir.path();
    std::os::unix::fs::symlink(house.data(), home.join(".tenure")).unwrap();

    // One shell for all, so that what is exported stays; each command's output and code between marks.
    let mut script = String::from("exec 2>>stderr\n");
    for (i, step) in shown.iter().enumerate() {
        script.push_str(&format!(
            "echo '<<{i}'\n{}\necho \">>{i} $?\"\n",
            step.command.replace("$PWD/target/release", "$PROGRAMS")
        ));
        script = script.replace("http://127.0.0.1:7070", &house.url());
    }
    let programs = program("tenure").parent().unwrap().to_owned();
    let ran = Command::new("bash")
        .arg("-c")
        .arg(&script)
        .current_dir(home)
        .env("PROGRAMS", programs)
        .env("HOME", home)
        .output()
        .unwrap();
    let printed = String::from_utf8_lossy(&ran.stdout);
    let complained = std::fs::read_to_string(home.join("stderr")).unwrap_or_default();
    for (i, step) in shown.iter().enumerate() {
        let (_, rest) = printed
            .split_once(&format!("<<{i}\n"))
            .unwrap_or_else(|| panic!("not reached: {}\n{printed}\n{complained}", step.command));
        let (output, code) = rest
            .split_once(&format!(">>{i} "))
            .unwrap_or_else(|| panic!("did not end: {}\n{printed}", step.command));
        assert!(
            code.starts_with('0'),
            "`{}` ended with {}\n{output}\n{complained}",
            step.command,
            code.lines().next().unwrap_or_default()
        );
        assert!(
            agrees(&step.output, output),
            "`{}` printed\n{output}\nbut the README shows\n{}\n{complained}",
            step.command,
            step.output.join("\n")
        );
    }
}

#[test]
fn dots_stand_for_anything_and_nothing_else_does() {
    assert!(matches("sound: …", "sound: 12 events"));
    assert!(matches(
        "…uses 1 of its 1 of jobs…",
        "waits: initech uses 1 of its 1 of jobs; 1 more"
    ));
    assert!(!matches("sound: …", "bad: event 3"));
    assert!(!matches("my turn", "my turn?"));
    assert!(agrees(&["…".into()], "one\ntwo\n"));
    assert!(!agrees(&[], "something\n"));
}
