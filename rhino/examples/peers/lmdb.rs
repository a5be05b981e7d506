//! LMDB: one copy-on-write file, mapped; a commit writes its pages, flushes, and writes a root that is flushed too.
#![allow(unsafe_code, reason = "a library of C")]

use core::ffi::CStr;
use core::ptr::null_mut;
use std::ffi::CString;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

use lmdb_master_sys as sys;

use super::bank::{AUDIT_BYTES, Engine, RECORD_BYTES, Tables, Work, amount, change};

/// Most bytes that the file may get: its copies are reused, so it stays far below.
const MAP_BYTES: usize = 1 << 30;

pub(crate) struct Environment {
    environment: *mut sys::MDB_env,
    /// The tables', and the audit trail's.
    handles: Vec<sys::MDB_dbi>,
    tables: Tables,
}

fn check(code: i32) -> Result<(), String> {
    if code == 0 {
        return Ok(());
    }
    // SAFETY: answers a text that is there for good.
    let text = unsafe { CStr::from_ptr(sys::mdb_strerror(code)) };
    Err(text.to_string_lossy().into_owned())
}

/// A transaction, which is aborted if it is dropped.
struct Session(*mut sys::MDB_txn);

impl Session {
    fn get(&self, handle: sys::MDB_dbi, key: usize) -> Result<&[u8], String> {
        let mut key = sys::MDB_val { mv_size: size_of::<usize>(), mv_data: (&raw const key).cast_mut().cast() };
        let mut value = sys::MDB_val { mv_size: 0, mv_data: null_mut() };
        // SAFETY: key and value are there during the call.
        check(unsafe { sys::mdb_get(self.0, handle, &raw mut key, &raw mut value) })?;
        // SAFETY: bytes of the map, which stay as they are until the transaction's next store; callers copy them.
        Ok(unsafe { core::slice::from_raw_parts(value.mv_data.cast(), value.mv_size) })
    }

    fn put(&mut self, handle: sys::MDB_dbi, key: usize, bytes: &[u8]) -> Result<(), String> {
        let mut key = sys::MDB_val { mv_size: size_of::<usize>(), mv_data: (&raw const key).cast_mut().cast() };
        let mut value = sys::MDB_val { mv_size: bytes.len(), mv_data: bytes.as_ptr().cast_mut().cast() };
        // SAFETY: key and value are there during the call, which copies them.
        check(unsafe { sys::mdb_put(self.0, handle, &raw mut key, &raw mut value, 0) })
    }

    fn commit(self) -> Result<(), String> {
        let transaction = self.0;
        core::mem::forget(self);
        // SAFETY: it ends here, whatever is answered.
        check(unsafe { sys::mdb_txn_commit(transaction) })
    }
}

impl Drop for Session {
    fn drop(&mut self) {
        // SAFETY: it was not committed.
        unsafe { sys::mdb_txn_abort(self.0) };
    }
}

impl Environment {
    /// Tables full of zeros.
    pub(crate) fn new(path: &Path, tables: &Tables) -> Result<Self, String> {
        let name = CString::new(path.as_os_str().as_bytes()).map_err(|error| error.to_string())?;
        let mut environment = null_mut();
        // SAFETY: makes a handle.
        check(unsafe { sys::mdb_env_create(&raw mut environment) })?;
        let mut made = Self { environment, handles: Vec::new(), tables: tables.clone() };
        let table_count = tables.record_counts.len() + 1;
        // SAFETY: the handle is new; the path is a string of C.
        unsafe {
            check(sys::mdb_env_set_mapsize(environment, MAP_BYTES as _))?;
            check(sys::mdb_env_set_maxdbs(environment, table_count as _))?;
            check(sys::mdb_env_open(environment, name.as_ptr(), sys::MDB_NOSUBDIR, 0o600))?;
        }
        let mut session = made.begin(0)?;
        let counts = tables.record_counts.iter().map(|count| (*count, RECORD_BYTES));
        for (table, (count, bytes)) in counts.chain([(tables.audit_count, AUDIT_BYTES)]).enumerate() {
            let name = CString::new(format!("table{table}")).map_err(|error| error.to_string())?;
            let mut handle = 0;
            let flags = sys::MDB_CREATE | sys::MDB_INTEGERKEY;
            // SAFETY: the name is a string of C.
            check(unsafe { sys::mdb_dbi_open(session.0, name.as_ptr(), flags, &raw mut handle) })?;
            (0..count).try_for_each(|key| session.put(handle, key, &vec![0; bytes]))?;
            made.handles.push(handle);
        }
        session.commit()?;
        Ok(made)
    }

    fn begin(&self, flags: u32) -> Result<Session, String> {
        let mut transaction = null_mut();
        // SAFETY: the environment is open.
        check(unsafe { sys::mdb_txn_begin(self.environment, null_mut(), flags, &raw mut transaction) })?;
        Ok(Session(transaction))
    }
}

impl Drop for Environment {
    fn drop(&mut self) {
        // SAFETY: no transaction is alive: they borrow nothing, but end within the functions here.
        unsafe { sys::mdb_env_close(self.environment) };
    }
}

impl Engine for Environment {
    fn transact(&mut self, work: &Work) -> Result<(), String> {
        let mut session = self.begin(0)?;
        for &part in &work.changes {
            let mut record = [0; RECORD_BYTES];
            record.copy_from_slice(session.get(self.handles[part.table], part.record)?);
            change(&mut record, part, work.number);
            session.put(self.handles[part.table], part.record, &record)?;
        }
        let audit = self.handles[self.tables.record_counts.len()];
        session.put(audit, work.number % self.tables.audit_count, &work.audit())?;
        session.commit()
    }

    fn sums(&mut self) -> Result<(Vec<i64>, i64), String> {
        let session = self.begin(sys::MDB_RDONLY)?;
        let sum = |table: usize, count: usize, at: usize| -> Result<i64, String> {
            (0..count).map(|key| Ok(amount(&session.get(self.handles[table], key)?[at..]))).sum()
        };
        let counts = self.tables.record_counts.iter().enumerate();
        let sums: Result<Vec<i64>, String> = counts.map(|(table, &count)| sum(table, count, 0)).collect();
        Ok((sums?, sum(self.tables.record_counts.len(), self.tables.audit_count, 8)?))
    }
}
