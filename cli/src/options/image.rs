//! Options of images: the image of a pod, and the verbs about images.

use std::path::PathBuf;

use aegis_launch::images::accounts::{Accounts, Identity};
use aegis_launch::images::source::{ImageSource, parse_source};
use clap::builder::{OsStringValueParser, TypedValueParser};
use clap::{Args, Subcommand, ValueEnum};

use crate::options::health::{HealthCheck, HealthOptions};
use crate::options::values::parse_signal;

// What a pod takes from an image. (No documentation comment: clap would make it the text of the command.)
#[allow(missing_docs, reason = "see above")]
#[derive(Clone, Debug, Default, Args)]
pub(crate) struct ImageOptions {
    /// A container's image as the root, which also says what runs: docker-archive:FILE, oci:DIR[:TAG],
    /// oci-archive:FILE[:TAG], containers-storage:NAME, docker://HOST/NAME[:TAG], or a name of `aegis images ls`
    #[arg(
        long,
        value_name = "SOURCE",
        conflicts_with_all = ["root", "pack"],
        value_parser = OsStringValueParser::new().try_map(parse_source)
    )]
    pub(crate) image: Option<ImageSource>,
    /// When a registry is asked for the image of --image docker://
    #[arg(long, value_name = "missing|always|never", default_value = "missing", hide_possible_values = true)]
    pub(crate) pull: PullChoice,
    /// Run this instead of the image's own first words; a list as JSON for several, "" for none
    #[arg(long, value_name = "PROGRAM", requires = "image")]
    pub(crate) entrypoint: Option<String>,
    /// User that the program runs as, and its group, by number or by the names of the root's /etc/passwd
    #[arg(short = 'u', long, value_name = "USER[:GROUP]")]
    pub(crate) user: Option<String>,
    /// Publish each port that the image exposes on a free port of this host's loopback
    #[arg(short = 'P', long, requires = "image")]
    pub(crate) publish_all: bool,
    /// What `aegis stop`, and a signal that ends `aegis up`, send the program [default: the image's, else TERM]
    #[arg(long, value_name = "SIGNAL", value_parser = parse_signal)]
    pub(crate) stop_signal: Option<u8>,
    /// A further group that the program is in, by number or by a name of the root's /etc/group (repeatable)
    #[arg(long = "group-add", value_name = "GROUP")]
    pub(crate) groups: Vec<String>,
    /// Have `aegis inspect` show this of a run with a name (repeatable)
    #[arg(short = 'l', long = "label", value_name = "KEY[=VALUE]", value_parser = parse_label)]
    pub(crate) labels: Vec<(String, String)>,
    /// Let a signal that the image's program has no handler for end it, and let ended orphans be forgotten
    #[arg(long, requires = "image")]
    pub(crate) init: bool,
    /// The program is process 1 as one of an image is; for a runtime that an engine calls
    #[arg(long, hide = true)]
    pub(crate) first_process: bool,
    /// How to look whether it is well.
    #[command(flatten)]
    pub(crate) health: HealthOptions,
    /// What that comes to; a compose file says it here.
    #[arg(skip)]
    pub(crate) health_check: Option<HealthCheck>,
    /// User, group and further groups in numbers, where an engine says them: no accounts are looked at.
    #[arg(skip)]
    pub(crate) numbers: Option<Identity>,
    /// The image's accounts, once they are known.
    #[arg(skip)]
    pub(crate) accounts: Option<Accounts>,
    /// What the user comes to, once that is known.
    #[arg(skip)]
    pub(crate) identity: Identity,
}

/// `KEY=VALUE`, or `KEY` for an empty value.
fn parse_label(text: &str) -> Result<(String, String), String> {
    let (key, value) = text.split_once('=').unwrap_or((text, ""));
    if key.is_empty() { Err("KEY is empty".into()) } else { Ok((key.into(), value.into())) }
}

/// `--pull`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub(crate) enum PullChoice {
    /// For an image that is not here.
    #[default]
    Missing,
    /// For every run.
    Always,
    /// Not at all.
    Never,
}

/// `aegis images`.
#[derive(Debug, Args)]
#[command(after_help = "\
SOURCE is docker-archive:FILE, oci:DIR[:TAG], oci-archive:FILE[:TAG], containers-storage:NAME or
docker://HOST/NAME[:TAG]. An image that was run or pulled has its layers, checked, and its root in the
cache ($XDG_CACHE_HOME/aegis/images or ~/.cache/aegis/images) until it is removed.")]
pub(crate) struct ImagesOptions {
    /// What to do.
    #[command(subcommand)]
    pub(crate) verb: Option<ImagesVerb>,
}

/// The verbs about images.
#[derive(Debug, Subcommand)]
pub(crate) enum ImagesVerb {
    /// Show the images that are here
    Ls {
        /// As JSON, one image a line
        #[arg(long)]
        json: bool,
    },
    /// Fetch an image, and have it ready to run
    Pull {
        /// Where it is
        #[arg(value_parser = OsStringValueParser::new().try_map(parse_source))]
        source: ImageSource,
    },
    /// Remove images, by name or by the first digits of the identifier
    Rm {
        /// Names or identifiers
        #[arg(required = true, value_name = "NAME")]
        names: Vec<String>,
    },
    /// Build a Dockerfile by buildah or podman, and have the image ready to run
    Build {
        /// Name of the image
        #[arg(short = 't', long = "tag", value_name = "NAME")]
        name: String,
        /// The Dockerfile [default: DIR/Containerfile or DIR/Dockerfile]
        #[arg(short = 'f', long, value_name = "FILE")]
        file: Option<PathBuf>,
        /// What the Dockerfile copies from
        #[arg(value_name = "DIR")]
        directory: PathBuf,
    },
}
