//! Who wishes a change.

use std::collections::BTreeSet;
use std::fmt;

use serde::{Deserialize, Serialize};

use crate::id::{KeyId, NodeId, UserId};
use crate::tenancy::role::Action;

/// Who a command comes from. The server proves it before the command is made.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum Actor {
    /// Tenure itself: the scheduler, the reconciler, the first set-up.
    System,
    /// A node's agent, known by its certificate.
    Node(NodeId),
    /// A person or service account, by one of its keys or a login.
    User {
        user: UserId,
        key: Option<KeyId>,
        allow: Option<BTreeSet<Action>>,
    },
}

impl Actor {
    pub fn user(user: UserId) -> Actor {
        Actor::User {
            user,
            key: None,
            allow: None,
        }
    }

    pub fn user_id(&self) -> Option<UserId> {
        match self {
            Actor::User { user, .. } => Some(*user),
            _ => None,
        }
    }
}

impl fmt::Display for Actor {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Actor::System => f.write_str("system"),
            Actor::Node(node) => node.fmt(f),
            Actor::User {
                user, key: Some(key), ..
            } => write!(f, "{user} {key}"),
            Actor::User { user, key: None, .. } => user.fmt(f),
        }
    }
}
