//! Where and how a state file is not whole.

/// Where and how a file is not whole; what stands before is good.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Damage {
    /// In which of the files.
    pub part: Part,
    /// Line, from 1.
    pub line: usize,
    /// How bad it is.
    pub kind: DamageKind,
    /// What is wrong.
    pub text: String,
}

/// One of the files that a state is kept in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Part {
    /// The state file itself.
    Snapshot,
    /// The journal of this generation.
    Journal(u64),
}

/// How bad the damage is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DamageKind {
    /// The file ends too early: a write was cut off.
    Torn,
    /// A line is not as it was written.
    Damaged,
    /// The file is of a later format.
    Format,
    /// The lines are good, but one before them is missing.
    Gap,
}

/// What is wrong with a line, before it is told which.
#[derive(Debug)]
pub(crate) struct Fault {
    kind: DamageKind,
    text: String,
}

impl Fault {
    pub(crate) fn torn(text: &str) -> Self {
        Self { kind: DamageKind::Torn, text: text.to_owned() }
    }

    pub(crate) const fn format(text: String) -> Self {
        Self { kind: DamageKind::Format, text }
    }

    pub(crate) const fn gap(text: String) -> Self {
        Self { kind: DamageKind::Gap, text }
    }

    pub(crate) fn at(self, part: Part, line: usize) -> Damage {
        Damage { part, line, kind: self.kind, text: self.text }
    }
}

impl From<String> for Fault {
    fn from(text: String) -> Self {
        Self { kind: DamageKind::Damaged, text }
    }
}
