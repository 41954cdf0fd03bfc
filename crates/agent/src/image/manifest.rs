//! What registries and archives say of an image: an index of platforms, a manifest of one, its configuration.
//!
//! Read leniently, for many tools write them, and trusted in nothing: every digest is checked by whoever reads
//! what it names. Absent: manifests of schema 1, which carry no digest of a configuration.

use serde::{Deserialize, Serialize};
use tenure_domain::workload::image::ImageDigest;

use super::ImageError;

/// What is asked for, most wanted first.
pub const ACCEPTED: &str = "application/vnd.oci.image.index.v1+json, \
    application/vnd.docker.distribution.manifest.list.v2+json, \
    application/vnd.oci.image.manifest.v1+json, application/vnd.docker.distribution.manifest.v2+json";
pub const MANIFEST_MAX: u64 = 4 << 20;
pub const CONFIG_MAX: u64 = 8 << 20;
/// What overlayfs can stack by one mount, and more than any builder makes.
const LAYERS_MAX: usize = 128;

#[derive(Debug, Clone, Deserialize)]
pub struct Descriptor {
    pub digest: String,
    #[serde(default)]
    pub size: u64,
    #[serde(default)]
    pub platform: Option<Platform>,
    #[serde(default)]
    pub annotations: std::collections::BTreeMap<String, String>,
}

impl Descriptor {
    pub fn digest(&self) -> Result<ImageDigest, ImageError> {
        Ok(self.digest.parse()?)
    }
}

#[derive(Debug, Clone, Default, Deserialize)]
pub struct Platform {
    #[serde(default)]
    pub os: String,
    #[serde(default)]
    pub architecture: String,
}

impl Platform {
    fn fits(&self) -> bool {
        self.os == "linux" && self.architecture == architecture()
    }
}

/// What this machine is called in the world of images.
pub fn architecture() -> &'static str {
    match std::env::consts::ARCH {
        "x86_64" => "amd64",
        "aarch64" => "arm64",
        "x86" => "386",
        "powerpc64" => "ppc64le",
        other => other,
    }
}

#[derive(Debug, Clone, Deserialize)]
pub struct Manifest {
    pub config: Descriptor,
    pub layers: Vec<Descriptor>,
}

/// What a manifest turned out to be.
#[derive(Debug, Clone)]
pub enum Found {
    Index(Vec<Descriptor>),
    Manifest(Manifest),
}

impl Found {
    pub fn read(bytes: &[u8]) -> Result<Found, ImageError> {
        #[derive(Deserialize)]
        #[serde(rename_all = "camelCase")]
        struct Either {
            schema_version: u32,
            manifests: Option<Vec<Descriptor>>,
            config: Option<Descriptor>,
            layers: Option<Vec<Descriptor>>,
        }
        let refused = |why: String| ImageError::Refused(format!("the image's manifest {why}"));
        let either: Either =
            serde_json::from_slice(bytes).map_err(|error| refused(format!("is malformed: {error}")))?;
        if either.schema_version != 2 {
            return Err(refused(format!(
                "is of schema {}; only schema 2 is read, so it must be pushed anew by a newer tool",
                either.schema_version
            )));
        }
        match (either.manifests, either.config, either.layers) {
            (Some(manifests), None, None) => Ok(Found::Index(manifests)),
            (None, Some(config), Some(layers)) if layers.len() <= LAYERS_MAX => {
                Ok(Found::Manifest(Manifest { config, layers }))
            }
            (None, Some(_), Some(_)) => Err(refused(format!("has more than {LAYERS_MAX} layers"))),
            _ => Err(refused("is neither an index nor a manifest".to_owned())),
        }
    }
}

/// The one for this machine.
pub fn for_this_machine(manifests: &[Descriptor]) -> Result<&Descriptor, ImageError> {
    let fits = |manifest: &&Descriptor| manifest.platform.as_ref().is_some_and(Platform::fits);
    manifests.iter().find(fits).ok_or_else(|| {
        let others: Vec<String> = manifests
            .iter()
            .filter_map(|manifest| manifest.platform.as_ref())
            .filter(|platform| !platform.os.is_empty() && platform.os != "unknown")
            .take(10)
            .map(|platform| format!("{}/{}", platform.os, platform.architecture))
            .collect();
        ImageError::Refused(format!(
            "the image is not made for linux/{}, only for {}",
            architecture(),
            if others.is_empty() {
                "none".to_owned()
            } else {
                others.join(", ")
            }
        ))
    })
}

/// How an image wants to be run.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Config {
    /// `NAME=value` each.
    pub env: Vec<String>,
    pub entrypoint: Vec<String>,
    pub cmd: Vec<String>,
    pub workdir: Option<String>,
    /// Told, not followed: jobs run under their tenant's user id.
    pub user: Option<String>,
}

/// A configuration and the layers it is of, bottom first.
#[derive(Debug, Clone)]
pub struct Described {
    pub config: Config,
    pub diff_ids: Vec<ImageDigest>,
}

impl Described {
    pub fn read(bytes: &[u8]) -> Result<Described, ImageError> {
        #[derive(Deserialize)]
        struct Whole {
            #[serde(default)]
            os: String,
            #[serde(default)]
            architecture: String,
            #[serde(default)]
            config: Option<Inner>,
            rootfs: RootFs,
        }
        #[derive(Deserialize)]
        struct RootFs {
            diff_ids: Vec<String>,
        }
        #[derive(Deserialize, Default)]
        #[serde(rename_all = "PascalCase")]
        struct Inner {
            env: Option<Vec<String>>,
            entrypoint: Option<Vec<String>>,
            cmd: Option<Vec<String>>,
            working_dir: Option<String>,
            user: Option<String>,
        }
        let refused = |why: String| ImageError::Refused(format!("the image's configuration {why}"));
        let whole: Whole = serde_json::from_slice(bytes)
            .map_err(|error| refused(format!("is not that of a container image: {error}")))?;
        let platform = Platform {
            os: whole.os,
            architecture: whole.architecture,
        };
        let unsaid = platform.os.is_empty() && platform.architecture.is_empty();
        if !unsaid && !platform.fits() {
            return Err(refused(format!(
                "is for {}/{}, and this machine is linux/{}",
                platform.os,
                platform.architecture,
                architecture()
            )));
        }
        let diff_ids = &whole.rootfs.diff_ids;
        if diff_ids.is_empty() || diff_ids.len() > LAYERS_MAX {
            return Err(refused(format!("has not 1 to {LAYERS_MAX} layers")));
        }
        let inner = whole.config.unwrap_or_default();
        let said = |text: Option<String>| text.filter(|text| !text.is_empty());
        let workdir = said(inner.working_dir);
        if workdir
            .as_ref()
            .is_some_and(|dir| !dir.starts_with('/') || dir.contains('\0'))
        {
            return Err(refused(
                "has a working directory that is no absolute path".to_owned(),
            ));
        }
        Ok(Described {
            config: Config {
                env: inner.env.unwrap_or_default(),
                entrypoint: inner.entrypoint.unwrap_or_default(),
                cmd: inner.cmd.unwrap_or_default(),
                workdir,
                user: said(inner.user),
            },
            diff_ids: diff_ids
                .iter()
                .map(|digest| digest.parse())
                .collect::<Result<_, _>>()?,
        })
    }
}
