//! What traffic is held to: which backends of an upstream must not answer now.

use std::collections::HashMap;
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};

use crate::support::*;

/// By upstream and by client, what the client knows for certain since it was posted.
#[derive(Debug, Default)]
pub(crate) struct Board {
    posts: Mutex<HashMap<String, HashMap<usize, Post>>>,
    last: AtomicU64,
}

#[derive(Clone, Debug)]
pub(crate) struct Post {
    number: u64,
    /// Names of backends that serve nothing here.
    pub banned: Vec<String>,
    /// Some server takes every request.
    pub usable: bool,
}

impl Board {
    pub(crate) fn clear(&self, upstream: &str, client: usize) {
        if let Some(posts) = self.posts.lock().unwrap().get_mut(upstream) {
            posts.remove(&client);
        }
    }

    pub(crate) fn post(&self, upstream: &str, client: usize, banned: Vec<String>, usable: bool) {
        let number = self.last.fetch_add(1, Ordering::Relaxed);
        let mut posts = self.posts.lock().unwrap();
        posts.entry(upstream.into()).or_default().insert(client, Post { number, banned, usable });
    }

    /// What holds for an upstream now.
    pub(crate) fn of(&self, upstream: &str) -> HashMap<usize, Post> {
        self.posts.lock().unwrap().get(upstream).cloned().unwrap_or_default()
    }

    /// What is wrong with an answer to a request that began when `before` held.
    pub(crate) fn wrong(
        &self,
        upstream: &str,
        before: &HashMap<usize, Post>,
        reply: &Reply,
    ) -> Option<String> {
        let after = self.of(upstream);
        let (status, backend) = (reply.status, reply.backend());
        for (client, post) in before {
            if after.get(client).is_none_or(|now| now.number != post.number) {
                continue;
            }
            if post.banned.iter().any(|banned| banned == backend) {
                return Some(format!(
                    "{upstream}: backend {backend} answered, but client {client} has it down or removed"
                ));
            }
            if post.usable && status != 200 {
                return Some(format!(
                    "{upstream}: {status}, but client {client} has usable servers there"
                ));
            }
        }
        None
    }
}
