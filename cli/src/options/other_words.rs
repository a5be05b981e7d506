//! Words of docker and podman that there are none of here: what to type instead, or why there is nothing to type.

use clap::error::{ContextKind, ContextValue, ErrorKind};

/// Verbs.
const VERBS: [(&[&str], &str); 14] = [
    (&["pull"], "`aegis images pull SOURCE`, or `aegis run --image SOURCE` at once"),
    (&["rmi"], "`aegis images rm NAME`"),
    (&["build"], "`aegis images build -t NAME DIR`"),
    (
        &[
            "image", "image-ls", "tag", "push", "save", "load", "import", "export", "commit", "login", "search",
            "history",
        ],
        "`aegis images` lists, pulls, builds and removes; for the rest there are skopeo, buildah and podman",
    ),
    (&["rm"], "nothing of a run is left to remove once it ended; `aegis stop NAME` ends one"),
    (&["start", "restart", "create"], "`aegis run` with the same words runs it again; nothing is kept in between"),
    (&["attach"], "`aegis logs -f NAME` follows its output, `aegis exec -it NAME sh` goes in"),
    (&["cp", "diff"], "`aegis run -v HOST:GUEST` shows a directory on both sides"),
    (&["port"], "`aegis inspect NAME` shows its ports"),
    (&["pause", "unpause", "update"], "`aegis tickets POD AMOUNT` gives a pod more or less of the processors"),
    (
        &["rename", "container", "volume", "network", "system", "context", "pod"],
        "`aegis ps`, `inspect` and `stop` know runs by --name; directories are -v, networks --network",
    ),
    (&["info"], "`aegis doctor`"),
    (&["compose"], "`aegis up compose.yaml`"),
    (&["help"], "`aegis --help`, `aegis run --help`, `man aegis`"),
];

/// Options.
const OPTIONS: [(&[&str], &str); 11] = [
    (&["--net"], "--network"),
    (&["--volumes-from"], "-v with the same directory, or volume, for both"),
    (
        &["--privileged", "--cap-add", "--cap-drop", "--security-opt", "--userns"],
        "leave it out: a program has a kernel of its own and all rights in it, and none here",
    ),
    (
        &["--pid", "--ipc", "--uts", "--cgroupns", "--cgroup-parent"],
        "leave it out: a run has processes, names and init of its own in any case",
    ),
    (&["--restart"], "`restart` in a file of `aegis up`"),
    (&["--gpus", "--device"], "leave it out: no device of this host reaches a machine but --disk"),
    (&["--memory-swap", "--memory-reservation", "--oom-kill-disable"], "-m, which is all there is"),
    (&["--cpu-shares", "--cpu-quota", "--cpu-period", "--cpuset-cpus"], "--cpus, and --tickets for a share"),
    (
        &["--label-file", "--log-driver", "--log-opt", "--cidfile", "--detach-keys", "--sig-proxy"],
        "leave it out: nothing of the kind is kept",
    ),
    (&["--ulimit", "--sysctl"], "`aegis run sh -c 'ulimit ...; exec PROGRAM'`"),
    (&["--platform"], "leave it out: programs are those of x86-64"),
];

/// What to say of a command line that clap refused for such a word.
pub(super) fn instead(error: &clap::Error) -> Option<String> {
    let (kind, table): (ContextKind, &[(&[&str], &str)]) = match error.kind() {
        ErrorKind::InvalidSubcommand => (ContextKind::InvalidSubcommand, &VERBS),
        ErrorKind::UnknownArgument => (ContextKind::InvalidArg, &OPTIONS),
        _ => return None,
    };
    let Some(ContextValue::String(word)) = error.get(kind) else { return None };
    let (_, text) = table.iter().find(|(words, _)| words.contains(&word.as_str()))?;
    Some(format!("{word}: there is none here; {text}"))
}

#[cfg(test)]
mod tests {
    use crate::options::parse;

    fn refusal(line: &str) -> String {
        parse(line.split(' ').map(Into::into)).expect_err("refused")
    }

    #[test]
    fn words_of_other_engines_are_answered() {
        for (line, part) in [
            ("aegis pull alpine", "pull: there is none here; `aegis images pull"),
            ("aegis rm -f x", "aegis stop NAME"),
            ("aegis help run", "man aegis"),
            ("aegis run --net=none true", "--net: there is none here; --network"),
            ("aegis run --privileged true", "all rights in it"),
            ("aegis run --volumes-from x true", "-v with the same"),
        ] {
            let text = refusal(line);
            assert!(text.contains(part) && !text.contains('\n'), "{line}: {text}");
        }
        assert!(refusal("aegis run --nmae x true").contains("similar argument exists: '--name'"));
        assert!(refusal("aegis nonsense").contains("nonsense"));
    }
}
