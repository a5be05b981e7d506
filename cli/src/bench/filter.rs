//! `--rows`: an extended regular expression (regex(7)) over the names of rows, the same for every suite.
//!
//! The C library's matcher, because a crate for it would be larger than all of `bench`.
#![allow(unsafe_code, reason = "regcomp and its neighbours have no safe interface in rustix")]

use std::ffi::{CStr, CString};
use std::mem::MaybeUninit;

use super::failure::Failure;

/// Longest message of the C library that is shown.
const MESSAGE_BYTES_MAX: usize = 200;

/// A compiled expression.
pub(crate) struct RowFilter {
    text: String,
    compiled: Box<libc::regex_t>,
}

impl RowFilter {
    /// Compiles it.
    ///
    /// # Errors
    /// What is wrong with it, in the C library's words.
    pub(crate) fn new(text: &str) -> Result<Self, Failure> {
        let pattern = CString::new(text).map_err(|_| Failure::Rows("a zero byte".into()))?;
        let mut compiled = Box::new(MaybeUninit::<libc::regex_t>::uninit());
        let flags = libc::REG_EXTENDED | libc::REG_NOSUB;
        // SAFETY: the first argument is writable and as large as a regex_t, the second ends with a zero byte.
        let code = unsafe { libc::regcomp(compiled.as_mut_ptr(), pattern.as_ptr(), flags) };
        if code == 0 {
            // SAFETY: regcomp succeeded, so it has written the whole structure.
            let compiled = unsafe { compiled.assume_init() };
            return Ok(Self { text: text.to_string(), compiled });
        }
        let mut message = [0u8; MESSAGE_BYTES_MAX];
        // SAFETY: regerror accepts the structure of a regcomp that failed, and writes at most as many bytes as the
        // buffer has, a zero byte included.
        unsafe { libc::regerror(code, compiled.as_ptr(), message.as_mut_ptr().cast(), message.len()) };
        let message = CStr::from_bytes_until_nul(&message).map(|it| it.to_string_lossy().into_owned());
        Err(Failure::Rows(message.unwrap_or_default()))
    }

    /// Whether a row is asked for.
    pub(crate) fn finds(&self, name: &str) -> bool {
        let Ok(name) = CString::new(name) else {
            return false;
        };
        // SAFETY: the structure was made by regcomp and not freed, the name ends with a zero byte, and no matches are
        // asked for, so nothing is written.
        let code = unsafe { libc::regexec(&raw const *self.compiled, name.as_ptr(), 0, std::ptr::null_mut(), 0) };
        code == 0
    }

    /// No suite has a row that it finds.
    pub(crate) fn nothing_found(&self) -> Failure {
        Failure::Rows(format!("no row is found by {:?}", self.text))
    }
}

impl Drop for RowFilter {
    fn drop(&mut self) {
        // SAFETY: made by regcomp, freed once, not used afterwards.
        unsafe { libc::regfree(&raw mut *self.compiled) };
    }
}

#[cfg(test)]
mod tests {
    use super::RowFilter;

    #[test]
    fn extended_expressions() {
        let filter = RowFilter::new("^null|_rt$").unwrap();
        assert!(filter.finds("null_getppid_raw") && filter.finds("pipe_4k_rt") && !filter.finds("a_null"));
        assert!(RowFilter::new(".").unwrap().finds("x"));
        let error = RowFilter::new("[").map(|_| ()).unwrap_err().to_string();
        assert!(error.starts_with("--rows: ") && error.len() > 12, "{error}");
        assert!(RowFilter::new("a\0b").is_err());
    }
}
