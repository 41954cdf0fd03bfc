//! Who may do what: every operation of the document × every role × where the target stands to the caller. An
//! operation without a row fails; what is foreign, deleted or made up must look the same to the last byte.

use std::collections::{BTreeMap, BTreeSet};

use reqwest::Method;
use serde_json::{Value, json};

use tenure_domain::Wish;
use tenure_domain::schedule::fleet::{GpuFacts, Inventory};
use tenure_domain::workload::spec::Isolation;
use tenure_server::controller::now;

use crate::world::{Reply, World, generous, spec};

const ROLES: [&str; 7] = [
    "owner",
    "operator",
    "member",
    "billing",
    "auditor",
    "none",
    "anonymous",
];

/// What each role allows, written down once more, by hand.
fn rights(role: &str) -> BTreeSet<&'static str> {
    let all = [
        "scope_read",
        "scope_manage",
        "user_manage",
        "role_grant",
        "key_manage",
        "quota_set",
        "budget_set",
        "policy_set",
        "job_submit",
        "job_read",
        "job_stop",
        "job_attach",
        "job_exec",
        "job_port",
        "service_use",
        "cost_read",
        "event_read",
        "secret_write",
        "volume_manage",
        "booking_manage",
        "market_trade",
        "node_read",
        "node_manage",
        "price_set",
        "invoice_manage",
        "journal_read",
        "metric_read",
        "webhook_manage",
    ];
    let list: &[&str] = match role {
        "owner" => &all,
        "operator" => &[
            "scope_read",
            "scope_manage",
            "user_manage",
            "role_grant",
            "key_manage",
            "quota_set",
            "policy_set",
            "job_submit",
            "job_read",
            "job_stop",
            "job_attach",
            "job_exec",
            "job_port",
            "service_use",
            "cost_read",
            "secret_write",
            "volume_manage",
            "booking_manage",
            "market_trade",
            "node_read",
            "node_manage",
            "metric_read",
            "webhook_manage",
        ],
        "member" => &[
            "scope_read",
            "job_submit",
            "job_read",
            "service_use",
            "secret_write",
        ],
        "billing" => &["scope_read", "cost_read", "budget_set", "invoice_manage"],
        "auditor" => &[
            "scope_read",
            "job_read",
            "cost_read",
            "event_read",
            "node_read",
            "journal_read",
            "metric_read",
        ],
        _ => &[],
    };
    all.into_iter().filter(|right| list.contains(right)).collect()
}

/// What everybody may do to themselves.
const TO_SELF: [&str; 11] = [
    "scope_read",
    "key_manage",
    "job_read",
    "job_stop",
    "job_attach",
    "job_exec",
    "job_port",
    "service_use",
    "cost_read",
    "secret_write",
    "metric_read",
];

/// What a row's target is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Noun {
    Scope,
    User,
    Job,
    Key,
    /// Of the scope that stands so to the caller.
    Volume,
    /// Of the scope that stands so to the caller.
    Booking,
    /// Of the scope that stands so to the caller.
    Webhook,
}

/// What an operation needs.
#[derive(Debug, Clone, Copy)]
enum Need {
    /// No key at all.
    Nothing,
    /// Any valid key.
    AnyKey,
    /// This right at the platform.
    Platform(&'static str),
    /// This right at the target.
    At(Noun, &'static str),
    /// Sight of the target, and this right at the scope above it.
    Above(Noun, &'static str),
}

fn table() -> BTreeMap<&'static str, Need> {
    use Need::{Above, AnyKey, At, Nothing, Platform};
    use Noun::{Booking, Job, Key, Scope, User, Volume, Webhook};
    [
        ("healthz", Nothing),
        ("readyz", Nothing),
        ("openapi_document", Nothing),
        ("error_page", Nothing),
        ("login_view", Nothing),
        ("login", Nothing),
        ("whoami", AnyKey),
        ("prices", AnyKey),
        ("skus", AnyKey),
        ("set_prices", Platform("price_set")),
        ("define_sku", Platform("price_set")),
        ("remove_sku", Platform("price_set")),
        ("create_tenant", Platform("scope_manage")),
        ("create_subscriber", At(Scope, "scope_manage")),
        ("create_user", At(Scope, "user_manage")),
        ("scope_by_path", At(Scope, "scope_read")),
        ("scope", At(Scope, "scope_read")),
        ("children", At(Scope, "scope_read")),
        ("suspend", Above(Scope, "scope_manage")),
        ("resume", Above(Scope, "scope_manage")),
        ("move_scope", Above(Scope, "scope_manage")),
        ("close", Above(Scope, "scope_manage")),
        ("set_identity", Above(User, "user_manage")),
        ("keys", At(User, "key_manage")),
        ("create_key", At(User, "key_manage")),
        ("revoke_key", At(Key, "key_manage")),
        ("roles", At(Scope, "scope_read")),
        ("grant_role", At(Scope, "role_grant")),
        ("revoke_role", At(Scope, "role_grant")),
        ("quota", At(Scope, "scope_read")),
        ("set_quota", Above(Scope, "quota_set")),
        ("share", At(Scope, "scope_read")),
        ("set_share", Above(Scope, "quota_set")),
        ("search_logs", At(Scope, "job_read")),
        ("log_keeping", At(Scope, "scope_read")),
        ("set_log_keeping", At(Scope, "policy_set")),
        ("budgets", At(Scope, "cost_read")),
        ("set_budgets", Above(Scope, "budget_set")),
        ("policy", At(Scope, "scope_read")),
        ("set_policy", Above(Scope, "policy_set")),
        ("rules", At(Scope, "scope_read")),
        ("set_rules", Above(Scope, "policy_set")),
        ("secrets", At(Scope, "scope_read")),
        ("set_secret", At(Scope, "secret_write")),
        ("erase_secret", At(Scope, "secret_write")),
        ("volumes", At(Scope, "scope_read")),
        ("create_volume", At(Scope, "volume_manage")),
        ("volume", At(Volume, "scope_read")),
        ("grow_volume", At(Volume, "volume_manage")),
        ("remove_volume", At(Volume, "volume_manage")),
        ("webhooks", At(Scope, "webhook_manage")),
        ("create_webhook", At(Scope, "webhook_manage")),
        ("webhook", At(Webhook, "webhook_manage")),
        ("pause_webhook", At(Webhook, "webhook_manage")),
        ("resume_webhook", At(Webhook, "webhook_manage")),
        ("rotate_webhook", At(Webhook, "webhook_manage")),
        ("ping_webhook", At(Webhook, "webhook_manage")),
        ("remove_webhook", At(Webhook, "webhook_manage")),
        ("bookings", At(Scope, "job_read")),
        ("calendar", At(Scope, "job_read")),
        ("calendar_feed", At(Scope, "job_read")),
        ("make_booking", At(Scope, "booking_manage")),
        ("quote_booking", At(Scope, "booking_manage")),
        ("booking", At(Booking, "job_read")),
        ("edit_booking", At(Booking, "booking_manage")),
        ("extend_booking", At(Booking, "booking_manage")),
        ("transfer_booking", At(Booking, "booking_manage")),
        ("cancel_booking", At(Booking, "booking_manage")),
        ("booking_terms", AnyKey),
        ("set_booking_terms", Platform("price_set")),
        ("offers", AnyKey),
        ("market_book", AnyKey),
        ("price_index", AnyKey),
        ("market_terms", AnyKey),
        ("set_market_terms", Platform("price_set")),
        ("make_offer", At(Scope, "market_trade")),
        // Only a tenant sells, and the cast trades above: what is there is reached from the platform.
        ("withdraw_offer", Platform("market_trade")),
        ("auto_offers", At(Scope, "cost_read")),
        ("set_auto_offer", At(Scope, "market_trade")),
        ("remove_auto_offer", At(Scope, "market_trade")),
        ("buy", At(Scope, "market_trade")),
        ("place_bid", At(Scope, "market_trade")),
        ("bids", At(Scope, "cost_read")),
        ("cancel_bid", Platform("market_trade")),
        ("leases", At(Scope, "cost_read")),
        ("recall_lease", Platform("market_trade")),
        ("return_lease", Platform("market_trade")),
        ("submit_job", At(User, "job_submit")),
        ("plan_job", At(User, "job_submit")),
        ("fit_workload", At(User, "job_submit")),
        ("jobs", At(Scope, "job_read")),
        ("job", At(Job, "job_read")),
        ("stop_job", At(Job, "job_stop")),
        ("pause_job", At(Job, "job_stop")),
        ("resume_job", At(Job, "job_submit")),
        ("resize_job", At(Job, "job_submit")),
        ("why", At(Job, "job_read")),
        ("job_audit", At(Job, "job_read")),
        ("job_tasks", At(Job, "job_read")),
        ("logs", At(Job, "job_read")),
        ("attach_job", At(Job, "job_attach")),
        ("exec_job", At(Job, "job_exec")),
        ("port_job", At(Job, "job_port")),
        ("scale_job", At(Job, "job_submit")),
        ("services", AnyKey),
        ("call_service", At(Job, "service_use")),
        ("costs", At(Scope, "cost_read")),
        ("scope_prices", At(Scope, "scope_read")),
        ("price_books", At(Scope, "cost_read")),
        ("set_price_book", At(Scope, "price_set")),
        ("bill_rows", At(Scope, "cost_read")),
        ("analysis", At(Scope, "cost_read")),
        ("forecast", At(Scope, "cost_read")),
        ("draft_invoice", At(Scope, "cost_read")),
        ("invoices", At(Scope, "cost_read")),
        // It is the seller's to bill, and the cast stands below it: of tenants that is the platform. `invoice.rs` and
        // `adjustment.rs` have who may bill below a tenant.
        ("adjust", Platform("invoice_manage")),
        ("issue_invoice", Platform("invoice_manage")),
        ("pay_invoice", Platform("invoice_manage")),
        ("invoice", Platform("cost_read")),
        ("invoice_rows", Platform("cost_read")),
        ("invoice_file", Platform("cost_read")),
        ("events", At(Scope, "scope_read")),
        ("nodes", Platform("node_read")),
        ("node", Platform("node_read")),
        // Everybody sees the devices of jobs they see, and here nobody has such a job; `gpu.rs` tests who has.
        ("gpus", AnyKey),
        ("gpu", Platform("node_read")),
        // Everybody sees figures of themselves; `metric.rs` tests who sees more.
        ("metrics", AnyKey),
        ("dcgm_metrics", AnyKey),
        ("create_join_token", Platform("node_manage")),
        ("cordon", Platform("node_manage")),
        ("uncordon", Platform("node_manage")),
        ("label_node", Platform("node_manage")),
        ("release_gpu", Platform("node_manage")),
        ("revoke_node", Platform("node_manage")),
        ("remove_node", Platform("node_manage")),
        ("journal_head", Platform("journal_read")),
        ("journal_proof", Platform("journal_read")),
    ]
    .into()
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Relation {
    Own,
    Child,
    Sibling,
    Parent,
    Foreign,
    Deleted,
    Guessed,
}

use Relation::{Child, Deleted, Foreign, Guessed, Own, Parent, Sibling};

const RELATIONS: [Relation; 7] = [Own, Child, Sibling, Parent, Foreign, Deleted, Guessed];

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Expect {
    /// Done, or refused for another reason than who asks.
    Allowed,
    Forbidden,
    Absent,
    Unauthenticated,
}

impl Expect {
    fn of(reply: &Reply) -> Expect {
        match reply.status.as_u16() {
            401 => Expect::Unauthenticated,
            403 => Expect::Forbidden,
            404 => Expect::Absent,
            _ => Expect::Allowed,
        }
    }
}

/// What the table says of an actor that holds `role` at the middle subscriber and lives there.
fn expected(operation: &str, need: Need, role: &str, relation: Relation) -> Expect {
    let verdict = |has: bool, visible: bool| match (has, visible) {
        (true, _) => Expect::Allowed,
        (false, true) => Expect::Forbidden,
        (false, false) => Expect::Absent,
    };
    if matches!(need, Need::Nothing) {
        return Expect::Allowed;
    }
    if role == "anonymous" {
        return Expect::Unauthenticated;
    }
    let holds = |right: &str| rights(role).contains(right);
    let is_self = |noun: Noun| {
        let of_a_scope = matches!(noun, Noun::Scope | Noun::Volume | Noun::Booking | Noun::Webhook);
        !of_a_scope && relation == Own
    };
    let reached = matches!(relation, Own | Child) && role != "none";
    match need {
        Need::Nothing | Need::AnyKey => Expect::Allowed,
        // As `Own` the role is held at the platform; otherwise in a tenant, where the platform is not seen.
        Need::Platform(right) => verdict(relation == Own && holds(right), relation == Own && role != "none"),
        // One's jobs may name what belongs to the scopes above oneself.
        Need::At(Noun::Volume, "scope_read") | Need::At(Noun::Booking, "job_read")
            if matches!(relation, Own | Parent) =>
        {
            Expect::Allowed
        }
        Need::At(noun, right) => {
            // Whoever may submit a user's jobs keeps the user's volumes.
            let kept = matches!(right, "volume_manage" | "booking_manage");
            let right = if kept && relation == Child {
                "job_submit"
            } else {
                right
            };
            let has = (reached && holds(right)) || (is_self(noun) && TO_SELF.contains(&right));
            match verdict(has, reached || is_self(noun)) {
                // Nobody holds a role at a user, so there is none to take away.
                Expect::Allowed if operation == "revoke_role" && relation == Child => Expect::Absent,
                verdict => verdict,
            }
        }
        Need::Above(noun, right) => {
            let visible = reached || is_self(noun);
            // Users are managed as users, wherever they stand.
            let right = if right == "scope_manage" && relation == Child {
                "user_manage"
            } else {
                right
            };
            let above_is_reached = visible && role != "none" && !(noun == Noun::Scope && relation == Own);
            verdict(above_is_reached && holds(right), above_is_reached)
        }
    }
}

/// The places and people of the test.
struct Cast {
    scopes: BTreeMap<Relation, String>,
    titles: BTreeMap<Relation, String>,
    parents: BTreeMap<Relation, String>,
    users: BTreeMap<Relation, String>,
    ended_job: String,
    revoked_key: String,
    /// By role: the user and its token, at the subscriber and at the platform.
    actors: BTreeMap<&'static str, (String, String)>,
    staff: BTreeMap<&'static str, (String, String)>,
}

/// A GPU to book on a node that has no room for a job, and one that has and is out of service, so that jobs go on waiting.
async fn bookable(world: &World) {
    let large = world.node("large", 64_000).await;
    let cordon = Wish::CordonNode { node: large };
    world.controller.system(cordon).await.expect("cordoned");
    let node = world.node("bookable", 0).await;
    let gpu = GpuFacts {
        uuid: "bookable".into(),
        vendor: "maker".into(),
        model: "model".into(),
        class: "H100".into(),
        vram_mib: 8192,
        isolation: [(Isolation::Guarded, "by the guard".to_owned())].into(),
        hardware: None,
    };
    let inventory = Inventory {
        cpu_milli: 1,
        memory_mib: 1,
        gpus: vec![gpu],
        ..Inventory::default()
    };
    let report = Wish::ReportInventory { node, inventory };
    world.controller.system(report).await.expect("reported");
}

async fn cast(world: &World) -> Cast {
    let (a, b) = (world.tenant("a").await, world.tenant("b").await);
    let (own, sibling, gone) = (
        world.subscriber(&a, "own").await,
        world.subscriber(&a, "sibling").await,
        world.subscriber(&a, "gone").await,
    );
    let b_gone = world.subscriber(&b, "gone").await;
    let user = async |parent: &str, name: &str| world.user(parent, name, None).await.0;
    let (child, beside, above, foreign) = (
        user(&own, "child").await,
        user(&sibling, "beside").await,
        user(&a, "above").await,
        user(&b, "foreign").await,
    );
    let (deleted, b_deleted) = (user(&own, "deleted").await, user(&b_gone, "deleted").await);
    bookable(world).await;
    world.job(&child, "stays").await;
    let ended_job = world.job(&b_deleted, "ended").await;
    assert_eq!(
        world
            .post(&world.owner, &format!("/v1/jobs/{ended_job}/stop"), json!({}))
            .await
            .status,
        200
    );
    let made = world
        .post(
            &world.owner,
            &format!("/v1/users/{child}/keys"),
            json!({ "label": "revoked" }),
        )
        .await;
    let revoked_key = made.id();
    for path in [
        format!("/v1/keys/{revoked_key}"),
        format!("/v1/scopes/{deleted}"),
        format!("/v1/scopes/{gone}"),
        format!("/v1/scopes/{b_gone}"),
    ] {
        assert_eq!(world.delete(&world.owner, &path).await.status, 204, "{path}");
    }
    let (mut actors, mut staff) = (BTreeMap::new(), BTreeMap::new());
    for role in ROLES.into_iter().filter(|role| *role != "anonymous") {
        let granted = Some(role).filter(|role| *role != "none");
        actors.insert(role, world.user(&own, role, granted).await);
        staff.insert(role, world.user("platform", role, granted).await);
    }
    let places = |list: [&str; 7]| {
        RELATIONS
            .into_iter()
            .zip(list.map(str::to_owned))
            .collect::<BTreeMap<_, _>>()
    };
    Cast {
        scopes: places([&own, &child, &sibling, &a, &b, &gone, "sub_0000000000000"]),
        titles: places([
            "a/own",
            "a/own/child",
            "a/sibling",
            "a",
            "b",
            "a/gone",
            "a/nowhere",
        ]),
        parents: places([&a, &own, &a, "platform", "platform", &a, &a]),
        users: places([
            "",
            &child,
            &beside,
            &above,
            &foreign,
            &deleted,
            "usr_0000000000000",
        ]),
        ended_job,
        revoked_key,
        actors,
        staff,
    }
}

struct Case {
    method: Method,
    path: String,
    body: Option<Value>,
}

fn offer(scope: &str) -> Value {
    json!({
        "scope": scope, "class": "T4", "gpu_milli": 1, "price_micros": 1_000_000,
        "min_lease_s": 60, "max_lease_s": 3600, "notice_s": 0,
    })
}

fn bid(scope: &str) -> Value {
    json!({
        "scope": scope, "class": "H100", "gpu_milli": 1, "duration_s": 60, "price_micros": 1,
        "expires": now().plus_ms(3_600_000).rfc3339(),
    })
}

struct Stage<'a> {
    world: &'a World,
    cast: &'a Cast,
    count: std::cell::Cell<u32>,
    /// When the last booking begins.
    begins: std::cell::RefCell<String>,
    /// Webhooks that were made.
    hooked: std::cell::RefCell<Vec<String>>,
}

impl Stage<'_> {
    fn fresh(&self) -> String {
        self.count.set(self.count.get() + 1);
        format!("x{}", self.count.get())
    }

    /// To nobody.
    fn webhook(&self, scope: &str) -> Value {
        json!({ "scope": scope, "name": self.fresh(), "url": "http://127.0.0.1:1/", "kinds": ["PricesSet"] })
    }

    /// A booking that meets no other.
    fn booking(&self, scope: &str) -> Value {
        let name = self.fresh();
        let start = now().plus_ms((24 + u64::from(self.count.get())) * 3_600_000);
        let wall = |minutes: u64| start.plus_ms(minutes * 60_000).rfc3339()[..16].to_owned();
        self.begins.replace(wall(0));
        json!({
            "scope": scope, "name": name, "class": "H100", "size": { "unit": "gpus", "count": 1 },
            "zone": "UTC", "start": wall(0), "end": wall(30),
        })
    }

    /// A span of the foreign tenant's that was not billed.
    fn span(&self) -> Value {
        self.count.set(self.count.get() + 1);
        let at = |minutes: u32| {
            let ms = u64::from(minutes) * 60_000;
            tenure_domain::Time(1_700_000_000_000).plus_ms(ms).rfc3339()
        };
        let n = self.count.get();
        json!({ "scope": self.cast.scopes[&Foreign], "since": at(n), "until": at(n + 1) })
    }

    /// An invoice of that tenant's.
    async fn invoice(&self) -> String {
        let issued = self.world.post(&self.world.owner, "/v1/invoices", self.span());
        issued.await.id()
    }

    /// An offer of the tenant above the caller.
    async fn offer(&self) -> String {
        let tenant = &self.cast.scopes[&Parent];
        let limits = json!({ "limits": { "gpu_milli@class:T4": 1_000_000 } });
        self.owner_does(Method::PUT, &format!("/v1/scopes/{tenant}/quota"), limits)
            .await;
        let made = self
            .world
            .post(&self.world.owner, "/v1/market/offers", offer(tenant));
        made.await.id()
    }

    /// A lease of that tenant's to the foreign one.
    async fn lease(&self) -> String {
        self.offer().await;
        let wanted =
            json!({ "scope": self.cast.scopes[&Foreign], "class": "T4", "gpu_milli": 1, "duration_s": 60 });
        let bought = self.world.post(&self.world.owner, "/v1/market/buy", wanted).await;
        let bought = bought.json();
        bought["fills"][0]["lease"].as_str().expect("a lease").to_owned()
    }

    async fn owner_does(&self, method: Method, path: &str, body: Value) {
        let reply = self
            .world
            .send(
                self.world
                    .request(method, path, Some(&self.world.owner))
                    .json(&body),
            )
            .await;
        assert!(reply.status.is_success(), "setting the stage: {path} {reply:?}");
    }

    /// The id of the target, made ready for one use.
    async fn target(&self, operation: &str, noun: Noun, actor: &str, relation: Relation) -> String {
        let user = if relation == Own {
            actor.to_owned()
        } else {
            self.cast.users[&relation].clone()
        };
        match (noun, relation) {
            (Noun::Scope, _) if operation == "scope_by_path" => self.cast.titles[&relation].clone(),
            (Noun::Scope, _) => self.cast.scopes[&relation].clone(),
            (Noun::User, _) => user,
            (Noun::Volume, Guessed) => "vol_0000000000000".into(),
            (Noun::Volume, _) => {
                let scope = match relation {
                    Deleted => &self.cast.scopes[&Own],
                    _ => &self.cast.scopes[&relation],
                };
                let made = self.world.post(
                    &self.world.owner,
                    "/v1/volumes",
                    json!({ "scope": scope, "name": self.fresh(), "size_mib": 16 }),
                );
                let id = made.await.id();
                if relation == Deleted {
                    let path = format!("/v1/volumes/{id}");
                    assert_eq!(self.world.delete(&self.world.owner, &path).await.status, 204);
                }
                id
            }
            (Noun::Booking, Guessed) => "bkg_0000000000000".into(),
            (Noun::Booking, _) => {
                let scope = match relation {
                    Deleted => &self.cast.scopes[&Own],
                    _ => &self.cast.scopes[&relation],
                };
                let made = self
                    .world
                    .post(&self.world.owner, "/v1/bookings", self.booking(scope));
                let id = made.await.id();
                if relation == Deleted {
                    let path = format!("/v1/bookings/{id}/cancel");
                    let cancelled = self
                        .world
                        .post(&self.world.owner, &path, json!({ "which": "all" }));
                    assert_eq!(cancelled.await.status, 204);
                }
                id
            }
            (Noun::Webhook, Guessed) => "whk_0000000000000".into(),
            (Noun::Webhook, _) => {
                let scope = match relation {
                    Deleted => &self.cast.scopes[&Own],
                    _ => &self.cast.scopes[&relation],
                };
                let body = self.webhook(scope);
                let made = self.world.post(&self.world.owner, "/v1/webhooks", body).await;
                assert_eq!(made.status, 201, "{made:?}");
                let id = made.json()["webhook"]["id"].as_str().unwrap().to_owned();
                // A scope has only so many.
                for old in self.hooked.replace(vec![id.clone()]) {
                    let path = format!("/v1/webhooks/{old}");
                    self.world.delete(&self.world.owner, &path).await;
                }
                if relation == Deleted {
                    let path = format!("/v1/webhooks/{id}");
                    assert_eq!(self.world.delete(&self.world.owner, &path).await.status, 204);
                }
                id
            }
            (Noun::Job, Deleted) => self.cast.ended_job.clone(),
            (Noun::Job, Guessed) => "job_0000000000000".into(),
            (Noun::Job, _) => self.world.job(&user, &self.fresh()).await,
            (Noun::Key, Deleted) => self.cast.revoked_key.clone(),
            (Noun::Key, Guessed) => "key_0000000000000".into(),
            (Noun::Key, _) => self
                .world
                .post(
                    &self.world.owner,
                    &format!("/v1/users/{user}/keys"),
                    json!({ "label": "k" }),
                )
                .await
                .id(),
        }
    }

    /// The request, and whatever it needs to exist.
    async fn case(&self, operation: &str, target: &str, relation: Relation) -> Case {
        let get = |path: String| Case {
            method: Method::GET,
            path,
            body: None,
        };
        let post = |path: String, body: Value| Case {
            method: Method::POST,
            path,
            body: Some(body),
        };
        let put = |path: String, body: Value| Case {
            method: Method::PUT,
            path,
            body: Some(body),
        };
        let delete = |path: String| Case {
            method: Method::DELETE,
            path,
            body: None,
        };
        let exists = !matches!(relation, Deleted | Guessed);
        let child = &self.cast.users[&Child];
        let node = async || self.world.node(&self.fresh(), 0).await.to_string();
        match operation {
            "healthz" | "readyz" => get(format!("/{operation}")),
            "openapi_document" => get("/openapi.json".into()),
            "error_page" => get("/errors/internal".into()),
            "login_view" => get("/v1/login".into()),
            "login" => post("/v1/login".into(), json!({})),
            "whoami" | "prices" | "skus" | "nodes" | "gpus" => get(format!("/v1/{operation}")),
            "set_prices" => {
                let prices = self.world.get(&self.world.owner, "/v1/prices").await.json();
                put("/v1/prices".into(), prices)
            }
            "define_sku" => put(format!("/v1/skus/{}", self.fresh()), json!({})),
            "remove_sku" => {
                let path = format!("/v1/skus/{}", self.fresh());
                self.owner_does(Method::PUT, &path, json!({})).await;
                delete(path)
            }
            "create_tenant" => post("/v1/tenants".into(), json!({ "name": self.fresh() })),
            "create_subscriber" => post(
                "/v1/subscribers".into(),
                json!({ "tenant": target, "name": self.fresh() }),
            ),
            "create_user" => post(
                "/v1/users".into(),
                json!({ "parent": target, "name": self.fresh() }),
            ),
            "scope_by_path" => get(format!("/v1/scopes?path={target}")),
            "scope" => get(format!("/v1/scopes/{target}")),
            "children" | "roles" | "quota" | "share" | "budgets" | "policy" | "rules" | "secrets" => {
                get(format!("/v1/scopes/{target}/{operation}"))
            }
            "suspend" | "resume" => post(format!("/v1/scopes/{target}/{operation}"), json!({})),
            "move_scope" => post(
                format!("/v1/scopes/{target}/move"),
                json!({ "parent": self.cast.parents[&relation] }),
            ),
            "close" => delete(format!("/v1/scopes/{target}")),
            "set_identity" => put(
                format!("/v1/users/{target}/identity"),
                json!({ "identity": null }),
            ),
            "keys" => get(format!("/v1/users/{target}/keys")),
            "create_key" => post(format!("/v1/users/{target}/keys"), json!({ "label": "made" })),
            "revoke_key" => delete(format!("/v1/keys/{target}")),
            "grant_role" => post(
                format!("/v1/scopes/{target}/roles"),
                json!({ "user": child, "role": "member" }),
            ),
            "revoke_role" => {
                if matches!(relation, Own | Sibling | Parent) {
                    self.owner_does(
                        Method::POST,
                        &format!("/v1/scopes/{target}/roles"),
                        json!({ "user": child, "role": "member" }),
                    )
                    .await;
                }
                delete(format!("/v1/scopes/{target}/roles/{child}/member"))
            }
            "set_quota" => put(format!("/v1/scopes/{target}/quota"), json!({ "limits": {} })),
            "search_logs" => get(format!("/v1/logs?scope={target}")),
            "log_keeping" => get(format!("/v1/scopes/{target}/log-keeping")),
            "set_log_keeping" => put(format!("/v1/scopes/{target}/log-keeping"), json!({})),
            "set_share" => put(format!("/v1/scopes/{target}/share"), json!({})),
            "set_budgets" => put(format!("/v1/scopes/{target}/budgets"), json!({ "budgets": [] })),
            "set_policy" => put(format!("/v1/scopes/{target}/policy"), json!({})),
            "set_rules" => put(format!("/v1/scopes/{target}/rules"), json!({ "rules": "" })),
            "set_secret" => put(format!("/v1/scopes/{target}/secrets/s"), json!({ "value": "v" })),
            "erase_secret" => {
                let path = format!("/v1/scopes/{target}/secrets/e");
                if exists {
                    self.owner_does(Method::PUT, &path, json!({ "value": "v" })).await;
                }
                delete(path)
            }
            "volumes" => get(format!("/v1/volumes?scope={target}")),
            "create_volume" => post(
                "/v1/volumes".into(),
                json!({ "scope": target, "name": self.fresh(), "size_mib": 16 }),
            ),
            "volume" => get(format!("/v1/volumes/{target}")),
            "grow_volume" => post(format!("/v1/volumes/{target}/grow"), json!({ "size_mib": 32 })),
            "remove_volume" => delete(format!("/v1/volumes/{target}")),
            "webhooks" => get(format!("/v1/webhooks?scope={target}")),
            "create_webhook" => post("/v1/webhooks".into(), self.webhook(target)),
            "webhook" => get(format!("/v1/webhooks/{target}")),
            "pause_webhook" | "resume_webhook" | "rotate_webhook" | "ping_webhook" => {
                let verb = operation.trim_end_matches("_webhook");
                post(format!("/v1/webhooks/{target}/{verb}"), json!({}))
            }
            "remove_webhook" => delete(format!("/v1/webhooks/{target}")),
            "bookings" | "calendar" => get(format!("/v1/{operation}?scope={target}")),
            "calendar_feed" => get(format!("/v1/calendar.ics?scope={target}")),
            "make_booking" => post("/v1/bookings".into(), self.booking(target)),
            "quote_booking" => post("/v1/bookings/quote".into(), self.booking(target)),
            "booking" => get(format!("/v1/bookings/{target}")),
            "edit_booking" => post(
                format!("/v1/bookings/{target}/edit"),
                json!({ "which": "all", "size": { "unit": "gpus", "count": 1 } }),
            ),
            "extend_booking" => post(
                format!("/v1/bookings/{target}/extend"),
                json!({ "of": *self.begins.borrow(), "more_s": 60 }),
            ),
            // To where it is: nothing changes, but who may not is refused first.
            "transfer_booking" => {
                let to = match relation {
                    Deleted | Guessed => &self.cast.scopes[&Own],
                    _ => &self.cast.scopes[&relation],
                };
                post(format!("/v1/bookings/{target}/transfer"), json!({ "to": to }))
            }
            "cancel_booking" => post(format!("/v1/bookings/{target}/cancel"), json!({ "which": "all" })),
            "booking_terms" => get("/v1/booking-terms".into()),
            "set_booking_terms" => put("/v1/booking-terms".into(), json!({})),
            "offers" => get("/v1/market/offers".into()),
            "market_book" => get("/v1/market/book".into()),
            "price_index" => get("/v1/market/index".into()),
            "market_terms" => get("/v1/market/terms".into()),
            "set_market_terms" => put("/v1/market/terms".into(), json!({})),
            "make_offer" => post("/v1/market/offers".into(), offer(target)),
            "withdraw_offer" => delete(format!("/v1/market/offers/{}", self.offer().await)),
            "auto_offers" | "bids" | "leases" => {
                let list = operation.replace('_', "-");
                get(format!("/v1/market/{list}?scope={target}"))
            }
            "set_auto_offer" => put(
                format!("/v1/market/auto-offers/{target}/H100"),
                json!({ "floor_micros": 1, "min_lease_s": 60, "max_lease_s": 60, "notice_s": 0 }),
            ),
            "remove_auto_offer" => delete(format!("/v1/market/auto-offers/{target}/H100")),
            "buy" => post(
                "/v1/market/buy".into(),
                json!({ "scope": target, "class": "H100", "gpu_milli": 1, "duration_s": 60, "dry_run": true }),
            ),
            "place_bid" => post("/v1/market/bids".into(), bid(target)),
            "cancel_bid" => {
                let placed = self.world.post(
                    &self.world.owner,
                    "/v1/market/bids",
                    bid(&self.cast.scopes[&Foreign]),
                );
                let placed = placed.await.json();
                delete(format!(
                    "/v1/market/bids/{}",
                    placed["bid"]["id"].as_str().expect("a bid")
                ))
            }
            "recall_lease" | "return_lease" => {
                let verb = operation.trim_end_matches("_lease");
                post(
                    format!("/v1/market/leases/{}/{verb}", self.lease().await),
                    json!({}),
                )
            }
            "submit_job" => post(
                "/v1/jobs".into(),
                json!({ "owner": target, "spec": spec(&self.fresh()) }),
            ),
            "plan_job" => post(
                "/v1/jobs/plan".into(),
                json!({ "owner": target, "spec": spec("p") }),
            ),
            "fit_workload" => post(
                "/v1/fit".into(),
                json!({ "owner": target, "workload": { "inference": { "model": "7B" } } }),
            ),
            "jobs" | "costs" | "analysis" | "forecast" | "invoices" => {
                get(format!("/v1/{operation}?scope={target}"))
            }
            "scope_prices" => get(format!("/v1/scopes/{target}/prices")),
            "price_books" => get(format!("/v1/scopes/{target}/price-books")),
            "set_price_book" => put(format!("/v1/scopes/{target}/price-books"), json!({ "book": {} })),
            "bill_rows" => get(format!("/v1/bill-rows?scope={target}")),
            "draft_invoice" => get(format!("/v1/invoice-draft?scope={target}")),
            "adjust" => post(
                "/v1/adjustments".into(),
                json!({ "scope": self.cast.scopes[&Foreign], "kind": "credit", "amount_micros": 1, "reason": "r" }),
            ),
            "issue_invoice" => post("/v1/invoices".into(), self.span()),
            "pay_invoice" => {
                let invoice = self.invoice().await;
                post(format!("/v1/invoices/{invoice}/pay"), json!({ "reference": "r" }))
            }
            "invoice" => get(format!("/v1/invoices/{}", self.invoice().await)),
            "invoice_rows" => get(format!("/v1/invoices/{}/rows", self.invoice().await)),
            "invoice_file" => get(format!("/v1/invoices/{}/file", self.invoice().await)),
            "events" => get(format!("/v1/events?follow=false&scope={target}")),
            "job" => get(format!("/v1/jobs/{target}")),
            "stop_job" | "pause_job" | "resume_job" => {
                let verb = operation.trim_end_matches("_job");
                post(format!("/v1/jobs/{target}/{verb}"), json!({}))
            }
            "resize_job" => post(
                format!("/v1/jobs/{target}/resize"),
                json!({ "compute_permille": 500 }),
            ),
            "scale_job" => post(format!("/v1/jobs/{target}/scale"), json!({ "min": 0, "max": 2 })),
            "services" => get("/v1/services".into()),
            "call_service" => post(format!("/v1/services/{target}/v1/models"), json!({})),
            "attach_job" | "exec_job" | "port_job" => {
                let verb = operation.trim_end_matches("_job");
                get(format!("/v1/jobs/{target}/{verb}"))
            }
            "job_audit" => get(format!("/v1/jobs/{target}/audit")),
            "job_tasks" => get(format!("/v1/jobs/{target}/tasks")),
            "why" | "logs" => get(format!("/v1/jobs/{target}/{operation}")),
            "node" => get(format!("/v1/nodes/{}", node().await)),
            "metrics" => get("/metrics".into()),
            "dcgm_metrics" => get("/metrics/dcgm".into()),
            "gpu" => get(format!("/v1/gpus/{}", self.world.gpu(&self.fresh()).await)),
            "release_gpu" => post(
                format!("/v1/gpus/{}/release", self.world.gpu(&self.fresh()).await),
                json!({}),
            ),
            "create_join_token" => post("/v1/nodes/tokens".into(), json!({})),
            "cordon" | "uncordon" => post(format!("/v1/nodes/{}/{operation}", node().await), json!({})),
            "label_node" => put(
                format!("/v1/nodes/{}/labels", node().await),
                json!({"region": "eu-north"}),
            ),
            "revoke_node" => post(format!("/v1/nodes/{}/revoke", node().await), json!({})),
            "remove_node" => delete(format!("/v1/nodes/{}", node().await)),
            "journal_head" => get("/v1/journal/head".into()),
            "journal_proof" => get("/v1/journal/proofs/1".into()),
            other => panic!("no request is written for {other}"),
        }
    }

    async fn perform(&self, case: Case, token: Option<&str>) -> Reply {
        let request = self.world.request(case.method, &case.path, token);
        let request = match case.body {
            Some(body) => request.json(&body),
            None => request,
        };
        self.world.send(request).await
    }
}

/// An answer without what differs between any two.
fn bare(reply: &Reply) -> (u16, Value, BTreeMap<String, String>) {
    let mut body = reply.json();
    body["request_id"] = Value::Null;
    let headers = reply
        .headers
        .iter()
        .filter(|(name, _)| !["date", "x-request-id"].contains(&name.as_str()));
    let headers = headers.map(|(name, value)| (name.to_string(), value.to_str().unwrap().to_owned()));
    (reply.status.as_u16(), body, headers.collect())
}

fn operations(document: &Value) -> BTreeSet<String> {
    let items = document["paths"].as_object().unwrap().values();
    items
        .flat_map(|item| item.as_object().unwrap().values())
        .map(|operation| operation["operationId"].as_str().unwrap().to_owned())
        .collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn every_route_for_every_role_and_relation() {
    let mut options = generous();
    options.webhooks.private.push("127.0.0.1:1".into());
    let world = World::with(options).await;
    let table = table();
    let described = operations(
        &world
            .send(world.request(Method::GET, "/openapi.json", None))
            .await
            .json(),
    );
    let known: BTreeSet<String> = table.keys().map(|key| (*key).to_owned()).collect();
    assert_eq!(
        described, known,
        "each operation of the document has a row, and each row an operation"
    );

    let cast = cast(&world).await;
    let stage = Stage {
        world: &world,
        cast: &cast,
        count: Default::default(),
        begins: Default::default(),
        hooked: Default::default(),
    };
    let (mut wrong, mut cases) = (Vec::new(), 0);
    for (&operation, &need) in &table {
        let relations: &[Relation] = match need {
            Need::Nothing | Need::AnyKey => &[Own],
            Need::Platform(_) => &[Own, Foreign],
            Need::At(..) | Need::Above(..) => &RELATIONS,
        };
        for role in ROLES {
            let mut unseen = Vec::new();
            for &relation in relations {
                let at_platform = matches!(need, Need::Platform(_)) && relation == Own;
                let who = if at_platform { &cast.staff } else { &cast.actors };
                let somebody = &cast.actors["none"];
                let (actor, token) = who
                    .get(role)
                    .map_or((somebody.0.as_str(), None), |(user, token)| {
                        (user.as_str(), Some(token.as_str()))
                    });
                let target = match need {
                    Need::At(noun, _) | Need::Above(noun, _) => {
                        stage.target(operation, noun, actor, relation).await
                    }
                    _ => String::new(),
                };
                let reply = stage
                    .perform(stage.case(operation, &target, relation).await, token)
                    .await;
                cases += 1;
                assert!(
                    !reply.status.is_server_error(),
                    "{operation} {role} {relation:?} {reply:?}"
                );
                let (found, expected) = (Expect::of(&reply), expected(operation, need, role, relation));
                if found != expected {
                    wrong.push(format!(
                        "{operation} as {role} on {relation:?}: {found:?}, not {expected:?} ({})",
                        String::from_utf8_lossy(&reply.bytes)
                    ));
                }
                // What was granted only to be revoked does not stay behind: it would change who may become whom.
                if operation == "revoke_role"
                    && matches!(relation, Own | Sibling | Parent)
                    && found != Expect::Allowed
                {
                    let path = format!("/v1/scopes/{target}/roles/{}/member", stage.cast.users[&Child]);
                    stage.owner_does(Method::DELETE, &path, json!({})).await;
                }
                if operation == "suspend" && found == Expect::Allowed {
                    stage
                        .owner_does(Method::POST, &format!("/v1/scopes/{target}/resume"), json!({}))
                        .await;
                }
                if role != "anonymous"
                    && matches!(relation, Foreign | Deleted | Guessed)
                    && matches!(need, Need::At(..) | Need::Above(..))
                {
                    unseen.push((relation, bare(&reply)));
                }
            }
            for pair in unseen.windows(2) {
                assert_eq!(
                    pair[0].1, pair[1].1,
                    "{operation} as {role}: {:?} and {:?} can be told apart",
                    pair[0].0, pair[1].0
                );
            }
        }
    }
    assert!(
        wrong.is_empty(),
        "{} of {cases} cases:\n{}",
        wrong.len(),
        wrong.join("\n")
    );
    println!("{cases} cases");
}

/// What an owner left behind belongs to those above where it stood.
#[tokio::test(flavor = "multi_thread")]
async fn a_closed_owners_jobs_are_seen_from_above() {
    let world = World::new().await;
    let (a, b) = (world.tenant("a").await, world.tenant("b").await);
    let sub = world.subscriber(&a, "s").await;
    let (ada, _) = world.user(&sub, "ada", None).await;
    let (_, boss) = world.user(&a, "boss", Some("auditor")).await;
    let (_, near) = world.user(&sub, "near", Some("member")).await;
    let (_, far) = world.user(&b, "far", Some("owner")).await;
    let job = world.job(&ada, "j").await;
    assert_eq!(
        world
            .post(&world.owner, &format!("/v1/jobs/{job}/stop"), json!({}))
            .await
            .status,
        200
    );
    assert_eq!(
        world
            .delete(&world.owner, &format!("/v1/scopes/{ada}"))
            .await
            .status,
        204
    );
    for (token, status) in [(&boss, 200), (&near, 200), (&far, 404), (&world.owner, 200)] {
        assert_eq!(
            world.get(token, &format!("/v1/jobs/{job}")).await.status.as_u16(),
            status
        );
    }
    let stopped = world
        .post(&world.owner, &format!("/v1/jobs/{job}/stop"), json!({}))
        .await;
    assert_eq!(stopped.code(), "wrong_phase");
    assert_eq!(
        world.get(&boss, "/v1/jobs?show=done").await.json()["items"][0]["id"],
        job.as_str()
    );
    assert_eq!(
        world.get(&far, "/v1/jobs?show=done").await.json()["items"],
        json!([])
    );
}

/// An owner that moves to another tenant takes no history along.
#[tokio::test(flavor = "multi_thread")]
async fn history_stays_where_it_happened() {
    let world = World::new().await;
    let (a, b) = (world.tenant("a").await, world.tenant("b").await);
    let (ada, key) = world.user(&a, "ada", None).await;
    let (_, old) = world.user(&a, "old", Some("owner")).await;
    let (_, new) = world.user(&b, "new", Some("owner")).await;
    let job = world.job(&ada, "j").await;
    assert_eq!(
        world
            .post(&key, &format!("/v1/jobs/{job}/stop"), json!({}))
            .await
            .status,
        200
    );
    assert_eq!(
        world
            .post(
                &world.owner,
                &format!("/v1/scopes/{ada}/move"),
                json!({ "parent": b })
            )
            .await
            .status,
        200
    );
    for (token, status) in [(&old, 200), (&new, 404), (&key, 404)] {
        assert_eq!(
            world.get(token, &format!("/v1/jobs/{job}")).await.status.as_u16(),
            status
        );
    }
}
