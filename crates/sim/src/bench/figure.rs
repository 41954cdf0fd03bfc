//! A measured figure, printed as a line for people or as JSON.

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use serde::Serialize;

static AS_JSON: AtomicBool = AtomicBool::new(false);

pub fn print_json(json: bool) {
    AS_JSON.store(json, Ordering::Relaxed);
}

#[derive(Debug, Serialize)]
pub struct Figure<'a> {
    pub bench: &'a str,
    pub what: &'a str,
    pub value: f64,
    pub unit: &'a str,
    /// Our figure divided by this one's, or by the goal.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub goal: Option<f64>,
    #[serde(skip_serializing_if = "str::is_empty")]
    pub how: &'a str,
}

impl Figure<'_> {
    pub fn print(&self) {
        if AS_JSON.load(Ordering::Relaxed) {
            println!("{}", serde_json::to_string(self).expect("a figure encodes"));
            return;
        }
        let goal = self
            .goal
            .map_or_else(String::new, |goal| format!("  goal {goal}"));
        let how = if self.how.is_empty() {
            String::new()
        } else {
            format!("  ({})", self.how)
        };
        println!(
            "{:10} {:46} {:>14.3} {}{goal}{how}",
            self.bench, self.what, self.value, self.unit
        );
    }
}

pub fn figure(bench: &str, what: &str, value: f64, unit: &str, goal: Option<f64>, how: &str) {
    Figure {
        bench,
        what,
        value,
        unit,
        goal,
        how,
    }
    .print();
}

/// The value below which `share` of the samples lie.
pub fn percentile(sorted: &[Duration], share: f64) -> Duration {
    let last = sorted.len().saturating_sub(1);
    sorted
        .get(((last as f64) * share).round() as usize)
        .copied()
        .unwrap_or_default()
}
