//! The API that clients of NGINX Plus know, beside our own: paths, bodies, objects, errors.
//!
//! It is another text for the same calls: what it changes goes through [`crate::change`] like
//! everything else, and what a client could have said to `v1/` means the same there.

pub mod body;
pub mod change;
pub mod error;
pub mod fields;
pub mod object;
pub mod route;
pub mod status;
