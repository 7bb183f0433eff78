//! Named points in the code at which a test kills or stops a process.
//!
//! Without the feature `points` they are nothing.

/// Every point of this crate, for drivers that visit them all.
pub const ALL: &[&str] = &[
    "lock.taken",
    "slots.entered",
    "alloc.marked",
    "alloc.counted",
    "free.cleared",
    "limbo.filled",
    "limbo.linked",
    "collect.freed",
    "collect.unlinked",
    "recover.cleared",
    "recover.marked",
    "recover.adopted",
    "unlock.clean",
    "acquire.intent",
    "tag.known",
    "acquire.counted",
    "acquire.listed",
    "release.intent",
    "release.counted",
    "release.unlisted",
    "section.entered",
    "sweep.claimed",
    "sweep.settled",
    "sweep.resolved",
    "sweep.undone",
    "sweep.freed",
];

#[cfg(feature = "points")]
mod hook {
    use std::sync::RwLock;

    type Hook = fn(&str);
    static HOOK: RwLock<Option<Hook>> = RwLock::new(None);

    /// Calls `hook` at every point from now on.
    pub fn set(hook: Hook) {
        if let Ok(mut place) = HOOK.write() {
            *place = Some(hook);
        }
    }

    /// At a point, as the macro names it.
    #[inline(never)]
    pub fn reach(mark: &str) {
        let name = mark.strip_prefix("point!(").and_then(|mark| mark.strip_suffix(')'));
        let Some(name) = name else { return };
        let hook = HOOK.read().ok().and_then(|hook| *hook);
        if let Some(hook) = hook {
            hook(name);
        }
    }
}

#[cfg(feature = "points")]
pub use hook::{reach, set};

/// Marks a point. Its name stands as `point!(NAME)` in what is built, where drivers find it.
#[macro_export]
macro_rules! point {
    ($name:literal) => {
        #[cfg(feature = "points")]
        $crate::points::reach(concat!("point!(", $name, ")"));
    };
}
