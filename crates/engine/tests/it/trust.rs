//! Who is let in, and who no longer is.

use rcgen::KeyPair;
use tenure_api::channel::{FromAgent, FromServer};
use tenure_api::secret_text::SecretText;
use tenure_domain::id::NodeId;
use tenure_engine::Seen;
use tenure_engine::conformance::Watcher;
use tenure_engine::local::Authority;

use crate::wire::{Card, House, request};

fn bye_code(message: FromServer) -> String {
    match message {
        FromServer::Bye { code, .. } => code,
        other => panic!("{other:?}"),
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_token_is_good_for_one_node() {
    let house = House::new().await;
    let token = house.registry.issue(1);
    let first = KeyPair::generate().unwrap();
    let FromServer::Joined { node, .. } = house.join(&token, &first).await else {
        panic!()
    };
    assert_eq!(
        bye_code(house.join(&token, &KeyPair::generate().unwrap()).await),
        "bad_join_token"
    );
    assert_eq!(
        bye_code(house.join("tnrj_nonsense", &KeyPair::generate().unwrap()).await),
        "bad_join_token"
    );
    // Who missed the answer asks again with the same key, and is the same node.
    let FromServer::Joined { node: again, .. } = house.join(&token, &first).await else {
        panic!()
    };
    assert_eq!((node, house.registry.joins()), (again, 1));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_request_not_signed_with_its_key_spends_no_token() {
    let house = House::new().await;
    let token = house.registry.issue(1);
    let key = KeyPair::generate().unwrap();
    let pem = request(&key);
    // One character of the signature, near the end.
    let mut damaged = pem.trim_end().to_owned().into_bytes();
    let at = damaged.len() - 40;
    damaged[at] = if damaged[at] == b'A' { b'B' } else { b'A' };
    for csr_pem in [
        String::from_utf8(damaged).unwrap(),
        "nonsense".to_owned(),
        String::new(),
    ] {
        let mut wire = house.stranger().await;
        wire.say(&FromAgent::Join {
            token: SecretText::new(&token),
            name: "n".into(),
            csr_pem,
        })
        .await;
        assert_eq!(wire.bye().await.as_deref(), Some("invalid_request"));
    }
    for name in ["", "../x", "a b", "ü"] {
        let mut wire = house.stranger().await;
        wire.say(&FromAgent::Join {
            token: SecretText::new(&token),
            name: name.into(),
            csr_pem: pem.clone(),
        })
        .await;
        assert_eq!(wire.bye().await.as_deref(), Some("invalid_field"));
    }
    assert!(matches!(
        house.join(&token, &key).await,
        FromServer::Joined { .. }
    ));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_stranger_may_only_join() {
    let house = House::new().await;
    let mut watcher = Watcher::of(&house.hub);
    for message in [
        FromAgent::Heartbeat { sent_ms: 1 },
        crate::wire::hello("b", 1),
        FromAgent::Report {
            whole: true,
            more: false,
            allocations: vec![],
        },
    ] {
        let mut wire = house.stranger().await;
        wire.say(&message).await;
        assert_eq!(wire.bye().await.as_deref(), Some("unexpected"));
    }
    let mut wire = house.stranger().await;
    wire.raw(&(1u32 << 20).to_be_bytes()).await;
    assert_eq!(
        wire.bye().await.as_deref(),
        Some("bad_frame"),
        "a stranger's frames are short"
    );
    assert!(
        watcher
            .within(std::time::Duration::from_millis(100))
            .await
            .is_empty()
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn a_revoked_key_is_refused_at_once_and_at_its_next_heartbeat() {
    let house = House::new().await;
    let card = house.node(1).await;
    let mut watcher = Watcher::of(&house.hub);
    let mut live = house.wire(&card).await;
    live.open().await;
    watcher.whole(card.node).await;
    house.registry.revoke(card.node);
    live.say(&FromAgent::Heartbeat { sent_ms: 2 }).await;
    assert_eq!(live.bye().await.as_deref(), Some("unknown_key"));
    let seen = watcher.next().await;
    assert_eq!(seen, Seen::Gone { node: card.node }, "no lease was renewed");
    let mut wire = house.wire(&card).await;
    wire.say(&crate::wire::hello("boot-1", 2000)).await;
    assert_eq!(wire.bye().await.as_deref(), Some("unknown_key"));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_certificate_of_another_authority_is_no_certificate() {
    let house = House::new().await;
    let other = Authority::create().unwrap();
    let key = KeyPair::generate().unwrap();
    let certificate_pem = other.sign_node(&request(&key), NodeId(1)).unwrap();
    let card = Card {
        node: NodeId(1),
        key,
        certificate_pem,
    };
    // TLS 1.3 tells the client of it when it first reads.
    if let Ok(mut wire) = house.connect(&house.authority, Some(&card)).await {
        assert!(wire.hear().await.is_none());
    }
    // And the other way round: who trusts another authority does not speak with this hub.
    assert!(house.connect(&other, None).await.is_err());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_new_key_takes_over_when_it_is_used() {
    let house = House::new().await;
    let card = house.node(1).await;
    let mut wire = house.wire(&card).await;
    wire.open().await;
    let key = KeyPair::generate().unwrap();
    for _ in 0..2 {
        wire.say(&FromAgent::Rotate {
            csr_pem: request(&key),
        })
        .await;
    }
    let Some(FromServer::Rotated { certificate_pem }) = wire.hear().await else {
        panic!()
    };
    assert_eq!(house.registry.keys_of(card.node).len(), 2);
    let next = Card {
        node: card.node,
        key,
        certificate_pem,
    };
    let mut wire = house.wire(&next).await;
    wire.open().await;
    assert_eq!(house.registry.keys_of(card.node).len(), 1);
    let mut old = house.wire(&card).await;
    old.say(&crate::wire::hello("boot-1", 2000)).await;
    assert_eq!(old.bye().await.as_deref(), Some("unknown_key"));
}

#[test]
fn an_authority_is_loaded_as_it_was_made() {
    let made = Authority::create().unwrap();
    let (certificate, key) = made.to_pem();
    let loaded = Authority::load(&certificate, key.reveal()).unwrap();
    assert_eq!(made.fingerprint(), loaded.fingerprint());
    let other = Authority::create().unwrap().to_pem().1;
    assert!(Authority::load(&certificate, other.reveal()).is_err());
    assert!(Authority::load("", key.reveal()).is_err());
}
