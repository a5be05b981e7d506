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
use crate::options::manual::{CompletionOptions, KnownShell, ManOptions};

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
    let command = Cli::command();
    let verbs = command.get_subcommands().filter(|verb| !verb.is_hide_set()).cloned();
    for verb in verbs.collect::<Vec<_>>() {
        let name = format!("aegis-{}", verb.get_name());
        write_page(&options.directory, &name, verb.display_name(&name).bin_name(&name))?;
    }
    write_page(&options.directory, "aegis", command)?;
    Ok(0)
}

fn write_page(directory: &Path, name: &str, command: Command) -> Result<(), Error> {
    let mut page = Vec::new();
    clap_mangen::Man::new(command).render(&mut page).doing("making a manual page")?;
    fs::write(directory.join(format!("{name}.1")), page).doing("writing a manual page")
}

#[cfg(test)]
mod tests {
    use super::man;
    use crate::options::manual::ManOptions;

    #[test]
    fn each_verb_has_a_page() {
        let directory = std::env::temp_dir().join(format!("aegis-man-{}", std::process::id()));
        assert_eq!(man(&ManOptions { directory: directory.clone() }).expect("pages"), 0);
        let page = |name: &str| std::fs::read_to_string(directory.join(name)).expect("a page");
        assert!(page("aegis.1").contains(".TH aegis 1") && page("aegis.1").contains("doctor"));
        let of_run = page("aegis-run.1");
        assert!(of_run.contains("\\-\\-here") && of_run.contains("Exit status"), "{of_run}");
        assert!(!directory.join("aegis-man.1").exists(), "what is hidden has none");
        std::fs::remove_dir_all(directory).expect("it is there");
    }
}
