//! Container images: fetched from Debian's registry and from a fake that misbehaves, imported, kept, removed,
//! and waited for by jobs.

mod archive;
mod built;
mod fake;
mod keep;
mod pull;
mod registry;
mod run;
mod wait;

// Shared with the tests beside the code, which use more of it.
#[allow(dead_code)]
#[path = "../../src/image/tar/write.rs"]
mod write;

use std::sync::Arc;
use std::time::Duration;

use tenure_agent::image::ImageConfig;
use tenure_agent::image::store::Store;
use tenure_domain::workload::image::ImageName;

/// A store on a directory of its own.
struct Place {
    root: tempfile::TempDir,
    store: Arc<Store>,
}

fn quick() -> ImageConfig {
    ImageConfig {
        private_registries: vec!["127.0.0.1".into()],
        stall: Duration::from_millis(500),
        pause: Duration::from_millis(10),
        ..ImageConfig::default()
    }
}

impl Place {
    fn new() -> Place {
        Place::with(quick())
    }

    fn with(config: ImageConfig) -> Place {
        // Not on a file system in memory, which may know no extended attributes.
        let root = tempfile::tempdir_in("/var/tmp").unwrap();
        let store = Store::open(root.path(), config).unwrap();
        Place { root, store }
    }

    fn count(&self, below: &str) -> usize {
        std::fs::read_dir(self.root.path().join("images").join(below))
            .unwrap()
            .count()
    }
}

fn name(text: &str) -> ImageName {
    text.parse().unwrap()
}

/// What the layers show together, where no name is in two of them.
fn read(layers: &[std::path::PathBuf], path: &str) -> Option<String> {
    layers
        .iter()
        .find_map(|layer| std::fs::read_to_string(layer.join(path)).ok())
}
