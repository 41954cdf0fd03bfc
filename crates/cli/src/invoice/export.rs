//! Writing an invoice to a file, as it comes.

use std::io::Write as _;
use std::path::PathBuf;

use clap::{Args as ClapArgs, ValueEnum};
use futures_util::StreamExt as _;
use tenure_api::client::Client;
use tenure_api::v1::invoice::{FileForm, FileQuery};

use crate::context::Context;
use crate::refusal::Failure;

#[derive(Debug, ClapArgs)]
pub struct Args {
    invoice: String,
    /// How: json is whole and proves itself
    #[arg(long, value_enum, default_value_t = As::Json)]
    format: As,
    /// Where to; stdout unless said
    #[arg(long, value_name = "FILE")]
    to: Option<PathBuf>,
}

#[derive(Debug, Clone, Copy, ValueEnum)]
enum As {
    Json,
    Csv,
    Html,
    Focus,
}

impl Args {
    pub async fn run(self, context: &Context, client: &Client) -> Result<(), Failure> {
        let form = match self.format {
            As::Json => FileForm::Json,
            As::Csv => FileForm::Csv,
            As::Html => FileForm::Html,
            As::Focus => FileForm::Focus,
        };
        let query = FileQuery { form: Some(form) };
        let mut pieces = std::pin::pin!(client.invoice_file(&self.invoice, &query).await?);
        let Some(path) = &self.to else {
            let mut stdout = std::io::stdout().lock();
            while let Some(piece) = pieces.next().await {
                stdout.write_all(&piece?)?;
            }
            return Ok(stdout.flush()?);
        };
        let failed =
            |error: std::io::Error| Failure::Local(format!("{} cannot be written: {error}", path.display()));
        // Beside its place until it is whole, so that half a file is never taken for one.
        let mut part = path.clone().into_os_string();
        part.push(".part");
        let part = PathBuf::from(part);
        let mut file = std::fs::File::create(&part).map_err(failed)?;
        let mut written = async || -> Result<u64, Failure> {
            let mut bytes = 0;
            while let Some(piece) = pieces.next().await {
                let piece = piece?;
                file.write_all(&piece).map_err(failed)?;
                bytes += piece.len() as u64;
            }
            file.sync_all().map_err(failed)?;
            std::fs::rename(&part, path).map_err(failed)?;
            Ok(bytes)
        };
        match written().await {
            Ok(bytes) => {
                context
                    .out
                    .note(format!("{bytes} bytes are in {}", path.display()));
                Ok(())
            }
            Err(failure) => {
                // It is of no use; that it stays is no worse than that it was not written.
                let _ = std::fs::remove_file(&part);
                Err(failure)
            }
        }
    }
}
