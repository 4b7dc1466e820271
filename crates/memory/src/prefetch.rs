//! The stream prefetcher of a core, in front of the first shared cache.

use memtide_core::machine;
use wide::u32x8;

const LINES_OF_PAGE: u64 = 64;

/// Detects streams: ascending or descending lines within a 4 KiB page. After two steps in one direction it
/// prefetches up to a distance within the page. A new page replaces the oldest stream.
///
/// It sees physical lines; the next page of a program's memory can be anywhere. A prefetcher that follows
/// ascending streams there gets its place when an access is dispatched near the end of a page
/// ([`Prefetcher::continues`]), which can be long before the line is requested.
#[derive(Clone, Debug)]
pub struct Prefetcher {
    distance: u64,
    /// Pages and those that follow them in a program's memory, by the page's low bits; empty if streams end
    /// with their page.
    next_pages: Vec<(u32, u32)>,
    /// The page of each stream, in a separate array for fast lookup; page numbers are below 2^32.
    pages: Vec<[u32; LANES]>,
    streams: Vec<Stream>,
    oldest: usize,
}

#[derive(Clone, Copy, Debug, Default)]
struct Stream {
    last: u64,
    /// Lines prefetched so far beyond `last`, in the stream's direction.
    ahead: u64,
    /// +1 up, -1 down, 0 unknown.
    direction: i64,
}

const NO_PAGE: u32 = u32::MAX;

/// Pages whose next one is known: more than a reorder buffer's accesses are ahead of the requests.
const NEXT_PAGES: usize = 64;

/// Pages compared at once.
const LANES: usize = 8;

/// Lines to prefetch: from the first on in steps of `direction`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Ahead {
    /// First line.
    pub first: u64,
    /// Number of lines.
    pub count: u64,
    /// +1 or -1.
    pub direction: i64,
}

impl Ahead {
    /// The lines.
    pub fn lines(self) -> impl Iterator<Item = u64> {
        (0..self.count).map(move |i| self.first.wrapping_add_signed(i as i64 * self.direction))
    }
}

impl Prefetcher {
    /// A prefetcher without streams.
    pub fn new(machine: &machine::Prefetcher) -> Prefetcher {
        let streams = usize::from(machine.streams);
        Prefetcher {
            distance: machine.distance_lines.into(),
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
            return self.streams[at].step(line, self.distance);
        }
        self.replace_oldest(page, Stream { last: line, ..Stream::default() });
        None
    }

    /// Whether a stream at this line would need the next page: call [`Prefetcher::continues`].
    #[inline]
    pub fn nears_end(&self, line: u64) -> bool {
        !self.next_pages.is_empty() && line % LINES_OF_PAGE + self.distance >= LINES_OF_PAGE
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
        let at = self.find(page)?;
        if of != page || self.streams[at].direction != 1 {
            return None;
        }
        let first = u64::from(next_page) * LINES_OF_PAGE;
        let next = self.find(next_page);
        let ahead = next.map_or(0, |next| self.streams[next].ahead_before(first));
        let within = LINES_OF_PAGE - 1 - line % LINES_OF_PAGE;
        let count = self.distance.checked_sub(within + ahead).filter(|&count| count > 0)?;
        let stream = Stream { last: first.wrapping_sub(1), ahead: ahead + count, direction: 1 };
        match next {
            Some(next) => self.streams[next] = stream,
            None => self.replace_oldest(next_page, stream),
        }
        Some(Ahead { first: first + ahead, count, direction: 1 })
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
    /// Lines prefetched of a page whose first line is `first`, as far as the stream of the page before has
    /// come: none where a line was requested but no stream followed, all where one is under way.
    fn ahead_before(&self, first: u64) -> u64 {
        match self.direction {
            0 => 0,
            _ if self.last.wrapping_add(1) == first => self.ahead,
            _ => LINES_OF_PAGE,
        }
    }

    fn step(&mut self, line: u64, distance: u64) -> Option<Ahead> {
        let moved = line.wrapping_sub(self.last) as i64;
        let direction = moved.signum();
        if moved == 0 {
            return None;
        }
        if direction != self.direction || moved.unsigned_abs() > distance {
            *self = Stream { last: line, direction, ahead: 0 };
            return None;
        }
        self.last = line;
        self.ahead = self.ahead.saturating_sub(moved.unsigned_abs());
        let within = match direction {
            1 => LINES_OF_PAGE - 1 - line % LINES_OF_PAGE,
            _ => line % LINES_OF_PAGE,
        };
        let target = distance.min(within);
        let count = target.saturating_sub(self.ahead);
        let first = line.wrapping_add_signed(direction * (self.ahead as i64 + 1));
        self.ahead += count;
        (count > 0).then_some(Ahead { first, count, direction })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn prefetcher() -> Prefetcher {
        Prefetcher::new(&machine::Prefetcher { streams: 2, distance_lines: 4, next_page: false })
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
        let machine = machine::Prefetcher { streams: 4, distance_lines: 4, next_page: true };
        let mut p = Prefetcher::new(&machine);
        let lines = |first: u64, range: std::ops::Range<u64>| range.map(move |line| first + line);
        let expected: Vec<u64> = lines(128, 3..64).chain(lines(6400, 0..4)).collect();
        assert_eq!(page(&mut p, 128, 6400), expected);
        let expected: Vec<u64> = lines(6400, 4..64).chain(lines(640, 0..4)).collect();
        assert_eq!(page(&mut p, 6400, 640), expected, "no line is fetched twice, and none missed");
    }

    #[test]
    fn descending_stream_and_single_lines_have_no_next_page() {
        let machine = machine::Prefetcher { streams: 4, distance_lines: 4, next_page: true };
        let mut p = Prefetcher::new(&machine);
        for line in [63, 62, 61, 191] {
            p.continues(line, 6400);
            assert!(p.see(line).is_none() || line == 61, "{line}");
            assert_eq!(p.see_next(line), None);
        }
    }
}
