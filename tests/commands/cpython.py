#!/usr/bin/python3
"""CPython's own tests of calls: a line for each that did not pass, and one for each module; without them, none.

Tests that want all the descriptors that there are, which is another number on each system, are set apart by name.
"""
import contextlib
import io
import sys
import unittest

MODULES = ["test_poll", "test_sched", "test_glob", "test_fcntl", "test_selectors"]
APART = ["test_above_fd_setsize", "test_select_rlimit"]


def tests(suite):
    for part in suite:
        if isinstance(part, unittest.TestSuite):
            yield from tests(part)
        else:
            yield part


def main():
    for name in MODULES:
        with contextlib.redirect_stdout(io.StringIO()):
            try:
                suite = unittest.defaultTestLoader.loadTestsFromName("test." + name)
            except (ImportError, AttributeError):
                continue
        chosen = [test for test in tests(suite) if not any(word in test.id() for word in APART)]
        result = unittest.TestResult()
        with contextlib.redirect_stdout(io.StringIO()), contextlib.redirect_stderr(io.StringIO()):
            unittest.TestSuite(chosen).run(result)
        for kind, found in [("failed", result.failures), ("error", result.errors)]:
            for test, _ in sorted(found, key=lambda pair: pair[0].id()):
                print(kind, test.id())
        print(name, result.testsRun, "tests,", len(result.skipped), "skipped")


if __name__ == "__main__":
    sys.exit(main())
