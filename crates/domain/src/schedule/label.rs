//! Labels an operator gives a node: where it stands, what fabric it is on, whose it is.
//!
//! Deliberately absent: which engine runs a node's allocations. All nodes are of the local engine; a second one will
//! say so when a node joins, not by a label somebody could change.

use serde::{Deserialize, Serialize};

use crate::id::TenantId;
use crate::name;
use crate::refusal::Refusal;

#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
#[serde(deny_unknown_fields, default)]
pub struct Labels {
    /// Where it stands; jobs may ask for a region.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "schema", schema(value_type = Option<String>))]
    pub region: Option<Box<str>>,
    /// Nodes that reach one another over one fabric, such as an InfiniBand or rail domain.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "schema", schema(value_type = Option<String>))]
    pub block: Option<Box<str>>,
    /// Only jobs of this tenant go there.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "schema", schema(value_type = Option<String>))]
    pub dedicated: Option<TenantId>,
}

impl Labels {
    pub fn is_empty(&self) -> bool {
        *self == Labels::default()
    }

    /// Whether it stands where a job asks for.
    pub fn is_in(&self, region: Option<&str>) -> bool {
        region.is_none_or(|wanted| self.region.as_deref() == Some(wanted))
    }

    pub fn check(&self) -> Result<(), Refusal> {
        if let Some(region) = &self.region {
            name::check(region, "/region")?;
        }
        if let Some(block) = &self.block {
            name::check(block, "/block")?;
        }
        Ok(())
    }
}
