//! Splits Rust source into tokens, comments included, each with its line.
//!
//! Enough of the language for lints that look at text: strings of every kind, characters as against lifetimes, nested
//! block comments, raw identifiers. Numbers and punctuation are kept coarse. Macro bodies are tokens as any other
//! text is, and comments stay where they were, which is why this is here and not a parser that makes a syntax tree. A
//! file that rustc accepts is lexed without loss; for one that it does not accept, the result is only guaranteed to
//! end.

/// What a token is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    /// Identifier or keyword.
    Word,
    /// `'a`.
    Lifetime,
    /// String, character or number.
    Literal,
    /// One character of punctuation.
    Punctuation,
    /// `//` or `/* */`, not documentation.
    Comment,
    /// `///`, `//!`, `/** */` or `/*! */`.
    Documentation,
}

/// A piece of source.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Token<'a> {
    pub(crate) kind: Kind,
    pub(crate) text: &'a str,
    /// Line of the first character, from 1.
    pub(crate) line: usize,
}

impl Token<'_> {
    pub(crate) fn is(&self, text: &str) -> bool {
        self.text == text && matches!(self.kind, Kind::Word | Kind::Punctuation)
    }

    pub(crate) fn is_comment(&self) -> bool {
        matches!(self.kind, Kind::Comment | Kind::Documentation)
    }
}

/// All tokens of `source`.
pub(crate) fn tokens(source: &str) -> Vec<Token<'_>> {
    let mut found = Vec::new();
    let mut rest = source;
    let mut line = 1;
    while let Some(first) = rest.chars().next() {
        if first.is_whitespace() {
            line += usize::from(first == '\n');
            rest = &rest[first.len_utf8()..];
            continue;
        }
        let (kind, length) = next(rest, first);
        let (text, after) = rest.split_at(length);
        found.push(Token { kind, text, line });
        line += text.matches('\n').count();
        rest = after;
    }
    found
}

/// Kind and length in bytes of the token at the start of `rest`, whose first character is `first`.
fn next(rest: &str, first: char) -> (Kind, usize) {
    if rest.starts_with("//") {
        let length = rest.find('\n').unwrap_or(rest.len());
        return (comment_kind(rest, "///", "//!", "////"), length);
    }
    if rest.starts_with("/*") {
        return (comment_kind(rest, "/**", "/*!", "/***"), block_comment_length(rest));
    }
    if let Some(length) = string_length(rest) {
        return (Kind::Literal, length);
    }
    if first == '\'' {
        return quote(rest);
    }
    if first.is_ascii_digit() {
        return (Kind::Literal, word_length(rest));
    }
    if is_word(first) {
        let prefix = if rest.starts_with("r#") { 2 } else { 0 };
        return (Kind::Word, prefix + word_length(&rest[prefix..]));
    }
    (Kind::Punctuation, first.len_utf8())
}

fn comment_kind(rest: &str, outer: &str, inner: &str, ruler: &str) -> Kind {
    let is_outer = rest.starts_with(outer) && !rest.starts_with(ruler) && !rest.starts_with("/**/");
    if is_outer || rest.starts_with(inner) { Kind::Documentation } else { Kind::Comment }
}

fn block_comment_length(rest: &str) -> usize {
    let mut depth = 0;
    let mut index = 0;
    while index < rest.len() {
        let here = &rest.as_bytes()[index..];
        if here.starts_with(b"/*") {
            depth += 1;
            index += 2;
        } else if here.starts_with(b"*/") {
            depth -= 1;
            index += 2;
            if depth == 0 {
                return index;
            }
        } else {
            index += 1;
        }
    }
    rest.len()
}

/// Length of a string literal with any prefix (`b`, `c`, `r`, `br`, `cr`), if one starts here.
fn string_length(rest: &str) -> Option<usize> {
    let prefix = ["br", "cr", "b", "c", "r", ""]
        .into_iter()
        .find(|prefix| rest.strip_prefix(prefix).is_some_and(|after| after.starts_with(['"', '#'])))?;
    let body = &rest[prefix.len()..];
    if prefix.ends_with('r') {
        let hashes = body.len() - body.trim_start_matches('#').len();
        let text = body[hashes..].strip_prefix('"')?;
        let close = format!("\"{}", "#".repeat(hashes));
        let length = text.find(&close).map_or(text.len(), |end| end + close.len());
        return Some(prefix.len() + hashes + 1 + length);
    }
    let text = body.strip_prefix('"')?;
    Some(prefix.len() + 1 + closing_quote(text, '"'))
}

/// Bytes up to and including the first `quote` that no backslash stands before.
fn closing_quote(text: &str, quote: char) -> usize {
    let mut escaped = false;
    for (index, character) in text.char_indices() {
        if character == quote && !escaped {
            return index + 1;
        }
        escaped = character == '\\' && !escaped;
    }
    text.len()
}

/// A character literal or a lifetime.
fn quote(rest: &str) -> (Kind, usize) {
    let body = &rest[1..];
    let mut characters = body.chars();
    let first = characters.next();
    let is_character = first == Some('\\') || characters.next() == Some('\'');
    if is_character {
        return (Kind::Literal, 1 + closing_quote(body, '\''));
    }
    (Kind::Lifetime, 1 + word_length(body))
}

fn word_length(rest: &str) -> usize {
    rest.find(|character| !is_word(character)).unwrap_or(rest.len())
}

fn is_word(character: char) -> bool {
    character.is_alphanumeric() || character == '_'
}

#[cfg(test)]
mod tests {
    use super::*;

    fn lex(source: &str) -> Vec<(Kind, &str)> {
        tokens(source).iter().map(|token| (token.kind, token.text)).collect()
    }

    #[test]
    fn quotes_are_told_apart() {
        use Kind::{Lifetime, Literal, Word};
        assert_eq!(lex(r"'a'"), [(Literal, "'a'")]);
        assert_eq!(lex(r"'\''"), [(Literal, r"'\''")]);
        assert_eq!(lex(r"'\u{1f}' x"), [(Literal, r"'\u{1f}'"), (Word, "x")]);
        assert_eq!(lex("'é'"), [(Literal, "'é'")]);
        assert_eq!(lex("'static"), [(Lifetime, "'static")]);
        assert_eq!(lex("b'x'"), [(Word, "b"), (Literal, "'x'")]);
    }

    #[test]
    fn strings_hide_what_looks_like_code() {
        use Kind::{Literal, Word};
        assert_eq!(lex(r#""a \" unsafe {" x"#), [(Literal, r#""a \" unsafe {""#), (Word, "x")]);
        assert_eq!(lex(r###"r#"a " b"# x"###), [(Literal, r###"r#"a " b"#"###), (Word, "x")]);
        assert_eq!(lex(r#"br"\" x"#), [(Literal, r#"br"\""#), (Word, "x")]);
        assert_eq!(lex("r#type"), [(Word, "r#type")]);
    }

    #[test]
    fn comments_nest_and_documentation_is_marked() {
        use Kind::{Comment, Documentation, Word};
        assert_eq!(lex("/* a /* b */ c */ x"), [(Comment, "/* a /* b */ c */"), (Word, "x")]);
        assert_eq!(
            lex("/// d\n//! e\n//// f"),
            [(Documentation, "/// d"), (Documentation, "//! e"), (Comment, "//// f")]
        );
    }

    #[test]
    fn lines_are_counted_through_strings_and_comments() {
        let source = "\"a\nb\" x /* \n */\ny";
        let lines: Vec<_> = tokens(source).iter().map(|token| token.line).collect();
        assert_eq!(lines, [1, 2, 2, 4]);
    }

    #[test]
    fn text_that_is_not_rust_still_ends() {
        for source in ["\"open", "/* open", "r#\"open", "'", "'\\", "r#", "b#", "#\"", "\u{0}é"] {
            let total: usize = tokens(source).iter().map(|token| token.text.len()).sum();
            assert_eq!(total, source.len(), "{source:?}");
        }
    }
}
