# The suite of busybox against the installed one: `sh busybox.sh SOURCES LIMIT [APPLET...]`, in an empty folder.
#
# SOURCES is Debian's source tree of busybox (it may be read-only), LIMIT the seconds that an applet's tests may take.
# Prints `@begin APPLET: TEST`, what was wrong, and `@end STATUS` for each test: 0 good, 77 skipped, 1 anything else;
# and the same for an applet of which the tests did not end, with 124.

sources=$1 limit=$2
shift 2

cp -r "$sources/testsuite" testsuite && cp "$(which busybox)" busybox || exit 125
cp "$sources/debian/config/pkg/static" .config || exit 125
# The suite compiles an `echo` that knows -e and -n where the shell's does not.
mkdir scripts && cp "$sources/scripts/echo.c" scripts || exit 125
cd testsuite || exit 125
[ $# -gt 0 ] || set -- $(ls -d *.tests */ | sed 's/\.tests$//; s/\/$//' | sort -u)
for applet; do
    timeout -k 5 "$limit" ./runtest -v "$applet" </dev/null >../said 2>&1
    status=$?
    awk -v applet="$applet" '
        /^(PASS|FAIL|SKIPPED|UNTESTED): / {
            outcome = $1
            sub(/^[A-Z]*: /, "")
            count[$0] += 1
            print "@begin " applet ": " $0 (count[$0] > 1 ? " (" count[$0] ")" : "")
            if (outcome == "FAIL:") print said
            print "@end " (outcome == "PASS:" ? 0 : outcome == "FAIL:" ? 1 : 77)
            said = ""
            next
        }
        { said = said $0 "\n" }
    ' ../said
    [ $status -lt 124 ] || printf '@begin %s\n@end 124\n' "$applet"
done
