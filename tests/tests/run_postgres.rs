//! PostgreSQL as Debian ships it: a cluster is made, served over a local socket, and loaded, by a user that is not
//! root.
//!
//! It is the program that System V shared memory, semaphores and their like are known for. Where it is not installed
//! the test says so.

use std::process::Command;

use aegis_tests::programs::{is_there, tool};

const FOLDER: &str = "/usr/lib/postgresql/15/bin";

/// What the user does. The configuration is small, and the socket is in the data's folder.
fn script() -> String {
    let server = "-k /tmp/aegis-pg -c listen_addresses= -c shared_buffers=16MB";
    let options = "-A trust -N --no-locale -E UTF8";
    format!(
        "set -e; cd /tmp/aegis-pg; PATH={FOLDER}:$PATH
         initdb -D data {options} >made
         pg_ctl -D data -l log -w -t 600 -o '{server} -c shared_memory_type=sysv' start
         pgbench -h /tmp/aegis-pg -i -s 1 postgres 2>loaded
         pgbench -h /tmp/aegis-pg -c 2 -t 10 postgres
         psql -h /tmp/aegis-pg -Atc 'select count(*), sum(abalance) = (select sum(bbalance) from pgbench_branches) \
          from pgbench_accounts' postgres
         ipcs -m | grep -c postgres
         pg_ctl -D data -m fast stop; ipcs -m | grep -c postgres || true"
    )
}

#[test]
fn a_cluster_is_made_served_and_loaded() {
    if !is_there(&format!("{FOLDER}/postgres")) {
        return;
    }
    let as_user = "setpriv --reuid=postgres --regid=postgres --init-groups sh -c";
    let command = format!("mkdir /tmp/aegis-pg && chown postgres: /tmp/aegis-pg && {as_user} \"$1\"");
    let words = ["/bin/sh", "-c", &command, "sh", &script()];
    let mut run: Command = tool(&["--root", "/", "-m", "1G", "--cpus", "2"], &words);
    let ended = run.output().expect("the tool runs");
    let output = String::from_utf8_lossy(&ended.stdout).into_owned();
    let errors = String::from_utf8_lossy(&ended.stderr).into_owned();
    let all = format!("{output}\n{errors}");
    assert!(ended.status.success(), "{all}");
    assert!(output.contains("number of transactions actually processed: 20/20"), "{all}");
    assert!(output.contains("100000|t\n1\n"), "{all}");
    assert!(output.trim_end().ends_with("server stopped\n0"), "{all}");
}
