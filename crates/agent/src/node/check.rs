//! What a GPU of this node is, as the server asks: found anew, and measured while nobody has any of it.

use tenure_api::channel::GpuQuestion;
use tenure_domain::market::check::GpuReport;

use super::Node;
use crate::check::Taken;
use crate::discover::setting::Setting;
use crate::discover::{self, Device};
use crate::scrub::Taker;

impl Node {
    /// Answers a question; nothing where it is being answered already. Takes seconds.
    pub fn check_gpu(&self, question: &GpuQuestion) -> Option<GpuReport> {
        let program = self.config.broker.as_ref().map(|broker| &*broker.program);
        let cache = self.dir.root().join("check-cache");
        let is_in_use = || self.is_in_use(&question.uuid);
        let find = || self.find_anew(&question.uuid);
        self.checks.answer(question, find, is_in_use, program, &cache)
    }

    fn find_anew(&self, uuid: &str) -> Option<Device> {
        // Named by the machine, as it was when it was first told of.
        let host_id = std::fs::read_to_string(self.dir.root().join("host.id")).ok()?;
        let mut found = discover::all(&Setting::from_environment(), host_id.trim());
        let at = found
            .devices
            .iter()
            .position(|device| device.facts.uuid == uuid)?;
        Some(found.devices.swap_remove(at))
    }

    /// Whether an allocation has some of the device, as it was given or by its page: there is what has ended and is not gone
    /// yet. A paused one has a slice of nothing.
    fn is_in_use(&self, uuid: &str) -> bool {
        let given = self.shares.given();
        if given
            .iter()
            .any(|slice| slice.uuid == uuid && slice.limit_bytes > 0)
        {
            return true;
        }
        let pages = self.shares.read();
        let mut slices = pages
            .iter()
            .filter(|page| page.uuid == uuid)
            .flat_map(|page| &page.snapshot.slices);
        slices.any(|slice| slice.limit_bytes > 0)
    }

    /// Has checks leave the devices that somebody is about to have, and stay away.
    pub(super) fn keep_checks_off(&self, taker: &Taker) -> Taken<'_> {
        self.checks
            .take(taker.devices.iter().map(|slice| slice.uuid.as_str()))
    }
}
