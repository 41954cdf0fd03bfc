//! Bad input: each row is refused with a code and a field, and changes nothing; or is plainly taken.

use std::sync::Arc;

use tenure_domain::ledger::price::{ClassPrice, Prices};
use tenure_domain::meter::{Amounts, Meter};
use tenure_domain::tenancy::budget::Budget;
use tenure_domain::tenancy::policy::Policy;
use tenure_domain::tenancy::role::{Action, Role};
use tenure_domain::tenancy::scope::{Identity, Level, ScopeId, UserKind};
use tenure_domain::time::Period;
use tenure_domain::workload::job::StopReason;
use tenure_domain::workload::spec::{Demand, Isolation, JobSpec};
use tenure_domain::{Actor, Code, Wish};

use crate::world::{World, amounts, cpu, digest, gpu, inventory, slice, spec, whole};

fn setting() -> (World, ScopeId, tenure_domain::id::UserId) {
    let mut world = World::new();
    let acme = world.tenant("acme");
    let ada = world.user(acme, "ada", Some(Role::Member));
    let gpus = (0..2)
        .map(|i| gpu(&format!("g{i}"), "A10", 24_000, &[Isolation::Guarded]))
        .collect();
    world.node("alpha", inventory(8000, 16_000, gpus));
    (world, acme, ada)
}

#[test]
fn job_specs_that_cannot_run_name_their_field() {
    type Change = fn(&mut JobSpec);
    let rows: &[(&str, Change, Code, &str)] = &[
        (
            "10^9 GPUs",
            |job| job.demand.gpus = 1_000_000_000,
            Code::InvalidField,
            "/demand/gpus",
        ),
        (
            "gang larger than the cluster",
            |job| job.demand = whole(3),
            Code::ExceedsFleet,
            "/demand",
        ),
        (
            "share 0",
            |job| job.demand = slice(0, 100),
            Code::InvalidField,
            "/demand/compute_permille",
        ),
        (
            "share above the whole",
            |job| job.demand = slice(1001, 100),
            Code::InvalidField,
            "/demand/compute_permille",
        ),
        (
            "slice without VRAM",
            |job| job.demand = slice(100, 0),
            Code::InvalidField,
            "/demand/vram_mib",
        ),
        (
            "VRAM beyond any device",
            |job| job.demand = slice(100, 24_001),
            Code::ExceedsFleet,
            "/demand",
        ),
        (
            "VRAM beyond any machine",
            |job| job.demand = slice(100, u64::MAX),
            Code::InvalidField,
            "/demand",
        ),
        (
            "memory that overflows",
            |job| job.demand.memory_mib = u64::MAX,
            Code::InvalidField,
            "/demand",
        ),
        (
            "VRAM without a GPU",
            |job| job.demand.vram_mib = 5,
            Code::InvalidField,
            "/demand/vram_mib",
        ),
        (
            "class without a GPU",
            |job| job.demand.class = Some("A10".into()),
            Code::InvalidField,
            "/demand/class",
        ),
        (
            "a class of markup",
            |job| (job.demand = whole(1), job.demand.class = Some("<b>".into())).1,
            Code::InvalidField,
            "/demand/class",
        ),
        (
            "a class nobody has",
            |job| (job.demand = whole(1), job.demand.class = Some("H900".into())).1,
            Code::ExceedsFleet,
            "/demand",
        ),
        (
            "isolation nobody gives",
            |job| {
                (
                    job.demand = slice(100, 100),
                    job.demand.isolation = Isolation::Fenced,
                )
                    .1
            },
            Code::ExceedsFleet,
            "/demand",
        ),
        (
            "no CPU",
            |job| job.demand.cpu_milli = 0,
            Code::InvalidField,
            "/demand/cpu_milli",
        ),
        (
            "more CPU than a node",
            |job| job.demand.cpu_milli = u32::MAX,
            Code::ExceedsFleet,
            "/demand",
        ),
        (
            "no memory",
            |job| job.demand.memory_mib = 0,
            Code::InvalidField,
            "/demand/memory_mib",
        ),
        (
            "no command",
            |job| job.command.clear(),
            Code::InvalidField,
            "/command",
        ),
        (
            "an empty command",
            |job| job.command = vec![String::new()],
            Code::InvalidField,
            "/command",
        ),
        (
            "a NUL in the command",
            |job| job.command.push("a\0b".into()),
            Code::InvalidField,
            "/command",
        ),
        (
            "a 10 MB script",
            |job| job.command.push("x".repeat(10 << 20)),
            Code::InvalidField,
            "/command",
        ),
        (
            "a million empty arguments",
            |job| job.command.extend(vec![String::new(); 1_000_000]),
            Code::InvalidField,
            "/command",
        ),
        (
            "an image with a capital letter",
            |job| job.image = Some("Ubuntu".into()),
            Code::InvalidField,
            "/image",
        ),
        (
            "an image by URL",
            |job| job.image = Some("https://ghcr.io/a/b".into()),
            Code::InvalidField,
            "/image",
        ),
        (
            "a secret for no image",
            |job| job.image_secret = Some("registry".into()),
            Code::InvalidField,
            "/image_secret",
        ),
        (
            "a secret for an image that nobody has",
            |job| {
                job.image = Some("ghcr.io/a/b".into());
                job.image_secret = Some("registry".into());
            },
            Code::InvalidField,
            "/image_secret",
        ),
        (
            "an image and a command without a program",
            |job| {
                job.image = Some("ubuntu".into());
                job.command = vec![String::new()];
            },
            Code::InvalidField,
            "/command",
        ),
        (
            "LD_PRELOAD",
            |job| drop(job.env.insert("LD_PRELOAD".into(), "/evil.so".into())),
            Code::InvalidField,
            "/env",
        ),
        (
            "NVIDIA_VISIBLE_DEVICES",
            |job| drop(job.env.insert("NVIDIA_VISIBLE_DEVICES".into(), "all".into())),
            Code::InvalidField,
            "/env",
        ),
        (
            "CUDA_VISIBLE_DEVICES",
            |job| drop(job.env.insert("CUDA_VISIBLE_DEVICES".into(), "0".into())),
            Code::InvalidField,
            "/env",
        ),
        (
            "VK_ICD_FILENAMES",
            |job| drop(job.env.insert("VK_ICD_FILENAMES".into(), "x".into())),
            Code::InvalidField,
            "/env",
        ),
        (
            "TENURE_TOKEN",
            |job| drop(job.env.insert("TENURE_TOKEN".into(), "x".into())),
            Code::InvalidField,
            "/env",
        ),
        (
            "a variable with a newline",
            |job| drop(job.env.insert("A\nB".into(), "x".into())),
            Code::InvalidField,
            "/env",
        ),
        (
            "a variable with '='",
            |job| drop(job.env.insert("A=B".into(), "x".into())),
            Code::InvalidField,
            "/env",
        ),
        (
            "an empty variable",
            |job| drop(job.env.insert(String::new(), "x".into())),
            Code::InvalidField,
            "/env",
        ),
        (
            "a NUL in a value",
            |job| drop(job.env.insert("A".into(), "\0".into())),
            Code::InvalidField,
            "/env",
        ),
        (
            "an environment too large",
            |job| drop(job.env.insert("A".into(), "x".repeat(200_000))),
            Code::InvalidField,
            "/env",
        ),
        (
            "40 hostile variables",
            |job| job.env.extend((0..40).map(|i| (format!("LD_{i}"), "x".into()))),
            Code::InvalidField,
            "/env",
        ),
        (
            "LD_PRELOAD from a secret",
            |job| drop(job.secrets.insert("LD_PRELOAD".into(), "s".into())),
            Code::InvalidField,
            "/secrets",
        ),
        (
            "a secret that is not there",
            |job| drop(job.secrets.insert("TOKEN".into(), "s".into())),
            Code::InvalidField,
            "/secrets/TOKEN",
        ),
        (
            "many variables of one secret",
            |job| {
                job.secrets
                    .extend((0..50_000).map(|i| (format!("V{i}"), "s".into())))
            },
            Code::InvalidField,
            "/env",
        ),
        (
            "a relative workdir",
            |job| job.workdir = Some("work".into()),
            Code::InvalidField,
            "/workdir",
        ),
        (
            "a workdir above",
            |job| job.workdir = Some("/work/../../etc".into()),
            Code::InvalidField,
            "/workdir",
        ),
        (
            "a workdir with a newline",
            |job| job.workdir = Some("/work\n#SBATCH --uid=0".into()),
            Code::InvalidField,
            "/workdir",
        ),
        (
            "shell in the name",
            |job| job.name = "a;rm -rf /".into(),
            Code::InvalidField,
            "/name",
        ),
        (
            "a newline in the name",
            |job| job.name = "a\n#SBATCH".into(),
            Code::InvalidField,
            "/name",
        ),
        (
            "an empty name",
            |job| job.name = String::new(),
            Code::InvalidField,
            "/name",
        ),
        (
            "a long name",
            |job| job.name = "a".repeat(64),
            Code::InvalidField,
            "/name",
        ),
        (
            "a look-alike name",
            |job| job.name = "аda".into(),
            Code::InvalidField,
            "/name",
        ),
        (
            "run time 0",
            |job| job.run_time_s = 0,
            Code::InvalidField,
            "/run_time_s",
        ),
        (
            "100 years",
            |job| job.run_time_s = 100 * 366 * 86_400,
            Code::InvalidField,
            "/run_time_s",
        ),
        (
            "run time that overflows",
            |job| job.run_time_s = u64::MAX,
            Code::InvalidField,
            "/run_time_s",
        ),
        (
            "a grace of hours",
            |job| job.grace_s = u32::MAX,
            Code::InvalidField,
            "/grace_s",
        ),
        (
            "no attempt",
            |job| job.max_attempts = 0,
            Code::InvalidField,
            "/max_attempts",
        ),
        (
            "attempts without end",
            |job| job.max_attempts = u32::MAX,
            Code::InvalidField,
            "/max_attempts",
        ),
        (
            "an unknown SKU",
            |job| job.sku = Some("huge".into()),
            Code::InvalidField,
            "/sku",
        ),
        (
            "a SKU of markup",
            |job| job.sku = Some("'--".into()),
            Code::InvalidField,
            "/sku",
        ),
    ];
    let (mut world, _, ada) = setting();
    world.thorough = false;
    let before = world.state.clone();
    for (what, change, code, field) in rows {
        let mut job = spec("job", cpu(100), 60);
        change(&mut job);
        let refusal = world.submit(ada, job).expect_err(what);
        assert_eq!(
            (refusal.code, refusal.field.as_deref()),
            (*code, Some(*field)),
            "{what}: {refusal}"
        );
        assert!(world.state == before, "{what}: a refusal changes nothing");
    }
    for text in [
        r#"{"name":"a","command":["x"],"engine_field":1}"#,
        r#"{"name":"a","command":["x"],"demand":{"share":0.1}}"#,
        r#"{"name":"a","command":["x"],"demand":{"compute_permille":-1}}"#,
    ] {
        assert!(serde_json::from_str::<JobSpec>(text).is_err(), "{text}");
    }
    // Two jobs may have one name: ids tell them apart.
    let twice = [(); 2].map(|()| world.submit(ada, spec("job", cpu(100), 60)).expect("taken"));
    assert_ne!(twice[0], twice[1]);
}

#[test]
fn quotas_as_people_mistype_them() {
    let (mut world, acme, ada) = setting();
    // Zero means none at all; a job that could never fit is refused at once.
    world.quota(acme, &[("jobs", 0)]);
    assert_eq!(
        world
            .submit(ada, spec("j", cpu(100), 60))
            .expect_err("quota 0")
            .code,
        Code::ExceedsQuota
    );
    // Negative, fractional, in other units or unknown: not a quota.
    for text in [
        r#"{"jobs":-1}"#,
        r#"{"gpu_milli":0.5}"#,
        r#"{"vram_gb":8}"#,
        r#"{"vram_mib":"8GiB"}"#,
        r#"{"jobs":18446744073709551616}"#,
        r#"{"jobs@class:":1}"#,
    ] {
        assert!(serde_json::from_str::<Amounts>(text).is_err(), "{text}");
    }
    // A child above its parent, and children together above it: the parent's limit holds.
    world.quota(acme, &[("cpu_milli", 1000)]);
    world.quota(ScopeId::User(ada), &[("cpu_milli", 5000)]);
    let bob = world.user(acme, "bob", Some(Role::Member));
    world.quota(ScopeId::User(bob), &[("cpu_milli", u64::MAX), ("jobs", u64::MAX)]);
    let first = world.submit(ada, spec("a", cpu(800), 60)).expect("taken");
    let second = world.submit(bob, spec("b", cpu(800), 60)).expect("taken");
    assert!(world.allocation(first).is_some() && world.allocation(second).is_none());
    // Below what is in use: taken, and told.
    world.quota(acme, &[("cpu_milli", 1)]);
    let over = world
        .state
        .tree
        .get(acme)
        .expect("acme")
        .over(&amounts(&[("cpu_milli", 1)]));
    assert_eq!((over.len(), over[0].used, over[0].limit), (1, 800, 1));
    // Changed by somebody else meanwhile.
    let wish = Wish::SetQuota {
        scope: acme,
        quota: amounts(&[]),
        revision: Some(1),
    };
    assert_eq!(world.root(wish).expect_err("stale").code, Code::RevisionMismatch);
    // Nobody raises their own.
    let boss = world.user(acme, "boss", Some(Role::Owner));
    let raise = Wish::SetQuota {
        scope: acme,
        quota: amounts(&[]),
        revision: None,
    };
    assert_eq!(world.by(boss, raise).expect_err("own quota").code, Code::NotFound);
    // More meters than anybody reads.
    let many = (0..201)
        .map(|i| (format!("jobs@class:c{i}").parse::<Meter>().expect("a meter"), 1))
        .collect();
    assert_eq!(
        world
            .root(Wish::SetQuota {
                scope: acme,
                quota: many,
                revision: None
            })
            .expect_err("too many")
            .code,
        Code::InvalidField
    );
}

#[test]
fn budgets_and_policies_that_say_nothing_are_refused() {
    let (mut world, acme, _) = setting();
    let plain = Budget {
        period: Period::Day,
        class: None,
        sku: None,
        money_micros: Some(1),
        kind: None,
        gpu_seconds: None,
        frames: None,
        alerts_permille: Vec::new(),
    };
    let rows: Vec<(&str, Vec<Budget>)> = vec![
        (
            "limits nothing",
            vec![Budget {
                money_micros: None,
                ..plain.clone()
            }],
        ),
        (
            "class and SKU",
            vec![Budget {
                class: Some("A10".into()),
                sku: Some("small".into()),
                ..plain.clone()
            }],
        ),
        (
            "too large",
            vec![Budget {
                money_micros: Some(u64::MAX),
                ..plain.clone()
            }],
        ),
        ("twice", vec![plain.clone(), plain.clone()]),
        (
            "class of markup",
            vec![Budget {
                class: Some("a b".into()),
                ..plain.clone()
            }],
        ),
        ("too many", vec![plain; 201]),
    ];
    for (what, budgets) in rows {
        let refusal = world
            .root(Wish::SetBudgets {
                scope: acme,
                budgets,
                revision: None,
            })
            .expect_err(what);
        assert_eq!(refusal.code, Code::InvalidField, "{what}");
    }
    for policy in [
        Policy {
            max_compute_permille: Some(0),
            ..Policy::default()
        },
        Policy {
            max_compute_permille: Some(1001),
            ..Policy::default()
        },
        Policy {
            max_run_time_s: Some(0),
            ..Policy::default()
        },
        Policy {
            classes: Some(["a/b".into()].into()),
            ..Policy::default()
        },
    ] {
        assert_eq!(
            world
                .root(Wish::SetPolicy {
                    scope: acme,
                    policy,
                    revision: None
                })
                .expect_err("bad")
                .code,
            Code::InvalidField
        );
    }
}

#[test]
fn the_dearest_prices_never_overflow_the_ledger() {
    let most = 1_000_000_000_000_000;
    let dear = ClassPrice {
        gpu_hour_micros: most,
        vram_gib_hour_micros: most,
    };
    let prices = Prices {
        cpu_hour_micros: most,
        memory_gib_hour_micros: most,
        other: dear,
        ..Prices::default()
    };
    let mut world = World::priced(prices.clone());
    let acme = world.tenant("acme");
    let ada = world.user(acme, "ada", Some(Role::Member));
    let gpus = (0..64)
        .map(|i| gpu(&format!("g{i}"), "X", 1 << 30, &[Isolation::Guarded]))
        .collect();
    world.node("alpha", inventory(u32::MAX, u64::MAX, gpus));
    let mut refused = 0;
    let vast = Demand {
        memory_mib: 1 << 40,
        cpu_milli: 1_000_000,
        ..whole(64)
    };
    for demand in [vast, whole(1), cpu(1000), cpu(1)] {
        for run_time_s in [366 * 86_400, 3600, 60, 1] {
            for _ in 0..3 {
                match world.submit(ada, spec("dear", demand.clone(), run_time_s)) {
                    Err(refusal) => {
                        assert_eq!(refusal.code, Code::ExceedsBudget, "{refusal}");
                        refused += 1;
                    }
                    Ok(job) => {
                        world.pass_s(run_time_s);
                        if world.allocation(job).is_some() {
                            world.exit(job, u64::MAX / 1000);
                        }
                    }
                }
            }
        }
    }
    assert!(refused > 0, "some cost more than can be counted");
    let over = Prices {
        cpu_hour_micros: most + 1,
        ..prices
    };
    assert_eq!(
        world
            .root(Wish::SetPrices { prices: over })
            .expect_err("too dear")
            .code,
        Code::InvalidField
    );
    let negative = Prices {
        cpu_hour_micros: -1,
        ..Prices::default()
    };
    assert_eq!(
        world
            .root(Wish::SetPrices { prices: negative })
            .expect_err("negative")
            .code,
        Code::InvalidField
    );
}

#[test]
fn the_last_owner_stays() {
    let mut world = World::new();
    let root = world.root;
    let home = ScopeId::User(root);
    let acme = world.tenant("acme");
    let leave = [
        Wish::RevokeRole {
            scope: ScopeId::Platform,
            user: root,
            role: Role::Owner,
        },
        Wish::Close { scope: home },
        Wish::Suspend { scope: home },
        Wish::Move {
            scope: home,
            parent: acme,
        },
    ];
    for wish in &leave {
        assert_eq!(
            world.root(wish.clone()).expect_err("the last owner").code,
            Code::LastOwner,
            "{wish:?}"
        );
    }
    // A suspended owner is no owner who can act.
    let second = world.user(ScopeId::Platform, "second", Some(Role::Owner));
    world
        .root(Wish::Suspend {
            scope: ScopeId::User(second),
        })
        .expect("suspended");
    for wish in &leave {
        assert_eq!(
            world.root(wish.clone()).expect_err("the other is suspended").code,
            Code::LastOwner,
            "{wish:?}"
        );
    }
    world
        .root(Wish::Resume {
            scope: ScopeId::User(second),
        })
        .expect("resumed");
    world.root(leave[0].clone()).expect("now somebody else is there");
    assert_eq!(
        world.by(second, leave[0].clone()).expect_err("gone already").code,
        Code::NotFound
    );
}

#[test]
fn the_tree_has_four_levels_and_no_cycles() {
    let mut world = World::new();
    let acme = world.tenant("acme");
    let lab = world.subscriber(acme, "lab");
    let user = world.user(lab, "ada", None);
    let rows = [
        Wish::Move {
            scope: acme,
            parent: acme,
        },
        Wish::Move {
            scope: acme,
            parent: lab,
        },
        Wish::Move {
            scope: acme,
            parent: ScopeId::User(user),
        },
        Wish::Move {
            scope: lab,
            parent: lab,
        },
        Wish::Move {
            scope: lab,
            parent: ScopeId::User(user),
        },
        Wish::Move {
            scope: lab,
            parent: ScopeId::Platform,
        },
        Wish::Move {
            scope: ScopeId::User(user),
            parent: ScopeId::User(user),
        },
        Wish::CreateSubscriber {
            tenant: lab,
            name: "deeper".into(),
        },
        Wish::CreateSubscriber {
            tenant: ScopeId::Platform,
            name: "higher".into(),
        },
        Wish::CreateUser {
            parent: ScopeId::User(user),
            name: "below".into(),
            kind: UserKind::Person,
            identity: None,
            role: None,
        },
    ];
    for wish in rows {
        assert_eq!(
            world.root(wish.clone()).expect_err("wrong parent").code,
            Code::WrongParent,
            "{wish:?}"
        );
    }
    for wish in [
        Wish::Suspend {
            scope: ScopeId::Platform,
        },
        Wish::Close {
            scope: ScopeId::Platform,
        },
        Wish::Move {
            scope: ScopeId::Platform,
            parent: acme,
        },
    ] {
        assert!(world.root(wish.clone()).is_err(), "{wish:?}");
    }
    let levels = [Level::Platform, Level::Tenant, Level::Subscriber, Level::User];
    assert!(
        levels.iter().all(|level| levels
            .iter()
            .all(|parent| !level.fits_under(*parent) || parent < level)),
        "a parent is always above"
    );
    assert_eq!(
        world
            .root(Wish::CreateTenant { name: "acme".into() })
            .expect_err("taken")
            .code,
        Code::NameTaken
    );
    for name in [
        "",
        ".hidden",
        "-x",
        "a b",
        "a/b",
        "Ünal",
        "a\u{202e}b",
        "a\0",
        &"x".repeat(64),
    ] {
        assert_eq!(
            world
                .root(Wish::CreateTenant { name: name.into() })
                .expect_err(name)
                .code,
            Code::InvalidField
        );
    }
    // Even Tenure itself builds nothing on what is not there.
    let nowhere = ScopeId::Tenant(tenure_domain::id::TenantId(5));
    assert_eq!(
        world
            .system(Wish::CreateSubscriber {
                tenant: nowhere,
                name: "x".into()
            })
            .expect_err("nowhere")
            .code,
        Code::NotFound
    );
}

#[test]
fn a_limited_key_stays_limited() {
    let mut world = World::new();
    let (root, acme) = (world.root, world.tenant("acme"));
    let ada = world.user(acme, "ada", None);
    let limited = Actor::User {
        user: root,
        key: None,
        allow: Some(
            [
                Action::ScopeRead,
                Action::RoleGrant,
                Action::KeyManage,
                Action::UserManage,
            ]
            .into(),
        ),
    };
    let rows = [
        Wish::CreateTenant { name: "x".into() },
        Wish::GrantRole {
            scope: acme,
            user: ada,
            role: Role::Owner,
        },
        Wish::CreateUser {
            parent: acme,
            name: "x".into(),
            kind: UserKind::Person,
            identity: None,
            role: Some(Role::Operator),
        },
        Wish::CreateKey {
            user: root,
            label: "k".into(),
            digest: digest(5),
            expires: None,
            allow: None,
        },
        Wish::CreateKey {
            user: root,
            label: "k".into(),
            digest: digest(5),
            expires: None,
            allow: Some([Action::JobStop].into()),
        },
        Wish::SetIdentity {
            user: root,
            identity: Some(Identity {
                issuer: "https://id".into(),
                subject: "me".into(),
            }),
        },
    ];
    for wish in rows {
        assert!(world.act(limited.clone(), wish.clone()).is_err(), "{wish:?}");
    }
    let narrower = Wish::CreateKey {
        user: root,
        label: "k".into(),
        digest: digest(5),
        expires: None,
        allow: Some([Action::ScopeRead].into()),
    };
    world.act(limited, narrower).expect("a narrower key is fine");
    let same = Wish::CreateKey {
        user: root,
        label: "k2".into(),
        digest: digest(5),
        expires: None,
        allow: None,
    };
    assert_eq!(
        world.root(same).expect_err("a digest is one key's").code,
        Code::ContradictoryReport
    );
}

#[test]
fn a_colleague_does_not_read_my_secrets() {
    let (mut world, acme, ada) = setting();
    let mallory = world.user(acme, "mallory", Some(Role::Member));
    let secret = tenure_domain::id::SecretId(world.next);
    world
        .by(
            ada,
            Wish::StoreSecret {
                scope: ScopeId::User(ada),
                name: "token".into(),
                secret,
            },
        )
        .expect("stored");
    let mut job = spec("peek", cpu(100), 60);
    job.secrets = [("TOKEN".to_owned(), "token".to_owned())].into();
    let job = Arc::new(job);
    let refusal = world
        .by(
            mallory,
            Wish::Submit {
                owner: ada,
                spec: job.clone(),
                trace: None,
            },
        )
        .expect_err("not hers");
    assert_eq!(
        (refusal.code, refusal.field.as_deref()),
        (Code::NotPermitted, Some("/secrets"))
    );
    world
        .by(
            ada,
            Wish::Submit {
                owner: ada,
                spec: job,
                trace: None,
            },
        )
        .expect("her own");
}

#[test]
fn evicting_what_waits_does_not_cancel_it() {
    let (mut world, acme, ada) = setting();
    world.quota(acme, &[("jobs", 1)]);
    world.submit(ada, spec("runs", cpu(100), 60)).expect("taken");
    let waits = world.submit(ada, spec("waits", cpu(100), 60)).expect("taken");
    for reason in [StopReason::Evicted, StopReason::RunTime] {
        assert_eq!(world.system(Wish::Stop { job: waits, reason }), Ok(vec![]));
    }
    assert!(world.state.jobs.contains_key(&waits));
}

#[test]
fn what_was_cancelled_and_never_started_is_cancelled() {
    use tenure_domain::command::Observation;
    use tenure_domain::workload::job::Outcome;
    let (mut world, _, ada) = setting();
    let job = world.submit(ada, spec("slow", cpu(100), 60)).expect("taken");
    world.stop(job).expect("stopped");
    let events = world
        .observe(
            job,
            Observation::NotStarted {
                why: "told to stop".into(),
            },
        )
        .expect("taken");
    assert_eq!(
        events,
        vec![tenure_domain::Event::JobEnded {
            job,
            outcome: Outcome::Cancelled
        }]
    );
}

#[test]
fn the_last_owner_keeps_a_key() {
    let mut world = World::new();
    let root = world.root;
    let first = world
        .state
        .keys
        .of_user(root)
        .next()
        .expect("the founder's key")
        .id;
    let revoke = |key| Wish::RevokeKey { key };
    assert_eq!(
        world.root(revoke(first)).expect_err("the last key").code,
        Code::LastOwner
    );
    let make = |label: &str, n, expires, allow| Wish::CreateKey {
        user: root,
        label: label.into(),
        digest: digest(n),
        expires,
        allow,
    };
    // Neither a limited key nor one about to run out is a way in.
    let limited = Some([Action::JobRead].into());
    world.root(make("limited", 901, None, limited)).expect("made");
    let soon = Some(world.now.plus_ms(1000));
    world.root(make("short", 902, soon, None)).expect("made");
    world.pass_s(2);
    assert_eq!(
        world.root(revoke(first)).expect_err("still the last").code,
        Code::LastOwner
    );
    world.root(make("second", 903, None, None)).expect("made");
    world.root(revoke(first)).expect("another stands");
}

#[test]
fn a_policy_narrowed_later_holds_what_waits() {
    let mut world = World::new();
    let acme = world.tenant("acme");
    let ada = world.user(acme, "ada", Some(Role::Member));
    let job = world
        .submit(ada, spec("waits", cpu(100), 600))
        .expect("no node yet");
    let short = Policy {
        max_run_time_s: Some(60),
        ..Policy::default()
    };
    world.policy(acme, short);
    world.node("alpha", inventory(16_000, 64_000, vec![]));
    assert!(world.schedule().is_empty());
    let why = tenure_domain::schedule::why::why(&world.state, job, world.now).expect("it waits");
    assert_eq!(
        (why.code, why.field.as_deref()),
        (Code::PolicyExcludes, Some("/run_time_s"))
    );
    world.policy(acme, Policy::default());
    assert!(!world.schedule().is_empty());
}
