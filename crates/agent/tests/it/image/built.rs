//! Images made by the tests themselves.

use std::io::Write;

use ring::digest::{SHA256, digest};
use serde_json::{Value, json};

use super::write::{Member, archive};

pub const MANIFEST: &str = "application/vnd.oci.image.manifest.v1+json";
pub const INDEX: &str = "application/vnd.oci.image.index.v1+json";

pub fn sha256(bytes: &[u8]) -> String {
    let hex: String = digest(&SHA256, bytes)
        .as_ref()
        .iter()
        .map(|byte| format!("{byte:02x}"))
        .collect();
    format!("sha256:{hex}")
}

pub fn gzip(bytes: &[u8]) -> Vec<u8> {
    let mut encoder = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
    encoder.write_all(bytes).unwrap();
    encoder.finish().unwrap()
}

pub fn architecture() -> &'static str {
    match std::env::consts::ARCH {
        "x86_64" => "amd64",
        "aarch64" => "arm64",
        other => other,
    }
}

/// An image: what its manifest says, and every blob it names.
#[derive(Clone)]
pub struct Built {
    pub manifest: Vec<u8>,
    pub config: Vec<u8>,
    /// Plain and as sent.
    pub layers: Vec<(Vec<u8>, Vec<u8>)>,
}

impl Built {
    /// Of layers, bottom first.
    pub fn new(layers: Vec<Vec<Member>>) -> Built {
        Built::for_machine(architecture(), layers)
    }

    pub fn for_machine(architecture: &str, layers: Vec<Vec<Member>>) -> Built {
        let layers: Vec<(Vec<u8>, Vec<u8>)> = layers
            .into_iter()
            .map(|members| {
                let plain = archive(members);
                let sent = gzip(&plain);
                (plain, sent)
            })
            .collect();
        let diff_ids: Vec<String> = layers.iter().map(|(plain, _)| sha256(plain)).collect();
        let config = json!({
            "architecture": architecture,
            "os": "linux",
            "config": {
                "Env": ["PATH=/bin", "FROM=image"],
                "Entrypoint": ["/bin/busybox"],
                "Cmd": ["echo", "hello"],
                "WorkingDir": "/work",
                "User": "nobody",
            },
            "rootfs": {"type": "layers", "diff_ids": diff_ids},
        });
        let config = serde_json::to_vec(&config).unwrap();
        let mut built = Built {
            manifest: Vec::new(),
            config,
            layers,
        };
        built.manifest = serde_json::to_vec(&built.manifest_json()).unwrap();
        built
    }

    fn manifest_json(&self) -> Value {
        let layers: Vec<Value> = self
            .layers
            .iter()
            .map(|(_, sent)| {
                json!({
                    "mediaType": "application/vnd.oci.image.layer.v1.tar+gzip",
                    "digest": sha256(sent),
                    "size": sent.len(),
                })
            })
            .collect();
        json!({
            "schemaVersion": 2,
            "mediaType": MANIFEST,
            "config": {
                "mediaType": "application/vnd.oci.image.config.v1+json",
                "digest": sha256(&self.config),
                "size": self.config.len(),
            },
            "layers": layers,
        })
    }

    pub fn digest(&self) -> String {
        sha256(&self.manifest)
    }

    pub fn blobs(&self) -> Vec<&[u8]> {
        let layers = self.layers.iter().map(|(_, sent)| sent.as_slice());
        layers.chain([self.config.as_slice()]).collect()
    }
}

/// One image for several machines.
pub fn index(images: &[(&str, &Built)]) -> Vec<u8> {
    let manifests: Vec<Value> = images
        .iter()
        .map(|(architecture, built)| {
            json!({
                "mediaType": MANIFEST,
                "digest": built.digest(),
                "size": built.manifest.len(),
                "platform": {"os": "linux", "architecture": architecture},
            })
        })
        .collect();
    serde_json::to_vec(&json!({"schemaVersion": 2, "mediaType": INDEX, "manifests": manifests})).unwrap()
}
