# The suite of coreutils against the installed programs: `sh coreutils.sh SOURCES LIMIT [NAME...]`, in an empty folder.
#
# SOURCES is coreutils' source tree, configured, with `src/getlimits` and the headers made in it; it may be read-only.
# NAME is a path as in `tests/cp/abuse.sh`; without one all that are quick. LIMIT is the seconds that a test
# may take. Prints `@begin NAME`, what the test said, and `@end STATUS`: 0 good, 77 skipped, 124 out of time.

sources=$1 limit=$2
shift 2

# Programs first come from `src`: getlimits, and the name that `install` has there; the rest is the installed one.
mkdir src work && cp "$sources/src/getlimits" src && ln -s "$(which install)" src/ginstall || exit 125
# Some tests call a program by its path in the build tree. Each program has the source of its manual page.
for page in "$sources"/man/*.x; do
    program=${page##*/} program=${program%.x}
    [ -e "src/$program" ] || ! which "$program" >/dev/null || ln -s "$(which "$program")" "src/$program"
done

abs_top_builddir=$PWD abs_top_srcdir=$sources abs_srcdir=$sources srcdir=$sources top_srcdir=$sources
built_programs="$(ls src | tr '\n' ' ')" CONFIG_HEADER=$sources/lib/config.h VERSION=9.1 PACKAGE_VERSION=9.1
host_os=linux-gnu host_triplet=x86_64-pc-linux-gnu CC=gcc AWK=awk EGREP='grep -E' MAKE=make PERL=perl SHELL=/bin/sh
LOCALE_FR=fr_FR LOCALE_FR_UTF8=fr_FR.UTF-8 fail=0 LC_ALL=C PATH=$PWD/src:$PATH
export abs_top_builddir abs_top_srcdir abs_srcdir srcdir top_srcdir built_programs CONFIG_HEADER VERSION
export PACKAGE_VERSION host_os host_triplet CC AWK EGREP MAKE PERL SHELL LOCALE_FR LOCALE_FR_UTF8 fail LC_ALL PATH
unset LANG LANGUAGE TERM TMPDIR LS_COLORS COLUMNS

if [ $# -eq 0 ]; then
    # What mounts is not for a host that is used; what compiles, debugs or says itself that it is slow takes minutes.
    set -- $(cd "$sources" && grep -L -e '^[^#]*\bmount\b' -e require_gcc_shared_ -e require_valgrind_ -e require_strace_ \
        -e expensive_ -e gdb tests/*/*.sh tests/*/*.pl tests/*/*.xpl)
fi
cd work || exit 125
for test; do
    echo "@begin $test"
    CU_TEST_NAME=$(echo "$test" | tr / -)
    export CU_TEST_NAME
    name=${test##*/}
    case $test in
        *.sh) set -- sh "$sources/$test" ;;
        *.pl) set -- perl -w "-I$sources/tests" -MCuSkip -MCoreutils "-MCuTmpdir qw($name)" "$sources/$test" ;;
        *) set -- perl -T -w "-I$sources/tests" -MCuSkip -MCoreutils "-MCuTmpdir qw($name)" "$sources/$test" ;;
    esac
    timeout -k 5 "$limit" "$@" </dev/null >../said 2>&1 9>&2
    status=$?
    [ $status -eq 0 ] || cat ../said
    echo "@end $status"
done
