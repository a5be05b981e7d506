//! `docs/network-exchanges.md`: every script, what it is about, and whether Aegis answers as Linux does.

#![cfg(test)]

use super::File;
use super::known::Known;

const HEAD: &str = "\
# Exchanges of frames

A peer on the host plays frames to Linux 6.1 and to Aegis in the same QEMU, over a virtio card and
QEMU's stream backend, and looks at what comes back: `aegis test --frames tests/frames`. A script
holds what Linux answers. Where Aegis answers otherwise the reason is on the list of differences,
`tests/frames/differences.list`, which may only shrink.

This page is written from the scripts and the list (`AEGIS_BLESS=1 scripts/cargo test -p
aegis-bench exchange`). How a script is written stands at the head of
`bench/host/src/exchange/script.rs`. Scripts marked slow wait for seconds; `--slow` plays them too.
";

/// The whole page.
pub(super) fn write(files: &[File], known: &Known) -> String {
    let mut text = HEAD.to_string();
    let all = || files.iter().flat_map(|file| &file.scripts);
    let different_count = all().filter(|script| known.reason(&script.name).is_some()).count();
    text += &format!("\n{} scripts, {different_count} known differences.\n", all().count());
    for file in files {
        let name = file.path.file_stem().unwrap_or_default().to_string_lossy();
        text += &format!("\n## {name}\n\n| Script | What happens | Aegis |\n|---|---|---|\n");
        for script in &file.scripts {
            let slow = if script.is_slow { " (slow)" } else { "" };
            let aegis = known.reason(&script.name).unwrap_or("as Linux");
            text += &format!("| `{}`{slow} | {} | {aegis} |\n", script.name, script.title);
        }
    }
    text
}
