//! `$NAME` and `${NAME…}` in values, as compose has them. Pure.

use std::collections::BTreeMap;

/// Defaults within defaults.
const DEPTH_MAX: usize = 16;
/// Longest value.
const VALUE_BYTES_MAX: usize = 64 * 1024;

/// Where variables come from, and which were missing.
#[derive(Debug, Default)]
pub(crate) struct Variables {
    values: BTreeMap<String, String>,
    /// Names that were used, are not set, and count as empty.
    pub(crate) missing: Vec<String>,
}

impl Variables {
    /// Those of a map.
    pub(crate) fn new(values: BTreeMap<String, String>) -> Self {
        Self { values, missing: Vec::new() }
    }

    pub(crate) fn get(&self, name: &str) -> Option<&str> {
        self.values.get(name).map(String::as_str)
    }

    /// Puts values in the place of names; `$$` is a dollar.
    ///
    /// # Errors
    /// A form that is none, or a variable that has to be set and is not.
    pub(crate) fn fill(&mut self, text: &str) -> Result<String, String> {
        self.fill_within(text, 0)
    }

    fn fill_within(&mut self, text: &str, depth: usize) -> Result<String, String> {
        if depth > DEPTH_MAX {
            return Err(format!("more than {DEPTH_MAX} defaults within each other"));
        }
        let (mut out, mut rest) = (String::new(), text);
        while let Some(at) = rest.find('$') {
            out.push_str(&rest[..at]);
            rest = &rest[at + 1..];
            if let Some(behind) = rest.strip_prefix('$') {
                out.push('$');
                rest = behind;
            } else if let Some(behind) = rest.strip_prefix('{') {
                let end = closing(behind).ok_or_else(|| format!("${{{behind}: no closing brace"))?;
                out.push_str(&self.braced(&behind[..end], depth)?);
                rest = &behind[end + 1..];
            } else {
                let name = name_of(rest);
                if name.is_empty() {
                    return Err("a single $; write $$ for a dollar".into());
                }
                out.push_str(&self.plain(name));
                rest = &rest[name.len()..];
            }
            if out.len() > VALUE_BYTES_MAX {
                return Err(format!("a value of more than {VALUE_BYTES_MAX} bytes"));
            }
        }
        Ok(out + rest)
    }

    fn plain(&mut self, name: &str) -> String {
        match self.get(name) {
            Some(value) => value.to_owned(),
            None => {
                if !self.missing.iter().any(|it| it == name) {
                    self.missing.push(name.into());
                }
                String::new()
            }
        }
    }

    fn braced(&mut self, inner: &str, depth: usize) -> Result<String, String> {
        let name = name_of(inner);
        let form = &inner[name.len()..];
        if name.is_empty() {
            return Err(format!("${{{inner}}}: no name of a variable"));
        }
        let value = self.get(name).map(str::to_owned);
        let (form, is_empty_unset) = form.strip_prefix(':').map_or((form, false), |form| (form, true));
        let value_if = value.clone().filter(|value| !(is_empty_unset && value.is_empty()));
        match (form.chars().next(), form.get(1..).unwrap_or_default()) {
            (None, _) if !is_empty_unset => Ok(self.plain(name)),
            (Some('-'), default) => value_if.map_or_else(|| self.fill_within(default, depth + 1), Ok),
            (Some('+'), other) => {
                if value_if.is_some() {
                    self.fill_within(other, depth + 1)
                } else {
                    Ok(String::new())
                }
            }
            (Some('?'), why) => {
                value_if.ok_or_else(|| format!("{name}: {}", if why.is_empty() { "is not set" } else { why }))
            }
            _ => Err(format!("${{{inner}}}: a form that is not known")),
        }
    }
}

fn name_of(text: &str) -> &str {
    let is_name =
        |(at, byte): (usize, u8)| byte == b'_' || byte.is_ascii_alphabetic() || at > 0 && byte.is_ascii_digit();
    &text[..text.bytes().enumerate().take_while(|it| is_name(*it)).count()]
}

/// Where the brace is that closes, with those between counted.
fn closing(text: &str) -> Option<usize> {
    let mut open = 0;
    for (at, byte) in text.bytes().enumerate() {
        match byte {
            b'{' if at > 0 && text.as_bytes()[at - 1] == b'$' => open += 1,
            b'}' if open == 0 => return Some(at),
            b'}' => open -= 1,
            _ => {}
        }
    }
    None
}

/// Reads `NAME=value` lines: comments, quotes, `export`.
///
/// # Errors
/// The line that is none.
pub(crate) fn read_variables(text: &str) -> Result<Vec<(String, Option<String>)>, String> {
    let mut found = Vec::new();
    for (number, line) in text.lines().enumerate() {
        let line = line.trim();
        let line = line.strip_prefix("export ").map_or(line, str::trim_start);
        if line.is_empty() || line.starts_with('#') {
            continue;
        }
        let (name, value) = line.split_once('=').map_or((line, None), |(name, value)| (name.trim_end(), Some(value)));
        if name.is_empty() || name_of(name) != name {
            return Err(format!("line {}: no name of a variable before =", number + 1));
        }
        let value = value.map(|value| unquoted(value.trim_start())).transpose();
        found.push((name.to_owned(), value.map_err(|why| format!("line {}: {why}", number + 1))?));
    }
    Ok(found)
}

fn unquoted(value: &str) -> Result<String, String> {
    let quoted = |quote: char| value.strip_prefix(quote);
    if let Some(rest) = quoted('\'') {
        return rest.split_once('\'').map(|(value, _)| value.to_owned()).ok_or_else(|| "no closing quote".into());
    }
    if let Some(rest) = quoted('"') {
        let (mut out, mut chars) = (String::new(), rest.chars());
        while let Some(char) = chars.next() {
            match (char, char == '\\') {
                ('"', _) => return Ok(out),
                (_, true) => match chars.next() {
                    Some('n') => out.push('\n'),
                    Some('r') => out.push('\r'),
                    Some('t') => out.push('\t'),
                    Some(other) => out.push(other),
                    None => break,
                },
                (other, _) => out.push(other),
            }
        }
        return Err("no closing quote".into());
    }
    // A comment needs a blank before it.
    let end = value.find(" #").unwrap_or(value.len());
    Ok(value[..end].trim_end().to_owned())
}

#[cfg(test)]
mod tests {
    use super::{Variables, read_variables};

    fn fill(text: &str) -> Result<String, String> {
        let values = [("A", "a"), ("E", ""), ("B_2", "b")].map(|(name, value)| (name.into(), value.into()));
        Variables::new(values.into_iter().collect()).fill(text)
    }

    #[test]
    fn every_form_is_filled() {
        for (text, expected) in [
            ("x", "x"),
            ("$A-${B_2}$$A", "a-b$A"),
            ("${A:-x}${E:-x}${E-x}${N-x}${N:-${A}y}", "axxay"),
            ("${A:+x}${E:+x}${E+x}${N+x}", "xx"),
            ("${A?no}", "a"),
            ("[$N]", "[]"),
            ("${N:-}", ""),
        ] {
            assert_eq!(fill(text), Ok(expected.to_owned()), "{text}");
        }
        for (text, part) in
            [("${N?wanted}", "wanted"), ("${E:?}", "not set"), ("${A", "brace"), ("$", "$$"), ("${}", "name")]
        {
            assert!(fill(text).expect_err(text).contains(part), "{text}");
        }
        let deep = "${N-".repeat(50) + &"}".repeat(50);
        assert!(fill(&deep).is_err());
    }

    #[test]
    fn files_of_variables_are_read() {
        let text = "# c\nA=1\nexport B = two words # c\nC='a #b' \nD=\"x\\ny\"\nE\nF=\n";
        let found = read_variables(text).expect("variables");
        let value = |name: &str| found.iter().find(|(it, _)| it == name).expect(name).1.clone();
        assert_eq!((value("A").as_deref(), value("B").as_deref()), (Some("1"), Some("two words")));
        assert_eq!((value("C").as_deref(), value("D").as_deref()), (Some("a #b"), Some("x\ny")));
        assert_eq!((value("E"), value("F").as_deref()), (None, Some("")));
        assert!(read_variables("=x").is_err() && read_variables("A='x").is_err() && read_variables("a b=c").is_err());
    }
}
