//! One module for each command that starts a machine or looks at the host; commands for a machine that runs are in
//! `remote`, benchmarks in `aegis-bench`.

pub(crate) mod doctor;
pub(crate) mod images;
pub(crate) mod manual;
pub(crate) mod pool;
pub(crate) mod run;
pub(crate) mod run_named;
pub(crate) mod up;
pub(crate) mod up_currencies;
pub(crate) mod up_dependencies;
pub(crate) mod up_file;
pub(crate) mod up_pool;
