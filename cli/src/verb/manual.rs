//! `aegis completion` and `aegis man`: what a shell and `man` know of the command line, made from the command line.
//!
//! `make install` writes both where they belong.

use std::fs;
use std::io::{self, Write};
use std::path::Path;

use aegis_launch::errors::{Doing, Error};
use clap::{Command, CommandFactory};
use clap_complete::{Shell, generate};

use crate::options::Cli;
use crate::options::generated::{CompletionOptions, KnownShell, ManOptions};

/// Prints completion for a shell.
pub(crate) fn completion(options: &CompletionOptions) -> Result<u8, Error> {
    let shell = match options.shell {
        KnownShell::Bash => Shell::Bash,
        KnownShell::Zsh => Shell::Zsh,
        KnownShell::Fish => Shell::Fish,
    };
    let mut text = Vec::new();
    generate(shell, &mut Cli::command(), "aegis", &mut text);
    io::stdout().write_all(&text).doing("writing the completion")?;
    Ok(0)
}

/// Writes the manual's pages.
pub(crate) fn man(options: &ManOptions) -> Result<u8, Error> {
    fs::create_dir_all(&options.directory).doing("making the directory of manual pages")?;
    write_pages(&options.directory, "aegis", Cli::command())?;
    Ok(0)
}

/// A page for a command and one for each verb of it, of any depth.
fn write_pages(directory: &Path, name: &str, command: Command) -> Result<(), Error> {
    let verbs: Vec<Command> = command.get_subcommands().filter(|verb| !verb.is_hide_set()).cloned().collect();
    for verb in verbs {
        let name = format!("{name}-{}", verb.get_name());
        write_pages(directory, &name, verb)?;
    }
    let mut page = Vec::new();
    let command = command.display_name(name.to_owned()).bin_name(name.to_owned());
    clap_mangen::Man::new(command).render(&mut page).doing("making a manual page")?;
    let page = headed(&String::from_utf8_lossy(&page), name);
    fs::write(directory.join(format!("{name}.1")), page).doing("writing a manual page")
}

/// The page with a head of its own: the one that is made leaves the date out, and with it the place of what follows.
/// Lines of examples stay lines.
fn headed(page: &str, name: &str) -> String {
    let title = name.to_ascii_uppercase();
    let head = format!(".TH {title} 1 \"\" \"aegis {}\" \"Aegis\"", env!("CARGO_PKG_VERSION"));
    let mut lines: Vec<&str> = Vec::new();
    let mut is_example = false;
    for line in page.lines().map(str::trim_end) {
        if is_example != line.starts_with("  ") {
            is_example = !is_example;
            lines.push(if is_example { ".nf" } else { ".fi" });
        }
        match line {
            _ if line.starts_with(".TH ") => lines.push(&head),
            ".SH EXTRA" => lines.push(".SH NOTES"),
            line => lines.push(line),
        }
    }
    lines.join("\n") + "\n"
}

#[cfg(test)]
mod tests {
    use super::man;
    use crate::options::generated::ManOptions;

    #[test]
    fn each_verb_has_a_page() {
        let directory = std::env::temp_dir().join(format!("aegis-man-{}", std::process::id()));
        assert_eq!(man(&ManOptions { directory: directory.clone() }).expect("pages"), 0);
        let page = |name: &str| std::fs::read_to_string(directory.join(name)).expect("a page");
        assert!(page("aegis.1").contains(".TH AEGIS 1 \"\" \"aegis ") && page("aegis.1").contains("doctor"));
        let of_run = page("aegis-run.1");
        assert!(of_run.contains("\\-\\-here") && of_run.contains("Exit status"), "{of_run}");
        assert!(page("aegis-images-pull.1").contains(".TH AEGIS-IMAGES-PULL 1"), "verbs of verbs have pages too");
        assert!(!directory.join("aegis-man.1").exists(), "what is hidden has none");
        std::fs::remove_dir_all(directory).expect("it is there");
    }
}
