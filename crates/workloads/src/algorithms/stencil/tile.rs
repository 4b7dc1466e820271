//! Tiles: boxes of points that one time step computes, in the order of their computation.
//!
//! ```text
//!  tiles   │ step 0, box │ step 1, box │ step 2, box │ ...
//!  items   │ 0  1  2  3  │ 4  5  6     │ 7  8  9  10 │ ...     each some whole rows of its tile
//!  windows        ├warm-up┼─counted─┤
//! ```

use std::ops::Range;

/// Points along x (contiguous in memory), y and z, of which the outermost are constant.
pub type Shape = [usize; 3];

/// Most tiles of a computation: half a gigabyte of host memory.
const TILES_MAX: usize = 1 << 24;

/// Points of an item, unless a row has more.
const ITEM_POINTS: usize = 512;

/// A box of points that one time step computes, row by row along x, plane by plane.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Tile {
    /// The time step, from 0.
    pub step: u32,
    /// First row of the block column's buffers; of the circular queue alone.
    pub base: u32,
    /// Its points along x, y and z.
    pub points: [[u32; 2]; 3],
}

impl Tile {
    /// A tile of this step.
    pub fn new(step: usize, points: [Range<usize>; 3]) -> Tile {
        let points = points.map(|range| [range.start as u32, range.end as u32]);
        Tile { step: step as u32, base: 0, points }
    }

    /// Its points along x (0), y (1) or z (2).
    pub fn range(&self, axis: usize) -> Range<usize> {
        let [start, end] = self.points[axis];
        start as usize..end as usize
    }

    fn rows(&self) -> usize {
        self.range(1).len() * self.range(2).len()
    }

    fn rows_of_item(&self) -> usize {
        (ITEM_POINTS / self.range(0).len()).max(1)
    }

    fn items(&self) -> usize {
        self.rows().div_ceil(self.rows_of_item())
    }

    /// Y and z of an item's rows.
    pub fn rows_of(&self, item: usize) -> impl Iterator<Item = (usize, usize)> + use<> {
        let (y, z, each) = (self.range(1), self.range(2), self.rows_of_item());
        let rows = item * each..((item + 1) * each).min(self.rows());
        rows.map(move |row| (y.start + row % y.len(), z.start + row / y.len()))
    }
}

/// There are more than [`TILES_MAX`] tiles.
#[derive(Debug, PartialEq, Eq)]
pub struct TooMany;

/// Tiles in the order of their computation.
#[derive(Default)]
pub struct Order {
    tiles: Vec<Tile>,
    /// Items, and points, of each tile and those before it.
    ends: Vec<[usize; 2]>,
}

/// Consecutive items that are computed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Window {
    /// Those that fill the caches.
    pub warm_up: Range<usize>,
    /// Those that count.
    pub counted: Range<usize>,
}

impl Order {
    /// Appends a tile, unless it is empty.
    pub fn push(&mut self, tile: Tile) -> Result<(), TooMany> {
        let rows = tile.rows();
        let points = rows * tile.range(0).len();
        if points == 0 {
            return Ok(());
        }
        if self.tiles.len() == TILES_MAX {
            return Err(TooMany);
        }
        let [items, all] = self.ends.last().copied().unwrap_or_default();
        self.ends.push([items + tile.items(), all + points]);
        self.tiles.push(tile);
        Ok(())
    }

    /// All items.
    pub fn items(&self) -> usize {
        self.ends.last().map_or(0, |[items, _]| *items)
    }

    /// All points: more than those of the grid times the steps if some are computed more than once.
    pub fn points(&self) -> usize {
        self.ends.last().map_or(0, |[_, points]| *points)
    }

    /// The tile of an item, and the item's number in it.
    pub fn find(&self, item: usize) -> (Tile, usize) {
        let at = self.ends.partition_point(|[items, _]| *items <= item);
        (self.tiles[at], item - self.before(at)[0])
    }

    /// Items and points before a tile.
    fn before(&self, at: usize) -> [usize; 2] {
        if at == 0 { [0, 0] } else { self.ends[at - 1] }
    }

    /// The item that computes the point of this number.
    fn item_at(&self, point: usize) -> usize {
        let at = self.ends.partition_point(|[_, points]| *points <= point);
        let Some(tile) = self.tiles.get(at) else { return self.items() };
        let [items, points] = self.before(at);
        items + (point - points) / (tile.rows_of_item() * tile.range(0).len())
    }

    /// `count` windows spread over the computation, each in an equal part of it at a place that differs from
    /// part to part, so that windows do not fall on the same place of each block.
    ///
    /// # Errors
    /// The points of a part, if a window has more.
    pub fn windows(&self, count: usize, warm_up: usize, counted: usize) -> Result<Vec<Window>, usize> {
        let part = self.points() / count;
        let Some(spare) = part.checked_sub(warm_up + counted) else { return Err(part) };
        let window = |number: usize| {
            let first = number * part + (spare as f64 * golden(number)) as usize;
            let [start, middle, end] =
                [first, first + warm_up, first + warm_up + counted].map(|at| self.item_at(at));
            Window { warm_up: start..middle, counted: middle..end }
        };
        Ok((0..count).map(window).collect())
    }
}

/// Numbers from 0 to 1 that fill the range evenly: the fractions of multiples of the golden ratio.
fn golden(number: usize) -> f64 {
    let all = number as f64 * 0.618_033_988_749_895;
    all - libm::floor(all)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn items_are_the_rows_of_all_tiles_in_order() {
        let mut order = Order::default();
        let tiles = [[1..4, 1..300, 1..3], [1..1, 1..9, 1..9], [5..1200, 2..4, 7..8]];
        tiles.clone().into_iter().for_each(|points| order.push(Tile::new(0, points)).expect("few tiles"));
        let rows: Vec<_> = (0..order.items())
            .flat_map(|item| {
                let (tile, part) = order.find(item);
                tile.rows_of(part).map(move |row| (tile.range(0), row))
            })
            .collect();
        let each = |[x, y, z]: [Range<usize>; 3]| {
            z.flat_map(move |z| {
                let x = x.clone();
                y.clone().map(move |y| (x.clone(), (y, z)))
            })
        };
        let expected: Vec<_> =
            tiles.into_iter().filter(|points| !points[0].is_empty()).flat_map(each).collect();
        assert_eq!(rows, expected);
        assert_eq!(order.points(), rows.iter().map(|(x, _)| x.len()).sum());
    }

    #[test]
    fn windows_are_apart_and_have_their_points() {
        let mut order = Order::default();
        for step in 0..6 {
            order.push(Tile::new(step, [1..101, 1..101, 1..11])).expect("few tiles");
        }
        let windows = order.windows(12, 20_000, 10_000).expect("they fit");
        let points = |items: &Range<usize>| -> usize {
            items
                .clone()
                .map(|item| {
                    let (tile, part) = order.find(item);
                    tile.rows_of(part).count() * tile.range(0).len()
                })
                .sum()
        };
        let mut last = 0;
        for window in windows {
            assert!(last <= window.warm_up.start && window.warm_up.end == window.counted.start);
            last = window.counted.end;
            assert!(points(&window.warm_up).abs_diff(20_000) <= ITEM_POINTS);
            assert!(points(&window.counted).abs_diff(10_000) <= ITEM_POINTS);
        }
        assert!(last <= order.items());
        assert_eq!(order.windows(12, 40_000, 10_001), Err(50_000));
    }
}
