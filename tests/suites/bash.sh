# The suite of bash against the installed bash: `sh bash.sh SOURCES LIMIT [NAME...]`, in an empty folder.
#
# SOURCES is bash's source tree (its `tests` is copied, so that the tree may be read-only), LIMIT the seconds that a
# test may take. Prints `@begin NAME`, what the test said, and `@end STATUS`: 0 good, 124 out of time, 1 not as the
# suite expects.

sources=$1 limit=$2
shift 2

cp -r "$sources/tests" tests && cd tests || exit 125
for helper in recho zecho xcase printenv; do
    [ -x "$helper" ] || cp "$sources/$helper" . || exit 125
done
mkdir ../tmp
TMPDIR=$(cd ../tmp && pwd) THIS_SH=/bin/bash BUILD_DIR=$sources
BASH_TSTOUT=$TMPDIR/out PATH=.:$PATH
export TMPDIR THIS_SH BUILD_DIR BASH_TSTOUT PATH
unset BASH_ENV SHELLOPTS

[ $# -gt 0 ] || set -- run-*
for test; do
    case $test in run-all|run-minimal|run-gprof) continue ;; esac
    echo "@begin $test"
    # A terminal of its own, for job control; what the caller left open would be numbers that the tests count on.
    {
        timeout -k 5 "$limit" bash -c '
            for open in /proc/self/fd/*; do [ "${open##*/}" -le 2 ] || eval "exec ${open##*/}>&-"; done 2>/dev/null
            exec script -qec "sh ./$1" /dev/null' sh "$test" </dev/null 2>&1
        echo $? >../status
    } | tr -d '\r' >../said
    read -r status <../status
    # A test compares what was written with what should have been, and leaves the difference as its output.
    [ $status -ne 0 ] || ! grep -q '^[<>] ' ../said || status=1
    [ $status -eq 0 ] || cat ../said
    echo "@end $status"
    rm -rf "$BASH_TSTOUT"
done
