//! What one process does for the whole nginx: whether it may be this one's, and by a lease, whose it
//! is.

use peerage_zone::{Lead, Lease, Worker};

use crate::ffi::{process, timer};

/// Whether the processes of this nginx have duties in the zone at all, and this one is to stay.
pub(crate) fn may(worker: &Worker) -> bool {
    match worker.zone().durable().lead() {
        Lead::Free | Lead::Leads => !worker.zone().is_moved() && !process::exiting(),
        // They are another nginx's, or it is not known yet.
        Lead::Waiting | Lead::Follows => false,
    }
}

/// Whose a duty is now.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Whose {
    Another,
    Ours,
    /// This process's from now on.
    OursAnew,
}

/// Takes a duty where it is nobody's, and renews the word of this process for it; `round`: it is
/// time to look for processes that died.
pub(crate) fn take(lease: Lease, round: bool) -> Whose {
    let (owner, me, now) = (lease.owner(), process::pid(), timer::fresh());
    if owner != me {
        let is_free = owner == 0 || now >= lease.until() || round && !process::alive(owner, 0);
        if !is_free || !lease.take(owner, me) {
            return Whose::Another;
        }
    }
    lease.renew(now + LEASE_MS);
    if owner == me { Whose::Ours } else { Whose::OursAnew }
}

/// Whether a duty is still this process's, by a clock that has gone on while it was stopped.
pub(crate) fn is_ours(lease: Lease) -> bool {
    lease.owner() == process::pid() && timer::fresh() < lease.until()
}

/// Leaves a duty to others; whether it was this process's.
pub(crate) fn leave(lease: Lease) -> bool {
    lease.take(process::pid(), 0)
}

/// How long a process that does not run keeps a duty.
const LEASE_MS: u64 = 1_200;
