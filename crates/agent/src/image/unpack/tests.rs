//! Trees as their layers make them, hostile ones included.

use std::collections::BTreeMap;
use std::fs;
use std::os::unix::fs::{FileTypeExt, MetadataExt, PermissionsExt};
use std::path::Path;

use super::super::tar::write::{Member, archive, directory, file, hard_link, member, symlink};
use super::*;

fn unpacked(members: Vec<Member>) -> Result<tempfile::TempDir, ImageError> {
    // Not on a file system in memory, which may know no extended attributes.
    let dir = tempfile::tempdir_in("/var/tmp").unwrap();
    bounded(&dir, members, 1000)?;
    Ok(dir)
}

fn bounded(dir: &tempfile::TempDir, members: Vec<Member>, entries_max: u64) -> Result<Unpacked, ImageError> {
    fs::create_dir(dir.path().join("layer")).unwrap();
    unpack(
        archive(members).as_slice(),
        &dir.path().join("layer"),
        entries_max,
    )
}

fn whiteout_of(path: &str) -> Member {
    match path.rsplit_once('/') {
        Some((above, name)) => file(format!("{above}/.wh.{name}"), ""),
        None => file(format!(".wh.{path}"), ""),
    }
}

fn is_opaque(path: &Path) -> bool {
    hides_all_below(path)
}

#[test]
fn hostile_archives_change_nothing_outside() {
    let outside = tempfile::tempdir_in("/var/tmp").unwrap();
    let victim = outside.path().join("victim");
    fs::write(&victim, "untouched").unwrap();
    let (out, victim_path) = (outside.path().to_str().unwrap(), victim.to_str().unwrap());
    let long = "n".repeat(300);
    let deep = "d/".repeat(600);
    let rows: Vec<(&str, Vec<Member>, bool)> = vec![
        ("..", vec![file("../escaped", "x")], false),
        (".. inside", vec![file("a/../../escaped", "x")], false),
        (".. as a directory", vec![directory("..")], false),
        ("a hard link upwards", vec![hard_link("a", "../victim")], false),
        (
            "a hard link by absolute path",
            vec![hard_link("a", victim_path)],
            false,
        ),
        (
            "a hard link through a link",
            vec![symlink("l", out), hard_link("a", "l/victim")],
            false,
        ),
        (
            "a hard link to a link that leads out",
            vec![symlink("l", victim_path), hard_link("a", "l")],
            true,
        ),
        ("a hard link to nothing", vec![hard_link("a", "")], false),
        (
            "a hard link to a directory",
            vec![directory("d"), hard_link("a", "d")],
            false,
        ),
        ("a whiteout of ..", vec![file(".wh...", "")], false),
        ("a whiteout of .", vec![file(".wh..", "")], false),
        ("a whiteout of nothing", vec![file(".wh.", "")], false),
        ("a file below a whiteout", vec![file(".wh.a/b", "")], false),
        (
            "a zero byte",
            vec![
                Member {
                    content: b"15 path=a\0b/c\n\n".to_vec(),
                    ..member(b'x', "x")
                },
                file("a", ""),
            ],
            false,
        ),
        ("a long name", vec![file(&long, "x")], false),
        ("a deep path", vec![file(format!("{deep}x"), "x")], false),
        ("a file in place of the root", vec![file("./", "x")], false),
        ("a link in place of the root", vec![symlink(".", out)], false),
        ("a link to nothing", vec![symlink("a", "")], false),
        (
            "a file through a file",
            vec![file("a", "x"), file("a/b", "x")],
            false,
        ),
        // Taken, and kept inside.
        ("an absolute path", vec![file(victim_path, "x")], true),
        (
            "a file through a link out of it",
            vec![symlink("l", out), directory(out), file("l/victim", "x")],
            true,
        ),
        (
            "a file over a link",
            vec![symlink("l", victim_path), file("l", "x")],
            true,
        ),
        (
            "a directory over a link",
            vec![symlink("l", out), directory("l"), file("l/victim", "x")],
            true,
        ),
        (
            "a link over a directory over a link",
            vec![directory("d"), file("d/x", "x"), symlink("d", out)],
            true,
        ),
        (
            "an opaque link",
            vec![symlink("l", out), directory(out), file("l/.wh..wh..opq", "")],
            true,
        ),
        (
            "a device",
            vec![member(b'3', "null"), member(b'4', "disk"), member(b'6', "pipe")],
            true,
        ),
        (
            "a link to itself",
            vec![file("a", "x"), hard_link("a", "a"), symlink("s", "s")],
            true,
        ),
    ];
    for (what, members, taken) in rows {
        let result = unpacked(members);
        assert_eq!(result.is_ok(), taken, "{what}: {result:?}");
        assert_eq!(fs::read_to_string(&victim).unwrap(), "untouched", "{what}");
        assert_eq!(fs::metadata(&victim).unwrap().nlink(), 1, "{what}");
        assert_eq!(fs::read_dir(outside.path()).unwrap().count(), 1, "{what}");
        assert!(!is_opaque(outside.path()), "{what}");
        assert!(!Path::new("/var/tmp/escaped").exists(), "{what}");
        match result {
            Err(ImageError::Refused(_)) => {}
            Err(error) => panic!("{what}: {error:?}"),
            Ok(dir) => {
                let layer = dir.path().join("layer");
                let strange = walk(&layer).into_iter().any(|path| {
                    let kind = fs::symlink_metadata(&path).unwrap().file_type();
                    kind.is_block_device() || kind.is_char_device() || kind.is_fifo()
                });
                assert!(!strange, "{what}: no device is ever made");
            }
        }
    }
}

fn walk(dir: &Path) -> Vec<std::path::PathBuf> {
    let mut found = Vec::new();
    for entry in fs::read_dir(dir).unwrap() {
        let entry = entry.unwrap();
        if entry.file_type().unwrap().is_dir() {
            found.extend(walk(&entry.path()));
        }
        found.push(entry.path());
    }
    found
}

#[test]
fn a_link_leads_within_the_layer() {
    let dir = unpacked(vec![
        directory("usr/lib"),
        symlink("lib", "/usr/lib"),
        file("lib/x", "x"),
    ])
    .unwrap();
    assert_eq!(
        fs::read_to_string(dir.path().join("layer/usr/lib/x")).unwrap(),
        "x"
    );
}

#[test]
fn modes_let_every_tenant_read_and_nobody_rise() {
    let dir = unpacked(vec![
        file("secret", "x").mode(0o600),
        file("program", "x").mode(0o6700),
        file("shared", "x").mode(0o666),
        directory("root").mode(0o700),
        directory("tmp").mode(0o1777),
        directory("group").mode(0o2775),
    ])
    .unwrap();
    let mode = |name: &str| {
        fs::metadata(dir.path().join("layer").join(name))
            .unwrap()
            .permissions()
            .mode()
            & 0o7777
    };
    assert_eq!(mode("secret"), 0o644);
    assert_eq!(mode("program"), 0o755, "set-user-id and set-group-id are gone");
    assert_eq!(mode("shared"), 0o666);
    assert_eq!(mode("root"), 0o755);
    assert_eq!(mode("tmp"), 0o1777);
    assert_eq!(mode("group"), 0o775);
    let program = fs::metadata(dir.path().join("layer/program")).unwrap();
    assert_eq!(
        (program.mtime(), program.uid()),
        (1_000_000_000, rustix::process::geteuid().as_raw())
    );
}

#[test]
fn the_last_of_several_counts() {
    let dir = unpacked(vec![
        file("a", "first"),
        file("a", "second"),
        directory("d"),
        file("d/x", "x"),
        file("d", "now a file"),
        file("f", "was a file"),
        directory("f"),
        file("f/y", "y"),
    ])
    .unwrap();
    let read = |name: &str| fs::read_to_string(dir.path().join("layer").join(name)).unwrap();
    assert_eq!(
        (read("a"), read("d"), read("f/y")),
        ("second".into(), "now a file".into(), "y".into())
    );
}

#[test]
fn too_many_files_are_refused() {
    let members: Vec<Member> = (0..1001).map(|n| file(format!("f{n}"), "")).collect();
    assert!(matches!(unpacked(members), Err(ImageError::TooLarge { .. })));
}

/// One entry, and five hundred directories on the way to it.
#[test]
fn directories_nobody_named_count_too() {
    let deep = || vec![file(format!("{}f", "d/".repeat(500)), "x")];
    let dir = tempfile::tempdir_in("/var/tmp").unwrap();
    let refused = bounded(&dir, deep(), 10);
    assert!(matches!(refused, Err(ImageError::TooLarge { .. })), "{refused:?}");
    assert!(walk(dir.path()).len() <= 11, "and no more than that were made");
    let dir = tempfile::tempdir_in("/var/tmp").unwrap();
    let taken = bounded(&dir, deep(), 501).unwrap();
    assert_eq!((taken.entries, taken.bytes), (501, 501 * ENTRY_BYTES + 1));
    let dir = tempfile::tempdir_in("/var/tmp").unwrap();
    assert!(bounded(&dir, deep(), 500).is_err());
}

/// No path of it is longer than may be, and what it makes would be.
#[test]
fn no_directory_lies_too_deep_by_way_of_links() {
    let deeper = |by: usize| {
        let (first, second) = ("d/".repeat(400), format!("l/{}", "d/".repeat(by)));
        unpacked(vec![directory(&first), symlink("l", &first), directory(second)])
    };
    assert!(matches!(deeper(113), Err(ImageError::Refused(_))));
    deeper(112).unwrap();
}

#[test]
fn a_whiteout_hides_what_is_below_and_not_beside() {
    let dir = unpacked(vec![
        whiteout_of("gone"),
        file("kept", "x"),
        whiteout_of("kept"),
        whiteout_of("renewed"),
        file("renewed/x", "x"),
        directory("again"),
        whiteout_of("again"),
        directory("bare"),
        file("bare/.wh..wh..opq", ""),
        file(".wh..wh.plnk", ""),
    ])
    .unwrap();
    let layer = dir.path().join("layer");
    let gone = fs::symlink_metadata(layer.join("gone")).unwrap();
    assert!(gone.file_type().is_char_device() && gone.rdev() == 0);
    assert!(fs::metadata(layer.join("kept")).unwrap().is_file());
    for opaque in ["renewed", "again", "bare"] {
        assert!(is_opaque(&layer.join(opaque)), "{opaque}");
    }
    assert!(!is_opaque(&layer));
    assert!(!layer.join(".wh..wh.plnk").exists());
    let dir = unpacked(vec![file(".wh..wh..opq", ""), file("x", "")]).unwrap();
    assert!(is_opaque(&dir.path().join("layer")));
}

/// What a path is, in the naive model and in the merged directories.
#[derive(Debug, Clone, PartialEq, Eq)]
enum Thing {
    Directory,
    File(String),
    Link(String),
}

type Tree = BTreeMap<String, Thing>;

fn below(tree: &mut Tree, path: &str, itself: bool) {
    let prefix = format!("{path}/");
    tree.retain(|known, _| !(known.starts_with(&prefix) || itself && known == path));
}

fn parents(tree: &mut Tree, path: &str) {
    for (at, _) in path.match_indices('/') {
        tree.entry(path[..at].to_owned()).or_insert(Thing::Directory);
    }
}

/// Chance that can be had again by its seed.
struct Chance(u64);

impl Chance {
    fn below(&mut self, most: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0 % most
    }

    fn path(&mut self) -> String {
        let depth = 1 + self.below(3);
        let parts: Vec<&str> = (0..depth)
            .map(|_| ["a", "b", "c"][self.below(3) as usize])
            .collect();
        parts.join("/")
    }
}

/// A layer of chance, as members and as what it does to a tree. No path goes through a file or a link: what
/// tools write never does.
fn layer(chance: &mut Chance, tree: &mut Tree) -> Vec<Member> {
    let mut members = Vec::new();
    let mut own = Tree::new();
    let mut hidden = Vec::new();
    for _ in 0..chance.below(8) {
        let path = chance.path();
        let blocked = path.match_indices('/').any(|(at, _)| {
            own.get(&path[..at])
                .is_some_and(|thing| *thing != Thing::Directory)
        });
        if blocked {
            continue;
        }
        let (thing, made) = match chance.below(6) {
            0 => {
                members.push(whiteout_of(&path));
                parents(&mut own, &path);
                hidden.push((path, true));
                continue;
            }
            1 => {
                if own.get(&path).is_some_and(|thing| *thing != Thing::Directory) {
                    continue;
                }
                members.push(file(format!("{path}/.wh..wh..opq"), ""));
                own.insert(path.clone(), Thing::Directory);
                parents(&mut own, &path);
                hidden.push((path, false));
                continue;
            }
            2 => (Thing::Directory, directory(&path)),
            3 => (Thing::Link("target".into()), symlink(&path, "target")),
            _ => {
                let text = chance.below(1 << 40).to_string();
                (Thing::File(text.clone()), file(&path, text))
            }
        };
        if thing != Thing::Directory {
            below(&mut own, &path, true);
        }
        members.push(made);
        parents(&mut own, &path);
        own.insert(path, thing);
    }
    // First what is hidden of the layers below, then what this layer has: whatever the order in the archive.
    for (path, itself) in hidden {
        below(tree, &path, itself);
    }
    for (path, thing) in own {
        let replaced = tree
            .get(&path)
            .is_some_and(|old| *old != Thing::Directory || thing != Thing::Directory);
        if replaced {
            below(tree, &path, true);
        }
        tree.insert(path, thing);
    }
    members
}

fn thing(path: &Path) -> Option<Thing> {
    // A whiteout in a directory that no layer below has: overlayfs lists the name, and finds nothing.
    let kind = match fs::symlink_metadata(path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return None,
        facts => facts.unwrap().file_type(),
    };
    if kind.is_dir() {
        Some(Thing::Directory)
    } else if kind.is_symlink() {
        Some(Thing::Link(
            fs::read_link(path).unwrap().to_str().unwrap().to_owned(),
        ))
    } else if kind.is_char_device() {
        None
    } else {
        Some(Thing::File(fs::read_to_string(path).unwrap()))
    }
}

fn tree_of(root: &Path) -> Tree {
    let relative = |path: &Path| path.strip_prefix(root).unwrap().to_str().unwrap().to_owned();
    let all = walk(root).into_iter();
    all.filter_map(|path| Some((relative(&path), thing(&path)?)))
        .collect()
}

/// What overlayfs shows of the layers, top first; none where it cannot be mounted.
fn mounted(layers: &[std::path::PathBuf], at: &Path) -> Option<Tree> {
    let bottom = at.join("bottom");
    let view = at.join("view");
    fs::create_dir(&bottom).ok();
    fs::create_dir(&view).ok();
    let lower: Vec<&str> = layers
        .iter()
        .chain([&bottom])
        .map(|path| path.to_str().unwrap())
        .collect();
    let options = std::ffi::CString::new(format!("userxattr,lowerdir={}", lower.join(":"))).unwrap();
    let read_only = rustix::mount::MountFlags::RDONLY;
    rustix::mount::mount("overlay", &view, "overlay", read_only, Some(options.as_c_str())).ok()?;
    let tree = tree_of(&view);
    rustix::mount::unmount(&view, rustix::mount::UnmountFlags::DETACH).unwrap();
    Some(tree)
}

#[test]
fn random_stacks_are_what_a_naive_model_says() {
    let mut seen = 0;
    for seed in 1..=100 {
        let mut chance = Chance(u64::wrapping_mul(seed, 0x9e37_79b9_7f4a_7c15));
        let dir = tempfile::tempdir_in("/var/tmp").unwrap();
        let mut model = Tree::new();
        let mut layers = Vec::new();
        for number in 0..1 + chance.below(5) {
            let members = layer(&mut chance, &mut model);
            let into = dir.path().join(format!("layer{number}"));
            fs::create_dir(&into).unwrap();
            unpack(archive(members).as_slice(), &into, 1000).unwrap();
            layers.insert(0, into);
        }
        let Some(shown) = mounted(&layers, dir.path()) else {
            break;
        };
        assert_eq!(shown, model, "seed {seed}");
        seen += 1;
    }
    let root = rustix::process::geteuid().is_root();
    assert!(seen == 100 || !root, "as root the layers are stacked for real");
}
