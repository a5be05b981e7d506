//! A reader for the part of TOML that `Cargo.toml` and `tidy.toml` use.
//!
//! Understood: comments, tables and arrays of tables, bare, quoted and dotted keys, one-line strings, integers,
//! booleans, arrays over several lines, inline tables. Everything else (dates, floating-point numbers, multi-line
//! strings) is an error that names the line: what is not understood is never skipped. Specification:
//! <https://toml.io/en/v1.0.0>.

use std::collections::BTreeMap;

/// Keys in alphabetical order.
pub(crate) type Table = BTreeMap<String, Value>;

/// A value.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Value {
    String(String),
    Integer(u64),
    Boolean(bool),
    Array(Vec<Value>),
    Table(Table),
}

impl Value {
    pub(crate) fn as_str(&self) -> Option<&str> {
        match self {
            Value::String(text) => Some(text),
            _ => None,
        }
    }

    pub(crate) fn as_integer(&self) -> Option<usize> {
        match self {
            Value::Integer(number) => usize::try_from(*number).ok(),
            _ => None,
        }
    }

    pub(crate) fn as_table(&self) -> Option<&Table> {
        match self {
            Value::Table(table) => Some(table),
            _ => None,
        }
    }

    /// The strings of an array of strings.
    pub(crate) fn as_strings(&self) -> Option<Vec<String>> {
        match self {
            Value::Array(values) => values.iter().map(|value| value.as_str().map(str::to_string)).collect(),
            _ => None,
        }
    }
}

/// Reads a whole document. The error names the line.
pub(crate) fn parse(text: &str) -> Result<Table, String> {
    let mut reader = Reader { rest: text, line: 1 };
    let mut document = Table::new();
    let mut current: Vec<String> = Vec::new();
    loop {
        reader.skip_blank(true);
        if reader.rest.is_empty() {
            return Ok(document);
        }
        let line = reader.line;
        let at_line = |problem: String| format!("line {line}: {problem}");
        if reader.take("[[") {
            current = reader.key().map_err(at_line)?;
            reader.expect("]]").map_err(at_line)?;
            append_table(&mut document, &current).map_err(at_line)?;
        } else if reader.take("[") {
            current = reader.key().map_err(at_line)?;
            reader.expect("]").map_err(at_line)?;
            table_at(&mut document, &current).map_err(at_line)?;
        } else {
            let key = reader.key().map_err(at_line)?;
            reader.expect("=").map_err(at_line)?;
            let value = reader.value().map_err(at_line)?;
            let table = table_at(&mut document, &current).map_err(at_line)?;
            insert(table, &key, value).map_err(at_line)?;
        }
        reader.skip_blank(false);
        if !reader.rest.is_empty() && !reader.rest.starts_with('\n') {
            return Err(format!("line {line}: more on the line than was understood"));
        }
    }
}

/// The table that `key` names, made if it is not there; for an array of tables, its last one.
fn table_at<'a>(mut table: &'a mut Table, key: &[String]) -> Result<&'a mut Table, String> {
    for part in key {
        let entry = table.entry(part.clone()).or_insert_with(|| Value::Table(Table::new()));
        table = match entry {
            Value::Table(inner) => inner,
            Value::Array(values) => match values.last_mut() {
                Some(Value::Table(inner)) => inner,
                _ => return Err(format!("'{part}' is not a table")),
            },
            _ => return Err(format!("'{part}' is not a table")),
        };
    }
    Ok(table)
}

fn append_table(document: &mut Table, key: &[String]) -> Result<(), String> {
    let Some((last, parents)) = key.split_last() else {
        return Err("a table without a name".to_string());
    };
    let parent = table_at(document, parents)?;
    match parent.entry(last.clone()).or_insert_with(|| Value::Array(Vec::new())) {
        Value::Array(values) => values.push(Value::Table(Table::new())),
        _ => return Err(format!("'{last}' is not an array of tables")),
    }
    Ok(())
}

fn insert(table: &mut Table, key: &[String], value: Value) -> Result<(), String> {
    let Some((last, parents)) = key.split_last() else {
        return Err("a value without a key".to_string());
    };
    match table_at(table, parents)?.insert(last.clone(), value) {
        None => Ok(()),
        Some(_) => Err(format!("'{last}' is given twice")),
    }
}

struct Reader<'a> {
    rest: &'a str,
    line: usize,
}

impl<'a> Reader<'a> {
    /// Skips spaces and comments, and line ends if asked to.
    fn skip_blank(&mut self, with_line_ends: bool) {
        loop {
            self.rest = self.rest.trim_start_matches([' ', '\t', '\r']);
            if self.rest.starts_with('#') {
                let end = self.rest.find('\n').unwrap_or(self.rest.len());
                self.rest = &self.rest[end..];
            } else if with_line_ends && self.rest.starts_with('\n') {
                self.rest = &self.rest[1..];
                self.line += 1;
            } else {
                return;
            }
        }
    }

    fn take(&mut self, text: &str) -> bool {
        match self.rest.strip_prefix(text) {
            Some(rest) => {
                self.rest = rest;
                true
            }
            None => false,
        }
    }

    fn expect(&mut self, text: &str) -> Result<(), String> {
        self.skip_blank(false);
        if self.take(text) { Ok(()) } else { Err(format!("'{text}' is missing")) }
    }

    fn key(&mut self) -> Result<Vec<String>, String> {
        let mut parts = Vec::new();
        loop {
            self.skip_blank(false);
            if self.rest.starts_with(['"', '\'']) {
                parts.push(self.string()?);
            } else {
                let is_key = |c: char| c.is_ascii_alphanumeric() || c == '-' || c == '_';
                let word = self.take_while(is_key);
                if word.is_empty() {
                    return Err("a key is missing".to_string());
                }
                parts.push(word.to_string());
            }
            self.skip_blank(false);
            if !self.take(".") {
                return Ok(parts);
            }
        }
    }

    fn take_while(&mut self, wanted: impl Fn(char) -> bool) -> &'a str {
        let end = self.rest.find(|c| !wanted(c)).unwrap_or(self.rest.len());
        let (word, rest) = self.rest.split_at(end);
        self.rest = rest;
        word
    }

    fn value(&mut self) -> Result<Value, String> {
        self.skip_blank(false);
        match self.rest.chars().next() {
            Some('"' | '\'') => self.string().map(Value::String),
            Some('[') => self.array(),
            Some('{') => self.inline_table(),
            _ => self.scalar(),
        }
    }

    fn scalar(&mut self) -> Result<Value, String> {
        let word = self.take_while(|c| c.is_ascii_alphanumeric() || "_.:+-".contains(c));
        match word {
            "true" => Ok(Value::Boolean(true)),
            "false" => Ok(Value::Boolean(false)),
            _ => word
                .replace('_', "")
                .parse()
                .map(Value::Integer)
                .map_err(|_| format!("'{word}' is not a value this reader knows")),
        }
    }

    fn string(&mut self) -> Result<String, String> {
        if self.rest.starts_with("\"\"\"") || self.rest.starts_with("'''") {
            return Err("strings over several lines are not understood".to_string());
        }
        let literal = self.rest.starts_with('\'');
        let mut text = String::new();
        let mut characters = self.rest.char_indices().skip(1);
        while let Some((index, character)) = characters.next() {
            match character {
                '\n' => break,
                '\'' if literal => return Ok(self.end_string(text, index)),
                '"' if !literal => return Ok(self.end_string(text, index)),
                '\\' if !literal => match characters.next().map(|(_, escaped)| escaped) {
                    Some('n') => text.push('\n'),
                    Some('t') => text.push('\t'),
                    Some(escaped @ ('"' | '\\')) => text.push(escaped),
                    _ => return Err("an escape that this reader does not know".to_string()),
                },
                _ => text.push(character),
            }
        }
        Err("a string has no end".to_string())
    }

    fn end_string(&mut self, text: String, quote_index: usize) -> String {
        self.rest = &self.rest[quote_index + 1..];
        text
    }

    fn array(&mut self) -> Result<Value, String> {
        self.expect("[")?;
        let mut values = Vec::new();
        loop {
            self.skip_blank(true);
            if self.take("]") {
                return Ok(Value::Array(values));
            }
            values.push(self.value()?);
            self.skip_blank(true);
            if !self.take(",") && !self.rest.starts_with(']') {
                return Err("an array needs ',' or ']'".to_string());
            }
        }
    }

    fn inline_table(&mut self) -> Result<Value, String> {
        self.expect("{")?;
        let mut table = Table::new();
        loop {
            self.skip_blank(false);
            if self.take("}") {
                return Ok(Value::Table(table));
            }
            let key = self.key()?;
            self.expect("=")?;
            let value = self.value()?;
            insert(&mut table, &key, value)?;
            self.skip_blank(false);
            if !self.take(",") && !self.rest.starts_with('}') {
                return Err("an inline table needs ',' or '}'".to_string());
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_manifest_is_read() {
        let text = r#"
            [package] # comment
            name = "exos"
            version.workspace = true
            [[bin]]
            name = 'one'
            [[bin]]
            name = "two"
            test = false
            [target.'cfg(target_os = "none")'.dependencies]
            talc = { version = "5", features = ["a", "b"], default-features = false }
            [workspace.dependencies]
            aegis-abi = { path = "abi" }
            list = [
                1_000, # with a comment
                2,
            ]
        "#;
        let document = parse(text).unwrap();
        let package = document["package"].as_table().unwrap();
        assert_eq!(package["name"].as_str(), Some("exos"));
        assert_eq!(package["version"].as_table().unwrap()["workspace"], Value::Boolean(true));
        let Value::Array(bins) = &document["bin"] else { panic!("not an array") };
        assert_eq!(bins[1].as_table().unwrap()["name"].as_str(), Some("two"));
        let target = document["target"].as_table().unwrap();
        let talc = &target["cfg(target_os = \"none\")"].as_table().unwrap()["dependencies"];
        let talc = talc.as_table().unwrap()["talc"].as_table().unwrap();
        assert_eq!(talc["features"].as_strings().unwrap(), ["a", "b"]);
        let workspace = document["workspace"].as_table().unwrap()["dependencies"].as_table().unwrap();
        assert_eq!(workspace["list"], Value::Array(vec![Value::Integer(1000), Value::Integer(2)]));
    }

    #[test]
    fn what_is_not_understood_is_an_error_with_its_line() {
        for (text, line) in [
            ("a = 1.5", 1),
            ("\n\na = \"open", 3),
            ("a = \"\"\"x\"\"\"", 1),
            ("a = 1 b = 2", 1),
            ("a = 1\na = 2", 2),
            ("[a", 1),
            ("a = [1 2]", 1),
            ("= 1", 1),
            ("a = 2026-01-01", 1),
        ] {
            let problem = parse(text).unwrap_err();
            assert!(problem.starts_with(&format!("line {line}:")), "{text:?}: {problem}");
        }
    }
}
