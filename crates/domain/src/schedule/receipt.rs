//! Receipts of scrubs: what a node says, and signs, of a device it cleaned between two tenants.
//!
//! Deliberately absent: making and checking signatures (api's `seal`), and the scrub itself (broker, started by the
//! agent). No receipt, no hand-over: the agent keeps to that; the platform keeps the receipts.

use std::collections::BTreeSet;

use serde::{Deserialize, Serialize};

use crate::id::AllocationId;
use crate::name;
use crate::refusal::Refusal;
use crate::tenancy::key::Digest;

/// Tenants one receipt names at most.
pub const MAX_TENANTS: usize = 256;
const MAX_FAULT: usize = 500;

/// One scrub of one device, by whoever signed it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
#[serde(deny_unknown_fields)]
pub struct Receipt {
    /// Of this node's receipts, from 1 on.
    pub number: u64,
    /// The vendor's own identity of the device.
    pub device: String,
    /// Tenants who may have left something there.
    pub from: BTreeSet<String>,
    /// Whose it was to be, and with which allocation.
    pub to: String,
    #[cfg_attr(feature = "schema", schema(value_type = String))]
    pub allocation: AllocationId,
    /// By the node's clock, in milliseconds since 1970.
    pub at_ms: i64,
    pub took_ms: u64,
    /// Device memory overwritten and read back.
    pub bytes: u64,
    /// Local memory of each compute unit, likewise.
    pub local_bytes: u64,
    pub compute_units: u32,
    /// Of the memory that was nobody's, what the driver did not give and nobody overwrote: it keeps that, for itself or for
    /// whoever else is on the device.
    #[serde(default, skip_serializing_if = "is_nothing")]
    pub missed_bytes: u64,
    /// Why the device is not clean; none: it is.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub fault: Option<String>,
    /// SHA-256 of the public key that signed, as the platform knows its nodes by.
    #[cfg_attr(feature = "schema", schema(value_type = String))]
    pub key: Digest,
    /// That public key, and the signature over `message`, in hexadecimal.
    pub public_key: String,
    pub signature: String,
}

fn is_nothing(bytes: &u64) -> bool {
    *bytes == 0
}

impl Receipt {
    /// What is signed: every field but the signature's own, a line each, so that none runs into the next. What was missed
    /// has one only where there is some, as there was none in the first receipts.
    pub fn message(&self) -> String {
        let from: Vec<&str> = self.from.iter().map(String::as_str).collect();
        let missed = match self.missed_bytes {
            0 => String::new(),
            bytes => format!("missed {bytes}\n"),
        };
        format!(
            "tenure scrub receipt 1\n{}\n{}\n{}\n{}\n{}\n{}\n{}\n{}\n{}\n{}\n{}\n{missed}",
            self.number,
            self.device,
            from.join(","),
            self.to,
            self.allocation,
            self.at_ms,
            self.took_ms,
            self.bytes,
            self.local_bytes,
            self.compute_units,
            self.fault.as_deref().unwrap_or("clean"),
        )
    }

    pub fn is_clean(&self) -> bool {
        self.fault.is_none()
    }

    /// Whether it can be one. A name or a reason with a line break would let one field pass for two.
    pub fn check(&self) -> Result<(), Refusal> {
        name::check_text(&self.device, 200, "/device")?;
        let named = |text: &str| !text.is_empty() && text.len() <= 100 && !text.contains([',', '\n']);
        if self.from.len() > MAX_TENANTS || !self.from.iter().chain([&self.to]).all(|tenant| named(tenant)) {
            return Err(Refusal::invalid("/from", "tenants are named by their ids"));
        }
        if let Some(fault) = &self.fault {
            name::check_text(fault, MAX_FAULT, "/fault")?;
        }
        let hex = |text: &str| text.len() <= 512 && text.bytes().all(|byte| byte.is_ascii_hexdigit());
        if self.number == 0 || !hex(&self.public_key) || !hex(&self.signature) {
            return Err(Refusal::invalid(
                "/signature",
                "a receipt has a number and a signature",
            ));
        }
        Ok(())
    }
}
