//! The Azure LLM traces: when requests came, and how many tokens each had and got.

use std::path::Path;
use std::time::Duration;

use anyhow::{Context as _, ensure};

const FILES: [&str; 2] = [
    "AzureLLMInferenceTrace_code.csv",
    "AzureLLMInferenceTrace_conv.csv",
];

/// One request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Ask {
    /// Since the replay's begin.
    pub after: Duration,
    pub context: u32,
    pub generated: u32,
}

/// The requests of both traces within so many seconds, as they came together.
pub fn read(dir: &Path, from: u64, seconds: u64) -> anyhow::Result<Vec<Ask>> {
    let mut all = Vec::new();
    for file in FILES {
        let path = dir.join(file);
        let text = std::fs::read_to_string(&path).with_context(|| path.display().to_string())?;
        all.extend(rows(&text).with_context(|| path.display().to_string())?);
    }
    all.sort_by_key(|ask| ask.after);
    let begin = all.first().context("the traces are empty")?.after + Duration::from_secs(from);
    let end = begin + Duration::from_secs(seconds);
    let asks: Vec<Ask> = all
        .into_iter()
        .filter(|ask| (begin..end).contains(&ask.after))
        .map(|ask| Ask {
            after: ask.after - begin,
            ..ask
        })
        .collect();
    ensure!(!asks.is_empty(), "there are no requests in that time");
    Ok(asks)
}

/// Rows of one file, with the time of day.
fn rows(text: &str) -> anyhow::Result<Vec<Ask>> {
    let mut lines = text.lines();
    let head = lines.next().unwrap_or_default();
    ensure!(
        head == "TIMESTAMP,ContextTokens,GeneratedTokens",
        "another head: {head}"
    );
    let rows = lines
        .enumerate()
        .map(|(number, line)| row(line).with_context(|| format!("line {}", number + 2)));
    rows.collect()
}

fn row(line: &str) -> anyhow::Result<Ask> {
    let mut fields = line.split(',');
    let mut next = || fields.next().context("a field is missing");
    let (moment, context, generated) = (next()?, next()?, next()?);
    let (_, clock) = moment.split_once(' ').context("no time of day")?;
    let mut parts = clock.split(':');
    let mut part = || -> anyhow::Result<f64> { Ok(parts.next().context("not a time of day")?.parse()?) };
    let seconds = part()? * 3600.0 + part()? * 60.0 + part()?;
    Ok(Ask {
        after: Duration::try_from_secs_f64(seconds)?,
        context: context.parse()?,
        generated: generated.parse()?,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn requests_of_both_files_come_in_their_order() {
        let dir = tempfile::tempdir().unwrap();
        let head = "TIMESTAMP,ContextTokens,GeneratedTokens\n";
        let code = format!("{head}2023-11-16 18:17:03.9799600,4808,10\n2023-11-16 18:17:09.5,3,4\n");
        let conv = format!("{head}2023-11-16 18:17:02.9799600,374,44\n2023-11-16 18:20:00.0,1,1\n");
        for (file, text) in FILES.iter().zip([code, conv]) {
            std::fs::write(dir.path().join(file), text).unwrap();
        }
        let asks = read(dir.path(), 0, 10).unwrap();
        let contexts: Vec<u32> = asks.iter().map(|ask| ask.context).collect();
        assert_eq!(contexts, [374, 4808, 3]);
        assert_eq!(asks[0].after, Duration::ZERO);
        assert!(asks[1].after.abs_diff(Duration::from_secs(1)) < Duration::from_millis(1));
        assert_eq!(read(dir.path(), 5, 5).unwrap().len(), 1);
        assert!(read(dir.path(), 4000, 10).is_err());
        std::fs::write(dir.path().join(FILES[0]), "TIMESTAMP\n1\n").unwrap();
        assert!(read(dir.path(), 0, 10).is_err());
    }
}
