//! The picture: stacks as a flame graph in one SVG file that needs nothing else.
//!
//! Each box is a function in the stacks that go through it, as wide as its samples; below it is its caller, above it
//! what it called. Colours are domains. A click makes a box as wide as the picture, a click on the lowest one goes
//! back, and the field at the top right marks what it is asked for; without its script the picture is whole and each
//! box has its title.

use std::collections::BTreeMap;
use std::fmt::Write;

use aegis_launch::domain::{DOMAINS, Domain};

use super::lookup::Frame;

const WIDTH: f64 = 1200.0;
const MARGIN: f64 = 10.0;
const BOX_HEIGHT: f64 = 18.0;
const HEAD_HEIGHT: f64 = 64.0;
const LETTER_WIDTH: f64 = 7.25;
/// Narrower boxes are left out; their samples are in their callers' boxes.
const BOX_WIDTH_MIN: f64 = 0.2;

/// Samples by stack.
#[derive(Debug, Default)]
pub(super) struct Flames {
    children: BTreeMap<Frame, Flames>,
    count: u64,
}

/// What stands above the picture.
pub(super) struct Caption<'a> {
    pub(super) title: &'a str,
    /// Samples of each of [`DOMAINS`].
    pub(super) sums: [u64; DOMAINS.len()],
    /// How it was sampled.
    pub(super) note: &'a str,
}

impl Flames {
    /// Adds samples of one stack, outermost function first.
    pub(super) fn add(&mut self, stack: impl IntoIterator<Item = Frame>, count: u64) {
        self.count += count;
        let mut at = self;
        for frame in stack {
            at = at.children.entry(frame).or_default();
            at.count += count;
        }
    }

    fn depth(&self) -> usize {
        self.children.values().map(|child| child.depth() + 1).max().unwrap_or(0)
    }

    /// The file's text.
    pub(super) fn svg(&self, caption: &Caption<'_>) -> String {
        let height = HEAD_HEIGHT + BOX_HEIGHT * (self.depth() + 1) as f64 + 2.0 * MARGIN;
        let mut picture =
            Picture { text: String::new(), total: self.count.max(1), bottom: height - MARGIN - BOX_HEIGHT };
        picture.head(caption, height);
        picture.text += "<g id=\"boxes\">\n";
        picture.draw("all", "", None, 0, 0, self);
        picture.text += "</g>\n<script><![CDATA[";
        picture.text += SCRIPT;
        picture.text += "]]></script>\n</svg>\n";
        picture.text
    }
}

struct Picture {
    text: String,
    total: u64,
    bottom: f64,
}

impl Picture {
    fn head(&mut self, caption: &Caption<'_>, height: f64) {
        // Writing to a string does not fail.
        let _ = writeln!(
            self.text,
            "<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n\
             <svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {WIDTH} {height}\" width=\"{WIDTH}\" \
             height=\"{height}\" font-family=\"ui-monospace, monospace\" font-size=\"12\">\n\
             <style>#boxes g{{cursor:pointer}}#boxes g:hover rect{{stroke:#000}}.found rect{{fill:#ff00ff}}\
             .outer{{opacity:.5}}</style>\n\
             <rect width=\"100%\" height=\"100%\" fill=\"#ffffff\"/>\n\
             <text x=\"{MARGIN}\" y=\"20\" font-size=\"15\">{}</text>",
            escaped(caption.title)
        );
        let mut x = MARGIN;
        for (domain, count) in DOMAINS.iter().zip(caption.sums) {
            let words = format!("{} {count} ({:.1} %)", domain.name(), percent(count, self.total));
            let _ = writeln!(
                self.text,
                "<rect x=\"{x}\" y=\"30\" width=\"12\" height=\"12\" fill=\"{}\"/>\
                 <text x=\"{}\" y=\"40\">{words}</text>",
                colour(Some(*domain), ""),
                x + 16.0,
            );
            x += 40.0 + words.len() as f64 * LETTER_WIDTH;
        }
        let _ = writeln!(
            self.text,
            "<text x=\"{MARGIN}\" y=\"58\" fill=\"#555555\" id=\"note\">{}</text>\n\
             <text x=\"{}\" y=\"20\" text-anchor=\"end\" id=\"search\" fill=\"#0000cc\" \
             cursor=\"pointer\">search</text>",
            escaped(caption.note),
            WIDTH - MARGIN,
        );
    }

    /// One box and all above it. `start` is the number of samples to its left.
    fn draw(&mut self, name: &str, file: &str, domain: Option<Domain>, depth: usize, start: u64, flames: &Flames) {
        let scale = (WIDTH - 2.0 * MARGIN) / self.total as f64;
        let (x, width) = (MARGIN + start as f64 * scale, flames.count as f64 * scale);
        if width < BOX_WIDTH_MIN {
            return;
        }
        let y = self.bottom - depth as f64 * BOX_HEIGHT;
        let of_file = if file.is_empty() { String::new() } else { format!(" ({})", escaped(file)) };
        let _ = writeln!(
            self.text,
            "<g data-s=\"{start}\" data-c=\"{}\" data-d=\"{depth}\"><title>{}{of_file}: {} samples, {:.2} %</title>\
             <rect x=\"{x:.2}\" y=\"{y}\" width=\"{width:.2}\" height=\"{}\" fill=\"{}\" rx=\"1\"/>\
             <text x=\"{:.2}\" y=\"{}\">{}</text></g>",
            flames.count,
            escaped(name),
            flames.count,
            percent(flames.count, self.total),
            BOX_HEIGHT - 1.0,
            colour(domain, name),
            x + 3.0,
            y + 13.0,
            escaped(&fitting(name, width)),
        );
        let mut start = start;
        for (frame, child) in &flames.children {
            self.draw(&frame.name, &frame.file, Some(frame.domain), depth + 1, start, child);
            start += child.count;
        }
    }
}

fn percent(count: u64, total: u64) -> f64 {
    100.0 * count as f64 / total.max(1) as f64
}

/// As much of a name as there is room for; the script does the same.
fn fitting(name: &str, width: f64) -> String {
    let room = ((width - 6.0) / LETTER_WIDTH).max(0.0) as usize;
    match name.chars().count() {
        length if length <= room => name.to_string(),
        _ if room < 3 => String::new(),
        _ => name.chars().take(room - 2).chain("..".chars()).collect(),
    }
}

/// The domain's colour, a little different for each name.
fn colour(domain: Option<Domain>, name: &str) -> String {
    let hash = name.bytes().fold(0_u32, |hash, byte| hash.wrapping_mul(31).wrapping_add(byte.into()));
    let (hue, saturation) = match domain {
        Some(Domain::Program) => (38, 90),
        Some(Domain::LibraryOs) => (205, 75),
        Some(Domain::Driver) => (275, 60),
        Some(Domain::Kernel) => (5, 75),
        Some(Domain::Idle) | None => (0, 0),
    };
    format!("hsl({hue},{saturation}%,{}%)", 70 + hash % 13)
}

/// Text as XML takes it.
fn escaped(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for letter in text.chars() {
        match letter {
            '&' => out += "&amp;",
            '<' => out += "&lt;",
            '>' => out += "&gt;",
            '"' => out += "&quot;",
            letter if letter.is_control() => out.push('\u{fffd}'),
            letter => out.push(letter),
        }
    }
    out
}

/// Makes boxes wide and marks them; no other file, no network.
const SCRIPT: &str = include_str!("flame.js");

#[cfg(test)]
mod tests {
    use super::{Caption, Domain, Flames, Frame, escaped, fitting};

    fn frame(name: &str) -> Frame {
        Frame { domain: Domain::Program, name: name.into(), file: "a.out".into() }
    }

    fn svg() -> String {
        let mut flames = Flames::default();
        flames.add([frame("main"), frame("<busy>")], 3);
        flames.add([frame("main"), frame("idle")], 1);
        flames.svg(&Caption { title: "a & b", sums: [4, 0, 0, 0, 0], note: "how" })
    }

    #[test]
    fn boxes_have_titles_with_counts() {
        let svg = svg();
        assert!(svg.contains("<title>all: 4 samples, 100.00 %</title>"), "{svg}");
        assert!(svg.contains("<title>main (a.out): 4 samples, 100.00 %</title>"));
        assert!(svg.contains("<title>&lt;busy&gt; (a.out): 3 samples, 75.00 %</title>"));
        assert!(svg.contains("program 4 (100.0 %)") && svg.contains("exos 0 (0.0 %)"));
    }

    #[test]
    fn the_file_needs_nothing_else() {
        let svg = svg();
        let links = svg.matches("http").count();
        assert_eq!(links, 1, "only the name space's name");
        assert!(!svg.contains("href") && !svg.contains("url(") && !svg.contains("import"));
    }

    #[test]
    fn names_fit_their_boxes() {
        assert_eq!(fitting("main", 1000.0), "main");
        assert_eq!(fitting("a_long_name", 6.0 + 7.25 * 5.0), "a_l..");
        assert_eq!(fitting("a_long_name", 10.0), "");
        assert_eq!(escaped("a\u{1b}<"), "a\u{fffd}&lt;");
    }
}
