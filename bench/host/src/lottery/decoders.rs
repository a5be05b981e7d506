//! Figure 8: three decoders of an MPEG-1 stream with tickets 3:2:1, and 3:1:2 from the middle on
//! (`bench/lottery/decoders.c`).
//!
//! Stream and decoder are those of Debian's ffmpeg. The paper's decoders showed what they decoded, and its display
//! served all alike; the first half is beside what it measured without one.

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use super::super::failure::{Failure, last_line};
use super::super::filter::RowFilter;
use super::super::result::{Cell, Figure};
use super::contest::{Arena, Loops};
use super::one_machine::Play;
use super::outcome::{Found, Outcome, is_off, series};

const FFMPEG: &str = "/usr/bin/ffmpeg";
const STREAM: &str = "/bench/stream.mpg";
/// Of Debian's test pattern: ten seconds in the size of a Video CD's double.
const MAKING: &str = "-hide_banner -loglevel error -y -bitexact -f lavfi -i testsrc2=size=640x480:rate=24 -t 10 \
                      -c:v mpeg1video -b:v 1150k -bf 2 -threads 1 -f mpeg";
const NAMES: [&str; 3] = ["d0", "d1", "d2"];
const WINDOW_COUNT: u32 = 40;
const WINDOW_MS: u32 = 5000;
const WEIGHTS: [&str; 2] = ["300,200,100", "300,100,200"];
/// Half of the time, one decoder by another, what the tickets say, what was published.
const ROWS: [(&str, usize, [usize; 2], f64, f64); 4] = [
    ("fig08_3_2_1_first_to_third", 0, [0, 2], 3.0, 3.06),
    ("fig08_3_2_1_second_to_third", 0, [1, 2], 2.0, 2.04),
    ("fig08_3_1_2_first_to_second", 1, [0, 1], 3.0, 1.92),
    ("fig08_3_1_2_third_to_second", 1, [2, 1], 2.0, 1.53),
];
/// Results further from what is due are doubted: ten thousand turns were drawn in each half.
const OFF_MAX: f64 = 0.15;

pub(super) fn run(arena: &Arena<'_>, filter: &RowFilter) -> Result<Found, Failure> {
    let mut found = Found::default();
    if !ROWS.iter().any(|(name, ..)| filter.finds(name)) {
        return Ok(found);
    }
    if !Path::new(FFMPEG).exists() {
        let none = || Cell::NotAvailable("ffmpeg is not on this host (apt install ffmpeg)".into());
        let row = |(name, _, _, due, published): (&str, _, _, f64, f64)| {
            Outcome { due, aegis: none(), linux: none(), published: Some(published) }.row(name.into())
        };
        found.rows.extend(ROWS.map(row));
        return Ok(found);
    }
    let files = arena.root(&[FFMPEG], &[(&stream(arena.places().1)?, STREAM)])?;
    let windows = arena.scaled(WINDOW_COUNT) & !1;
    let words = ["decoders", &windows.to_string(), &WINDOW_MS.to_string(), STREAM, WEIGHTS[0], WEIGHTS[1]];
    let words = words.map(String::from).to_vec();
    let both = arena.within_both(&Play { files: &files, words, names: &NAMES, count: windows as usize, seed: 1 })?;
    for (name, half, pair, due, published) in ROWS {
        let values = both.each_ref().map(|loops| loops.as_ref().map(|loops| ratio(loops, half, pair)));
        if let Some(value) = values[0].filter(|value| is_off(*value, due, OFF_MAX)) {
            found.doubts.push(format!("{name}: {value:.2} instead of {due:.2}"));
        }
        let [aegis, linux] = values.map(Cell::of);
        found.rows.push(Outcome { due, aegis, linux, published: Some(published) }.row(name.into()));
    }
    found.figures.push(figure(&both));
    Ok(found)
}

/// The stream, made if it is not in the cache.
fn stream(cache: &Path) -> Result<PathBuf, Failure> {
    let path = cache.join("lottery-640x480.mpg");
    if path.is_file() {
        return Ok(path);
    }
    // Another run may be making the same: the file appears by renaming.
    let fresh = cache.join(format!("lottery-640x480.{}.tmp", std::process::id()));
    let made = Command::new(FFMPEG).args(MAKING.split_whitespace()).arg(&fresh).stdin(Stdio::null()).output();
    let made = made.map_err(|error| Failure::File("starting", FFMPEG.into(), error))?;
    if !made.status.success() {
        let _ = std::fs::remove_file(&fresh);
        return Err(Failure::Generate(last_line(&String::from_utf8_lossy(&made.stderr))));
    }
    std::fs::rename(&fresh, &path).map_err(|error| Failure::file("writing", path.clone(), error))?;
    Ok(path)
}

/// The frames of one decoder by those of another in one half of the time.
fn ratio(loops: &Loops, half: usize, pair: [usize; 2]) -> f64 {
    let [one, other] = pair.map(|decoder| {
        let windows = &loops[decoder];
        let [first, second] = [&windows[..windows.len() / 2], &windows[windows.len() / 2..]];
        [first, second][half].iter().sum::<u64>() as f64
    });
    one / other
}

fn figure(both: &[Option<Loops>; 2]) -> Figure {
    let mut lines = Vec::new();
    for (system, loops) in ["Aegis", "Linux"].into_iter().zip(both) {
        for (decoder, windows) in loops.iter().flatten().enumerate() {
            let mut sum = 0;
            let points = windows.iter().enumerate().map(|(window, count)| {
                sum += count;
                ((window + 1) as f64 * f64::from(WINDOW_MS) / 1000.0, sum as f64)
            });
            lines.extend(series(&format!("{system}, decoder {}", decoder + 1), true, points.collect()));
        }
    }
    Figure {
        name: "fig08".into(),
        title: "Figure 8: frames that three decoders came to, with tickets 3:2:1 and then 3:1:2".into(),
        axes: ["s of guest time".into(), "frames".into()],
        is_doubling: false,
        series: lines,
    }
}

#[cfg(test)]
mod tests {
    use super::ratio;

    #[test]
    fn halves_are_apart() {
        let loops = vec![vec![30, 30, 10, 10], vec![10, 10, 20, 20]];
        assert_eq!(ratio(&loops, 0, [0, 1]), 3.0);
        assert_eq!(ratio(&loops, 1, [1, 0]), 2.0);
    }
}
