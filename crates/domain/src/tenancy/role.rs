//! Roles and what each allows. The table is written in Cedar (`roles.cedar`) and evaluated once; it only
//! ever permits, so the union over a user's roles is exact.

use std::collections::BTreeSet;
use std::str::FromStr;
use std::sync::OnceLock;

use cedar_policy::{
    Authorizer, Context, Decision, Entities, EntityUid, PolicySet, Request, RestrictedExpression,
};
use serde::{Deserialize, Serialize};

macro_rules! words {
    ($(#[$doc:meta])* $name:ident { $($(#[$vdoc:meta])* $variant:ident $text:tt,)* }) => {
        $(#[$doc])*
        #[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
        #[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
        pub enum $name { $($(#[$vdoc])* #[serde(rename = $text)] $variant,)* }
        impl $name {
            pub const ALL: &'static [$name] = &[$($name::$variant,)*];
            pub fn as_str(self) -> &'static str { match self { $($name::$variant => $text,)* } }
        }
        impl FromStr for $name {
            type Err = String;
            fn from_str(text: &str) -> Result<Self, String> {
                $name::ALL.iter().copied().find(|w| w.as_str() == text).ok_or_else(|| format!("unknown {} '{text}'", stringify!($name).to_lowercase()))
            }
        }
    };
}

words! {
    /// A bundle of permissions held at a scope and everything below it.
    Role {
        /// Everything, including granting every role.
        Owner "owner",
        /// Runs the place: scopes, users, limits, jobs; no ownership, no money.
        Operator "operator",
        /// Submits jobs and sees the jobs of its scope.
        Member "member",
        /// Sees costs, sets budgets, issues invoices and gives credit.
        Billing "billing",
        /// Reads everything, changes nothing.
        Auditor "auditor",
    }
}

words! {
    /// Something a person does to a scope or to what belongs to it.
    Action {
        ScopeRead "scope_read",
        ScopeManage "scope_manage",
        UserManage "user_manage",
        RoleGrant "role_grant",
        KeyManage "key_manage",
        QuotaSet "quota_set",
        BudgetSet "budget_set",
        PolicySet "policy_set",
        JobSubmit "job_submit",
        JobRead "job_read",
        JobStop "job_stop",
        JobAttach "job_attach",
        JobExec "job_exec",
        JobPort "job_port",
        ServiceUse "service_use",
        CostRead "cost_read",
        EventRead "event_read",
        SecretWrite "secret_write",
        VolumeManage "volume_manage",
        BookingManage "booking_manage",
        MarketTrade "market_trade",
        NodeRead "node_read",
        NodeManage "node_manage",
        PriceSet "price_set",
        InvoiceManage "invoice_manage",
        JournalRead "journal_read",
        /// Figures of what is used and by whom, for scrapers.
        MetricRead "metric_read",
        /// Has what happens told to receivers outside.
        WebhookManage "webhook_manage",
    }
}

const ROLES: &str = include_str!("roles.cedar");

/// The actions each role permits, from `roles.cedar`.
pub fn permitted(role: Role) -> &'static BTreeSet<Action> {
    static TABLE: OnceLock<Vec<BTreeSet<Action>>> = OnceLock::new();
    let table = TABLE.get_or_init(|| {
        let policies = PolicySet::from_str(ROLES).expect("roles.cedar parses");
        let permits = |role: Role, action: Action| {
            let role = RestrictedExpression::new_string(role.as_str().to_owned());
            let context = Context::from_pairs([("role".to_owned(), role)]).expect("one attribute");
            let uid = |kind: &str, id: &str| {
                EntityUid::from_str(&format!("{kind}::\"{id}\"")).expect("a plain name")
            };
            let request = Request::new(
                uid("User", "any"),
                uid("Action", action.as_str()),
                uid("Scope", "any"),
                context,
                None,
            );
            let request = request.expect("no schema to violate");
            Authorizer::new()
                .is_authorized(&request, &policies, &Entities::empty())
                .decision()
                == Decision::Allow
        };
        Role::ALL
            .iter()
            .map(|&role| {
                Action::ALL
                    .iter()
                    .copied()
                    .filter(|&action| permits(role, action))
                    .collect()
            })
            .collect()
    });
    &table[role as usize]
}

/// What every user may do to itself without any role.
pub fn permitted_to_self(action: Action) -> bool {
    matches!(
        action,
        Action::ScopeRead
            | Action::KeyManage
            | Action::JobRead
            | Action::JobStop
            | Action::JobAttach
            | Action::JobExec
            | Action::JobPort
            | Action::ServiceUse
            | Action::CostRead
            | Action::SecretWrite
            | Action::MetricRead
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_table_reads_as_documented() {
        let shown: String = Role::ALL
            .iter()
            .map(|&role| {
                let actions: Vec<&str> = permitted(role).iter().map(|a| a.as_str()).collect();
                format!("{}: {}\n", role.as_str(), actions.join(" "))
            })
            .collect();
        insta::assert_snapshot!(shown);
    }

    #[test]
    fn only_owners_hold_everything() {
        assert_eq!(permitted(Role::Owner).len(), Action::ALL.len());
        let reads = [
            Action::ScopeRead,
            Action::JobRead,
            Action::CostRead,
            Action::EventRead,
            Action::NodeRead,
            Action::JournalRead,
            Action::MetricRead,
        ];
        assert!(
            permitted(Role::Auditor)
                .iter()
                .all(|action| reads.contains(action))
        );
    }
}
