#!/bin/sh
# What podman shows of containers under aegis-oci, compared with the same words under runc on the same host.
#
#     tests/engines/podman.sh target/aegis/aegis-oci [CASE...]
#
# Each case of podman.cases is run with both; output on standard output and the status that the case prints are to be
# the same. One that begins with `!` is known to differ, as docs/guide/engines.md says, and is only shown. At the end
# nothing may be left: processes, mounts, containers' directories, files in /tmp and /dev/shm.
#
# It keeps images and containers in a folder of its own, and changes nothing of the host's podman. It ends with status
# 77 where it cannot run, and says why. A long check: some ten minutes, more on a busy host.
set -u
cannot() { echo "podman.sh: cannot run here: $1" >&2; exit 77; }
here=$(cd "$(dirname "$0")" && pwd)
[ $# -ge 1 ] || cannot "which aegis-oci? tests/engines/podman.sh PATH/aegis-oci"
oci=$(cd "$(dirname "$1")" && pwd)/$(basename "$1"); shift
[ -x "$oci" ] || cannot "$oci is no program (ln -s aegis target/aegis/aegis-oci)"
[ "$(id -u)" = 0 ] || cannot "it wants root: without it podman makes user namespaces, which a machine has not"
for program in podman conmon runc qemu-system-x86_64 script; do
    command -v $program >/dev/null || cannot "$program is missing"
done
busybox=$(command -v busybox) && ! ldd "$busybox" >/dev/null 2>&1 || cannot "a static busybox is missing"

work=$(mktemp -d /tmp/aegis-podman-XXXXXX)
# Limits above this process's own are an error of runc's; podman asks for a million files.
cat >"$work/containers.conf" <<CONF
[containers]
default_ulimits=["nofile=20000:20000","nproc=1000:1000"]
[engine]
runtime_supports_json = ["crun", "runc", "aegis"]
[engine.runtimes]
aegis = ["$oci"]
CONF
export CONTAINERS_CONF="$work/containers.conf" AEGIS_ACCEL=${AEGIS_ACCEL-tcg}
limit=${LIMIT_SECONDS-150}
store="podman --root $work/store --runroot $work/run --log-level=error"

end() {
    $store pod rm -fa >/dev/null 2>&1
    $store rm -fa -t 0 >/dev/null 2>&1
    umount "$work/store/overlay" 2>/dev/null
    rm -rf "$work"
}
trap 'end; exit 130' INT TERM

# An image: busybox, three accounts, and some files.
mkdir -p "$work/root/bin" "$work/root/etc" "$work/root/data" "$work/root/tmp" "$work/root/run"
cp "$busybox" "$work/root/bin/busybox"
for name in $("$busybox" --list); do ln -s busybox "$work/root/bin/$name" 2>/dev/null; done
printf 'root:x:0:0::/root:/bin/sh\neve:x:1000:1001::/home/eve:/bin/sh\n' >"$work/root/etc/passwd"
printf 'root:x:0:\neve:x:1001:\nmore:x:1002:eve\n' >"$work/root/etc/group"
echo kept >"$work/root/data/kept"
chmod 1777 "$work/root/tmp"
tar -C "$work/root" -cf - . | $store import --change 'ENV PATH=/bin' --change 'CMD ["sh"]' - box:1 >/dev/null 2>&1 ||
    { end; cannot "podman cannot import an image"; }
rm -rf "$work/root"

# What may be left: counted before and after.
left() {
    pgrep -c -f "$work/(store|run|volume)"
    grep -c "$work/" /proc/mounts
    ls -d /run/aegis-oci/* /dev/shm/* /tmp/.aegis-* 2>/dev/null | wc -l
}

# One case with one runtime.
run_case() (
    export runtime=$1 V="$work/volume-$1" N="c-$1"
    P="$store --runtime $runtime" I=localhost/box:1 R="run --rm --network none" D="run -d --network none --name $N"
    rm -rf "$V"; mkdir "$V"
    export P I R D store work
    timeout -s KILL "$limit" sh -c "$2" 2>"$work/errors-$1" </dev/null
    echo "status $?"
    $store pod rm -fa >/dev/null 2>&1
    $store rm -fa -t 0 >/dev/null 2>&1
)

before=$(left)
good=0 bad=0 known=0
while IFS='	' read -r name line; do
    case $name in '' | '#'*) continue ;; esac
    plain=${name#!}
    if [ $# -gt 0 ]; then case " $* " in *" $plain "*) ;; *) continue ;; esac; fi
    expected=$(run_case runc "$line" </dev/null)
    got=$(run_case aegis "$line" </dev/null)
    got=$(echo "$got" | sed 's/c-aegis/c-runc/g')
    if [ "$expected" = "$got" ]; then
        good=$((good + 1)); echo "same    $plain"
    elif [ "$plain" != "$name" ]; then
        known=$((known + 1)); echo "known   $plain"
    else
        bad=$((bad + 1)); echo "DIFFERS $plain"
        echo "$expected" | sed 's/^/    runc  /'; echo "$got" | sed 's/^/    aegis /'
        head -3 "$work/errors-aegis" | sed 's/^/    error /'
    fi
done <"$here/podman.cases"
after=$(left)
echo "$good same, $known known to differ, $bad differ"
[ "$before" = "$after" ] || { echo "left behind: before $(echo $before), after $(echo $after)"; bad=$((bad + 1)); }
end
[ "$bad" = 0 ]
