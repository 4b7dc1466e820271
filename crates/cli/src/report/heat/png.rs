//! Heat maps as a PNG file.

use std::fs::File;
use std::io::{self, Read, Write};
use std::path::{Path, PathBuf};

use clap::ValueHint;
use embedded_graphics::geometry::{OriginDimensions, Size};
use memtide_sim::{HeatMapReport, Report};
use png::{BitDepth, ColorType, Encoder};

use super::image::Image;
use crate::failure::Failure;
use crate::output::temporary;
use crate::report::chart::colour;

/// First bytes of every PNG file.
const SIGNATURE: [u8; 8] = *b"\x89PNG\r\n\x1a\n";

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
        let image = encoded(&Image::of(report), &text).map_err(|error| unwritable(error.into()))?;
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

/// An image as PNG.
fn encoded(image: &Image, text: &str) -> Result<Vec<u8>, png::EncodingError> {
    let mut bytes = Vec::new();
    let Size { width, height } = image.size();
    let mut encoder = Encoder::new(&mut bytes, width, height);
    encoder.set_color(ColorType::Rgb);
    encoder.set_depth(BitDepth::Eight);
    encoder.add_itxt_chunk("Description".to_owned(), text.to_owned())?;
    let mut writer = encoder.write_header()?;
    writer.write_image_data(image.bytes())?;
    writer.finish()?;
    Ok(bytes)
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::super::image::tests::report;
    use super::*;

    #[test]
    fn encoded_image_decodes_to_its_pixels() {
        let image = Image::of(&report(1));
        let bytes = encoded(&image, "a map").expect("an image");
        let mut reader = png::Decoder::new(io::Cursor::new(bytes)).read_info().expect("an image");
        let mut pixels = vec![0; reader.output_buffer_size().expect("a size")];
        reader.next_frame(&mut pixels).expect("a frame");
        assert_eq!(pixels, image.bytes());
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
}
