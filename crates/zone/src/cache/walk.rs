//! What is kept of a cache in a file: its tenants and apps, in slices, and back.

use std::borrow::Cow;

use peerage_core::route::saved::Saved;
use peerage_shm::AtomicU64;

use super::entry::{self, Meta, Seen};
use super::put::Origin;
use super::table::WAYS;
use super::text::{self, words_of};
use super::{Cache, Kind, Put, Read, Who, tenants};

/// How far a walk has come.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Cursor {
    table: usize,
    set: usize,
}

/// The first table of apps.
const APPS: usize = 2;

impl Cursor {
    /// Where the apps begin.
    pub const fn of_apps() -> Self {
        Self { table: APPS, set: 0 }
    }
}

impl Cache {
    /// Goes on with a walk over all tenants and apps: some more sets of places, that hold at most
    /// `at_most` entries, or one set. What is put meanwhile may be met or not. False at the end.
    ///
    /// Left out is what is no text, and so cannot stand in the file. Nothing counts as used for it.
    pub fn walk(
        &self,
        cursor: &mut Cursor,
        at_most: usize,
        each: &mut dyn FnMut(Saved<'_>),
    ) -> bool {
        let tables = [(Kind::Tenant, &self.tenants), (Kind::App, &self.apps)];
        let mut all = tables.iter().flat_map(|&(kind, tables)| tables.map(|table| (kind, table)));
        let Some((kind, table)) = all.nth(cursor.table) else { return false };
        let mut texts = Vec::new();
        for _ in 0..(at_most / WAYS).max(1) {
            let Some(set) = table.set(cursor.set).filter(|_| cursor.set < table.sets()) else {
                *cursor = Cursor { table: cursor.table + 1, set: 0 };
                return all.next().is_some();
            };
            cursor.set += 1;
            for way in (0..WAYS).filter(|&way| set.hash(way) != 0) {
                let Some(words) = set.slot(way) else { break };
                if let Some(saved) = saved(kind, words, &mut texts) {
                    each(saved);
                }
            }
        }
        true
    }

    /// Puts what a file had, with times of the cache's clock: marked, whatever there is now.
    pub fn load(&self, saved: &Saved<'_>, now: u64, who: &Who<'_>) -> Put {
        let read =
            Read { at: saved.at().min(now), epoch: self.epoch(), generation: 0, tracked: false };
        match saved {
            Saved::Tenant { key, app, status, .. } => self.put_tenant_of(
                key.as_bytes(),
                app.as_deref(),
                status,
                &read,
                Origin::File,
                now,
                who,
            ),
            Saved::App { name, value, .. } => {
                let (name, value) = (name.as_bytes(), value.as_bytes());
                self.put_app_of(name, value, &read, Origin::File, now, who)
            }
        }
    }
}

fn saved<'t>(kind: Kind, words: &[AtomicU64], texts: &'t mut Vec<u8>) -> Option<Saved<'t>> {
    let (mut cut, mut status) = (0, None);
    let mut copy = |meta: Meta, words: &[AtomicU64]| {
        texts.clear();
        let rest = entry::key(meta, words, texts)?;
        cut = texts.len();
        text::read(rest, meta.second(), texts)?;
        if kind == Kind::Tenant {
            status = Some(tenants::status(meta, rest.get(words_of(meta.second())..)?)?);
        }
        Some(())
    };
    let (Seen { at, .. }, ()) = entry::read(words, 0, &mut copy)?;
    let (key, second) = texts.split_at(cut);
    let key = Cow::Borrowed(std::str::from_utf8(key).ok()?);
    let second = Cow::Borrowed(std::str::from_utf8(second).ok()?);
    Some(match status {
        Some(status) => {
            let app = Some(second).filter(|app| !app.is_empty());
            Saved::Tenant { key, app, status, at }
        }
        None => Saved::App { name: key, value: second, at },
    })
}
