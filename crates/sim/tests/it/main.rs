//! Tests over the whole house.

mod tidy;
