//! The API as texts: requests to calls and bodies, answers and errors to JSON.

pub mod batch;
pub mod call;
pub(crate) mod check;
pub mod error;
pub mod export;
pub mod filter;
pub mod health;
pub mod import;
pub mod model;
pub mod openapi;
pub mod opinion;
pub mod params;
pub mod path;
pub mod query;
pub mod render;
pub mod route;
pub mod routes;
pub mod site;
pub mod source;
