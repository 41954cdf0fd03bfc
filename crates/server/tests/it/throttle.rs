//! One tenant's flood is nobody else's.

use tenure_server::http::HttpOptions;

use crate::world::World;

#[tokio::test(flavor = "multi_thread")]
async fn a_flood_of_one_tenant_leaves_others_alone() {
    let options = HttpOptions {
        rate_per_tenant: 50,
        burst_per_tenant: 100,
        ..HttpOptions::default()
    };
    let world = std::sync::Arc::new(World::with(options).await);
    let (_, greedy) = world
        .user(&world.tenant("greedy").await, "g", Some("owner"))
        .await;
    let (_, modest) = world
        .user(&world.tenant("modest").await, "m", Some("owner"))
        .await;
    let flood: Vec<_> = (0..8)
        .map(|_| {
            let (world, greedy) = (world.clone(), greedy.clone());
            tokio::spawn(async move {
                let (mut done, mut refused) = (0, 0);
                for _ in 0..625 {
                    let reply = world.get(&greedy, "/v1/whoami").await;
                    match reply.status.as_u16() {
                        200 => done += 1,
                        429 => {
                            assert_eq!(reply.code(), "too_many_requests");
                            assert!(
                                reply.headers["retry-after"]
                                    .to_str()
                                    .unwrap()
                                    .parse::<u64>()
                                    .unwrap()
                                    >= 1
                            );
                            refused += 1;
                        }
                        other => panic!("{other}"),
                    }
                }
                (done, refused)
            })
        })
        .collect();
    for _ in 0..40 {
        assert_eq!(world.get(&modest, "/v1/whoami").await.status, 200);
        tokio::time::sleep(std::time::Duration::from_millis(25)).await;
    }
    let (mut done, mut refused) = (0, 0);
    for task in flood {
        let (d, r) = task.await.unwrap();
        (done, refused) = (done + d, refused + r);
    }
    assert_eq!(done + refused, 5000);
    assert!(refused > 3000, "{refused} refused");
}
