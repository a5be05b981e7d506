//! A YAML document as values with their lines. Scalars stay text: what `22:22` or `no` stands for is its reader's to
//! say. Bounded: so many values, so deep, with what aliases stand for counted.

use std::collections::HashMap;

use granit_parser::{Event, Parser};

/// Most values of a document.
const NODE_COUNT_MAX: usize = 100_000;
const DEPTH_MAX: usize = 64;

/// A value.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Node {
    /// Its line, from 1.
    pub(crate) line: usize,
    pub(crate) value: Value,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Value {
    /// Text, and whether it was written without quotes.
    Scalar(String, bool),
    List(Vec<Node>),
    /// In the document's order.
    Map(Vec<(String, Node)>),
}

impl Node {
    /// Whether it is nothing: an empty value, `~` or `null`.
    pub(crate) fn is_null(&self) -> bool {
        matches!(&self.value, Value::Scalar(text, true) if matches!(text.as_str(), "" | "~" | "null" | "Null" | "NULL"))
    }

    fn count(&self) -> usize {
        1 + match &self.value {
            Value::Scalar(..) => 0,
            Value::List(list) => list.iter().map(Self::count).sum(),
            Value::Map(map) => map.iter().map(|(_, node)| node.count()).sum(),
        }
    }
}

/// What is wrong, and in which line.
pub(crate) type Wrong = (usize, String);

struct Builder<'a> {
    parser: Parser<'a, granit_parser::StrInput<'a>>,
    anchors: HashMap<usize, Node>,
    count: usize,
}

/// Reads the first document of a text.
///
/// # Errors
/// The line, and what is wrong in it.
pub(crate) fn parse(text: &str) -> Result<Node, Wrong> {
    let mut builder = Builder { parser: Parser::new_from_str(text), anchors: HashMap::new(), count: 0 };
    loop {
        match builder.next()? {
            (Event::StreamStart | Event::DocumentStart(..), _) => {}
            (Event::StreamEnd | Event::DocumentEnd, line) => return Err((line, "the file is empty".into())),
            (event, line) => return builder.node(event, line, 0),
        }
    }
}

impl<'a> Builder<'a> {
    fn next(&mut self) -> Result<(Event<'a>, usize), Wrong> {
        match self.parser.next() {
            None => Ok((Event::StreamEnd, 0)),
            Some(Err(error)) => Err((error.marker().line(), error.to_string())),
            Some(Ok((event, span))) => Ok((event, span.start.line())),
        }
    }

    fn node(&mut self, event: Event<'a>, line: usize, depth: usize) -> Result<Node, Wrong> {
        self.count += 1;
        if self.count > NODE_COUNT_MAX || depth > DEPTH_MAX {
            return Err((line, format!("more than {NODE_COUNT_MAX} values, or deeper than {DEPTH_MAX}")));
        }
        let (anchor, value) = match event {
            Event::Scalar(text, style, anchor, _) => {
                let is_plain = style == granit_parser::ScalarStyle::Plain;
                (anchor, Value::Scalar(text.into_owned(), is_plain))
            }
            Event::SequenceStart(_, anchor, _) => (anchor, Value::List(self.list(depth)?)),
            Event::MappingStart(_, anchor, _) => (anchor, Value::Map(self.map(depth)?)),
            Event::Alias(anchor) => {
                let known = self.anchors.get(&anchor).cloned();
                let known = known.ok_or_else(|| (line, "an alias of nothing".to_owned()))?;
                self.count += known.count();
                if self.count > NODE_COUNT_MAX {
                    return Err((line, format!("more than {NODE_COUNT_MAX} values")));
                }
                return Ok(known);
            }
            _ => return Err((line, "a value is missing".into())),
        };
        let node = Node { line, value };
        if anchor > 0 {
            self.anchors.insert(anchor, node.clone());
        }
        Ok(node)
    }

    fn list(&mut self, depth: usize) -> Result<Vec<Node>, Wrong> {
        let mut list = Vec::new();
        loop {
            match self.next()? {
                (Event::SequenceEnd, _) => return Ok(list),
                (event, line) => list.push(self.node(event, line, depth + 1)?),
            }
        }
    }

    /// With what `<<` names put in behind the map's own keys.
    fn map(&mut self, depth: usize) -> Result<Vec<(String, Node)>, Wrong> {
        let (mut map, mut merged): (Vec<(String, Node)>, Vec<Node>) = (Vec::new(), Vec::new());
        loop {
            let (event, line) = self.next()?;
            if matches!(event, Event::MappingEnd) {
                break;
            }
            let key = self.node(event, line, depth + 1)?;
            let Value::Scalar(name, _) = key.value else { return Err((line, "a key is text".into())) };
            let (event, value_line) = self.next()?;
            let value = self.node(event, value_line, depth + 1)?;
            if name == "<<" {
                merged.push(value);
            } else if map.iter().any(|(known, _)| *known == name) {
                return Err((line, format!("{name}: twice")));
            } else {
                map.push((name, value));
            }
        }
        let sources = merged.into_iter().flat_map(|node| match node.value {
            Value::List(list) => list,
            _ => vec![node],
        });
        for source in sources {
            let Value::Map(entries) = source.value else { return Err((source.line, "<<: a map is wanted".into())) };
            for (name, node) in entries {
                if !map.iter().any(|(known, _)| *known == name) {
                    map.push((name, node));
                }
            }
        }
        Ok(map)
    }
}

#[cfg(test)]
mod tests {
    use super::{Node, Value, parse};

    fn at<'a>(node: &'a Node, key: &str) -> &'a Node {
        match &node.value {
            Value::Map(map) => &map.iter().find(|(name, _)| name == key).expect(key).1,
            _ => panic!("a map"),
        }
    }

    #[test]
    fn values_keep_their_text_and_lines() {
        let text = "x: &a\n  k: 22:22\n  q: \"no\"\ny:\n  <<: *a\n  q: mine\nz: [1, ~]\n";
        let root = parse(text).expect("a document");
        assert_eq!(at(at(&root, "y"), "k").value, Value::Scalar("22:22".into(), true));
        assert_eq!(at(at(&root, "y"), "q").value, Value::Scalar("mine".into(), true));
        assert_eq!((at(&root, "z").line, at(at(&root, "x"), "q").line), (7, 3));
        let Value::List(list) = &at(&root, "z").value else { panic!("a list") };
        assert!(list[1].is_null() && !list[0].is_null());
    }

    #[test]
    fn what_is_none_or_too_much_is_refused() {
        for text in ["", "a: 1\na: 2\n", "a: [", "? [a]\n: b\n", "a: *b\n", "<<: text\n"] {
            assert!(parse(text).is_err(), "{text}");
        }
        let laughs = (1..12).fold("a0: &a0 [x,x,x,x,x,x,x,x,x]\n".to_owned(), |text, level| {
            let list = vec![format!("*a{}", level - 1); 9].join(",");
            format!("{text}a{level}: &a{level} [{list}]\n")
        });
        assert!(parse(&laughs).expect_err("a bomb").1.contains("values"));
        assert!(parse(&"[".repeat(10_000)).is_err());
    }
}
