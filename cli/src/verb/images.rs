//! `aegis images`: what is in the cache, and what comes and goes.

use std::time::{SystemTime, UNIX_EPOCH};

use aegis_launch::cache::Cache;
use aegis_launch::errors::Error;
use aegis_launch::images::engines;
use aegis_launch::images::source::{FORMS, ImageSource};
use aegis_launch::images::store::{ID_DIGIT_COUNT, Image, Pull, Record, Store};

use crate::options::image::{ImagesOptions, ImagesVerb};

/// Does what was asked for; the answer is the tool's exit status.
pub(crate) fn images(options: &ImagesOptions) -> Result<u8, Error> {
    let store = Store::open(Cache::open().as_ref())?;
    match &options.verb {
        None => list(&store, false),
        Some(ImagesVerb::Ls { json }) => list(&store, *json),
        Some(ImagesVerb::Pull { source: ImageSource::Kept(name) }) => {
            Err(Error::Usage(format!("{name}: pull from where? {FORMS}")))
        }
        Some(ImagesVerb::Pull { source }) => show(&store.obtain(source, Pull::Always)?),
        Some(ImagesVerb::Rm { names }) => {
            for name in names {
                store.remove(name)?.iter().for_each(|line| println!("{line}"));
            }
            Ok(0)
        }
        Some(ImagesVerb::Build { name, file, directory }) => {
            engines::build(name, directory, file.as_deref())?;
            show(&store.obtain(&ImageSource::ContainersStorage(name.clone()), Pull::Always)?)
        }
    }
}

/// The image that is here now.
fn show(image: &Image) -> Result<u8, Error> {
    for warning in &image.warnings {
        eprintln!("aegis: {warning}");
    }
    match &image.name {
        Some(name) => println!("{name} {}", &image.id.digits()[..ID_DIGIT_COUNT]),
        None => println!("{}", &image.id.digits()[..ID_DIGIT_COUNT]),
    }
    Ok(0)
}

fn list(store: &Store, is_json: bool) -> Result<u8, Error> {
    let records = store.records();
    if is_json {
        for record in &records {
            let line = serde_json::json!({
                "id": record.id, "names": record.names, "size_bytes": record.size_bytes, "since_s": record.since_s,
            });
            println!("{line}");
        }
        return Ok(0);
    }
    let names = |record: &Record| match record.names[..] {
        [] => vec!["<none>".to_owned()],
        _ => record.names.clone(),
    };
    let rows: Vec<(String, &Record)> =
        records.iter().flat_map(|record| names(record).into_iter().map(move |name| (name, record))).collect();
    let width = rows.iter().map(|(name, _)| name.len()).max().unwrap_or(0).max(4);
    println!("{:width$}  {:ID_DIGIT_COUNT$}  {:>9}  SINCE", "NAME", "ID", "SIZE");
    for (name, record) in rows {
        let (id, mib) = (&record.id[..ID_DIGIT_COUNT], record.size_bytes.div_ceil(1 << 20));
        println!("{name:width$}  {id}  {mib:>5} MiB  {}", age(record.since_s));
    }
    Ok(0)
}

/// How long ago, in the largest unit that fits.
fn age(since_s: u64) -> String {
    let now_s = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs());
    let seconds = now_s.saturating_sub(since_s);
    let units = [(86_400, "days"), (3_600, "hours"), (60, "minutes")];
    let (length_s, unit) = units.into_iter().find(|(length_s, _)| seconds >= 2 * length_s).unwrap_or((1, "seconds"));
    format!("{} {unit} ago", seconds / length_s)
}
