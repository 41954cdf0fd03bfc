//! How logs are kept: by the platform, and less by a tenant.

use tenure_domain::tenancy::keeping::Keeping;
use tenure_domain::tenancy::scope::ScopeId;
use tenure_domain::{Actor, Code, Wish};

use crate::world::World;

fn days(days: u32) -> Keeping {
    Keeping {
        days: Some(days),
        ..Keeping::default()
    }
}

#[test]
fn a_tenant_keeps_less_and_never_more_than_the_platform_does_now() {
    let mut world = World::new();
    let acme = world.tenant("acme");
    let ScopeId::Tenant(tenant) = acme else {
        panic!("{acme} is no tenant")
    };
    let set = |world: &mut World, scope, keeping| {
        let wish = Wish::SetLogKeeping {
            scope,
            keeping,
            revision: None,
        };
        let root = Actor::user(world.root);
        world.act(root, wish)
    };
    assert_eq!(world.state.logs_of(Some(tenant)).days, 14);
    let more = set(&mut world, acme, days(15)).unwrap_err();
    assert_eq!(more.code, Code::InvalidField);
    set(&mut world, acme, days(10)).unwrap();
    assert_eq!(world.state.logs_of(Some(tenant)).days, 10);
    assert_eq!(set(&mut world, acme, days(10)).unwrap(), vec![]);
    // Others keep what the platform says.
    assert_eq!(world.state.logs_of(None).days, 14);
    // The platform's later word holds for everybody.
    set(&mut world, ScopeId::Platform, days(3)).unwrap();
    assert_eq!(world.state.logs_of(Some(tenant)).days, 3);
    let lab = world.subscriber(acme, "lab");
    for (scope, keeping) in [
        (lab, days(1)),
        (acme, days(0)),
        (
            acme,
            Keeping {
                tenant_mib: Some(1),
                ..Keeping::default()
            },
        ),
        (
            ScopeId::Platform,
            Keeping {
                mib: Some(0),
                ..Keeping::default()
            },
        ),
    ] {
        assert_eq!(
            set(&mut world, scope, keeping).unwrap_err().code,
            Code::InvalidField
        );
    }
}
