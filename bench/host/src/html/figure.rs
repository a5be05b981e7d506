//! An experiment's figure as SVG: axes from 0 or, along the first, of doublings; lines and dots,
//! a legend.
//!
//! Its size is fixed and it shrinks with the screen. Each point's value is in the drawing's own numbers; the exact ones
//! are in the table and in the file of `--json`.

use super::super::result::{Figure, Series};
use super::text::{escaped, grouped};

/// The drawing, and where the axes are in it, in pixels.
const WIDTH: f64 = 720.0;
const HEIGHT: f64 = 340.0;
const LEFT: f64 = 64.0;
const RIGHT: f64 = 16.0;
const TOP: f64 = 12.0;
const BOTTOM: f64 = 44.0;
/// Ticks of an axis, at most.
const TICK_COUNT: f64 = 8.0;
/// Colours in the style sheet.
const COLOURS: [&str; 6] = ["a", "b", "c", "d", "e", "f"];

/// From 0 to the end of the last tick.
#[derive(Clone, Copy, Debug, PartialEq)]
struct Axis {
    step: f64,
    end: f64,
}

impl Axis {
    /// Holds all values; steps are 1, 2 or 5 times a power of ten.
    fn of(values: impl Iterator<Item = f64>) -> Self {
        let max = values.filter(|value| value.is_finite()).fold(0.0, f64::max);
        if max <= 0.0 {
            return Self { step: 1.0, end: 1.0 };
        }
        let power = 10f64.powf((max / TICK_COUNT).log10().floor());
        let step = [1.0, 2.0, 5.0, 10.0].map(|it| it * power).into_iter().find(|step| max / step <= TICK_COUNT);
        let step = step.unwrap_or(10.0 * power);
        Self { step, end: (max / step).ceil() * step }
    }

    fn ticks(self) -> impl Iterator<Item = f64> {
        (0..=(self.end / self.step).round() as u32).map(move |tick| f64::from(tick) * self.step)
    }

    fn label(self, value: f64) -> String {
        if self.step < 1.0 { format!("{value:.*}", -self.step.log10().floor() as usize) } else { whole(value) }
    }
}

/// What is along the first axis.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Along {
    Even(Axis),
    /// From one power of two to another.
    Doubling(i32, i32),
}

impl Along {
    fn of(values: impl Iterator<Item = f64> + Clone, is_doubling: bool) -> Self {
        if !is_doubling {
            return Self::Even(Axis::of(values));
        }
        let powers = values.filter(|value| *value >= 1.0).map(|value| value.log2());
        let first = powers.clone().fold(f64::INFINITY, f64::min).floor().min(1000.0) as i32;
        let last = powers.fold(0.0, f64::max).ceil() as i32;
        Self::Doubling(first, last.max(first + 1))
    }

    /// From 0 at the axis's begin to 1 at its end.
    fn part(self, value: f64) -> f64 {
        match self {
            Self::Even(axis) => value / axis.end,
            Self::Doubling(first, last) => (value.max(1.0).log2() - f64::from(first)) / f64::from(last - first),
        }
    }

    /// Values and their labels.
    fn ticks(self) -> Vec<(f64, String)> {
        match self {
            Self::Even(axis) => axis.ticks().map(|value| (value, axis.label(value))).collect(),
            Self::Doubling(first, last) => (first..=last).map(|power| (2f64.powi(power), binary(power))).collect(),
        }
    }
}

/// `64K`
fn binary(power: i32) -> String {
    let (thousands, rest) = (power.div_euclid(10), power.rem_euclid(10));
    format!("{}{}", 1 << rest, ["", "K", "M", "G", "T"].get(thousands as usize).unwrap_or(&"?"))
}

/// `12,000`
fn whole(value: f64) -> String {
    let text = grouped(value);
    text.split_once('.').map_or(text.clone(), |(whole, _)| whole.into())
}

/// The section of a figure.
pub(super) fn put(out: &mut String, figure: &Figure) {
    put!(out, "<section id=\"f-{0}\" class=\"figure-of\">\n<h2>{0}</h2>\n", escaped(&figure.name));
    put!(out, "<p>{}</p>\n<p class=\"legend\">", escaped(&figure.title));
    for (index, series) in figure.series.iter().enumerate() {
        put!(out, "<span><i class=\"{}\"></i> {}</span>\n", colour(index), escaped(&series.title));
    }
    let title = escaped(&figure.title);
    put!(out, "</p>\n<svg class=\"plane\" viewBox=\"0 0 {WIDTH} {HEIGHT}\" role=\"img\" aria-label=\"{title}\">\n");
    let points = || figure.series.iter().flat_map(|series| &series.points);
    let x = Along::of(points().map(|it| it.0), figure.is_doubling);
    let plane = Plane { x, y: Axis::of(points().map(|it| it.1)) };
    plane.put_axes(out, &figure.axes);
    for (index, series) in figure.series.iter().enumerate() {
        plane.put_series(out, series, colour(index));
    }
    out.push_str("</svg>\n</section>\n");
}

fn colour(index: usize) -> &'static str {
    COLOURS[index % COLOURS.len()]
}

struct Plane {
    x: Along,
    y: Axis,
}

impl Plane {
    fn place(&self, (x, y): (f64, f64)) -> (f64, f64) {
        let along = self.x.part(x) * (WIDTH - LEFT - RIGHT);
        let up = y / self.y.end * (HEIGHT - TOP - BOTTOM);
        (LEFT + along, HEIGHT - BOTTOM - up)
    }

    fn put_axes(&self, out: &mut String, titles: &[String; 2]) {
        let (right, bottom) = (WIDTH - RIGHT, HEIGHT - BOTTOM);
        for value in self.y.ticks() {
            let y = self.place((1.0, value)).1;
            put!(out, "<line class=\"grid\" x1=\"{LEFT}\" x2=\"{right}\" y1=\"{y:.1}\" y2=\"{y:.1}\"/>");
            let (x, y, label) = (LEFT - 6.0, y + 4.0, self.y.label(value));
            put!(out, "<text x=\"{x}\" y=\"{y:.1}\" text-anchor=\"end\">{label}</text>\n");
        }
        for (value, label) in self.x.ticks() {
            let (x, _) = self.place((value, 0.0));
            let y = bottom + 16.0;
            put!(out, "<line class=\"grid\" x1=\"{x:.1}\" x2=\"{x:.1}\" y1=\"{TOP}\" y2=\"{bottom}\"/>");
            put!(out, "<text x=\"{x:.1}\" y=\"{y}\" text-anchor=\"middle\">{label}</text>\n");
        }
        let [x_title, y_title] = titles;
        let (middle, under) = ((LEFT + right) / 2.0, HEIGHT - 8.0);
        put!(out, "<text x=\"{middle}\" y=\"{under}\" text-anchor=\"middle\">{}</text>\n", escaped(x_title));
        let middle = (TOP + bottom) / 2.0;
        put!(
            out,
            "<text transform=\"translate(12 {middle}) rotate(-90)\" text-anchor=\"middle\">{}</text>\n",
            escaped(y_title)
        );
    }

    fn put_series(&self, out: &mut String, series: &Series, colour: &str) {
        let places: Vec<(f64, f64)> = series.points.iter().map(|point| self.place(*point)).collect();
        if series.is_line {
            put!(out, "<polyline class=\"line {colour}\" points=\"");
            for (x, y) in &places {
                put!(out, "{x:.1},{y:.1} ");
            }
            out.push_str("\"/>\n");
            return;
        }
        for (x, y) in &places {
            put!(out, "<circle class=\"{colour}\" cx=\"{x:.1}\" cy=\"{y:.1}\" r=\"3.5\"/>\n");
        }
    }
}

#[cfg(test)]
mod tests {
    use super::{Along, Axis, put};
    use crate::result::{Figure, Series};

    #[test]
    fn axes_hold_everything_in_round_steps() {
        let axis = |values: &[f64]| Axis::of(values.iter().copied());
        assert_eq!(axis(&[1.0, 20.0]), Axis { step: 5.0, end: 20.0 });
        assert_eq!(axis(&[13.42]), Axis { step: 2.0, end: 14.0 });
        assert_eq!(axis(&[0.0]), Axis { step: 1.0, end: 1.0 });
        let small = axis(&[0.72]);
        assert_eq!(small.label(small.step), "0.1");
        assert_eq!(axis(&[200.0, f64::INFINITY]).ticks().last(), Some(200.0));
    }

    #[test]
    fn doublings_are_as_far_apart_as_each_other() {
        let along = Along::of([1024.0, 4096.0].into_iter(), true);
        assert_eq!(along, Along::Doubling(10, 12));
        assert_eq!(along.ticks().iter().map(|tick| tick.1.as_str()).collect::<Vec<_>>(), ["1K", "2K", "4K"]);
        assert_eq!((along.part(1024.0), along.part(2048.0), along.part(4096.0)), (0.0, 0.5, 1.0));
    }

    #[test]
    fn names_cannot_break_the_page() {
        let series = vec![
            Series { title: "<a>".into(), is_line: true, points: vec![(0.0, 0.0), (10.0, 10.0)] },
            Series { title: "b".into(), is_line: false, points: vec![(10.0, 5.0)] },
        ];
        let axes = ["<x>".into(), "y&".into()];
        let mut out = String::new();
        put(&mut out, &Figure { name: "f".into(), title: "\"t\"".into(), axes, is_doubling: false, series });
        assert!(out.contains("&lt;a&gt;") && out.contains("&lt;x&gt;") && out.contains("aria-label=\"&quot;t&quot;\""));
        assert!(out.contains("points=\"64.0,296.0 704.0,12.0 \"") && out.contains("cx=\"704.0\" cy=\"154.0\""));
    }
}
