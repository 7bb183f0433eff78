//! What the targets share: a small zone, its rules, requests as text, lines with their checksums.
//!
//! A target says what holds of whatever a parser accepts; a panic is a finding too.

pub mod call;
pub mod nginx;
pub mod seal;
pub mod world;
