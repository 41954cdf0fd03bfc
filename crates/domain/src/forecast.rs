//! Forecast: how long jobs run and how long they wait, learnt from what finished and what is running.
//!
//! Pure and per tenant: no tenant's history informs another's; where there is little history a rule stands in.
//! Only `+ - * /` on floats, so every machine computes the same numbers. Deliberately absent: clocks, user
//! names, file contents. Called by `schedule/order` and when a start is predicted.

pub mod age;
pub mod evidence;
pub mod hazard;
pub mod history;
pub mod probe;
pub mod purse;
pub mod room;
pub mod wait;
