//! What is spoken with a Redis: its protocol, how a connection begins, what its pushes say.
//!
//! Nothing here reads or writes: the edge hands in what came, and sends what is to be said.

pub mod backoff;
pub mod login;
pub mod password;
pub mod push;
pub mod resp;
pub mod sentinel;
