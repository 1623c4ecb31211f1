"""Tests of the runner of test programs."""

import json
import os
import pathlib
import stat
import tempfile
import unittest

from squall_ci.checks import tests
from squall_ci.checks.tests import judge, package_of, Program, programs, unfinished

# A test program of two tests, the second of which never ends.
HANGS = """#!/bin/sh
case "$*" in
*--list*) printf 'ends: test\\nnever_ends: test\\n';;
*) echo 'running 2 tests'; echo 'test ends ... ok'; exec sleep 100;;
esac
"""


class Programs(unittest.TestCase):
    def setUp(self) -> None:
        directory = tempfile.TemporaryDirectory()
        self.addCleanup(directory.cleanup)
        self.directory = pathlib.Path(directory.name)

    def program(self, text: str) -> Program:
        path = self.directory / "program"
        path.write_text(text)
        path.chmod(path.stat().st_mode | stat.S_IXUSR)
        return Program("crate", "tests", path, self.directory)

    def test_a_program_that_hangs_is_ended_and_its_test_is_named(self) -> None:
        program = self.program(HANGS)
        problem = judge(program, program.run(0.5))
        self.assertRegex(problem or "", r"ended after 0 s; tests that had not ended: never_ends$|never_ends$")
        self.assertNotIn(" ends", (problem or "").partition("ended: ")[2])

    def test_a_failure_names_the_tests_and_a_crash_those_without_an_end(self) -> None:
        failing = self.program("#!/bin/sh\necho 'test bad ... FAILED'; echo 'test good ... ok'; exit 101\n")
        self.assertEqual(judge(failing, failing.run()), "exit status 101: bad")
        crash = self.program(HANGS.replace("exec sleep 100", "kill -9 $$"))
        self.assertEqual(judge(crash, crash.run()), "killed by signal 9: never_ends")

    def test_lines_of_libtest_are_read(self) -> None:
        program = self.program("#!/bin/sh\nprintf 'a::b: test\\nc: test\\nd: test\\n'\n")
        output = "test a::b - should panic ... ok\ntest c    ... ignored\n"
        self.assertEqual(unfinished(program, output), ["d"])
        self.assertEqual(tests.ran("test result: ok. 41 passed; 1 failed\ntest result: ok. 2 passed; 0 failed"), 43)

    def test_the_messages_of_cargo_name_crates_and_programs(self) -> None:
        def message(name: str, kind: str, identity: str, test: bool = True) -> str:
            target = {"name": name, "kind": [kind]}
            where = {"manifest_path": f"{os.sep}w{os.sep}Cargo.toml", "executable": f"/t/{name}-1", "package_id": identity}
            return json.dumps({"reason": "compiler-artifact", "profile": {"test": test}, "target": target, **where})

        found = programs(
            "\n".join(
                (
                    message("squall_engine", "lib", "path+file:///w/engine#squall-engine@0.2.0"),
                    message("tests", "test", "path+file:///w/engine#squall-engine@0.2.0"),
                    message("squall", "bin", "path+file:///w/tools#squall-tools@0.2.0", test=False),
                    json.dumps({"reason": "build-finished", "success": True}),
                )
            )
        )
        self.assertEqual([program.title for program in found], ["squall-engine unit", "squall-engine tests"])
        self.assertEqual(package_of("path+file:///w/squall-cc#0.2.0"), "squall-cc")


if __name__ == "__main__":
    unittest.main()
