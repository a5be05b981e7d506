//! Options of `aegis pool`.

use std::path::PathBuf;

use clap::{Args, Subcommand};

use crate::options::disks::parse_extent_size;
use crate::options::values::parse_name;

/// `aegis pool`.
#[derive(Debug, Args)]
#[command(after_help = "\
IMAGE is a file or a block device of this host, made by `truncate -s 10G pool.img`. A file of
`aegis up` names it, [disk.pool] image = \"pool.img\", and gives pods extents of it, disk =
[\"pool:db,size=4G\"]; what is not there is made then. An extent belongs to the pod that used it
first, and is set to zeros before another has it or its space is free.")]
pub(crate) struct PoolOptions {
    /// What to do.
    #[command(subcommand)]
    pub(crate) verb: PoolVerb,
}

/// The verbs about a pool.
#[derive(Debug, Subcommand)]
pub(crate) enum PoolVerb {
    /// Show the extents of a pool
    Ls {
        /// As JSON, one extent a line
        #[arg(long)]
        json: bool,
        /// The pool's image
        image: PathBuf,
    },
    /// Make an extent
    Create {
        /// Its size, in whole MiB, with M, G or T
        #[arg(short, long, value_name = "SIZE", value_parser = parse_extent_size)]
        size: u64,
        /// The pod that it belongs to [default: the first that uses it]
        #[arg(long, value_name = "POD", value_parser = parse_name)]
        pod: Option<String>,
        /// The pool's image
        image: PathBuf,
        /// The extent
        #[arg(value_parser = parse_name)]
        name: String,
    },
    /// Clear an extent and hand it over to another pod
    Give {
        /// The pool's image
        image: PathBuf,
        /// The extent
        #[arg(value_parser = parse_name)]
        name: String,
        /// The pod
        #[arg(value_parser = parse_name)]
        pod: String,
    },
    /// Clear extents and free their space
    Rm {
        /// The pool's image
        image: PathBuf,
        /// The extents
        #[arg(required = true, value_name = "NAME", value_parser = parse_name)]
        names: Vec<String>,
    },
}
