//! The real agent with real processes, against a real hub. As root, for that is what the agent is.

mod audit;
mod bench;
mod confine;
mod conform;
mod fence;
mod front;
mod hotplug;
mod image;
mod interact;
mod job;
mod join;
mod lease;
mod machine;
mod network;
mod nvidia;
mod part;
mod probe;
mod restart;
mod secret;
mod slice;
mod stop;
mod sysfs;
mod telemetry;
mod volume;
mod wall;
mod watchdog;
