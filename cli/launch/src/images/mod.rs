//! Images of containers, as other engines make them: found, checked, laid flat, and kept.
//!
//! | file | what |
//! |---|---|
//! | `source` | the words that name an image |
//! | `locate`, `registry`, `engines` | an image's documents, out of archives, layouts, registries, other tools |
//! | `documents`, `digest` | those documents, and the digests in them |
//! | `layer` | a layer decompressed and checked on its way into the cache |
//! | `members`, `flatten` | the members of its archive, laid over those of the layers below |
//! | `store` | the cache, and an image that can be run |
//! | `accounts` | users and groups of an image |
//!
//! An image's bytes are an attacker's. What holds: nothing of an image is made on the host as what it says it is (no
//! path, link, device or owner of it; `docs/adr/0084`); no byte is used before its digest was right; everything has a
//! limit.

pub mod accounts;
pub mod digest;
pub(crate) mod documents;
pub mod engines;
pub mod errors;
mod flatten;
mod layer;
mod locate;
mod members;
mod registry;
pub mod source;
pub mod store;
#[cfg(test)]
mod testing;

pub use documents::Settings;
