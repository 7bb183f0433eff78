//! Where a reader of a table in pieces stands.
//!
//! The table may be replaced between two pieces. Then the reader begins anew in the next one, and
//! passes over what it has met.

use crate::layout::Table;

/// A place in a table.
#[derive(Clone, Debug, Default)]
pub(crate) struct Along {
    /// The table: its word, and its revision, since a later one may lie in its place.
    table: (u64, u64),
    /// Its next entry.
    pub(crate) next: usize,
}

impl Along {
    /// Goes on in the table of now; true where it is another one, and reading begins anew.
    pub(crate) fn look(&mut self, table: Table) -> bool {
        let table = (table.word(), table.revision());
        let is_other = self.table != table;
        if is_other {
            *self = Self { table, next: 0 };
        }
        is_other
    }
}
