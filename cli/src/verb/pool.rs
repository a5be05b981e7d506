//! `aegis pool`: the extents of a pool's image, shown and changed while no machine has it.

use std::path::Path;

use aegis_launch::errors::Error;
use aegis_launch::pool::directory::{Extent, SECTOR_BYTES, UNIT_SECTORS};
use aegis_launch::pool::errors::PoolError;
use aegis_launch::pool::medium::ImageFile;
use aegis_launch::pool::{Pool, look};

use crate::options::pool::{PoolOptions, PoolVerb};

/// Does what was asked for; the answer is the tool's exit status.
pub(crate) fn pool(options: &PoolOptions) -> Result<u8, Error> {
    match &options.verb {
        PoolVerb::Ls { json, image } => {
            let extents = ImageFile::look(image).and_then(|mut medium| look(&mut medium));
            let extents = extents.map_err(|error| Error::Pool(image.clone(), error))?;
            let lines = if *json { extents.iter().map(json_line).collect() } else { table(&extents) };
            lines.iter().for_each(|line| println!("{line}"));
            Ok(0)
        }
        PoolVerb::Create { size, pod, image, name } => {
            change(image, |pool| pool.create(name, pod.as_deref(), *size).map(drop))
        }
        PoolVerb::Give { image, name, pod } => change(image, |pool| pool.give(name, pod)),
        PoolVerb::Rm { image, names } => {
            let has = |pool: &Pool<ImageFile>, name: &str| pool.extents().iter().any(|extent| extent.name == name);
            change(image, |pool| match names.iter().find(|name| !has(pool, name)) {
                Some(name) => Err(PoolError::Unknown(name.clone())),
                None => names.iter().try_for_each(|name| pool.remove(name)),
            })
        }
    }
}

fn change(image: &Path, change: impl FnOnce(&mut Pool<ImageFile>) -> Result<(), PoolError>) -> Result<u8, Error> {
    let changed = ImageFile::lock(image).and_then(Pool::open).and_then(|mut pool| change(&mut pool));
    changed.map_err(|error| Error::Pool(image.to_owned(), error))?;
    Ok(0)
}

fn json_line(extent: &Extent) -> String {
    let line = serde_json::json!({
        "name": extent.name, "pod": extent.owner, "size_bytes": extent.sector_count * SECTOR_BYTES,
        "first_sector": extent.first_sector, "sector_count": extent.sector_count, "state": extent.state.name(),
    });
    line.to_string()
}

fn table(extents: &[Extent]) -> Vec<String> {
    let owner = |extent: &Extent| extent.owner.clone().unwrap_or_else(|| "-".into());
    let width = |of: &dyn Fn(&Extent) -> usize| extents.iter().map(of).max().unwrap_or(0).max(4);
    let (names, owners) = (width(&|extent| extent.name.len()), width(&|extent| owner(extent).len()));
    let mut lines = vec![format!("{:names$}  {:owners$}  {:>12}  STATE", "NAME", "POD", "SIZE")];
    for extent in extents {
        let (name, owner, state) = (&extent.name, owner(extent), extent.state.name());
        let mib = extent.sector_count / UNIT_SECTORS;
        lines.push(format!("{name:names$}  {owner:owners$}  {mib:>8} MiB  {state}"));
    }
    lines
}

#[cfg(test)]
#[path = "pool_tests.rs"]
mod tests;
