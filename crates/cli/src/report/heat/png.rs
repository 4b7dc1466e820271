//! Heat maps as a PNG file.

use std::fs::File;
use std::io::{self, Read, Write};
use std::path::{Path, PathBuf};

use clap::ValueHint;
use memtide_sim::{HeatMapReport, Report};
use png::{BitDepth, ColorType, Encoder};

use super::{heat, hottest, hottest_heat, moved};
use crate::failure::Failure;
use crate::output::temporary;
use crate::report::chart::colour;

/// Width and height of a cell, in pixels.
const CELL: usize = 6;

/// Height between two programs' maps, in pixels.
const GAP: usize = 12;

/// First bytes of every PNG file.
const SIGNATURE: [u8; 8] = *b"\x89PNG\r\n\x1a\n";

type Colour = [u8; 3];

const WHITE: Colour = [255; 3];
const BLACK: Colour = [0; 3];

/// The option of commands that can draw heat maps.
#[derive(Debug, clap::Args)]
pub struct HeatMapFile {
    /// Draw accesses by page and time as a PNG image
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath)]
    heat_map: Option<PathBuf>,
}

impl HeatMapFile {
    /// Refuses a file that is neither a PNG image nor empty, or cannot be written.
    pub fn check(&self) -> Result<(), Failure> {
        let Some(path) = &self.heat_map else { return Ok(()) };
        let unwritable = |error: io::Error| Failure::unwritable(path.display(), &error);
        if path.exists() && !is_image(path).map_err(unwritable)? {
            return Err(unwritable(io::Error::other("it exists and is not a PNG image")));
        }
        temporary(path).map(drop).map_err(unwritable)
    }

    /// Draws a run's maps, if requested; returns what the image shows.
    pub fn write(&self, report: &Report) -> Result<Option<String>, Failure> {
        let Some(path) = &self.heat_map else { return Ok(None) };
        let text = caption(report);
        let unwritable = |error: io::Error| Failure::unwritable(path.display(), &error);
        let image = Image::of(&report.heat_maps).encoded(&text).map_err(|error| unwritable(error.into()))?;
        let mut file = temporary(path).map_err(unwritable)?;
        file.write_all(&image).map_err(unwritable)?;
        file.persist(path).map_err(|error| unwritable(error.error))?;
        Ok(Some(format!("heat map {}: {text}", path.display())))
    }
}

/// Whether a file is a PNG image or empty.
fn is_image(path: &Path) -> io::Result<bool> {
    let mut start = Vec::new();
    File::open(path)?.take(SIGNATURE.len() as u64).read_to_end(&mut start)?;
    Ok(start.is_empty() || start == SIGNATURE)
}

/// What the image shows, in a sentence per program.
fn caption(report: &Report) -> String {
    let nodes = report.nodes.iter().enumerate();
    let nodes: Vec<String> = nodes.map(|(node, of)| format!("{} {}", of.name, colour(node))).collect();
    let program = |(name, map): (&String, &HeatMapReport)| {
        let last = map.rows.last().map_or(0, |row| row.address + map.pages_per_row * 4096);
        format!(
            " {name}: {} rows of {} KiB from {:#x} (bottom) to {last:#x}, {} columns of {:.3} ms.",
            map.rows.len(),
            map.pages_per_row * 4,
            map.rows.first().map_or(0, |row| row.address),
            map.columns,
            map.column_ms
        )
    };
    let programs: String = report.programs.iter().zip(&report.heat_maps).map(program).collect();
    format!("accesses that miss private caches, in colours of nodes ({}).{programs}", nodes.join(", "))
}

/// Pixels in rows, from the top.
struct Image {
    width: usize,
    pixels: Vec<Colour>,
}

impl Image {
    /// The maps below each other, each with its lowest address at the bottom.
    fn of(maps: &[HeatMapReport]) -> Image {
        let most = hottest_heat(maps.iter());
        let width = CELL * maps.iter().map(|map| map.columns).max().unwrap_or(1);
        let mut image = Image { width, pixels: Vec::new() };
        for (number, map) in maps.iter().enumerate() {
            if number > 0 {
                image.pixels.extend(vec![WHITE; width * GAP]);
            }
            for row in map.rows.iter().rev() {
                let top = image.pixels.len() / width;
                image.pixels.extend(vec![WHITE; width * CELL]);
                for column in 0..map.columns {
                    if let Some((node, accesses)) = hottest(row, column) {
                        let colour = blended(colour(node), heat(accesses) / most);
                        image.fill(top, column * CELL, CELL, colour);
                    }
                    if moved(row, column).is_some() {
                        image.fill(top + CELL / 3, column * CELL + CELL / 3, CELL / 3, BLACK);
                    }
                }
            }
        }
        if image.pixels.is_empty() {
            image.pixels.extend(vec![WHITE; width]);
        }
        image
    }

    /// Fills a square.
    fn fill(&mut self, top: usize, left: usize, size: usize, colour: Colour) {
        for y in top..top + size {
            let start = y * self.width + left;
            self.pixels[start..start + size].fill(colour);
        }
    }

    fn encoded(&self, text: &str) -> Result<Vec<u8>, png::EncodingError> {
        let mut bytes = Vec::new();
        let height = self.pixels.len() / self.width;
        let mut encoder = Encoder::new(&mut bytes, self.width as u32, height as u32);
        encoder.set_color(ColorType::Rgb);
        encoder.set_depth(BitDepth::Eight);
        encoder.add_itxt_chunk("Description".to_owned(), text.to_owned())?;
        let mut writer = encoder.write_header()?;
        writer.write_image_data(self.pixels.as_flattened())?;
        writer.finish()?;
        Ok(bytes)
    }
}

/// A colour such as `#0072b2` at a strength from 0 (white) to 1.
fn blended(colour: &str, strength: f64) -> Colour {
    let channel = |at: usize| {
        let full = u8::from_str_radix(&colour[at..at + 2], 16).expect("a colour of the palette");
        (255.0 - (255.0 - f64::from(full)) * strength).round() as u8
    };
    [channel(1), channel(3), channel(5)]
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::super::small;
    use super::*;

    #[test]
    fn image_has_a_square_per_cell_and_a_dot_per_move() {
        let image = Image::of(&[small(), small()]);
        assert_eq!((image.width, image.pixels.len() / image.width), (3 * CELL, 2 * CELL + GAP));
        let at = |y: usize, x: usize| image.pixels[y * image.width + x];
        assert_eq!(at(0, 0), blended(colour(0), heat(4)));
        assert_eq!(at(0, CELL), blended(colour(1), 1.0), "the hottest cell has the node's colour");
        assert_eq!(at(CELL / 3, CELL + CELL / 3), BLACK);
        assert_eq!([at(0, 2 * CELL), at(CELL, 0)], [WHITE; 2], "a cell without accesses, and the gap");
        assert_eq!(at(CELL + GAP, 0), at(0, 0));
    }

    #[test]
    fn encoded_image_decodes_to_its_pixels() {
        let image = Image::of(&[small()]);
        let bytes = image.encoded("a map").expect("an image");
        let mut reader = png::Decoder::new(io::Cursor::new(bytes)).read_info().expect("an image");
        let mut pixels = vec![0; reader.output_buffer_size().expect("a size")];
        reader.next_frame(&mut pixels).expect("a frame");
        assert_eq!(pixels, image.pixels.as_flattened());
        assert_eq!(reader.info().utf8_text[0].get_text().expect("text"), "a map");
    }

    #[test]
    fn other_files_are_left_unchanged() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("notes.png");
        let file = HeatMapFile { heat_map: Some(path.clone()) };
        file.check().expect("a new file");
        fs::write(&path, "my notes").expect("a file");
        file.check().expect_err("not an image");
        fs::write(&path, SIGNATURE).expect("a file");
        file.check().expect("an image");
    }

    #[test]
    fn run_without_accesses_has_an_image_of_one_row() {
        assert!(!Image::of(&[]).encoded("").expect("an image").is_empty());
    }
}
