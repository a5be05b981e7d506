//! The header of C names the functions that the crate has, with as many parameters.
#![cfg(target_os = "linux")]
#![allow(missing_docs, reason = "a test")]

use std::collections::BTreeMap;

const HEADER: &str = include_str!("../include/rhino.h");
const SOURCE: &str = include_str!("../src/linux/c.rs");

/// Functions behind `before`, with how many parameters they have.
fn functions(text: &str, before: &[&str]) -> BTreeMap<String, usize> {
    let mut found = BTreeMap::new();
    for line in text.lines() {
        let Some((head, rest)) = line.split_once('(') else { continue };
        let Some(start) = head.find("trans_") else { continue };
        if !before.iter().any(|word| head[..start].ends_with(word)) || !line.contains(')') {
            continue;
        }
        let parameters = rest.split(')').next().unwrap_or_default();
        let count = if parameters.is_empty() || parameters == "void" { 0 } else { parameters.split(',').count() };
        found.insert(head[start..].to_string(), count);
    }
    found
}

#[test]
fn header_and_crate_agree() {
    let header = functions(HEADER, &["int ", "void *"]);
    let source = functions(SOURCE, &["extern \"C\" fn "]);
    assert_eq!(header, source);
    assert!(header.len() >= 14);
}
