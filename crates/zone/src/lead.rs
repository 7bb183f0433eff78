//! Who may change a zone: one master of those that share a state file.

use std::sync::atomic::Ordering::{Acquire, Release, SeqCst};

use peerage_shm::point;

use crate::batch::BatchAttempt;
use crate::durable::Durable;
use crate::layout::root;
use crate::worker::Worker;

/// Where a zone stands towards its state file.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Lead {
    /// There is no file to agree about: everybody may change the zone.
    #[default]
    Free,
    /// The zone writes the file, and may be changed.
    Leads,
    /// Nobody of this zone writes the file yet: changes wait.
    Waiting,
    /// Another master writes the file: changes are refused, the zone follows what is written.
    Follows,
}

impl Durable {
    /// Where the zone stands towards its file.
    pub fn lead(self) -> Lead {
        match self.0.root(root::LEAD).load(SeqCst) {
            1 => Lead::Leads,
            2 => Lead::Waiting,
            3 => Lead::Follows,
            _ => Lead::Free,
        }
    }

    /// Says where the zone stands. A change that began before may still come: see
    /// [`Worker::resign`].
    pub fn set_lead(self, lead: Lead) {
        self.0.root(root::LEAD).store(lead as u64, SeqCst);
    }

    /// Epoch under which the zone writes its file, or wrote it last; 0 = it never did.
    pub fn epoch(self) -> u64 {
        self.0.root(root::FILE_EPOCH).load(Acquire)
    }

    /// Says under which epoch the zone writes.
    pub fn set_epoch(self, epoch: u64) {
        self.0.root(root::FILE_EPOCH).store(epoch, Release);
    }

    /// A number of 40 bits that tells the zone from others, never 0.
    pub fn instance(self) -> u64 {
        self.0.root(root::INSTANCE).load(Acquire)
    }

    /// Gives the zone the number of the one it takes over, or of 40 bits of what is at hand.
    pub fn set_instance(self, number: u64) {
        let number = number & ((1 << INSTANCE_BITS) - 1);
        self.0.root(root::INSTANCE).store(number.max(1), Release);
    }

    /// Number of the file's last journal.
    pub fn generation(self) -> u64 {
        self.0.root(root::FILE_GENERATION).load(Acquire)
    }

    /// Number for a new journal of the file.
    pub fn next_generation(self) -> u64 {
        self.0.root(root::FILE_GENERATION).fetch_add(1, SeqCst) + 1
    }

    /// Says that the file has a journal of that number.
    pub fn raise_generation(self, generation: u64) {
        self.0.root(root::FILE_GENERATION).fetch_max(generation, SeqCst);
    }
}

impl Worker {
    /// Ends changes of the zone until it is said again where it stands; true once none that began
    /// before is still on its way.
    ///
    /// `wait` is called while somebody else holds the lock, and says whether to go on. After
    /// `false` a process that was stopped may still put its change in force, but it answers that
    /// it did not.
    pub fn resign(&self, wait: &mut dyn FnMut() -> bool) -> bool {
        if self.zone().durable().lead() == Lead::Free {
            return true;
        }
        self.zone().durable().set_lead(Lead::Waiting);
        point!("resign.said");
        // A change looks at the word under the lock: who takes it later sees it.
        self.zone().as_master(self.pid()).locked(wait, |_| ()).is_some()
    }

    /// How a change is answered that the zone does not take now.
    pub(crate) fn barred(&self) -> Option<BatchAttempt> {
        if self.zone().is_moved() {
            return Some(BatchAttempt::Busy);
        }
        match self.zone().durable().lead() {
            Lead::Free | Lead::Leads => None,
            Lead::Waiting => Some(BatchAttempt::Busy),
            Lead::Follows => Some(BatchAttempt::NotWriter),
        }
    }
}

/// As many locks of a file's bytes as a zone may be told by.
const INSTANCE_BITS: u32 = 40;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::trial;

    #[test]
    fn a_zone_has_a_number_of_its_own() {
        let instance = || trial::zone(64 << 10).durable().instance();
        let (a, b) = (instance(), instance());
        assert!(a != b && (1..1 << INSTANCE_BITS).contains(&a), "{a} {b}");
        let durable = trial::zone(64 << 10).durable();
        durable.set_instance(7 << INSTANCE_BITS);
        assert_eq!(durable.instance(), 1);
    }

    #[test]
    fn journals_are_numbered_above_all_there_were() {
        let durable = trial::zone(64 << 10).durable();
        assert_eq!((durable.next_generation(), durable.next_generation()), (1, 2));
        durable.raise_generation(9);
        durable.raise_generation(3);
        assert_eq!((durable.generation(), durable.next_generation()), (9, 10));
    }

    #[test]
    fn who_resigns_waits_for_a_change_on_its_way() {
        let zone = trial::zone(256 << 10);
        let worker = zone.worker(1, 1, &trial::FORMAT).expect("a slot");
        zone.durable().set_lead(Lead::Leads);
        let writer = trial::writer(&zone);
        assert!(!worker.resign(&mut || false));
        assert_eq!(zone.durable().lead(), Lead::Waiting);
        let mut writer = Some(writer);
        let mut waited = 0;
        let resigned = worker.resign(&mut || {
            waited += 1;
            if waited == 3 {
                writer = None;
            }
            true
        });
        assert!(resigned && waited == 3);
    }
}
