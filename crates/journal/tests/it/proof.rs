//! Proofs: every index of small trees, some of large ones, and none that is wrong.

use tenure_journal::{KeyError, ProofError, SigningKey, check_proof};

use crate::place::{Chance, Place, batch, both, fill};

both!(every_event_is_proven, large_journals_prove_quickly);

async fn every_event_is_proven(place: Place) {
    let mut journal = place.open().await;
    let (key, pkcs8) = SigningKey::generate();
    assert_eq!(
        SigningKey::from_pkcs8(&pkcs8).unwrap().public_key(),
        key.public_key()
    );
    let public = key.public_key();
    let (other, _) = SigningKey::generate();
    for size in 1..=70 {
        journal.append(batch([size])).await.unwrap();
        let head = journal.sign_head(&key, 1_000 + size as i64).await.unwrap();
        assert_eq!(head.check(&other.public_key()), Err(KeyError::OtherKey));
        let step = if place.is_sqlite() { 1 } else { 7 };
        for seq in (1..=size).step_by(step) {
            let proof = journal.prove(seq, size).await.unwrap();
            let line = check_proof(&proof, &head, &public).unwrap();
            assert_eq!((line.seq, &*line.text), (seq, proof.line.as_str()));

            let mut wrong = proof.clone();
            wrong.line = wrong.line.replacen("\"kind\":\"test\"", "\"kind\":\"tess\"", 1);
            assert_eq!(check_proof(&wrong, &head, &public), Err(ProofError::Path));
            let mut wrong = proof.clone();
            wrong.index ^= 1;
            assert!(check_proof(&wrong, &head, &public).is_err());
            let mut wrong = proof.clone();
            wrong.size += 1;
            assert_eq!(check_proof(&wrong, &head, &public), Err(ProofError::Size));
            for at in 0..proof.path.len() {
                let mut wrong = proof.clone();
                wrong.path[at].0[at % 32] ^= 4;
                assert_eq!(check_proof(&wrong, &head, &public), Err(ProofError::Path));
            }
            let mut wrong = proof.clone();
            wrong.path.push(tenure_journal::Hash::ZERO);
            assert!(check_proof(&wrong, &head, &public).is_err());
            let mut forged = head.clone();
            forged.root.0[0] ^= 1;
            assert_eq!(
                check_proof(&proof, &forged, &public),
                Err(ProofError::Head(KeyError::BadSignature))
            );
        }
    }
    let heads = journal.heads().await.unwrap();
    assert_eq!(heads.len(), 70);
    assert!(heads.iter().all(|head| head.check(&public).is_ok()));
    // Also against a head that is no longer the newest.
    let proof = journal.prove(3, heads[40].seq).await.unwrap();
    check_proof(&proof, &heads[40], &public).unwrap();
    assert!(journal.prove(71, 70).await.is_err() && journal.prove(0, 70).await.is_err());
    assert!(journal.prove(1, 71).await.is_err());
}

async fn large_journals_prove_quickly(place: Place) {
    let mut journal = place.open().await;
    let (key, _) = SigningKey::generate();
    let mut chance = Chance(9);
    for _ in 0..25 {
        let first = journal.head().seq + 1;
        journal.append(batch(first..first + 997)).await.unwrap();
        fill(&mut journal, 30, &mut chance).await;
    }
    let head = journal.sign_head(&key, 1).await.unwrap();
    let start = std::time::Instant::now();
    for _ in 0..100 {
        let seq = 1 + chance.next() % head.seq;
        let proof = journal.prove(seq, head.seq).await.unwrap();
        assert_eq!(check_proof(&proof, &head, &key.public_key()).unwrap().seq, seq);
        let size = seq + chance.next() % (head.seq - seq + 1);
        journal.prove(seq, size).await.unwrap();
    }
    assert!(
        start.elapsed().as_secs() < 60,
        "{:?} for 200 proofs",
        start.elapsed()
    );
}
