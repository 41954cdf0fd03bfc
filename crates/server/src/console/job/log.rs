//! The end of a job's log, as a page holds it; scripts read on from there.

use super::super::html::log;
use super::super::session::Session;
use crate::routes::job::log::OFFSET_HEADER;

const LOG_BYTES: usize = 64 * 1024;

pub(super) struct Log {
    pub stream: &'static str,
    pub text: String,
    /// The first byte after what is shown.
    pub offset: u64,
    pub cut: bool,
    pub follows: bool,
    pub said: Option<String>,
}

impl Log {
    pub async fn read(session: &Session, job: &str, stream: &'static str, ended: bool) -> Log {
        let mut shown = Log {
            stream,
            text: String::new(),
            offset: 0,
            cut: false,
            follows: !ended,
            said: None,
        };
        let asked = format!("{job}/logs?stream={stream}&tail={LOG_BYTES}");
        match session.desk.with_header(&asked, OFFSET_HEADER).await {
            Ok((bytes, begins)) => {
                let begins = begins.and_then(|text| text.parse().ok()).unwrap_or(0);
                shown.take(&bytes, begins);
            }
            Err(problem) => shown.said = Some(problem.detail.clone()),
        }
        shown
    }

    /// Not from the middle of a line on.
    fn take(&mut self, bytes: &[u8], begins: u64) {
        let line = bytes.iter().position(|byte| *byte == b'\n');
        let from = line.filter(|_| begins > 0).map_or(0, |at| at + 1);
        self.text = log(&String::from_utf8_lossy(&bytes[from..]));
        self.offset = begins + bytes.len() as u64;
        self.cut = begins > 0;
    }
}
