//! A small JSON reader (RFC 8259), for files that this tool wrote and a user may have edited.
//!
//! Depth is limited, so no file can exhaust the stack. Members of objects keep their order.

/// Deepest nesting; the tool's own files have six levels.
const DEPTH_MAX: usize = 32;

/// A JSON value.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Value {
    /// `null`
    Null,
    /// `true` or `false`
    Bool(bool),
    /// A number.
    Number(f64),
    /// A string.
    Text(String),
    /// An array.
    List(Vec<Value>),
    /// An object.
    Members(Vec<(String, Value)>),
}

impl Value {
    /// The member of this name.
    pub(crate) fn get(&self, key: &str) -> Option<&Self> {
        let found = self.members()?.iter().find(|(name, _)| name == key);
        found.map(|(_, value)| value)
    }

    /// The members of an object.
    pub(crate) fn members(&self) -> Option<&[(String, Self)]> {
        match self {
            Self::Members(members) => Some(members),
            _ => None,
        }
    }

    /// The elements of an array.
    pub(crate) fn list(&self) -> Option<&[Self]> {
        match self {
            Self::List(list) => Some(list),
            _ => None,
        }
    }

    /// A string.
    pub(crate) fn text(&self) -> Option<&str> {
        match self {
            Self::Text(text) => Some(text),
            _ => None,
        }
    }

    /// A number.
    pub(crate) fn number(&self) -> Option<f64> {
        match self {
            Self::Number(number) => Some(*number),
            _ => None,
        }
    }
}

/// Reads one value, which has to be all of the text. The error says at which byte.
pub(crate) fn parse(text: &str) -> Result<Value, String> {
    let mut reader = Reader { text, at: 0 };
    let value = reader.value(0);
    reader.skip_space();
    match value {
        Some(value) if reader.at == text.len() => Ok(value),
        _ => Err(format!("not JSON at byte {}", reader.at)),
    }
}

struct Reader<'a> {
    text: &'a str,
    at: usize,
}

impl Reader<'_> {
    fn rest(&self) -> &str {
        &self.text[self.at..]
    }

    fn skip_space(&mut self) {
        let space = |c| matches!(c, ' ' | '\t' | '\n' | '\r');
        self.at += self.rest().len() - self.rest().trim_start_matches(space).len();
    }

    /// Takes `word` if it is next, after space.
    fn take(&mut self, word: &str) -> bool {
        self.skip_space();
        let is_next = self.rest().starts_with(word);
        if is_next {
            self.at += word.len();
        }
        is_next
    }

    fn value(&mut self, depth: usize) -> Option<Value> {
        if depth > DEPTH_MAX {
            return None;
        }
        self.skip_space();
        match self.rest().chars().next()? {
            '{' => self.members(depth),
            '[' => self.list(depth),
            '"' => self.string().map(Value::Text),
            'n' => self.take("null").then_some(Value::Null),
            't' => self.take("true").then_some(Value::Bool(true)),
            'f' => self.take("false").then_some(Value::Bool(false)),
            _ => self.number(),
        }
    }

    fn members(&mut self, depth: usize) -> Option<Value> {
        let mut members = Vec::new();
        self.take("{");
        if self.take("}") {
            return Some(Value::Members(members));
        }
        loop {
            self.skip_space();
            let name = self.string()?;
            if !self.take(":") {
                return None;
            }
            members.push((name, self.value(depth + 1)?));
            if self.take("}") {
                return Some(Value::Members(members));
            }
            if !self.take(",") {
                return None;
            }
        }
    }

    fn list(&mut self, depth: usize) -> Option<Value> {
        let mut list = Vec::new();
        self.take("[");
        if self.take("]") {
            return Some(Value::List(list));
        }
        loop {
            list.push(self.value(depth + 1)?);
            if self.take("]") {
                return Some(Value::List(list));
            }
            if !self.take(",") {
                return None;
            }
        }
    }

    fn number(&mut self) -> Option<Value> {
        let part = |c: char| c.is_ascii_digit() || "+-.eE".contains(c);
        let rest = self.rest();
        let length = rest.find(|c| !part(c)).unwrap_or(rest.len());
        let number = rest[..length].parse::<f64>().ok();
        let number = number.filter(|number| number.is_finite())?;
        self.at += length;
        Some(Value::Number(number))
    }

    fn string(&mut self) -> Option<String> {
        let mut text = String::new();
        let mut chars = self.rest().strip_prefix('"')?.char_indices();
        while let Some((index, c)) = chars.next() {
            match c {
                '"' => {
                    // Both quotation marks have one byte.
                    self.at += 1 + index + 1;
                    return Some(text);
                }
                '\\' => {
                    let escaped = match chars.next()?.1 {
                        'n' => '\n',
                        't' => '\t',
                        'r' => '\r',
                        'b' => '\u{8}',
                        'f' => '\u{c}',
                        'u' => {
                            let digits: Option<String> = (0..4).map(|_| Some(chars.next()?.1)).collect();
                            char::from_u32(u32::from_str_radix(&digits?, 16).ok()?)?
                        }
                        c @ ('"' | '\\' | '/') => c,
                        _ => return None,
                    };
                    text.push(escaped);
                }
                c if c.is_control() => return None,
                c => text.push(c),
            }
        }
        None
    }
}

#[cfg(test)]
mod tests {
    use super::{DEPTH_MAX, Value, parse};

    #[test]
    fn values_of_every_kind() {
        let value = parse(r#" {"a": [1, -2.5e3, null, true, false], "é\u0041\n": "x\"y", "o": {}, "l": []} "#).unwrap();
        assert_eq!(
            value.get("a").unwrap().list().unwrap(),
            [Value::Number(1.0), Value::Number(-2500.0), Value::Null, Value::Bool(true), Value::Bool(false)]
        );
        assert_eq!(value.get("éA\n").and_then(Value::text), Some("x\"y"));
        assert_eq!(value.get("o").unwrap().members(), Some(&[][..]));
    }

    #[test]
    fn what_is_not_json_is_refused() {
        for text in [
            "",
            "{",
            "[1,]",
            "[1 2]",
            "{\"a\" 1}",
            "{a: 1}",
            "\"a",
            "\"\\x\"",
            "\"\\u12\"",
            "1 2",
            "nan",
            "1e999",
            "tru",
            "\"\u{1}\"",
        ] {
            assert!(parse(text).is_err(), "{text:?}");
        }
    }

    #[test]
    fn depth_is_limited() {
        let nested = |depth: usize| "[".repeat(depth) + &"]".repeat(depth);
        assert!(parse(&nested(DEPTH_MAX)).is_ok());
        assert!(parse(&nested(100_000)).is_err());
    }
}
