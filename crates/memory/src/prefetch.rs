//! The stream prefetcher of a core, in front of the first shared cache.

use memtide_core::machine;
use wide::u32x8;

const LINES_OF_PAGE: u64 = 64;

/// Detects streams: ascending or descending lines within a 4 KiB page, at a stride of one line or, if the
/// machine's prefetcher recognises them, of several. After two steps at the stride (one, of a single line, if
/// two misses trigger) it prefetches up to a distance within the page. A new page replaces the oldest stream.
///
/// ```text
/// stride_lines = 4, distance_lines = 3      miss       3   7   11                  15
///                                           prefetch           15 19 23 (3 steps)  27 (back to 3)
/// ```
///
/// A step may skip lines: a multiple of the stride up to the distance. Any other step breaks the stream, and
/// is the stride of the next one if it is short enough, else one line in its direction.
///
/// It sees physical lines; the next page of a program's memory can be anywhere. A prefetcher that follows
/// ascending streams there gets its place when an access is dispatched near the end of a page
/// ([`Prefetcher::continues`]), which can be long before the line is requested.
#[derive(Clone, Debug)]
pub struct Prefetcher {
    rule: Rule,
    /// Pages and those that follow them in a program's memory, by the page's low bits; empty if streams end
    /// with their page.
    next_pages: Vec<(u32, u32)>,
    /// The page of each stream, in a separate array for fast lookup; page numbers are below 2^32.
    pages: Vec<[u32; LANES]>,
    streams: Vec<Stream>,
    oldest: usize,
}

/// What streams follow, and how far ahead.
#[derive(Clone, Copy, Debug)]
struct Rule {
    /// Lines of a stream that are prefetched beyond the last one.
    distance: u64,
    /// Largest stride, in lines.
    stride: u64,
    /// Whether two consecutive lines start a stream.
    is_quick: bool,
}

#[derive(Clone, Copy, Debug, Default)]
struct Stream {
    last: u64,
    /// Lines prefetched so far beyond `last`, one at each multiple of the stride.
    ahead: u64,
    /// In lines, negative downwards; 0 unknown.
    stride: i64,
}

const NO_PAGE: u32 = u32::MAX;

/// Pages whose next one is known: more than a reorder buffer's accesses are ahead of the requests.
const NEXT_PAGES: usize = 64;

/// Pages compared at once.
const LANES: usize = 8;

/// Lines to prefetch: from the first on in steps of `stride`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Ahead {
    /// First line.
    pub first: u64,
    /// Number of lines.
    pub count: u64,
    /// Lines from one to the next, negative downwards.
    pub stride: i64,
}

impl Ahead {
    /// The lines.
    pub fn lines(self) -> impl Iterator<Item = u64> {
        (0..self.count).map(move |i| self.first.wrapping_add_signed(i as i64 * self.stride))
    }
}

impl Prefetcher {
    /// A prefetcher without streams.
    pub fn new(machine: &machine::Prefetcher) -> Prefetcher {
        let streams = usize::from(machine.streams);
        Prefetcher {
            rule: Rule {
                distance: machine.distance_lines.into(),
                stride: machine.stride_lines.into(),
                is_quick: machine.trigger_misses == 2,
            },
            next_pages: vec![(NO_PAGE, NO_PAGE); if machine.next_page { NEXT_PAGES } else { 0 }],
            pages: vec![[NO_PAGE; LANES]; streams.div_ceil(LANES)],
            streams: vec![Stream::default(); streams],
            oldest: 0,
        }
    }

    /// Handles a line that missed the private caches; returns what to prefetch.
    #[inline]
    pub fn see(&mut self, line: u64) -> Option<Ahead> {
        let page = (line / LINES_OF_PAGE) as u32;
        if let Some(at) = self.find(page) {
            return self.streams[at].step(line, self.rule);
        }
        self.replace_oldest(page, Stream { last: line, ..Stream::default() });
        None
    }

    /// Whether a stream has prefetched this line and not passed it yet.
    #[inline]
    pub fn has_fetched(&self, line: u64) -> bool {
        let at = self.find((line / LINES_OF_PAGE) as u32);
        at.is_some_and(|at| {
            let stream = &self.streams[at];
            stream.steps_to(line).is_some_and(|steps| steps <= stream.ahead)
        })
    }

    /// Whether a stream at this line could need the next page: call [`Prefetcher::continues`].
    #[inline]
    pub fn nears_end(&self, line: u64) -> bool {
        !self.next_pages.is_empty()
            && line % LINES_OF_PAGE + self.rule.distance * self.rule.stride >= LINES_OF_PAGE
    }

    /// A line's page is followed by the page that begins with this line.
    pub fn continues(&mut self, line: u64, next_first: u64) {
        let page = (line / LINES_OF_PAGE) as u32;
        self.next_pages[page as usize % NEXT_PAGES] = (page, (next_first / LINES_OF_PAGE) as u32);
    }

    /// What to prefetch of the next page, after [`Prefetcher::see`] of a line, if the distance ends there.
    #[inline]
    pub fn see_next(&mut self, line: u64) -> Option<Ahead> {
        if !self.nears_end(line) {
            return None;
        }
        let page = (line / LINES_OF_PAGE) as u32;
        let (of, next_page) = self.next_pages[page as usize % NEXT_PAGES];
        let stride = self.streams[self.find(page)?].stride;
        if of != page || stride <= 0 {
            return None;
        }
        let left = LINES_OF_PAGE - 1 - line % LINES_OF_PAGE;
        let within = steps(left, stride as u64);
        // The first line in the next page, and the one before it, which is in this page.
        let skipped = (within + 1) * stride as u64 - left - 1;
        let first = u64::from(next_page) * LINES_OF_PAGE + skipped;
        let before = first.wrapping_sub(stride as u64);
        let next = self.find(next_page);
        let ahead = next.map_or(0, |next| self.streams[next].ahead_after(before, stride));
        let count = self.rule.distance.checked_sub(within + ahead).filter(|&count| count > 0)?;
        let stream = Stream { last: before, ahead: ahead + count, stride };
        match next {
            Some(next) => self.streams[next] = stream,
            None => self.replace_oldest(next_page, stream),
        }
        Some(Ahead { first: first + ahead * stride as u64, count, stride })
    }

    fn replace_oldest(&mut self, page: u32, stream: Stream) {
        self.pages[self.oldest / LANES][self.oldest % LANES] = page;
        self.streams[self.oldest] = stream;
        self.oldest = (self.oldest + 1) % self.streams.len();
    }

    /// The stream of a page.
    #[inline]
    fn find(&self, page: u32) -> Option<usize> {
        let page = u32x8::splat(page);
        let equal = |pages: &[u32; LANES]| u32x8::new(*pages).simd_eq(page).to_bitmask();
        let at = self.pages.iter().position(|pages| equal(pages) != 0)?;
        Some(at * LANES + equal(&self.pages[at]).trailing_zeros() as usize)
    }
}

impl Stream {
    /// Lines prefetched of a page by the stream that has come up to `before` it: none where a line was
    /// requested but no stream followed, all where another one is under way.
    fn ahead_after(&self, before: u64, stride: i64) -> u64 {
        match self.stride {
            0 => 0,
            _ if self.stride == stride && self.last == before => self.ahead,
            _ => LINES_OF_PAGE,
        }
    }

    /// Steps from the last line to this one in the stream's direction; `None` if it is not at the stride.
    #[inline]
    fn steps_to(&self, line: u64) -> Option<u64> {
        let moved = line.wrapping_sub(self.last) as i64;
        if moved.signum() != self.stride.signum() {
            return None;
        }
        let (moved, stride) = (moved.unsigned_abs(), self.stride.unsigned_abs());
        let steps = steps(moved, stride);
        (steps * stride == moved).then_some(steps)
    }

    #[inline]
    fn step(&mut self, line: u64, rule: Rule) -> Option<Ahead> {
        if line == self.last {
            return None;
        }
        match self.steps_to(line).filter(|&steps| steps <= rule.distance) {
            Some(steps) => self.ahead = self.ahead.saturating_sub(steps),
            None => {
                let moved = line.wrapping_sub(self.last) as i64;
                let is_near = moved.unsigned_abs() <= rule.stride;
                let stride = if is_near { moved } else { moved.signum() };
                *self = Stream { last: line, stride, ahead: 0 };
                if !rule.is_quick || moved.unsigned_abs() != 1 {
                    return None;
                }
            }
        }
        self.last = line;
        let stride = self.stride;
        let left = if stride > 0 { LINES_OF_PAGE - 1 - line % LINES_OF_PAGE } else { line % LINES_OF_PAGE };
        let target = rule.distance.min(steps(left, stride.unsigned_abs()));
        let count = target.saturating_sub(self.ahead);
        let first = line.wrapping_add_signed(stride * (self.ahead as i64 + 1));
        self.ahead += count;
        (count > 0).then_some(Ahead { first, count, stride })
    }
}

/// Whole steps in a number of lines, without a division in the usual case.
#[inline]
fn steps(lines: u64, stride: u64) -> u64 {
    if stride <= 1 { lines } else { lines / stride }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MACHINE: machine::Prefetcher = machine::Prefetcher {
        streams: 2,
        distance_lines: 4,
        stride_lines: 1,
        trigger_misses: 3,
        next_page: false,
        first_cache: false,
    };

    fn prefetcher() -> Prefetcher {
        Prefetcher::new(&MACHINE)
    }

    /// As the Cortex-A53's.
    fn with_strides() -> Prefetcher {
        Prefetcher::new(&machine::Prefetcher { stride_lines: 4, trigger_misses: 2, ..MACHINE })
    }

    /// Lines prefetched at each of the lines.
    fn fetched(p: &mut Prefetcher, lines: impl IntoIterator<Item = u64>) -> Vec<Vec<u64>> {
        let mut at = |line| p.see(line).into_iter().flat_map(Ahead::lines).collect();
        lines.into_iter().map(&mut at).collect()
    }

    #[test]
    fn stride_is_prefetched_once_up_and_down_within_its_page() {
        let up = fetched(&mut with_strides(), (64..128).step_by(3));
        assert_eq!((&up[..2], &up[2]), (&[vec![], vec![]][..], &vec![73, 76, 79, 82]));
        assert_eq!(up.concat(), (73..128).step_by(3).collect::<Vec<_>>());
        let down = fetched(&mut with_strides(), (64..128).rev().step_by(4));
        assert_eq!((&down[..2], &down[2]), (&[vec![], vec![]][..], &vec![115, 111, 107, 103]));
        assert_eq!(down.concat(), (64..116).rev().step_by(4).collect::<Vec<_>>());
    }

    #[test]
    fn broken_or_too_large_stride_is_not_prefetched() {
        let broken = fetched(&mut with_strides(), [0, 4, 8, 10, 12]);
        assert_eq!(broken[2..], [vec![12, 16, 20, 24], vec![], vec![14, 16, 18, 20]]);
        let too_large = fetched(&mut with_strides(), (0..64).step_by(5));
        assert_eq!(too_large.concat(), [], "five lines at a step");
        assert_eq!(fetched(&mut prefetcher(), (0..64).step_by(5)).concat(), []);
    }

    #[test]
    fn step_may_skip_lines_of_a_stride() {
        let skipping = fetched(&mut with_strides(), [0, 2, 4, 10, 12]);
        assert_eq!(skipping[2..], [vec![6, 8, 10, 12], vec![14, 16, 18], vec![20]]);
    }

    #[test]
    fn two_consecutive_lines_trigger_if_the_machine_says_so() {
        let quick = fetched(&mut with_strides(), [8, 9, 10, 12, 11]);
        assert_eq!(quick[1..], [vec![10, 11, 12, 13], vec![14], vec![15, 16], vec![10, 9, 8, 7]]);
        assert_eq!(fetched(&mut with_strides(), [40, 8]).concat(), [], "neighbours alone");
    }

    #[test]
    fn prefetched_line_is_known_until_passed() {
        let mut p = with_strides();
        fetched(&mut p, [0, 4, 8]);
        let known: Vec<u64> = (0..64).filter(|&line| p.has_fetched(line)).collect();
        assert_eq!(known, [12, 16, 20, 24]);
        fetched(&mut p, [12]);
        assert!(!p.has_fetched(12) && p.has_fetched(28));
    }

    #[test]
    fn stream_is_prefetched_once_within_its_page() {
        let mut p = prefetcher();
        let mut fetched = Vec::new();
        for line in 64..128 {
            fetched.extend(p.see(line).into_iter().flat_map(Ahead::lines));
        }
        let expected: Vec<u64> = (67..128).collect();
        assert_eq!(fetched, expected);
    }

    #[test]
    fn descending_stream_is_prefetched() {
        let mut p = prefetcher();
        let fetched: Vec<u64> =
            [40, 39, 38].into_iter().filter_map(|l| p.see(l)).flat_map(Ahead::lines).collect();
        assert_eq!(fetched, [37, 36, 35, 34]);
    }

    #[test]
    fn random_lines_are_not_prefetched() {
        let mut p = prefetcher();
        assert!([3, 900, 17, 4000, 62, 3].into_iter().all(|line| p.see(line).is_none()));
    }

    #[test]
    fn new_page_replaces_oldest_stream() {
        let mut p = prefetcher();
        for line in [0, 64, 65, 1, 128, 129, 2] {
            assert_eq!(p.see(line), None);
        }
        assert!(p.see(130).is_some());
    }
    /// Lines prefetched by ascending accesses to a page, with its successor told as the core does.
    fn page(p: &mut Prefetcher, first: u64, next_first: u64) -> Vec<u64> {
        let mut fetched = Vec::new();
        for line in first..first + 64 {
            if p.nears_end(line) {
                p.continues(line, next_first);
            }
            let ahead = [p.see(line), p.see_next(line)];
            fetched.extend(ahead.into_iter().flatten().flat_map(Ahead::lines));
        }
        fetched
    }

    #[test]
    fn stream_goes_on_in_next_page_wherever_it_is() {
        let machine = machine::Prefetcher { streams: 4, next_page: true, ..MACHINE };
        let mut p = Prefetcher::new(&machine);
        let lines = |first: u64, range: std::ops::Range<u64>| range.map(move |line| first + line);
        let expected: Vec<u64> = lines(128, 3..64).chain(lines(6400, 0..4)).collect();
        assert_eq!(page(&mut p, 128, 6400), expected);
        let expected: Vec<u64> = lines(6400, 4..64).chain(lines(640, 0..4)).collect();
        assert_eq!(page(&mut p, 6400, 640), expected, "no line is fetched twice, and none missed");
    }

    #[test]
    fn stride_goes_on_in_next_page() {
        let machine = machine::Prefetcher { next_page: true, stride_lines: 4, ..MACHINE };
        let mut p = Prefetcher::new(&machine);
        let mut all = Vec::new();
        // Lines 0, 3, ... 63 of the first page, 2, 5, ... of the second.
        for line in (0..64).step_by(3).chain((6402..6464).step_by(3)) {
            if p.nears_end(line) {
                p.continues(line, if line < 64 { 6400 } else { 640 });
            }
            let ahead = [p.see(line), p.see_next(line)];
            all.extend(ahead.into_iter().flatten().flat_map(Ahead::lines));
        }
        let expected = (9..64).step_by(3).chain((6402..6464).step_by(3)).chain([641, 644, 647, 650]);
        assert_eq!(all, expected.collect::<Vec<_>>(), "no line is fetched twice, and none missed");
    }

    #[test]
    fn descending_stream_and_single_lines_have_no_next_page() {
        let machine = machine::Prefetcher { streams: 4, next_page: true, ..MACHINE };
        let mut p = Prefetcher::new(&machine);
        for line in [63, 62, 61, 191] {
            p.continues(line, 6400);
            assert!(p.see(line).is_none() || line == 61, "{line}");
            assert_eq!(p.see_next(line), None);
        }
    }
}
