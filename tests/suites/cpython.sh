# CPython's own tests: `sh cpython.sh PYTHON LIMIT [MODULE...]`, in an empty folder.
#
# PYTHON is an interpreter whose installation has the package `test`, LIMIT the seconds that a module may take. What is
# printed is told in `cpython.py`.

python=$1 limit=$2 here=${0%/*}
shift 2
[ $# -gt 0 ] || set -- test_os test_posix test_signal test_mmap test_select test_poll test_epoll test_pty \
    test_resource test_io test_subprocess test_fcntl test_selectors test_pathlib test_shutil test_tempfile \
    test_posixpath test_wait3 test_wait4 test_fork1 test_termios test_tty test_eintr test_socket
for module; do
    timeout -k 5 "$limit" "$python" "$here/cpython.py" "$module" </dev/null 2>&1
    echo "@module $module $?"
done
