//! What an experiment of the suite `lottery` comes to: rows, figures, and doubts about them.

use super::super::result::{Cell, Figure, Row, Series};

/// What an experiment came to.
#[derive(Default)]
pub(super) struct Found {
    pub(super) rows: Vec<Row>,
    pub(super) figures: Vec<Figure>,
    pub(super) doubts: Vec<String>,
}

impl Found {
    pub(super) fn add(&mut self, other: Self) {
        self.rows.extend(other.rows);
        self.figures.extend(other.figures);
        self.doubts.extend(other.doubts);
    }
}

/// Whether a result is further from what is due than this part of it, or is none: a ratio of nothings is no number.
pub(super) fn is_off(value: f64, due: f64, most: f64) -> bool {
    let off = (value / due - 1.0).abs();
    off.is_nan() || off > most
}

/// What the tickets say, what came out on the two systems, and what was published.
pub(super) struct Outcome {
    pub(super) due: f64,
    pub(super) aegis: Cell,
    pub(super) linux: Cell,
    pub(super) published: Option<f64>,
}

impl Outcome {
    pub(super) fn row(self, name: String) -> Row {
        let [due, published] = [Some(self.due), self.published].map(Cell::of);
        Row { name, cells: vec![due, self.aegis, self.linux, published], beside: None }
    }
}

/// What a figure shows of these points, if there are any.
pub(super) fn series(title: &str, is_line: bool, points: Vec<(f64, f64)>) -> Option<Series> {
    (!points.is_empty()).then(|| Series { title: title.into(), is_line, points })
}

#[cfg(test)]
mod tests {
    use super::is_off;

    #[test]
    fn what_is_no_number_is_off() {
        assert!(!is_off(2.1, 2.0, 0.1) && is_off(2.3, 2.0, 0.1) && is_off(1.7, 2.0, 0.1));
        assert!(is_off(f64::NAN, 2.0, 0.1) && is_off(f64::INFINITY, 2.0, 0.1));
    }
}
