//! Rules: what operators forbid at a scope beyond roles and policy, in Cedar, checked against a schema.
//! A rule can only forbid: permission comes from roles alone, so nobody writes themselves a right. What is asked of trades is in
//! `rule/trade.rs`.

pub mod trade;

use std::str::FromStr;
use std::sync::{Arc, OnceLock};

use cedar_policy::{
    ActionConstraint, Authorizer, Context, Decision, Effect, Entities, Entity, EntityId, EntityTypeName,
    EntityUid, Policy, PolicyId, PolicySet, Request, RestrictedExpression, Schema, ValidationMode, Validator,
};
use serde::{Deserialize, Serialize};

use super::role::Action;
use super::scope::ScopeId;
use super::tree::Tree;
use crate::id::UserId;
use crate::refusal::{Code, Refusal};
use crate::time::{HOUR_MS, Time};
use crate::workload::spec::JobSpec;

const MAX_RULE_BYTES: usize = 64 * 1024;
const MAX_RULES: usize = 200;

fn schema() -> &'static Schema {
    static SCHEMA: OnceLock<Schema> = OnceLock::new();
    SCHEMA.get_or_init(|| {
        Schema::from_cedarschema_str(include_str!("rules.cedarschema"))
            .expect("rules.cedarschema parses")
            .0
    })
}

/// The rules of one scope: the text its operators wrote, and its parsed form.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
#[serde(from = "String", into = "String")]
pub struct Rules {
    text: String,
    parsed: Option<Arc<Parsed>>,
}

/// Rules as they are asked.
#[derive(Debug)]
struct Parsed {
    /// Under a permit for everything: "deny" then means a rule spoke.
    policies: PolicySet,
    /// Whether any of them may speak of trades. Few do, and an order looks at many offers.
    of_trades: bool,
}

impl Parsed {
    fn new(mut policies: PolicySet) -> Parsed {
        let trade = uid("Action", Action::MarketTrade.as_str());
        let of_trades = policies
            .policies()
            .any(|policy| match policy.action_constraint() {
                ActionConstraint::Any => true,
                ActionConstraint::Eq(action) => action == trade,
                ActionConstraint::In(actions) => actions.contains(&trade),
            });
        let permit = Policy::parse(None, "permit (principal, action, resource);").expect("a constant");
        policies
            .add(permit.new_id(PolicyId::new("tenure-base")))
            .expect("rules that are parsed are numbered");
        Parsed { policies, of_trades }
    }
}

impl PartialEq for Rules {
    fn eq(&self, other: &Rules) -> bool {
        self.text == other.text
    }
}

impl From<String> for Rules {
    /// For text that was accepted before: an unreadable rule forbids everything rather than nothing.
    fn from(text: String) -> Rules {
        if text.is_empty() {
            return Rules::default();
        }
        let parsed = PolicySet::from_str(&text).unwrap_or_else(|_| {
            PolicySet::from_str("forbid (principal, action, resource);").expect("a constant")
        });
        Rules {
            parsed: Some(Arc::new(Parsed::new(parsed))),
            text,
        }
    }
}

impl From<Rules> for String {
    fn from(rules: Rules) -> String {
        rules.text
    }
}

impl Rules {
    /// Reads rules written by a person.
    pub fn parse(text: &str) -> Result<Rules, Refusal> {
        let bad = |sentence: String| Refusal::new(Code::InvalidRule, sentence).field("/rules");
        if text.len() > MAX_RULE_BYTES {
            return Err(bad(format!("rules are longer than {MAX_RULE_BYTES} bytes")));
        }
        let policies =
            PolicySet::from_str(text).map_err(|error| bad(format!("the rules do not parse: {error}")))?;
        if policies.policies().count() + policies.templates().count() > MAX_RULES {
            return Err(bad(format!("there are more than {MAX_RULES} rules")));
        }
        if policies
            .policies()
            .any(|policy| policy.effect() == Effect::Permit)
            || policies.templates().next().is_some()
        {
            return Err(bad("rules only forbid; permission is given by roles".into())
                .hint("write forbid (…), and grant a role where more is needed"));
        }
        let result = Validator::new(schema().clone()).validate(&policies, ValidationMode::Strict);
        if let Some(error) = result.validation_errors().next() {
            return Err(bad(format!("the rules do not match the schema: {error}")));
        }
        Ok(Rules {
            text: text.to_owned(),
            parsed: (!text.trim().is_empty()).then(|| Arc::new(Parsed::new(policies))),
        })
    }

    pub fn text(&self) -> &str {
        &self.text
    }

    pub fn is_empty(&self) -> bool {
        self.parsed.is_none()
    }

    /// Whether any of them may speak of trades.
    pub fn are_of_trades(&self) -> bool {
        self.parsed.as_ref().is_some_and(|parsed| parsed.of_trades)
    }
}

fn uid(kind: &str, id: impl std::fmt::Display) -> EntityUid {
    static KINDS: OnceLock<[(&str, EntityTypeName); 3]> = OnceLock::new();
    let kinds = KINDS.get_or_init(|| {
        ["User", "Scope", "Action"].map(|kind| (kind, EntityTypeName::from_str(kind).expect("a name")))
    });
    let known = kinds.iter().find(|(known, _)| *known == kind);
    let (_, kind) = known.expect("the schema has three kinds of entities");
    EntityUid::from_type_name_and_id(kind.clone(), EntityId::new(id.to_string()))
}

fn text(s: &str) -> RestrictedExpression {
    RestrictedExpression::new_string(s.to_owned())
}

fn long(n: u64) -> RestrictedExpression {
    RestrictedExpression::new_long(i64::try_from(n).unwrap_or(i64::MAX))
}

fn hour_utc(at: Time) -> RestrictedExpression {
    long((at.0.rem_euclid(24 * HOUR_MS as i64) / HOUR_MS as i64) as u64)
}

fn ask_context(spec: &JobSpec, at: Time) -> Context {
    let demand = &spec.demand;
    let mut pairs = vec![
        ("kind".to_owned(), text(spec.kind.as_str())),
        ("priority".to_owned(), text(spec.priority.as_str())),
        ("isolation".to_owned(), text(demand.isolation.as_str())),
        // Of all members: a limit on what a job has is not passed by asking for it in pieces.
        ("nodes".to_owned(), long(demand.nodes.into())),
        ("gpus".to_owned(), long(demand.gpus_total())),
        (
            "compute_permille".to_owned(),
            long(demand.compute_permille.into()),
        ),
        ("vram_mib".to_owned(), long(demand.vram_mib)),
        (
            "cpu_milli".to_owned(),
            long(u64::from(demand.nodes) * u64::from(demand.cpu_milli)),
        ),
        (
            "memory_mib".to_owned(),
            long(demand.memory_mib.saturating_mul(demand.nodes.into())),
        ),
        ("run_time_s".to_owned(), long(spec.run_time_s)),
        ("hour_utc".to_owned(), hour_utc(at)),
    ];
    if let Some(class) = &demand.class {
        pairs.push(("class".to_owned(), text(class)));
    }
    Context::from_pairs(pairs).expect("distinct attributes")
}

/// Asks every rule from the resource's scope up to the platform. Costs nothing where no rules are written.
pub fn check(
    tree: &Tree,
    user: UserId,
    action: Action,
    scope: ScopeId,
    ask: Option<&JobSpec>,
    at: Time,
) -> Result<(), Refusal> {
    if tree.chain(scope).all(|s| s.rules.is_empty()) {
        return Ok(());
    }
    let asked = Asked::new(tree, user, action, scope, ask, at);
    for holder in tree.chain(scope) {
        if let Some(which) = asked.forbidden_by(&holder.rules) {
            return Err(forbidden(tree, &which, holder.id, action));
        }
    }
    Ok(())
}

fn forbidden(tree: &Tree, which: &str, holder: ScopeId, action: Action) -> Refusal {
    let title = tree.title(holder);
    Refusal::new(
        Code::ForbiddenByRule,
        format!("{which} of {title} forbids {}", action.as_str()),
    )
    .hint(format!("an operator of {title} can change its rules"))
}

/// Whether rules, once set at `scope`, would keep `user` from ever changing them again.
pub(crate) fn locks_out(rules: &Rules, tree: &Tree, user: UserId, scope: ScopeId, at: Time) -> bool {
    let needed: &[Action] = if scope == ScopeId::Platform {
        &[Action::ScopeRead, Action::PolicySet]
    } else {
        &[Action::ScopeRead]
    };
    needed.iter().any(|&action| {
        Asked::new(tree, user, action, scope, None, at)
            .forbidden_by(rules)
            .is_some()
    })
}

/// One question to any number of rules.
struct Asked {
    request: Request,
    entities: Entities,
}

impl Asked {
    fn new(
        tree: &Tree,
        user: UserId,
        action: Action,
        scope: ScopeId,
        ask: Option<&JobSpec>,
        at: Time,
    ) -> Asked {
        let context = ask.map_or_else(Context::empty, |spec| ask_context(spec, at));
        let request = Request::new(
            uid("User", user),
            uid("Action", action.as_str()),
            uid("Scope", scope),
            context,
            None,
        );
        Asked {
            request: request.expect("no schema to violate"),
            entities: entities(tree, Some(user), &[scope]),
        }
    }

    /// The rule that says no, in words.
    fn forbidden_by(&self, rules: &Rules) -> Option<String> {
        let rules = rules.parsed.as_ref()?;
        // A rule that fails to evaluate counts as having spoken.
        let response = Authorizer::new().is_authorized(&self.request, &rules.policies, &self.entities);
        let erred = response.diagnostics().errors().next().is_some();
        if response.decision() == Decision::Allow && !erred {
            return None;
        }
        // What permits is no reason to deny.
        let forbids = match response.decision() {
            Decision::Deny => response.diagnostics().reason().next(),
            Decision::Allow => None,
        };
        let named = |id| format!("rule {}", rule_name(&rules.policies, id));
        Some(forbids.map_or_else(|| "a rule".into(), named))
    }
}

fn rule_name(rules: &PolicySet, id: &PolicyId) -> String {
    let annotated = rules.policy(id).and_then(|policy| policy.annotation("id"));
    annotated.map_or_else(|| id.to_string(), str::to_owned)
}

/// Who Tenure itself is to rules, where nobody gave the order: a standing order's offer, or one of before it was noted.
const HOUSE: &str = "tenure";

fn entities(tree: &Tree, user: Option<UserId>, scopes: &[ScopeId]) -> Entities {
    let mut seen = std::collections::BTreeSet::new();
    let mut all = Vec::new();
    let scopes = scopes.iter().copied().chain(user.map(ScopeId::User));
    for place in scopes.flat_map(|scope| tree.chain(scope)) {
        if !seen.insert(place.id) {
            continue;
        }
        let attributes = [
            ("level".to_owned(), text(place.id.level().as_str())),
            ("name".to_owned(), text(&place.name)),
        ];
        let parents = place
            .parent
            .map(|parent| uid("Scope", parent))
            .into_iter()
            .collect();
        all.push(Entity::new(uid("Scope", place.id), attributes.into(), parents).expect("plain attributes"));
    }
    let user_of = |id: EntityUid, kind: &str, name: &str, parent: Option<ScopeId>| {
        let attributes = [("kind".to_owned(), text(kind)), ("name".to_owned(), text(name))];
        let parents = parent.map(|parent| uid("Scope", parent)).into_iter().collect();
        Entity::new(id, attributes.into(), parents).expect("plain attributes")
    };
    match user {
        None => all.push(user_of(uid("User", HOUSE), "system", HOUSE, None)),
        Some(user) => {
            if let Some(person) = tree.get(ScopeId::User(user)) {
                let kind = person.user.as_ref().map_or("person", |facts| match facts.kind {
                    super::scope::UserKind::Person => "person",
                    super::scope::UserKind::Service => "service",
                });
                all.push(user_of(uid("User", user), kind, &person.name, person.parent));
            }
        }
    }
    Entities::from_entities(all, None).expect("the tree has no cycles")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::id::TenantId;
    use crate::tenancy::scope::{Scope, UserFacts, UserKind};

    const ADA: UserId = UserId(3);

    fn tree(rules: &str) -> Tree {
        let acme = ScopeId::Tenant(TenantId(2));
        let mut tenant = Scope::new(acme, Some(ScopeId::Platform), "acme", Time(0));
        tenant.rules = Rules::parse(rules).expect("rules");
        let mut ada = Scope::new(ScopeId::User(ADA), Some(acme), "ada", Time(0));
        ada.user = Some(UserFacts {
            kind: UserKind::Service,
            identity: None,
        });
        vec![
            Scope::new(ScopeId::Platform, None, "platform", Time(0)),
            tenant,
            ada,
        ]
        .into()
    }

    fn says(rules: &str, action: Action, spec: Option<&str>, at: Time) -> Option<String> {
        let spec: Option<JobSpec> = spec.map(|text| serde_json::from_str(text).expect("a spec"));
        let answer = check(&tree(rules), ADA, action, ScopeId::User(ADA), spec.as_ref(), at);
        answer.err().map(|refusal| refusal.sentence.into_owned())
    }

    #[test]
    fn a_rule_speaks_of_the_job_the_hour_and_the_person() {
        const GPU: &str = r#"{"name":"a","command":["x"],"demand":{"gpus":2,"vram_mib":100,"compute_permille":500,"class":"H100"}}"#;
        const CPU: &str = r#"{"name":"a","command":["x"]}"#;
        let rule = |when: &str| {
            format!(
                r#"@id("r") forbid (principal, action == Action::"job_submit", resource) when {{ {when} }};"#
            )
        };
        let (noon, night) = (Time(12 * HOUR_MS as i64), Time(-1));
        let rows = [
            (rule("context has gpus && context.gpus > 1"), GPU, noon, true),
            (rule("context has gpus && context.gpus > 1"), CPU, noon, false),
            (
                rule(r#"context has class && context.class == "H100""#),
                GPU,
                noon,
                true,
            ),
            (
                rule(r#"context has class && context.class == "H100""#),
                CPU,
                noon,
                false,
            ),
            (
                rule("context has hour_utc && context.hour_utc == 23"),
                CPU,
                night,
                true,
            ),
            (
                rule("context has hour_utc && context.hour_utc == 23"),
                CPU,
                noon,
                false,
            ),
            (rule(r#"principal.kind == "service""#), CPU, noon, true),
            (rule(r#"principal.name == "bob""#), CPU, noon, false),
            (
                rule(r#"resource.level == "user" && resource.name == "ada""#),
                CPU,
                noon,
                true,
            ),
        ];
        for (rules, spec, at, forbids) in rows {
            assert_eq!(
                says(&rules, Action::JobSubmit, Some(spec), at).is_some(),
                forbids,
                "{rules}"
            );
            assert_eq!(
                says(&rules, Action::JobStop, None, at),
                None,
                "another action: {rules}"
            );
        }
    }

    #[test]
    fn a_rule_reaches_down_the_tree_and_no_further() {
        let rules = r#"forbid (principal, action, resource in Scope::"ten_0000000000002");"#;
        assert_eq!(
            says(rules, Action::JobRead, None, Time(0)),
            Some("rule policy0 of acme forbids job_read".into())
        );
        let above = check(
            &tree(rules),
            ADA,
            Action::ScopeRead,
            ScopeId::Platform,
            None,
            Time(0),
        );
        assert_eq!(above, Ok(()), "the rules of a tenant do not bind the platform");
    }

    #[test]
    fn a_rule_that_fails_to_evaluate_forbids() {
        let rules = r#"forbid (principal, action == Action::"job_submit", resource) when { context has gpus && context.gpus * 9223372036854775807 > 5 };"#;
        let spec = r#"{"name":"a","command":["x"],"demand":{"gpus":2}}"#;
        assert_eq!(
            says(rules, Action::JobSubmit, Some(spec), Time(0)),
            Some("a rule of acme forbids job_submit".into())
        );
    }

    #[test]
    fn text_that_no_longer_parses_forbids_everything() {
        let mut tree = tree("");
        tree.get_mut(ScopeId::Tenant(TenantId(2))).rules = Rules::from("once this was a rule".to_owned());
        let answer = check(&tree, ADA, Action::ScopeRead, ScopeId::User(ADA), None, Time(0));
        assert_eq!(answer.map_err(|refusal| refusal.code), Err(Code::ForbiddenByRule));
    }

    #[test]
    fn rules_have_bounds() {
        let many = "forbid (principal, action, resource) when { false };".repeat(MAX_RULES + 1);
        let long = format!("// {}", "x".repeat(MAX_RULE_BYTES));
        for bad in [many.as_str(), long.as_str()] {
            assert_eq!(
                Rules::parse(bad).map_err(|refusal| refusal.code),
                Err(Code::InvalidRule)
            );
        }
        assert!(Rules::parse("").is_ok_and(|rules| rules.is_empty()));
    }
}
