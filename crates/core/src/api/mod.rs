//! The API as texts: requests to calls and bodies, answers and errors to JSON.

pub mod call;
pub mod error;
pub mod model;
pub mod path;
pub mod query;
pub mod render;
pub mod route;
pub mod site;
