//! What is sought, out of the words of a request; and whose logs that may be in.

use tenure_api::v1::log::LogSearch;
use tenure_api::v1::time::Moment;
use tenure_domain::id::JobId;
use tenure_domain::tenancy::role::Action;
use tenure_domain::tenancy::scope::ScopeId;
use tenure_journal::Within;

use super::super::job::{find, list};
use crate::auth::Caller;
use crate::http::Shared;
use crate::http::fail::{Answer, Fail};
use crate::log::{Level, bits_from};

const MAX_TEXT: usize = 256;
const MAX_LABELS: usize = 16;

/// How what is found is answered.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Form {
    Page,
    Ndjson,
    Text,
}

/// What a line must be like, and where it is looked for.
#[derive(Debug, Clone)]
pub(super) struct Sought {
    pub within: Vec<Within>,
    /// Whose logs these are, where they are of one tenant.
    pub tenant: Option<String>,
    /// The bits of the levels wanted.
    pub levels: u32,
    pub labels: Vec<(String, String)>,
    pub since_ms: Option<i64>,
    pub until_ms: Option<i64>,
    /// In lower case; empty for any.
    pub text: String,
    pub newest_first: bool,
    pub form: Form,
    /// What a cursor is bound to: all of the above, as it was said.
    pub bound: String,
}

impl Sought {
    /// Refuses what cannot be meant, naming the parameter, and what the caller may not read.
    pub async fn read(shared: &Shared, caller: &Caller, search: &LogSearch) -> Answer<Sought> {
        let newest_first = match search.order.as_deref() {
            None | Some("newest") => true,
            Some("oldest") => false,
            Some(_) => return Err(Fail::invalid("order", "not one of newest, oldest")),
        };
        let form = match search.format.as_deref() {
            None | Some("json") => Form::Page,
            Some("ndjson") => Form::Ndjson,
            Some("text") => Form::Text,
            Some(_) => return Err(Fail::invalid("format", "not one of json, ndjson, text")),
        };
        if form != Form::Page {
            for (given, name) in [
                (search.limit.is_some(), "limit"),
                (search.cursor.is_some(), "cursor"),
            ] {
                if given {
                    return Err(Fail::invalid(
                        name,
                        "only pages of json have one; this takes out everything",
                    ));
                }
            }
        }
        let text = search.q.clone().unwrap_or_default();
        if text.chars().count() > MAX_TEXT {
            return Err(Fail::invalid(
                "q",
                format!("a text is at most {MAX_TEXT} characters"),
            ));
        }
        let levels = match search.level.as_deref() {
            None => bits_from(Level::Trace),
            Some(word) => bits_from(level(word)?),
        };
        let (since_ms, until_ms) = (
            moment(search.since.as_deref(), "since")?,
            moment(search.until.as_deref(), "until")?,
        );
        if let (Some(since), Some(until)) = (since_ms, until_ms)
            && until <= since
        {
            return Err(Fail::invalid("until", "it is not after `since`"));
        }
        let labels = labels(search.label.as_deref())?;
        let (within, tenant) = places(shared, caller, search).await?;
        let said = LogSearch {
            limit: None,
            cursor: None,
            ..search.clone()
        };
        Ok(Sought {
            within,
            tenant,
            levels,
            labels,
            since_ms,
            until_ms,
            text: text.to_lowercase(),
            newest_first,
            form,
            bound: serde_json::to_string(&said).map_err(|error| Fail::internal(&error))?,
        })
    }
}

fn level(word: &str) -> Answer<Level> {
    Level::ALL
        .into_iter()
        .find(|level| level.as_str() == word)
        .ok_or_else(|| Fail::invalid("level", "not one of trace, debug, info, warn, error, fatal"))
}

fn moment(text: Option<&str>, name: &'static str) -> Answer<Option<i64>> {
    let Some(text) = text else { return Ok(None) };
    match text.parse::<Moment>() {
        Ok(moment) => Ok(Some(moment.0.0)),
        Err(why) => Err(Fail::invalid(name, why)),
    }
}

fn labels(text: Option<&str>) -> Answer<Vec<(String, String)>> {
    let Some(text) = text else {
        return Ok(Vec::new());
    };
    let labels: Vec<(String, String)> = text
        .split(',')
        .filter_map(|label| label.split_once('='))
        .filter(|(key, _)| !key.is_empty())
        .map(|(key, value)| (key.to_owned(), value.to_owned()))
        .collect();
    if labels.len() != text.split(',').count() {
        return Err(Fail::invalid(
            "label",
            "a label is key=value; several are put between commas",
        ));
    }
    if labels.len() > MAX_LABELS {
        return Err(Fail::invalid("label", format!("at most {MAX_LABELS} labels")));
    }
    Ok(labels)
}

/// Where to look: one job, one scope, or all the caller was given sight of. And the tenant all of that is of, if one.
async fn places(
    shared: &Shared,
    caller: &Caller,
    search: &LogSearch,
) -> Answer<(Vec<Within>, Option<String>)> {
    let scopes = {
        let state = shared.app.controller.view().read();
        caller.may_look(&state)?;
        match search.scope.as_deref() {
            // As in a path: what cannot be an id is as absent as what nobody has.
            Some(scope) => {
                let scope: ScopeId = scope.parse().map_err(|_| Fail::not_found())?;
                caller.may(&state, Action::JobRead, scope)?;
                vec![scope]
            }
            None => list::readable(&state, caller),
        }
    };
    let (paths, tenant) = {
        let state = shared.app.controller.view().read();
        let tenants: std::collections::BTreeSet<_> =
            scopes.iter().map(|scope| state.tree.tenant_of(*scope)).collect();
        let one = tenants.first().copied().flatten().filter(|_| tenants.len() == 1);
        let paths: Vec<String> = scopes.iter().map(|scope| state.tree.path(*scope)).collect();
        (paths, one.map(|tenant| tenant.to_string()))
    };
    if let Some(job) = &search.job {
        if search.scope.is_some() {
            return Err(Fail::invalid("job", "either a job or a scope"));
        }
        let job: JobId = job.parse().map_err(|_| Fail::not_found())?;
        find(shared, caller, job, Action::JobRead).await?;
        return Ok((vec![Within::Job(job.to_string())], tenant));
    }
    let within = paths.into_iter().map(|path| match path.is_empty() {
        true => Within::All,
        false => Within::Scope(path),
    });
    Ok((within.collect(), tenant))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn labels_are_pairs_and_nothing_else() {
        let pair = |key: &str, value: &str| (key.to_owned(), value.to_owned());
        assert_eq!(
            labels(Some("a=b,c=d=e")).unwrap(),
            [pair("a", "b"), pair("c", "d=e")]
        );
        assert_eq!(labels(Some("a=")).unwrap(), [pair("a", "")]);
        for bad in ["a", "", "=b", "a=b,", ",a=b"] {
            assert_eq!(
                labels(Some(bad)).unwrap_err().problem.code,
                "invalid_field",
                "{bad}"
            );
        }
    }
}
