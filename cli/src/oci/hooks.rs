//! Hooks: programs of the host that get a container's state on standard input, within a time.

use std::fs::File;
use std::io::{Seek, Write};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use rustix::fs::{MemfdFlags, memfd_create};
use serde_json::Value;

use crate::oci::errors::{OciError, Result};
use crate::oci::spec::Hook;

/// From one look at a hook to the next.
const LOOK_INTERVAL: Duration = Duration::from_millis(5);

/// Runs hooks one after another.
///
/// # Errors
/// `Hook`: the first that failed; those behind it are not run.
pub(crate) fn run(hooks: &[Hook], state: &Value) -> Result<()> {
    hooks.iter().try_for_each(|hook| run_one(hook, state.to_string().as_bytes()))
}

fn run_one(hook: &Hook, state: &[u8]) -> Result<()> {
    let failed = |why: String| OciError::Hook(hook.path.display().to_string(), why);
    let mut command = Command::new(&hook.path);
    let input = input(state).map_err(|error| failed(error.to_string()))?;
    command.env_clear().stdin(input).stdout(Stdio::null()).stderr(Stdio::inherit());
    if let [name, rest @ ..] = hook.args.as_slice() {
        std::os::unix::process::CommandExt::arg0(&mut command, name);
        command.args(rest);
    }
    let variables = hook.env.iter().flatten().filter_map(|it| it.split_once('='));
    let mut child = command.envs(variables).spawn().map_err(|error| failed(error.to_string()))?;
    // A time that no clock reaches is none.
    let limit = hook.timeout.and_then(|seconds| Instant::now().checked_add(Duration::from_secs(seconds)));
    loop {
        match child.try_wait().map_err(|error| failed(error.to_string()))? {
            Some(status) if status.success() => return Ok(()),
            Some(status) => return Err(failed(status.to_string())),
            None if limit.is_some_and(|limit| Instant::now() >= limit) => {
                let _ = child.kill();
                let _ = child.wait();
                return Err(failed("it took longer than its timeout".into()));
            }
            None => std::thread::sleep(LOOK_INTERVAL),
        }
    }
}

/// The state as a nameless file: a pipe could be full, and its writer would wait for a hook that does not read.
fn input(state: &[u8]) -> std::io::Result<File> {
    let mut file = File::from(memfd_create("state", MemfdFlags::CLOEXEC)?);
    file.write_all(state)?;
    file.rewind()?;
    Ok(file)
}
