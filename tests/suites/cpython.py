"""CPython's own tests, one outcome for each: python cpython.py MODULE, in an empty folder.

Prints `@begin NAME`, what is wrong, and `@end STATUS` for each test: 0 good, 77 skipped, 1 anything else. What a test
itself prints is left where it is.
"""

import sys
import unittest

from test import support

# Tests that need a network, a display or gigabytes say so by asking for a resource.
support.use_resources = ["subprocess"]
support.verbose = 0


class Lines(unittest.TestResult):
    """An outcome as lines, written at once: a test that takes the interpreter along is the one that did not end."""

    def say(self, text):
        sys.__stdout__.write(text + "\n")
        sys.__stdout__.flush()

    def startTest(self, test):
        super().startTest(test)
        self.status = 0
        self.say("@begin " + test.id())

    def stopTest(self, test):
        super().stopTest(test)
        self.say(f"@end {self.status}")

    def wrong(self, test, error):
        self.status = 1
        self.say(self._exc_info_to_string(error, test))

    def addError(self, test, error):
        if not hasattr(test, "_testMethodName"):
            self.say("@begin " + test.id())
        self.wrong(test, error)
        if not hasattr(test, "_testMethodName"):
            self.say("@end 1")

    addFailure = wrong

    def addSubTest(self, test, subtest, error):
        if error is not None:
            self.wrong(subtest, error)

    def addSkip(self, test, reason):
        if hasattr(test, "_testMethodName"):
            self.status = 77


suite = unittest.defaultTestLoader.loadTestsFromName("test." + sys.argv[1])
suite(Lines())
