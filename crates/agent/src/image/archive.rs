//! Images from a file on the node: what `docker save` writes, and OCI layouts, as a tar archive.
//!
//! An operator's way of bringing images to machines that reach no registry. The file is read where it lies:
//! first which entries it has, then each by its place.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::{self, BufReader, Read, Seek, SeekFrom};
use std::path::Path;

use serde::Deserialize;
use tenure_domain::workload::image::{ImageDigest, ImageName};

use super::layer::{Checked, digest_of};
use super::manifest::{self, CONFIG_MAX, Described, Descriptor, Found, MANIFEST_MAX};
use super::store::{Aside, Store, failed};
use super::tar::{Kind, Tar};
use super::{Image, ImageError};

const ENTRIES_MAX: usize = 100_000;
const INDEXES_MAX: usize = 3;

/// An image brought in, and what it is called.
#[derive(Debug)]
pub struct Imported {
    pub image: Image,
    pub names: Vec<String>,
}

struct Archive {
    file: File,
    /// Where the content of each entry lies.
    entries: BTreeMap<Vec<u8>, (u64, u64)>,
}

#[derive(Deserialize)]
#[serde(rename_all = "PascalCase")]
struct Saved {
    config: String,
    #[serde(default)]
    repo_tags: Option<Vec<String>>,
    layers: Vec<String>,
}

fn refused(why: impl std::fmt::Display) -> ImageError {
    ImageError::Refused(format!("the archive {why}"))
}

impl Store {
    /// Brings in every image of an archive that this machine can run. `name` is what the one image is called.
    pub fn import(&self, path: &Path, name: Option<&ImageName>) -> Result<Vec<Imported>, ImageError> {
        let aside = Aside::new(&self.dir.join("tmp")).map_err(failed("make a directory for the archive"))?;
        let archive = self.open_archive(path, &aside)?;
        let images = if archive.has("manifest.json") {
            archive.saved()?
        } else if archive.has("index.json") {
            archive.layout()?
        } else {
            return Err(refused(
                "holds no image: it has neither manifest.json nor index.json",
            ));
        };
        if images.is_empty() {
            return Err(refused("holds no image for this machine"));
        }
        if name.is_some() && images.len() > 1 {
            return Err(refused(format!(
                "holds {} images, which cannot all have one name",
                images.len()
            )));
        }
        let mut imported = Vec::new();
        for found in images {
            let names = match name {
                Some(name) => vec![name.key()],
                None => found.names,
            };
            let image = self.bring(found.digest, &found.described, &names, |number| {
                found.layers[number].open(&archive)
            })?;
            imported.push(Imported { image, names });
        }
        Ok(imported)
    }

    fn open_archive(&self, path: &Path, aside: &Aside) -> Result<Archive, ImageError> {
        let failed = |error| ImageError::from_read(format!("read {}", path.display()), error);
        let mut file = File::open(path).map_err(failed)?;
        let mut start = [0; 2];
        let read = file.read(&mut start).map_err(failed)?;
        file.rewind().map_err(failed)?;
        if read == 2 && start == [0x1f, 0x8b] {
            // Only a plain archive can be read at any place.
            let mut plain = File::options()
                .read(true)
                .write(true)
                .create_new(true)
                .open(aside.path.join("archive"))
                .map_err(failed)?;
            let most = self.config.image_bytes_max;
            let unzipped = flate2::bufread::MultiGzDecoder::new(BufReader::new(file));
            let copied = io::copy(&mut unzipped.take(most + 1), &mut plain).map_err(failed)?;
            if copied > most {
                return Err(ImageError::TooLarge {
                    what: "the archive",
                    limit: most,
                    unit: "bytes",
                });
            }
            plain.rewind().map_err(failed)?;
            file = plain;
        }
        Archive::read(file)
    }
}

/// An image as an archive has it.
struct Contained {
    digest: ImageDigest,
    described: Described,
    names: Vec<String>,
    layers: Vec<Place>,
}

/// Where a layer's bytes lie, and what they must be where that is known before they are unpacked.
struct Place {
    at: (u64, u64),
    digest: Option<ImageDigest>,
}

impl Place {
    fn open(&self, archive: &Archive) -> Result<Box<dyn Read>, ImageError> {
        let (start, size) = self.at;
        let bytes = archive.at(start, size).map_err(failed("read the archive"))?;
        Ok(match self.digest {
            Some(digest) => Box::new(Checked::sized(bytes, digest, size)),
            None => Box::new(bytes),
        })
    }
}

impl Archive {
    fn read(file: File) -> Result<Archive, ImageError> {
        let failed = |error| ImageError::from_read("read the archive", error);
        let mut tar = Tar::new(BufReader::new(file.try_clone().map_err(failed)?));
        let mut entries = BTreeMap::new();
        let mut links = Vec::new();
        while let Some(entry) = tar.next().map_err(failed)? {
            let path = plain(&entry.path);
            let position = tar.position();
            match entry.kind {
                Kind::File => drop(entries.insert(path, (position, entry.size))),
                // Older archives have a layer that occurs twice as a link to the first.
                Kind::Symlink | Kind::HardLink => links.push((path, entry)),
                _ => {}
            }
            if entries.len() + links.len() > ENTRIES_MAX {
                return Err(refused(format!("has more than {ENTRIES_MAX} entries")));
            }
            tar.pass_over(|file, rest| file.seek_relative(i64::try_from(rest).map_err(io::Error::other)?))
                .map_err(failed)?;
        }
        for (path, link) in links {
            let from = match link.kind {
                Kind::Symlink => beside(&path, &link.link),
                _ => plain(&link.link),
            };
            if let Some(&place) = entries.get(&from) {
                entries.insert(path, place);
            }
        }
        Ok(Archive { file, entries })
    }

    fn has(&self, path: &str) -> bool {
        self.entries.contains_key(path.as_bytes())
    }

    fn place(&self, path: &str) -> Result<(u64, u64), ImageError> {
        let place = self.entries.get(plain(path.as_bytes()).as_slice());
        place.copied().ok_or_else(|| refused(format!("has no {path}")))
    }

    fn at(&self, start: u64, size: u64) -> io::Result<impl Read + use<>> {
        // A handle of its own place, since a cloned one would share it.
        let mut file = File::open(format!(
            "/proc/self/fd/{}",
            std::os::fd::AsRawFd::as_raw_fd(&self.file)
        ))?;
        file.seek(SeekFrom::Start(start))?;
        Ok(file.take(size))
    }

    fn small(&self, path: &str, most: u64) -> Result<Vec<u8>, ImageError> {
        let (start, size) = self.place(path)?;
        if size > most {
            return Err(refused(format!("has a {path} of more than {most} bytes")));
        }
        let mut bytes = Vec::new();
        self.at(start, size)
            .and_then(|mut at| at.read_to_end(&mut bytes))
            .map_err(failed("read the archive"))?;
        Ok(bytes)
    }

    /// A blob of a layout, checked.
    fn blob(&self, digest: ImageDigest, most: u64) -> Result<Vec<u8>, ImageError> {
        let bytes = self.small(&blob_path(digest), most)?;
        if digest_of(&bytes) != digest {
            let what = format!("blob {digest} of the archive");
            return Err(ImageError::Damaged { what });
        }
        Ok(bytes)
    }

    /// As `docker save` writes it.
    fn saved(&self) -> Result<Vec<Contained>, ImageError> {
        let saved: Vec<Saved> = serde_json::from_slice(&self.small("manifest.json", MANIFEST_MAX)?)
            .map_err(|error| refused(format!("has a malformed manifest.json: {error}")))?;
        let mut images = Vec::new();
        for one in saved {
            let config = self.small(&one.config, CONFIG_MAX)?;
            let described = Described::read(&config)?;
            if described.diff_ids.len() != one.layers.len() {
                return Err(refused("names other layers than its configuration"));
            }
            let names: Result<Vec<String>, ImageError> = one
                .repo_tags
                .unwrap_or_default()
                .iter()
                .map(|tag| Ok(tag.parse::<ImageName>()?.key()))
                .collect();
            let layers: Result<Vec<Place>, ImageError> = one
                .layers
                .iter()
                .map(|path| {
                    let at = self.place(path)?;
                    Ok(Place { at, digest: None })
                })
                .collect();
            images.push(Contained {
                digest: digest_of(&config),
                described,
                names: names?,
                layers: layers?,
            });
        }
        Ok(images)
    }

    /// As an OCI layout.
    fn layout(&self) -> Result<Vec<Contained>, ImageError> {
        let Found::Index(manifests) = Found::read(&self.small("index.json", MANIFEST_MAX)?)? else {
            return Err(refused("has an index.json that is none"));
        };
        let mut images = Vec::new();
        for descriptor in &manifests {
            if manifests.len() > 1 && descriptor.platform.is_some() {
                // One image for several platforms, without an index of its own.
                let chosen = manifest::for_this_machine(&manifests)?;
                if chosen.digest != descriptor.digest {
                    continue;
                }
            }
            images.push(self.contained(descriptor, 0)?);
        }
        Ok(images)
    }

    fn contained(&self, descriptor: &Descriptor, depth: usize) -> Result<Contained, ImageError> {
        let digest = descriptor.digest()?;
        let found = Found::read(&self.blob(digest, MANIFEST_MAX)?)?;
        let manifest = match found {
            Found::Manifest(manifest) => manifest,
            Found::Index(_) if depth >= INDEXES_MAX => {
                return Err(refused("has an index in an index without end"));
            }
            Found::Index(manifests) => {
                let mut inner = self.contained(manifest::for_this_machine(&manifests)?, depth + 1)?;
                inner.names.extend(names(descriptor));
                inner.names.push(digest.to_string());
                return Ok(inner);
            }
        };
        let described = Described::read(&self.blob(manifest.config.digest()?, CONFIG_MAX)?)?;
        if described.diff_ids.len() != manifest.layers.len() {
            return Err(refused("names other layers than its configuration"));
        }
        let layers: Result<Vec<Place>, ImageError> = manifest
            .layers
            .iter()
            .map(|layer| {
                let digest = layer.digest()?;
                Ok(Place {
                    at: self.place(&blob_path(digest))?,
                    digest: Some(digest),
                })
            })
            .collect();
        Ok(Contained {
            digest,
            described,
            names: names(descriptor),
            layers: layers?,
        })
    }
}

/// What a layout calls an image: in full, or by a tag alone, which names nothing by itself.
fn names(descriptor: &Descriptor) -> Vec<String> {
    ["io.containerd.image.name", "org.opencontainers.image.ref.name"]
        .iter()
        .filter_map(|key| descriptor.annotations.get(*key))
        .find(|name| name.contains(['/', ':']))
        .and_then(|name| Some(name.parse::<ImageName>().ok()?.key()))
        .into_iter()
        .collect()
}

fn blob_path(digest: ImageDigest) -> String {
    format!("blobs/sha256/{}", digest.hex())
}

/// A path without `.` and empty parts.
fn plain(path: &[u8]) -> Vec<u8> {
    let parts: Vec<&[u8]> = path
        .split(|&byte| byte == b'/')
        .filter(|part| !part.is_empty() && *part != b".")
        .collect();
    parts.join(&b'/')
}

/// Where a symbolic link in an archive leads, as a path of it.
fn beside(path: &[u8], target: &[u8]) -> Vec<u8> {
    let mut parts: Vec<&[u8]> = path.split(|&byte| byte == b'/').collect();
    parts.pop();
    for part in target.split(|&byte| byte == b'/') {
        match part {
            b"" | b"." => {}
            b".." => drop(parts.pop()),
            part => parts.push(part),
        }
    }
    parts.join(&b'/')
}
