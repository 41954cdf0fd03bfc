//! The API's words in a page: hints that name a command lead to the page that does the same, and the field at fault is
//! called as its form calls it.

use super::html::{Html, escape, inert};

/// Commands that a page does as well, the page, and what it is called.
const PAGES: &[(&str, &str, &str)] = &[
    ("tenure node list", "/console/fleet", "Fleet"),
    ("tenure gpu list", "/console/fleet", "Fleet"),
    ("tenure book list", "/console/calendar", "Calendar"),
    ("tenure tenant list", "/console/admin", "Admin"),
    ("tenure quota show", "/console/admin", "Admin"),
    ("tenure market", "/console/exchange", "Exchange"),
    ("tenure jobs", "/console/jobs", "Jobs"),
];
/// Commands about one job, whose page does them.
const OF_JOBS: &[&str] = &["tasks", "resume", "pause", "why", "show", "logs"];

/// A hint, with what stands in backticks as a link or as a command.
pub(super) fn hint(text: impl AsRef<str>) -> Html {
    let parts = text.as_ref().split('`').enumerate();
    let made = parts.map(|(at, part)| match at % 2 {
        0 => escape(part),
        _ => command(part),
    });
    Html::made(made.collect())
}

fn command(text: &str) -> String {
    let page = PAGES.iter().find(|(command, _, _)| text.starts_with(command));
    if let Some((_, href, name)) = page {
        return format!("<a href=\"{href}\">{name}</a>");
    }
    if let ["tenure", verb, job] = text.split(' ').collect::<Vec<_>>()[..]
        && OF_JOBS.contains(&verb)
        && job.parse::<tenure_domain::id::JobId>().is_ok()
    {
        return format!("<a href=\"/console/jobs/{job}\">{verb} it on its page</a>");
    }
    format!("<code>{}</code>", escape(text))
}

/// What forms call the fields of a job, a booking and an offer.
const FIELDS: &[(&str, &str)] = &[
    ("demand", ""),
    ("gpus", "GPUs"),
    ("vram_mib", "GPU memory"),
    ("compute_permille", "Share of each"),
    ("cpu_milli", "CPU cores"),
    ("memory_mib", "Memory"),
    ("nodes", "Members"),
    ("run_time_s", "Minutes at most"),
    ("gpu_milli", "GPUs"),
    ("price_micros", "Price"),
    ("floor_micros", "Price"),
    ("reserve_milli", "Kept back"),
    ("duration_s", "Hours"),
    ("min_lease_s", "Hours at least"),
    ("max_lease_s", "Hours at most"),
    ("notice_s", "Notice"),
    ("sku", "SKU"),
    ("spec", ""),
    ("workload", ""),
];

/// The field at fault, by its pointer or its name; nothing where the whole form is.
pub(super) fn field(pointer: impl AsRef<str>) -> Html {
    let last = pointer.as_ref().rsplit('/').next().unwrap_or_default();
    let known = FIELDS.iter().find(|(field, _)| *field == last);
    let name = known.map_or_else(
        || capital(&inert(last).replace('_', " ")),
        |(_, name)| (*name).to_owned(),
    );
    Html::made(match name.is_empty() {
        true => String::new(),
        false => format!("<strong>{}:</strong> ", escape(&name)),
    })
}

fn capital(text: &str) -> String {
    let mut letters = text.chars();
    letters
        .next()
        .map_or_else(String::new, |first| first.to_uppercase().chain(letters).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn commands_lead_to_their_pages() {
        assert_eq!(
            hint("ask for less; `tenure node list` shows what there is").to_string(),
            "ask for less; <a href=\"/console/fleet\">Fleet</a> shows what there is"
        );
        assert_eq!(
            hint("`tenure resume job_6gz54gssw0000` has it go on").to_string(),
            "<a href=\"/console/jobs/job_6gz54gssw0000\">resume it on its page</a> has it go on"
        );
        assert_eq!(
            hint("<b> `tenure secret <i>`").to_string(),
            "&lt;b&gt; <code>tenure secret &lt;i&gt;</code>"
        );
        assert!(hint("`tenure show \"><script>`").to_string().contains("<code>"));
    }

    #[test]
    fn fields_are_called_as_in_their_form() {
        assert_eq!(field("/spec/demand").to_string(), "");
        assert_eq!(
            field("/spec/demand/vram_mib").to_string(),
            "<strong>GPU memory:</strong> "
        );
        assert_eq!(field("name").to_string(), "<strong>Name:</strong> ");
        assert_eq!(field("/spec/<b>").to_string(), "<strong>&lt;b&gt;:</strong> ");
    }
}
