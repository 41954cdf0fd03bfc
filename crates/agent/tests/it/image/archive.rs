//! Images from files: as `docker save` writes them and as OCI layouts, plain and compressed, honest and not.

use std::path::Path;

use serde_json::json;
use tenure_agent::image::ImageError;

use super::built::{Built, architecture, gzip, index, sha256};
use super::write::{Member, archive, file, symlink};
use super::{Place, name, read};

fn built() -> Built {
    Built::new(vec![vec![file("below", "below")], vec![file("above", "above")]])
}

fn blob(bytes: &[u8]) -> Member {
    file(format!("blobs/sha256/{}", &sha256(bytes)[7..]), bytes)
}

fn saved(built: &Built) -> Vec<Member> {
    let manifest = json!([{
        "Config": "config.json", "RepoTags": ["a/b:v1"], "Layers": ["1/layer.tar", "2/layer.tar"],
    }]);
    vec![
        file("1/layer.tar", &built.layers[0].0),
        file("2/layer.tar", &built.layers[1].0),
        file("config.json", &built.config),
        file("manifest.json", manifest.to_string()),
    ]
}

fn layout(built: &Built) -> Vec<Member> {
    let index = json!({"schemaVersion": 2, "manifests": [{
        "digest": built.digest(), "size": built.manifest.len(),
        "annotations": {"org.opencontainers.image.ref.name": "example.com/a/b:v1"},
    }]});
    let mut members: Vec<Member> = built.blobs().into_iter().map(blob).collect();
    members.push(blob(&built.manifest));
    members.push(file("oci-layout", r#"{"imageLayoutVersion":"1.0.0"}"#));
    members.push(file("index.json", index.to_string()));
    members
}

fn write(place: &Place, bytes: &[u8]) -> std::path::PathBuf {
    let path = place.root.path().join("archive");
    std::fs::write(&path, bytes).unwrap();
    path
}

#[tokio::test(flavor = "multi_thread")]
async fn archives_are_brought_in() {
    let built = built();
    for (bytes, called) in [
        (archive(saved(&built)), "docker.io/a/b:v1"),
        (gzip(&archive(saved(&built))), "docker.io/a/b:v1"),
        (archive(layout(&built)), "example.com/a/b:v1"),
    ] {
        let place = Place::new();
        let imported = place.store.import(&write(&place, &bytes), None).unwrap();
        assert_eq!(imported.len(), 1);
        assert_eq!(imported[0].names, [called]);
        assert_eq!(imported[0].image.layers.len(), 2);
        // Without a registry, by its name and by its digest.
        let held = place.store.ensure(&name(called), None).await.unwrap();
        assert_eq!(read(&held.image.layers, "above").as_deref(), Some("above"));
        assert_eq!(read(&held.image.layers, "below").as_deref(), Some("below"));
        let pinned = format!("x@{}", held.image.digest);
        place.store.ensure(&name(&pinned), None).await.unwrap();
        assert_eq!(place.count("tmp"), 0);
    }
}

#[test]
fn older_archives_link_what_occurs_twice() {
    let twice = Built::new(vec![vec![file("x", "x")], vec![file("x", "x")]]);
    let mut members = saved(&twice);
    members[1] = symlink("2/layer.tar", "../1/layer.tar");
    let place = Place::new();
    let imported = place
        .store
        .import(&write(&place, &archive(members)), None)
        .unwrap();
    assert_eq!(imported[0].image.layers.len(), 1, "and overlayfs takes each once");
}

#[test]
fn a_name_may_be_given() {
    let place = Place::new();
    let path = write(&place, &archive(layout(&built())));
    let imported = place.store.import(&path, Some(&name("mine:v2"))).unwrap();
    assert_eq!(imported[0].names, ["docker.io/library/mine:v2"]);
}

#[test]
fn of_several_machines_this_one_is_chosen() {
    let mine = built();
    let other = Built::for_machine("vax", vec![vec![file("x", "vax")]]);
    let both = index(&[("vax", &other), (architecture(), &mine)]);
    let outer = json!({"schemaVersion": 2, "manifests": [{"digest": sha256(&both), "size": both.len()}]});
    let mut members: Vec<Member> = mine.blobs().into_iter().chain(other.blobs()).map(blob).collect();
    members.extend([&mine.manifest, &other.manifest, &both].map(|bytes| blob(bytes)));
    for index in [outer.to_string().into_bytes(), both] {
        let place = Place::new();
        let mut members = members.clone();
        members.push(file("index.json", index));
        let imported = place
            .store
            .import(&write(&place, &archive(members)), None)
            .unwrap();
        assert_eq!(imported.len(), 1);
        assert_eq!(imported[0].image.digest.to_string(), mine.digest());
    }
}

#[test]
fn archives_that_hold_no_image_are_refused() {
    let built = built();
    let replaced = |members: Vec<Member>, path: &str, content: &[u8]| {
        let content = content.to_vec();
        let change = |mut member: Member| {
            if member.path == path.as_bytes() {
                member.content = content.clone();
            }
            member
        };
        archive(members.into_iter().map(change))
    };
    let layer = format!("blobs/sha256/{}", &sha256(&built.layers[0].1)[7..]);
    let config = format!("blobs/sha256/{}", &sha256(&built.config)[7..]);
    let other = archive([file("below", "evil")]);
    for (what, bytes) in [
        ("nothing", Vec::new()),
        ("no tar", b"hello ".repeat(500)),
        ("an empty archive", archive([])),
        ("no index", archive([file("x", "x")])),
        (
            "a manifest that is no JSON",
            replaced(saved(&built), "manifest.json", b"x"),
        ),
        ("another layer", replaced(saved(&built), "1/layer.tar", &other)),
        (
            "a layer that is missing",
            archive(saved(&built).into_iter().skip(1)),
        ),
        (
            "a layer of a layout that is another",
            replaced(layout(&built), &layer, &gzip(&other)),
        ),
        (
            "a configuration that is another",
            replaced(layout(&built), &config, b"{}"),
        ),
        ("cut short", archive(saved(&built))[..3000].to_vec()),
        ("cut inside gzip", gzip(&archive(saved(&built)))[..100].to_vec()),
    ] {
        let place = Place::new();
        let error = place.store.import(&write(&place, &bytes), None).expect_err(what);
        assert!(
            matches!(error, ImageError::Refused(_) | ImageError::Damaged { .. }),
            "{what}: {error:?}"
        );
        assert!(place.store.known().is_empty(), "{what}");
        assert_eq!(place.count("tmp"), 0, "{what}");
    }
    let error = Place::new()
        .store
        .import(Path::new("/nowhere"), None)
        .unwrap_err();
    assert!(error.to_string().contains("/nowhere"), "{error}");
}

#[test]
fn an_operator_looks_after_images() {
    let place = Place::new();
    let path = write(&place, &archive(saved(&built())));
    let tool = |arguments: &[&str]| {
        let output = std::process::Command::new(crate::bench::AGENT)
            .args(["image", "--state-dir"])
            .arg(place.root.path())
            .args(arguments)
            .output()
            .unwrap();
        (
            output.status.code(),
            String::from_utf8(output.stdout).unwrap() + &String::from_utf8_lossy(&output.stderr),
        )
    };
    let (code, said) = tool(&["import", path.to_str().unwrap(), "--name", "mine:v2"]);
    assert_eq!(code, Some(0), "{said}");
    let (_, listed) = tool(&["list"]);
    assert!(
        listed.contains("docker.io/library/mine:v2") && listed.starts_with("sha256:"),
        "{listed}"
    );
    let (code, said) = tool(&["remove", "other"]);
    assert_eq!(code, Some(2), "{said}");
    assert!(said.contains("there is no image"), "{said}");
    let (code, said) = tool(&["remove", listed.split(' ').next().unwrap()]);
    assert_eq!(code, Some(0), "{said}");
    assert_eq!(tool(&["list"]).1, "");
    assert_eq!(place.count("layers"), 0);
    let (code, said) = tool(&["pull", "Not:An:Image"]);
    assert_eq!(code, Some(2), "{said}");
    let (code, said) = tool(&["import", "/nowhere"]);
    assert_eq!(code, Some(2), "{said}");
}
