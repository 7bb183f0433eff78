//! Words of the zone's root, which the whole zone is reached from.

/// Numbers the words in order, so that no two are the same.
macro_rules! words {
    ($($(#[$doc:meta])* $name:ident)*) => {
        #[expect(non_camel_case_types, clippy::upper_case_acronyms, reason = "names of constants")]
        enum Place {
            $($name,)*
        }
        $($(#[$doc])* pub(crate) const $name: usize = Place::$name as usize;)*
    };
}

words! {
    /// Revision of the last change that is in force. Written under the lock, after publication.
    REVISION
    /// Number of the last event.
    SEQ
    /// Id that the next server gets. Raised by anybody, never lowered.
    NEXT_ID
    /// Number that the next peer or board gets, or the next hosts; parts what memory reuse would
    /// mix up.
    NEXT_UID
    /// The bucket array: ref, and number of buckets less one.
    BUCKETS
    /// Upstreams in the directory. Under the lock.
    UPSTREAMS
    /// Servers in all upstreams. Under the lock.
    SERVERS
    /// Changes refused for lack of room.
    NO_ROOM
    /// 1 once the state was loaded and the configuration merged.
    LOADED
    /// No admin state ends before this time (unix ms). Lowered by writers, raised by the round.
    NEXT_TTL
    /// Granules that a second table of each upstream would take. Under the lock.
    TABLES
    /// Revision that is on disk.
    DURABLE
    /// Who writes the state file: pid, 0 = nobody.
    FILE_OWNER
    /// Until when the owner's word holds (monotonic ms).
    FILE_LEASE
    /// errno of the last failed write, 0 = none.
    FILE_ERROR
    /// Failed writes of the state file.
    FILE_ERRORS
    /// When the last failed write happened (unix ms).
    FILE_ERROR_AT
    /// No upstream is an orphan since before this time (unix ms). Lowered by writers, raised by
    /// the round.
    ORPHANS
    /// 1 once another zone has taken the contents over. Set under the lock if that can be had, for
    /// good.
    MOVED
    /// 1 while the cycle of some upstream may have been left.
    LOOSE
    /// Revision that somebody waits for to be on disk. Raised by anybody.
    FLUSH_WANTED
    /// The ring of events: ref and words.
    EVENTS
    /// Where the next event goes. Under the lock; its store publishes.
    EVENTS_HEAD
    /// Where the oldest event lies. Under the lock.
    EVENTS_TAIL
    /// Admin states of hosts: ref and bytes of a blob.
    HOSTS
    /// The same, of a change that is not yet in force: the blob begins with its revision.
    HOSTS_NEXT
    /// The ring of the journal: ref and words; none in a zone too small for it.
    JOURNAL
    /// Where the next entry goes. Under the lock; its store publishes.
    JOURNAL_HEAD
    /// Where the oldest entry lies. Under the lock.
    JOURNAL_TAIL
    /// 1 = the journal lacks something that is in force: a whole snapshot is needed. Set under the
    /// lock or by the file's owner, taken back by the owner.
    SNAPSHOT
    /// Who may change the zone, see `Lead`. Written by the file's owner.
    LEAD
    /// Epoch under which the zone writes its file, or wrote it last; 0 = never.
    FILE_EPOCH
    /// A number that tells this zone from others. Written when the zone is made.
    INSTANCE
    /// Number of the last journal of the file. Raised by the file's owner.
    FILE_GENERATION
    /// What the state file looked like when it was read: tells whether another one wrote since.
    FILE_SEEN
    /// Where the state file is: a hash of its path.
    FILE_PLACE
    /// Goes up when a name that is resolved at run time comes or goes; odd while a change of that
    /// kind is being put in force. Under the lock. 0 = there was none.
    NAMES
    /// Who resolves names: pid, 0 = nobody.
    NAMES_OWNER
    /// Until when that word holds (monotonic ms).
    NAMES_LEASE
    /// The ring of servers taken out: ref and words.
    SHUT
    /// Where the next one goes. Under the lock; its store publishes.
    SHUT_HEAD
    /// Where the oldest one lies. Under the lock.
    SHUT_TAIL
    /// All that was in force at this time (monotonic ms) is on disk; 0 = not known yet. Raised by
    /// the file's owner, and by whoever finds that no change waits.
    REACHED
    /// No ejection and no outside verdict ends before this time (unix ms). Lowered by who sets
    /// one, raised by the round.
    BARS
    /// Goes up when an upstream that is checked comes, goes or changes; odd while that is being put
    /// in force. Under the lock. 0 = there was none.
    CHECKS
    /// Probes that began late, or not at all.
    CHECKS_LATE
    /// The first board of a source. Under the lock; its store publishes.
    SOURCES
    /// The table of routes in force, see `routes::Buckets`; 0 = there is no route.
    ROUTES
    /// The table that is being filled to be the next; 0 = none. Under the lock.
    ROUTES_NEXT
    /// Buckets of the table in force whose records the next one has. Under the lock.
    ROUTES_MOVED
    /// Routes, and apps that they name. Under the lock.
    ROUTES_COUNT
    /// Granules of routes, apps and tables. Under the lock.
    ROUTES_GRANULES
    /// What keys are hashed by. Written when the zone is made.
    ROUTES_SEED
    /// No route ends before this time (unix ms). Lowered by writers, raised by the round.
    ROUTES_END
    /// Until when somebody is expected to look which admin state ends next (unix ms), see `ends`;
    /// u64::MAX = nobody looks.
    NEXT_TTL_LOOK
    /// The same, which orphan.
    ORPHANS_LOOK
    /// The same, which ejection or outside verdict.
    BARS_LOOK
    /// The same, which route.
    ROUTES_LOOK
    /// Numbers that upstreams may have: the first, and how many. Written when the zone is made.
    NUMBERS
    /// How many of them were given, again and again. Raised by anybody.
    NUMBERS_GIVEN
    /// Goes up when an upstream comes or goes; odd while that is being put in force. Under the
    /// lock.
    UPSTREAMS_MOVED
}

/// Who probes each part of the peers: pid, and above it until when that holds, see `shards`.
pub(crate) const SHARDS: usize = 64;
/// Who else would like to: a pid each.
pub(crate) const CALLERS: usize = SHARDS + peerage_core::check::schedule::SHARDS as usize;
/// Look-ups of keys, by what they came to: in a cache line that holds nothing else.
pub(crate) const LOOKUPS: usize = CALLERS + peerage_core::check::schedule::SHARDS as usize;
