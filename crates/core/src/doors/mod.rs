//! Doors that other systems have: their requests as calls and changes, our answers in their words.

pub mod dyups;
pub mod statement;
pub mod update;
