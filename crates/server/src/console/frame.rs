//! The frame around every page: where one is, who one is, and where one can go. It links only to pages that have
//! something for their reader.

use tenure_api::v1::access::{GrantView, WhoAmI};
use tenure_domain::tenancy::role::{Action, Role};
use tenure_domain::tenancy::scope::ScopeId;

use super::desk::Said;
use super::html::Html;
use super::session::{Session, Theme};
use super::show;

pub(super) struct Frame {
    pub platform: String,
    /// Whose pages these are; empty for a stranger.
    pub who: String,
    pub role: String,
    pub nav: Vec<Link>,
    pub csrf: String,
    pub theme: &'static str,
    /// Where the reader is, to come back to.
    pub path: String,
}

/// One page of the navigation.
pub(super) struct Link {
    pub href: &'static str,
    pub label: &'static str,
    pub icon: Html,
    pub here: bool,
}

/// Pages by their keys, in the order they are shown.
const PAGES: &[(&str, &str, &str)] = &[
    ("home", "/console", "Overview"),
    ("fleet", "/console/fleet", "Fleet"),
    ("jobs", "/console/jobs", "Jobs"),
    ("logs", "/console/logs", "Logs"),
    ("calendar", "/console/calendar", "Calendar"),
    ("exchange", "/console/exchange", "Exchange"),
    ("money", "/console/money", "Money"),
    ("health", "/console/health", "Health"),
    ("audit", "/console/audit", "Audit"),
    ("admin", "/console/admin", "Admin"),
];

impl Frame {
    /// The frame of a page, for who is signed in.
    pub async fn of(session: &Session, here: &str) -> Said<Frame> {
        let me: WhoAmI = session.desk.get("/v1/whoami").await?;
        Ok(Frame {
            role: role(&me.grants),
            platform: me.platform,
            who: me.user.path,
            nav: links(session, here),
            csrf: session.csrf.clone(),
            theme: session.theme.as_str(),
            path: session.path.clone(),
        })
    }

    /// For who is not signed in.
    pub fn stranger(theme: Theme) -> Frame {
        Frame {
            platform: "Tenure".into(),
            who: String::new(),
            role: String::new(),
            nav: Vec::new(),
            csrf: String::new(),
            theme: theme.as_str(),
            path: "/console".into(),
        }
    }

    pub fn is_signed_in(&self) -> bool {
        !self.who.is_empty()
    }
}

fn links(session: &Session, here: &str) -> Vec<Link> {
    let shown = PAGES.iter().filter(|(key, _, _)| has_something(session, key));
    let link = |&(key, href, label): &(&str, &'static str, &'static str)| Link {
        href,
        label,
        icon: show::icon(key),
        here: key == here,
    };
    shown.map(link).collect()
}

fn has_something(session: &Session, key: &str) -> bool {
    match key {
        "health" => session.may(Action::NodeRead, ScopeId::Platform),
        _ => true,
    }
}

/// The widest role somebody holds, and where.
fn role(grants: &[GrantView]) -> String {
    let depth = |grant: &&GrantView| match grant.scope {
        ScopeId::Platform => 0,
        ScopeId::Tenant(_) => 1,
        ScopeId::Subscriber(_) => 2,
        ScopeId::User(_) => 3,
    };
    let rank = |role: Role| Role::ALL.iter().position(|of| *of == role);
    let widest = grants.iter().min_by_key(|grant| (depth(grant), rank(grant.role)));
    widest.map_or_else(
        || "user".into(),
        |grant| match grant.scope {
            ScopeId::Platform => format!("platform {}", grant.role.as_str()),
            _ => format!("{} of {}", grant.role.as_str(), grant.scope_path),
        },
    )
}
