# Runs lines of network.list one after the other, on Linux or on Aegis, and prints what each did:
#   sh lines.sh HELPERS LIST
# where each line of LIST is `NAME<tab>COMMAND`. Before a line's output stands `=== NAME`, after it `--- STATUS`.
# A command has a folder of its own ($w, the current one), ten ports ($p and those above it), programs of the folder
# $h, and the functions below.
h=$1 list=$2 p=21000
export h p
prelude='
# A server whose output does not matter; it ends with the line.
serve() { "$@" >/dev/null 2>&1 </dev/null & served="$served $!"; }
# Until a port takes connections (0A is LISTEN) or, with udp, datagrams (07).
up() {
    hex=$(printf ":%04X " "$1") kind=${2:-tcp} state=0A tries=0
    [ "$kind" = udp ] && state=07
    until grep -q "$hex[0-9A-F]*:0000 $state " /proc/net/$kind /proc/net/${kind}6 2>/dev/null; do
        tries=$((tries + 1))
        [ $tries -gt 600 ] && { echo "port $1 was not opened"; exit 99; }
        sleep 0.05
    done
}
# Until a command succeeds.
await() { tries=0; until "$@" >/dev/null 2>&1; do tries=$((tries + 1)); [ $tries -gt 600 ] && exit 98; sleep 0.05; done; }
trap "for one in \$served; do kill \$one 2>/dev/null; done" EXIT
'
base=$(mktemp -d)
tab=$(printf '\t')
while IFS="$tab" read -r name command; do
    w=$base/$name
    mkdir "$w" && cd "$w" || exit 97
    export w
    limit=60
    [ "${name#slow-}" = "$name" ] || limit=300
    timeout -k 5 $limit sh -c "$prelude$command" >"$base/output" 2>&1 </dev/null
    status=$?
    cd /
    echo "=== $name"
    cat "$base/output"
    echo "--- $status"
    p=$((p + 10))
done <"$list"
rm -rf "$base"
