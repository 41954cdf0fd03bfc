//! Folding a scope's move and its end: counts, keys and roles go with it.

use std::collections::BTreeSet;

use crate::id::{JobId, UserId};
use crate::state::{Retired, State};
use crate::tenancy::scope::ScopeId;
use crate::time::Time;
use crate::workload::job::Phase;

impl State {
    pub(super) fn move_scope(&mut self, id: ScopeId, parent: ScopeId) {
        let moved = self.tree.get_mut(id);
        let (used, spending, old) = (moved.used.clone(), moved.spending.clone(), moved.parent);
        moved.revision += 1;
        let crosses = self.tree.tenant_of(id) != self.tree.tenant_of(parent);
        let running = self.jobs_within(id).filter(|job| job.phase == Phase::Running);
        let running: Vec<JobId> = running.map(|job| job.id).collect();
        running.iter().for_each(|job| self.forget_running(*job));
        let (before, after) = (old.map_or(vec![], |old| self.ids_up(old)), self.ids_up(parent));
        // Common ancestors keep their counts.
        for &scope in before.iter().filter(|scope| !after.contains(scope)) {
            let scope = self.tree.get_mut(scope);
            scope.used.remove(&used);
            scope.spending.release_all_held_of(&spending);
        }
        for &scope in after.iter().filter(|scope| !before.contains(scope)) {
            let scope = self.tree.get_mut(scope);
            scope.used.add(&used);
            scope.spending.hold_all_held_of(&spending);
        }
        self.tree.rehang(id, parent);
        running.into_iter().for_each(|job| self.note_running(job));
        if crosses {
            self.drop_grants_outside(id);
        }
    }

    fn ids_up(&self, id: ScopeId) -> Vec<ScopeId> {
        self.tree.chain(id).map(|scope| scope.id).collect()
    }

    /// After a move into another tenant no user keeps a role in the old one, nor strangers one here.
    fn drop_grants_outside(&mut self, moved: ScopeId) {
        let inside: BTreeSet<ScopeId> = self.tree.subtree(moved).into_iter().collect();
        let users: BTreeSet<UserId> = inside
            .iter()
            .filter_map(|scope| {
                if let ScopeId::User(user) = scope {
                    Some(*user)
                } else {
                    None
                }
            })
            .collect();
        let all: Vec<ScopeId> = self.tree.iter().map(|scope| scope.id).collect();
        for id in all {
            let within = inside.contains(&id);
            let staff: Vec<UserId> = self
                .tree
                .get_mut(id)
                .roles
                .keys()
                .copied()
                .filter(|user| within != users.contains(user))
                .collect();
            let strangers = staff
                .into_iter()
                .filter(|&user| self.tree.tenant_of(ScopeId::User(user)).is_some());
            for user in strangers.collect::<Vec<_>>() {
                self.tree.get_mut(id).roles.remove(&user);
            }
        }
    }

    pub(super) fn close_scope(&mut self, at: Time, id: ScopeId) -> Retired {
        self.books.forget(id);
        let path = self.tree.path(id);
        if let ScopeId::Tenant(tenant) = id {
            self.history.forget(tenant);
            self.learnt.forget(tenant);
            self.market.forget(tenant);
        }
        if let ScopeId::User(user) = id {
            let keys: Vec<_> = self.keys.of_user(user).map(|key| key.id).collect();
            keys.into_iter().for_each(|key| self.keys.remove(key));
            for holder in self
                .tree
                .iter()
                .filter(|scope| scope.roles.contains_key(&user))
                .map(|scope| scope.id)
                .collect::<Vec<_>>()
            {
                self.tree.get_mut(holder).roles.remove(&user);
            }
        }
        let scope = Box::new(self.tree.remove(id));
        self.bookings.count_for(&self.tree, id);
        Retired::Scope {
            path,
            closed: at,
            scope,
        }
    }
}
