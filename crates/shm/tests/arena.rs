//! The allocator against a model, over a million operations.
#![cfg(not(loom))]

use std::collections::BTreeMap;

use peerage_shm::{AtomicU64, Config, Epoch, GRANULE, Ref, Region, Shared, Trace, Writer};

struct Nothing;

impl Trace for Nothing {
    fn trace(&self, _: &Shared, _: &mut dyn FnMut(Ref, u32)) {}
    fn companion(&self, _: &Shared, _: Ref) -> Option<(Ref, u32)> {
        None
    }
}

const OPERATIONS: usize = 1_000_000;
const BYTES: usize = 4 << 20;

fn shared(bytes: usize) -> Shared {
    let words = Box::leak((0..bytes / 8).map(|_| AtomicU64::new(0)).collect::<Box<[_]>>());
    let lock = Box::leak(Box::new(AtomicU64::new(0)));
    let config = Config { build: 1, slots: 4, list_capacity: 64, record_granules: 4 };
    Shared::format(Region::new(words), lock, config).expect("it fits")
}

/// Marsaglia's xorshift: the same run every time.
struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0
    }

    fn below(&mut self, n: usize) -> usize {
        (self.next() % n as u64) as usize
    }

    /// 1..=400, each doubling half as likely as the one before.
    fn size(&mut self) -> u32 {
        let doubling = self.next().trailing_zeros().min(8);
        let size = (1 << doubling) + (self.next() % (1 << doubling)) as u32;
        size.min(400)
    }
}

/// What should be given out: start → granules; and the starts, to choose one at random.
#[derive(Default)]
struct Model {
    blocks: BTreeMap<u32, u32>,
    starts: Vec<u32>,
}

impl Model {
    fn add(&mut self, at: Ref, n: u32) {
        let at = at.raw();
        if let Some((&before, &length)) = self.blocks.range(..=at).next_back() {
            assert!(before + length <= at, "{at}+{n} overlaps {before}+{length}");
        }
        if let Some((&after, _)) = self.blocks.range(at + 1..).next() {
            assert!(at + n <= after, "{at}+{n} overlaps {after}");
        }
        self.blocks.insert(at, n);
        self.starts.push(at);
    }

    fn take(&mut self, i: usize) -> (Ref, u32) {
        let at = self.starts.swap_remove(i);
        (Ref::from_raw(at), self.blocks.remove(&at).expect("a block of the model"))
    }

    /// The longest run between `first` and `end` that no block covers.
    fn longest(&self, first: u32, end: u32) -> u32 {
        let mut at = first;
        let mut longest = 0;
        for (&start, &n) in &self.blocks {
            longest = longest.max(start.min(end).saturating_sub(at));
            at = start + n;
        }
        longest.max(end.saturating_sub(at))
    }
}

fn free_now(writer: &Writer<'_>) -> u64 {
    writer.room().0
}

#[test]
fn a_million_operations_agree_with_the_model() {
    let shared = shared(BYTES);
    let mut writer = shared.try_write(1, &Nothing).expect("nobody else writes");
    let mut random = Random(0x9e37_79b9_7f4a_7c15);
    let mut model = Model::default();
    let (at_first, reserve) = writer.room();
    // Everything is one run now, from the first block given out to the end.
    let first = writer.alloc(1).expect("an empty region");
    writer.free(first, 1);
    let (first, end) = (first.raw(), first.raw() + at_first as u32);

    let mut free = at_first;
    let mut refused = 0;
    for step in 0..OPERATIONS {
        // Phases of growth and of decay, so that it is full at times and nearly empty at others.
        let grow = if step / 50_000 % 2 == 0 { 60 } else { 45 };
        if random.below(100) < grow || model.starts.is_empty() {
            let n = random.size();
            let privileged = random.below(50) == 0;
            let at = if privileged { writer.alloc_reserved(n) } else { writer.alloc(n) };
            match at {
                Some(at) => {
                    assert!(at.raw() >= first && at.raw() + n <= end);
                    model.add(at, n);
                    free -= u64::from(n);
                    let kept = if privileged { 0 } else { reserve };
                    assert!(privileged || free >= kept, "the reserve was touched");
                    assert!(u64::from(at.raw() + n) + kept <= u64::from(end), "nor its place");
                }
                None => {
                    refused += 1;
                    let barred = !privileged && free < u64::from(n) + reserve;
                    // A walk over the whole model: now and then.
                    if !barred && refused % 16 == 0 {
                        let kept = if privileged { 0 } else { reserve as u32 };
                        assert!(model.longest(first, end - kept) < n, "{n} granules were free");
                    }
                }
            }
        } else {
            let (at, n) = model.take(random.below(model.starts.len()));
            writer.free(at, n);
            free += u64::from(n);
        }
        assert_eq!(free_now(&writer), free);
        if step % 10_000 == 0 {
            let usage = shared.usage();
            assert_eq!(usage.free, free * GRANULE as u64);
            assert_eq!(usage.largest, u64::from(model.longest(first, end)) * GRANULE as u64);
        }
    }
    assert!(refused > 1_000, "it was never full: {refused}");

    while !model.starts.is_empty() {
        let (at, n) = model.take(0);
        writer.free(at, n);
    }
    assert_eq!(free_now(&writer), at_first);
    assert_eq!(shared.usage().largest, at_first * GRANULE as u64);
    writer.check().expect("all of it is free");
}

/// Through retire and collect instead of free: what a change really does.
#[test]
fn retired_blocks_return_too() {
    let shared = shared(1 << 20);
    let mut writer = shared.try_write(1, &Nothing).expect("nobody else writes");
    let mut random = Random(7);
    let at_first = free_now(&writer);
    let mut epochs: Vec<Epoch> = Vec::new();
    for _ in 0..20_000 {
        let blocks: Vec<(Ref, u32)> = (0..random.below(6))
            .filter_map(|_| {
                let n = random.size();
                Some((writer.alloc(n)?, n))
            })
            .collect();
        if let Some(limbo) = writer.limbo(blocks.len()) {
            epochs.push(writer.retire(limbo, &blocks, &[]));
        }
        if random.below(4) == 0 {
            writer.collect();
        }
    }
    writer.check().expect("all of it is free");
    assert_eq!(free_now(&writer), at_first);
    assert!(epochs.windows(2).all(|pair| pair[0] < pair[1]));
}
