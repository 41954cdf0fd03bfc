//! Decisions about the tree: making, moving and closing scopes, roles, keys, limits and secrets.

mod access;
mod keeping;
mod limit;
mod secret;
mod share;
mod webhook;

use super::authorize::effective;
use super::role::{Action, Role, permitted};
use super::scope::{Identity, Level, Scope, ScopeId, UserFacts, UserKind};
use crate::actor::Actor;
use crate::decide::Case;
use crate::event::Event;
use crate::id::{SubscriberId, TenantId, UserId};
use crate::meter::Amounts;
use crate::name;
use crate::refusal::{Code, Refusal};
use crate::storage::volume::Volume;

impl Case<'_> {
    fn free_name(&self, parent: ScopeId, name: &str) -> Result<(), Refusal> {
        name::check(name, "/name")?;
        match self.state.tree.child_named(parent, name) {
            None => Ok(()),
            Some(_) => Err(Refusal::new(
                Code::NameTaken,
                format!("{name} exists already under {}", self.state.tree.title(parent)),
            )
            .field("/name")),
        }
    }

    pub(crate) fn create_tenant(&mut self, name: &str) -> Result<Vec<Event>, Refusal> {
        self.may(Action::ScopeManage, ScopeId::Platform)?;
        self.free_name(ScopeId::Platform, name)?;
        let scope = ScopeId::Tenant(TenantId(self.ids.take()));
        Ok(vec![Event::ScopeCreated {
            scope,
            parent: ScopeId::Platform,
            name: name.into(),
            user: None,
        }])
    }

    pub(crate) fn create_subscriber(&mut self, tenant: ScopeId, name: &str) -> Result<Vec<Event>, Refusal> {
        self.may(Action::ScopeManage, tenant)?;
        self.fits_under(Level::Subscriber, tenant)?;
        self.free_name(tenant, name)?;
        let scope = ScopeId::Subscriber(SubscriberId(self.ids.take()));
        Ok(vec![Event::ScopeCreated {
            scope,
            parent: tenant,
            name: name.into(),
            user: None,
        }])
    }

    pub(crate) fn create_user(
        &mut self,
        parent: ScopeId,
        name: &str,
        kind: UserKind,
        identity: Option<&Identity>,
        role: Option<Role>,
    ) -> Result<Vec<Event>, Refusal> {
        self.may(Action::UserManage, parent)?;
        self.fits_under(Level::User, parent)?;
        self.free_name(parent, name)?;
        identity.map_or(Ok(()), check_identity)?;
        if let Some(role) = role {
            self.may_grant(parent, role)?;
        }
        let user = UserId(self.ids.take());
        let facts = UserFacts {
            kind,
            identity: identity.cloned(),
        };
        let created = Event::ScopeCreated {
            scope: ScopeId::User(user),
            parent,
            name: name.into(),
            user: Some(facts),
        };
        let granted = role.map(|role| Event::RoleGranted {
            scope: parent,
            user,
            role,
        });
        Ok([Some(created), granted].into_iter().flatten().collect())
    }

    fn fits_under(&self, level: Level, parent: ScopeId) -> Result<(), Refusal> {
        if level.fits_under(parent.level()) {
            return Ok(());
        }
        Err(Refusal::new(
            Code::WrongParent,
            format!(
                "a {} cannot stand under a {}",
                level.as_str(),
                parent.level().as_str()
            ),
        )
        .field("/parent"))
    }

    fn manage(&self, scope: ScopeId) -> Result<&Scope, Refusal> {
        let action = if scope.level() == Level::User {
            Action::UserManage
        } else {
            Action::ScopeManage
        };
        // A scope is managed from above: nobody suspends, moves or closes the place they stand on.
        let above = self.state.tree.find(scope)?.parent.unwrap_or(ScopeId::Platform);
        self.may(Action::ScopeRead, scope)?;
        self.may(action, above)?;
        if scope == ScopeId::Platform {
            return Err(Refusal::new(
                Code::WrongPhase,
                "the platform itself cannot be suspended, moved or closed",
            ));
        }
        self.state.tree.find(scope)
    }

    pub(crate) fn suspend(&self, scope: ScopeId) -> Result<Vec<Event>, Refusal> {
        let found = self.manage(scope)?;
        self.keep_an_owner(scope)?;
        Ok(if found.suspended {
            vec![]
        } else {
            vec![Event::ScopeSuspended { scope }]
        })
    }

    pub(crate) fn resume(&self, scope: ScopeId) -> Result<Vec<Event>, Refusal> {
        Ok(if self.manage(scope)?.suspended {
            vec![Event::ScopeResumed { scope }]
        } else {
            vec![]
        })
    }

    /// Moves a scope with all below it. Its use must fit every new scope above; into another tenant only with
    /// no job alive, since another account would pay.
    pub(crate) fn move_scope(&self, scope: ScopeId, parent: ScopeId) -> Result<Vec<Event>, Refusal> {
        let moved = self.manage(scope)?;
        let action = if scope.level() == Level::User {
            Action::UserManage
        } else {
            Action::ScopeManage
        };
        self.may(action, parent)?;
        self.fits_under(scope.level(), parent)?;
        if moved.parent == Some(parent) {
            return Ok(vec![]);
        }
        self.free_name(parent, &moved.name)?;
        self.keep_an_owner_after_move(scope, parent)?;
        let tree = &self.state.tree;
        if tree.tenant_of(scope) != tree.tenant_of(parent) && self.state.jobs_within(scope).next().is_some() {
            return Err(Refusal::new(
                Code::JobsStillLive,
                format!(
                    "{} has live jobs and would move to another tenant",
                    tree.title(scope)
                ),
            )
            .hint("wait for the jobs to end, or stop them"));
        }
        let crosses = tree.tenant_of(scope) != tree.tenant_of(parent);
        if crosses && let Some(volume) = self.volumes_within(scope).next() {
            return Err(Refusal::new(
                Code::VolumesStillThere,
                format!(
                    "volume {} of {} has files of this tenant, and does not move to another",
                    volume.name,
                    tree.title(volume.scope)
                ),
            )
            .hint("copy what is needed and remove the volumes"));
        }
        self.no_bookings(scope)?;
        self.no_trades(scope)?;
        self.nothing_resold(scope)?;
        for above in tree
            .chain(parent)
            .filter(|above| !tree.is_within(scope, above.id))
        {
            self.fits_into(moved, above)?;
        }
        share::fits_parent(tree, parent, scope, &moved.share)
            .map_err(|over| over.refusal(tree, parent).field("/parent"))?;
        Ok(vec![Event::ScopeMoved { scope, parent }])
    }

    /// What is set aside at a subscriber in its prices is not known in those of another.
    fn nothing_resold(&self, scope: ScopeId) -> Result<(), Refusal> {
        let resold = self.state.jobs_within(scope).find(|job| {
            let hold = job.admission.as_ref().map(|admission| &admission.hold);
            hold.is_some_and(|hold| hold.resale.is_some())
        });
        resold.map_or(Ok(()), |job| {
            Err(Refusal::new(
                Code::JobsStillLive,
                format!("{} runs at the prices of its subscriber", job.id),
            )
            .hint("wait for its end, or stop it"))
        })
    }

    fn fits_into(&self, moved: &Scope, above: &Scope) -> Result<(), Refusal> {
        let title = self.state.tree.title(above.id);
        if let Some(over) = above.limits().first_exceeded(&above.used, &moved.used) {
            return Err(Refusal::new(
                Code::ExceedsQuota,
                format!(
                    "{} of {} in use would arrive at {title}, which uses {} of {}",
                    over.asked, over.meter, over.used, over.limit
                ),
            )
            .field("/parent")
            .hint(format!("stop jobs first, or raise the quota of {title}")));
        }
        for (of, period, spend) in moved.spending.iter() {
            if super::budget::first_exceeded(
                &above.budgets_of(period),
                &above.spending,
                std::slice::from_ref(of),
                spend.held,
                self.command.at,
            )
            .is_some()
            {
                return Err(Refusal::new(
                    Code::ExceedsBudget,
                    format!("what running jobs hold does not fit the budget of {title}"),
                )
                .field("/parent")
                .hint(format!("stop jobs first, or raise the budget of {title}")));
            }
        }
        Ok(())
    }

    /// What is booked was booked within the quotas above and is paid from there, so it does not move or vanish.
    fn no_bookings(&self, scope: ScopeId) -> Result<(), Refusal> {
        let scopes = self.state.tree.subtree(scope);
        let mut bookings = scopes.iter().flat_map(|scope| self.state.bookings.of(*scope));
        bookings.next().map_or(Ok(()), |booking| {
            let title = self.state.tree.title(booking.scope);
            let sentence = format!("{title} has booking {} ({})", booking.spec.name, booking.id);
            Err(Refusal::new(Code::BookingsStillThere, sentence).hint("transfer or cancel it first"))
        })
    }

    /// Money and quota of others are bound in what is traded, so it does not move or vanish.
    fn no_trades(&self, scope: ScopeId) -> Result<(), Refusal> {
        let (tree, market) = (&self.state.tree, &self.state.market);
        let inside = |of: ScopeId| tree.is_within(of, scope);
        let sells = |seller: TenantId| inside(ScopeId::Tenant(seller));
        let what = if market
            .leases()
            .any(|lease| inside(lease.scope) || sells(lease.seller))
        {
            "leases"
        } else if market.bids().any(|bid| inside(bid.scope)) {
            "bids"
        } else if market.offers().any(|offer| sells(offer.seller)) {
            "offers"
        } else {
            return Ok(());
        };
        let sentence = format!("{} has {what} on the exchange", tree.title(scope));
        Err(Refusal::new(Code::TradesStillThere, sentence)
            .hint("withdraw offers, cancel bids, and wait for leases to end or return them"))
    }

    fn volumes_within(&self, scope: ScopeId) -> impl Iterator<Item = &Volume> {
        let scopes = self.state.tree.subtree(scope);
        scopes.into_iter().flat_map(|scope| self.state.volumes.of(scope))
    }

    /// Closes a scope and everything below it, children first; its secrets, volumes and webhooks go with it.
    pub(crate) fn close(&self, scope: ScopeId) -> Result<Vec<Event>, Refusal> {
        self.manage(scope)?;
        self.keep_an_owner(scope)?;
        let jobs = self.state.jobs_within(scope);
        let live = jobs.filter(|job| job.parent().is_none()).count();
        if live > 0 {
            return Err(Refusal::new(
                Code::JobsStillLive,
                format!("{} has {live} live jobs", self.state.tree.title(scope)),
            )
            .hint("stop them, or wait for them to end"));
        }
        self.no_bookings(scope)?;
        self.no_trades(scope)?;
        // A user who was moved away may have taken along a job that names a volume of this scope.
        self.volumes_within(scope)
            .try_for_each(|volume| self.unused(volume))?;
        let mut closing = self.state.tree.subtree(scope);
        closing.reverse();
        let erased = closing
            .iter()
            .flat_map(|&scope| self.state.secrets_of(scope))
            .map(|(scope, name, secret)| Event::SecretErased { scope, name, secret });
        let removed = self.volumes_within(scope).map(|volume| Event::VolumeRemoved {
            volume: volume.id,
            scope: volume.scope,
        });
        let unhooked = self.webhooks_closing(&closing);
        let mut events: Vec<Event> = erased.chain(removed).chain(unhooked).collect();
        events.extend(closing.into_iter().map(|scope| Event::ScopeClosed { scope }));
        Ok(events)
    }

    /// Refuses what would leave the platform without an owner who can act.
    fn keep_an_owner(&self, leaving: ScopeId) -> Result<(), Refusal> {
        let owners = self
            .state
            .tree
            .find(ScopeId::Platform)?
            .roles
            .iter()
            .filter(|(_, roles)| roles.contains(&Role::Owner));
        let mut staying = owners.filter(|(user, _)| {
            let home = ScopeId::User(**user);
            self.state.tree.suspended_above(home).is_none() && !self.state.tree.is_within(home, leaving)
        });
        if staying.next().is_some() {
            return Ok(());
        }
        Err(
            Refusal::new(Code::LastOwner, "the platform would be left without an owner")
                .hint("make somebody else an owner first"),
        )
    }

    fn keep_an_owner_after_move(&self, scope: ScopeId, parent: ScopeId) -> Result<(), Refusal> {
        let crosses = self.state.tree.tenant_of(scope) != self.state.tree.tenant_of(parent);
        if crosses {
            self.keep_an_owner(scope)
        } else {
            Ok(())
        }
    }

    pub(crate) fn set_identity(
        &self,
        user: UserId,
        identity: Option<&Identity>,
    ) -> Result<Vec<Event>, Refusal> {
        let home = self.state.tree.find(ScopeId::User(user))?;
        self.may(Action::ScopeRead, home.id)?;
        self.may(Action::UserManage, home.parent.unwrap_or(ScopeId::Platform))?;
        self.may_become(user)?;
        if matches!(self.command.by, Actor::User { allow: Some(_), .. }) {
            return Err(grant_exceeds("the key in use is limited, and a login is not"));
        }
        identity.map_or(Ok(()), check_identity)?;
        Ok(vec![Event::IdentitySet {
            user,
            identity: identity.cloned(),
        }])
    }

    /// Whoever makes a key or a login for a user could act as it, so must hold everything it holds.
    fn may_become(&self, user: UserId) -> Result<(), Refusal> {
        let Some(actor) = self.command.by.user_id() else {
            return Ok(());
        };
        if actor == user {
            return Ok(());
        }
        for scope in self
            .state
            .tree
            .iter()
            .filter(|scope| scope.roles.contains_key(&user))
        {
            let mine = effective(&self.state.tree, actor, scope.id);
            let theirs = scope.roles[&user].iter().flat_map(|role| permitted(*role));
            if theirs.into_iter().any(|action| !mine.contains(action)) {
                return Err(grant_exceeds("the user holds more rights than you do"));
            }
        }
        Ok(())
    }

    fn may_grant(&self, scope: ScopeId, role: Role) -> Result<(), Refusal> {
        self.may(Action::RoleGrant, scope)?;
        let Some(actor) = self.command.by.user_id() else {
            return Ok(());
        };
        let mine = effective(&self.state.tree, actor, scope);
        let by_key = |action| match &self.command.by {
            Actor::User {
                allow: Some(allow), ..
            } => allow.contains(action),
            _ => true,
        };
        if permitted(role)
            .iter()
            .all(|action| mine.contains(action) && by_key(action))
        {
            return Ok(());
        }
        Err(grant_exceeds("the role allows more than you may do there"))
    }
}

fn grant_exceeds(sentence: &'static str) -> Refusal {
    Refusal::new(Code::GrantExceedsGrantor, sentence).hint("ask an owner")
}

fn check_identity(identity: &Identity) -> Result<(), Refusal> {
    name::check_text(&identity.issuer, 500, "/identity/issuer")?;
    name::check_text(&identity.subject, 255, "/identity/subject")?;
    if identity.issuer.is_empty() || identity.subject.is_empty() {
        return Err(Refusal::invalid(
            "/identity",
            "an identity has an issuer and a subject",
        ));
    }
    Ok(())
}

impl Scope {
    /// Budgets of one period, as a list of its own.
    fn budgets_of(&self, period: crate::time::Period) -> Vec<super::budget::Budget> {
        self.budgets
            .iter()
            .filter(|budget| budget.period == period)
            .cloned()
            .collect()
    }

    /// Meters on which a new quota stands below what is in use.
    pub fn over(&self, quota: &Amounts) -> Vec<crate::meter::Exceeded> {
        let over = quota.iter().filter_map(|(meter, limit)| {
            let used = self.used.get(meter).unwrap_or(0);
            (used > limit).then(|| crate::meter::Exceeded {
                meter: meter.clone(),
                limit,
                used,
                asked: 0,
            })
        });
        over.collect()
    }
}
