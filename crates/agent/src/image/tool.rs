//! `tenure-agent image`: what an operator does with the images of a machine, beside a running agent or without one.

use std::path::{Path, PathBuf};

use anyhow::Context;
use clap::Subcommand;
use tenure_api::secret_text::SecretText;
use tenure_domain::workload::image::{ImageDigest, ImageName};

use super::ImageConfig;
use super::store::Store;

#[derive(Debug, Subcommand)]
pub enum ImageCommand {
    /// List the images that are here, those used last first
    List,
    /// Fetch an image from its registry
    Pull {
        image: ImageName,
        /// A file with user:password for the registry
        #[arg(long, value_name = "FILE")]
        credentials_file: Option<PathBuf>,
    },
    /// Bring in an archive: what `docker save` writes, or an OCI layout
    Import {
        file: PathBuf,
        /// What the image is called, where the archive does not say
        #[arg(long, value_name = "IMAGE")]
        name: Option<ImageName>,
    },
    /// Remove an image that no job uses, by its name or its digest
    Remove { image: String },
}

pub fn main(state_dir: &Path, config: ImageConfig, what: ImageCommand) -> anyhow::Result<()> {
    let store = Store::open(state_dir, config)?;
    match what {
        ImageCommand::List => {
            for image in store.list()? {
                let names = match image.names.as_slice() {
                    [] => "-".to_owned(),
                    names => names.join(" "),
                };
                println!(
                    "{}  {:>8} MiB  {names}",
                    image.digest,
                    image.bytes.div_ceil(1 << 20)
                );
            }
        }
        ImageCommand::Pull {
            image,
            credentials_file,
        } => {
            let credentials = match credentials_file {
                Some(file) => {
                    let text = std::fs::read_to_string(&file)
                        .with_context(|| format!("read the credentials from {}", file.display()))?;
                    Some(SecretText::new(text.trim_end_matches(['\r', '\n'])))
                }
                None => None,
            };
            let runtime = tokio::runtime::Builder::new_multi_thread()
                .worker_threads(1)
                .enable_all()
                .build()?;
            let held = runtime.block_on(store.pull(&image, credentials.as_ref()))?;
            println!("{}  {image}", held.image.digest);
        }
        ImageCommand::Import { file, name } => {
            for imported in store.import(&file, name.as_ref())? {
                println!("{}  {}", imported.image.digest, imported.names.join(" "));
            }
        }
        ImageCommand::Remove { image } => {
            // A digest, or a name however it is written.
            let key = match image.parse::<ImageDigest>() {
                Ok(digest) => digest.to_string(),
                Err(_) => image.parse::<ImageName>()?.key(),
            };
            store.remove(&key)?;
        }
    }
    Ok(())
}
