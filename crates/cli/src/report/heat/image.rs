//! The image of a run's heat maps, one below the other, with axes.
//!
//! ```text
//!             ■ dram ■ nvm            key
//!             1 zipf                  title of a map
//!   7f..000 - ▒▒▓▓▓▒▒                 rows of cells, the lowest address at the bottom
//!   7e..000 - ▒▓▓▒▒▒▒
//!             |     |
//!             0.00  2.56 ms
//! ```

use std::convert::Infallible;

use embedded_graphics::mono_font::MonoTextStyle;
use embedded_graphics::mono_font::ascii::FONT_6X10;
use embedded_graphics::pixelcolor::Rgb888;
use embedded_graphics::prelude::*;
use embedded_graphics::primitives::Rectangle;
use embedded_graphics::text::{Alignment, Baseline, Text};
use memtide_sim::{HeatMapReport, Report};

use super::{LABELS, heat, hottest, hottest_heat, moved};
use crate::report::chart::colour;

/// Width and height of a cell, in pixels.
const CELL: usize = 6;

/// Width of a letter, in pixels.
const LETTER: usize = 6;

/// Height of a line of text, in pixels.
const LINE: usize = 16;

/// Left of the cells, in pixels: an address of 48 bits and a tick.
const LEFT: usize = 12 * LETTER + 2 * TICK;

/// Right of the cells, in pixels: half of the last time.
const RIGHT: usize = 48;

/// Length of a tick, in pixels.
const TICK: usize = 4;

/// Minimum width of the cells, in pixels, so that titles fit.
const LEAST_WIDTH: usize = 300;

/// Pixels in rows, from the top.
pub struct Image {
    width: usize,
    pixels: Vec<[u8; 3]>,
}

impl Image {
    /// Of all maps of a run.
    pub fn of(report: &Report) -> Image {
        let maps = &report.heat_maps;
        let columns = maps.iter().map(|map| map.columns).max().unwrap_or(0);
        let width = LEFT + (CELL * columns).max(LEAST_WIDTH) + RIGHT;
        let rows = LINE + maps.iter().map(height).sum::<usize>();
        let mut image = Image { width, pixels: vec![[255; 3]; width * rows] };
        image.draw_key(report);
        let most = hottest_heat(maps.iter());
        let mut top = LINE;
        for (number, (name, map)) in (1..).zip(report.programs.iter().zip(maps)) {
            let title = if maps.len() > 1 { format!("{number} {name}") } else { name.clone() };
            image.write(&title, LEFT, top, Alignment::Left);
            image.draw_cells(map, top + LINE, most);
            image.draw_axes(map, top + LINE);
            top += height(map);
        }
        image
    }

    /// The pixels' channels.
    pub fn bytes(&self) -> &[u8] {
        self.pixels.as_flattened()
    }

    fn draw_key(&mut self, report: &Report) {
        let mut left = LEFT;
        for (node, of) in report.nodes.iter().enumerate() {
            self.fill(left, TICK, 2 * CELL, 2 * CELL, blended(colour(node), 1.0));
            self.write(&of.name, left + 3 * CELL, 0, Alignment::Left);
            left += 5 * CELL + LETTER * of.name.chars().count();
        }
    }

    fn draw_cells(&mut self, map: &HeatMapReport, top: usize, most: f64) {
        for (row, y) in map.rows.iter().rev().zip((top..).step_by(CELL)) {
            for (column, x) in (0..map.columns).zip((LEFT..).step_by(CELL)) {
                if let Some((node, accesses)) = hottest(row, column) {
                    self.fill(x, y, CELL, CELL, blended(colour(node), heat(accesses) / most));
                }
                if moved(row, column).is_some() {
                    self.fill(x + CELL / 3, y + CELL / 3, CELL / 3, CELL / 3, Rgb888::BLACK);
                }
            }
        }
    }

    /// Addresses at rows' middles, and times at columns' left edges.
    fn draw_axes(&mut self, map: &HeatMapReport, top: usize) {
        let bottom = top + CELL * map.rows.len();
        for row in (0..map.rows.len()).step_by(map.rows.len().div_ceil(LABELS).max(1)) {
            let middle = bottom - CELL * row - CELL / 2;
            self.fill(LEFT - TICK, middle, TICK, 1, Rgb888::BLACK);
            let address = format!("{:x}", map.rows[row].address);
            self.write(&address, LEFT - 2 * TICK, middle - LINE / 2, Alignment::Right);
        }
        let step = map.columns.div_ceil(LABELS).max(1);
        for column in (0..map.columns).step_by(step) {
            let x = LEFT + CELL * column;
            self.fill(x, bottom, 1, TICK, Rgb888::BLACK);
            let unit = if column + step < map.columns { "" } else { " ms" };
            let time = format!("{:.2}{unit}", column as f64 * map.column_ms);
            self.write(&time, x, bottom + TICK, Alignment::Center);
        }
    }

    /// Writes a line, `y` being its top.
    fn write(&mut self, text: &str, x: usize, y: usize, alignment: Alignment) {
        let style = MonoTextStyle::new(&FONT_6X10, Rgb888::BLACK);
        let mut text = Text::with_alignment(text, point(x, y + LINE / 2), style, alignment);
        text.text_style.baseline = Baseline::Middle;
        let Ok(_) = text.draw(self);
    }

    fn fill(&mut self, x: usize, y: usize, width: usize, height: usize, colour: Rgb888) {
        let area = Rectangle::new(point(x, y), Size::new(width as u32, height as u32));
        let Ok(()) = self.fill_solid(&area, colour);
    }
}

/// Height of a map with its title and times.
fn height(map: &HeatMapReport) -> usize {
    LINE + CELL * map.rows.len() + TICK + LINE
}

fn point(x: usize, y: usize) -> Point {
    Point::new(x as i32, y as i32)
}

impl OriginDimensions for Image {
    fn size(&self) -> Size {
        Size::new(self.width as u32, (self.pixels.len() / self.width) as u32)
    }
}

impl DrawTarget for Image {
    type Color = Rgb888;
    type Error = Infallible;

    fn draw_iter<I: IntoIterator<Item = Pixel<Rgb888>>>(&mut self, pixels: I) -> Result<(), Infallible> {
        let area = self.bounding_box();
        for Pixel(at, colour) in pixels.into_iter().filter(|pixel| area.contains(pixel.0)) {
            self.pixels[at.y as usize * self.width + at.x as usize] = [colour.r(), colour.g(), colour.b()];
        }
        Ok(())
    }
}

/// A colour such as `#0072b2` at a strength from 0 (white) to 1.
fn blended(colour: &str, strength: f64) -> Rgb888 {
    let channel = |at: usize| {
        let full = u8::from_str_radix(&colour[at..at + 2], 16).expect("a colour of the palette");
        (255.0 - (255.0 - f64::from(full)) * strength).round() as u8
    };
    Rgb888::new(channel(1), channel(3), channel(5))
}

#[cfg(test)]
pub(super) mod tests {
    use super::super::small;
    use super::*;
    use crate::tables::explanation;

    /// A run with this many programs.
    pub fn report(programs: usize) -> Report {
        Report {
            programs: vec!["zipf".to_owned(); programs],
            heat_maps: vec![small(); programs],
            ..explanation::tests::report([100.0; 2], [90.0, 150.0])
        }
    }

    #[test]
    fn image_has_a_square_per_cell_and_a_dot_per_move() {
        let image = Image::of(&report(2));
        let at = |y: usize, x: usize| image.pixels[y * image.width + x];
        let of = |colour: Rgb888| [colour.r(), colour.g(), colour.b()];
        let top = 2 * LINE;
        assert_eq!(image.size().height as usize, LINE + 2 * height(&small()));
        assert_eq!(at(top, LEFT), of(blended(colour(0), heat(4))));
        assert_eq!(
            at(top, LEFT + CELL),
            of(blended(colour(1), 1.0)),
            "the hottest cell has the node's colour"
        );
        assert_eq!(at(top + CELL / 3, LEFT + CELL + CELL / 3), [0; 3], "a dot");
        assert_eq!(at(top, LEFT + 2 * CELL), [255; 3], "a cell without accesses");
        assert_eq!(at(top + height(&small()), LEFT), at(top, LEFT));
    }

    #[test]
    fn title_address_and_time_are_written() {
        let image = Image::of(&report(1));
        let dark = |x: std::ops::Range<usize>, y: std::ops::Range<usize>| {
            y.flat_map(|y| x.clone().map(move |x| (x, y)))
                .filter(|&(x, y)| image.pixels[y * image.width + x] == [0; 3])
                .count()
        };
        let (top, bottom) = (2 * LINE, 2 * LINE + CELL);
        assert!(dark(LEFT..image.width, LINE..top) > 20, "zipf");
        assert!(dark(0..LEFT - TICK, LINE..bottom + LINE / 2) > 20, "4000");
        assert!(dark(LEFT..image.width, bottom + TICK..bottom + TICK + LINE) > 20, "0.00");
    }

    #[test]
    fn run_without_accesses_has_an_image() {
        assert!(!Image::of(&report(0)).bytes().is_empty());
    }
}
