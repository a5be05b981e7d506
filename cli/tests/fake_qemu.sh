#!/bin/bash
# Stands in for QEMU in the tests of the host tool: finds the sockets on its command line and plays the
# guest's side of the control port. FAKE_QEMU says which part to play. Only bash reads and writes descriptors
# above 9, hence bash.
if [ "$*" = '-netdev help' ]; then
    printf 'Available netdev backend types:\nuser\n'
    exit 0
fi
printf '%s\n' "$@" >"$FAKE_DIR/arguments"
echo $$ >"$FAKE_DIR/pid"
read -r -a stat </proc/self/stat
echo "${stat[5]}" >"$FAKE_DIR/session"
for word in "$@"; do
    case $word in
    socket,id=*)
        name=${word#socket,id=}
        declare "port_${name%%,*}=${word##*fd=}"
        ;;
    esac
done
# A frame of the control port (link/src/frame.rs): mark, kind, channel, length, each in four bytes, and a line.
# shellcheck disable=SC2154,SC2059 # the ports are declared above; the length is a part of the format
say() {
    printf -v length '\\x%02x\\x%02x\\0\\0' $((${#1} % 256)) $((${#1} / 256))
    printf "\xffAEG\1\0\0\0\0\0\0\0$length%s" "$1" >&"$port_control"
}
hear() {
    length=$(head -c 16 <&"$port_control" | od -An -tu4 -j12)
    [ -n "$length" ] && line=$(head -c "$length" <&"$port_control")
}
echo "kernel: fake machine" >&"$port_log"

case $FAKE_QEMU in
exit)
    say 'hello 2'
    printf 'out\n' >&"$port_stdout"
    printf 'err\n' >&"$port_stderr"
    say 'stats boot_ns=1500000 page_faults=3'
    say 'log warn openat2: not there (ENOSYS)'
    say 'log info only with --verbose'
    say "exit $FAKE_STATUS"
    exit 33
    ;;
killed)
    say 'hello 2'
    say 'killed 11 1 store to 0x0 at main+0x4'
    exit 33
    ;;
fail)
    say 'hello 2'
    say 'fail 127 foo: not found in the root'
    exit 33
    ;;
echo)
    say 'hello 2'
    head -c "$FAKE_BYTES" <&"$port_stdin" >&"$port_stdout"
    hear
    printf '%s' "$line" >&"$port_stderr"
    say 'exit 0'
    exit 33
    ;;
burst)
    # Everything is in the sockets before the tool reads the ending line.
    say 'hello 2'
    say 'exit 0'
    head -c "$FAKE_BYTES" /dev/zero >&"$port_stdout"
    exit 33
    ;;
endless)
    say 'hello 2'
    exec cat /dev/zero >&"$port_stdout"
    ;;
closed)
    # Writes until the tool says that nobody reads; FAKE_STATUS is the program's answer.
    say 'hello 2'
    while ! read -r -t 0 -u "$port_control" || { hear && [[ $line != closed* ]]; }; do
        head -c 4096 /dev/zero >&"$port_stdout"
    done
    printf '%s' "$line" >&"$port_stderr"
    say "$FAKE_STATUS"
    exit 33
    ;;
signal)
    say 'hello 2'
    printf 'ready\n' >&"$port_stdout"
    # The end of the input and a terminal's size may come before.
    while hear && [[ $line != signal* ]]; do :; done
    printf '%s\n' "$line" >&"$port_stdout"
    [ "$FAKE_STATUS" = stubborn ] && while :; do head -c 1 <&"$port_control" >/dev/null || sleep 1; done
    say 'exit 5'
    exit 33
    ;;
linger)
    say 'hello 2'
    say 'exit 0'
    exec sleep 60
    ;;
sleep)
    say 'hello 2'
    printf 'ready\n' >&"$port_stdout"
    exec sleep 60
    ;;
silent) exec sleep 60 ;;
status)
    echo "qemu-system-x86_64: cannot set up guest memory 'microvm.ram': Cannot allocate memory" >&2
    exit "$FAKE_STATUS"
    ;;
kvm)
    say 'hello 2'
    echo "KVM internal error. Suberror: 1" >&2
    exec sleep 60
    ;;
version)
    say 'hello 99'
    exec sleep 60
    ;;
garbage)
    say 'hello 2'
    head -c 100000 /dev/urandom | tr -d '\377' >&"$port_control"
    say ''
    say 'exit 300'
    say 'stats ='
    say 'exit 4'
    exit 33
    ;;
esac
