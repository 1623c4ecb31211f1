"""Tests of the step runner, and of the deadline of commands."""

import contextlib
import io
import os
import pathlib
import signal
import subprocess
import sys
import tempfile
import time
import unittest

from squall_ci import process
from squall_ci.paths import ROOT
from squall_ci.steps import Kept, run_steps, Step

GOOD = Step("good", [["true"]], fast=True)
BAD = Step("bad", [["sh", "-c", "echo first; echo the reason; exit 3"], ["touch", "never"]])


def alive(pid: int) -> bool:
    """Returns whether a process runs; a zombie does not."""
    try:
        return b") Z " not in pathlib.Path(f"/proc/{pid}/stat").read_bytes()
    except OSError:
        return False


# Seconds that a command has until it is ended. On a busy machine the shorter ones may pass before it has begun.
DEADLINES = (0.5, 4.0, 40.0)


class Steps(unittest.TestCase):
    def setUp(self) -> None:
        directory = tempfile.TemporaryDirectory()
        self.addCleanup(directory.cleanup)
        self.logs = pathlib.Path(directory.name)

    def run_them(self, steps: list[Step], *only: str, fast: bool = False) -> tuple[int, str]:
        with contextlib.redirect_stdout(io.StringIO()) as said:
            status = run_steps(steps, self.logs, only, fast)
        return status, said.getvalue()

    def test_a_failing_step_fails_the_run_and_shows_why(self) -> None:
        status, said = self.run_them([GOOD, BAD])
        self.assertEqual(status, 1)
        self.assertRegex(said, r"(?m)^ok    good ")
        self.assertRegex(said, r"(?m)^FAIL  bad .*exit status 3")
        self.assertIn("      | the reason\n", said)
        self.assertTrue(said.endswith("1 passed, 1 failed\n"))
        self.assertEqual((self.logs / "bad.log").read_text(), "first\nthe reason\n")

    def test_all_well_is_zero_and_nothing_run_is_not(self) -> None:
        self.assertEqual(self.run_them([GOOD])[0], 0)
        self.assertEqual(self.run_them([BAD], fast=True)[0], 1)

    def test_what_passed_is_kept_and_what_failed_is_tried_again(self) -> None:
        file = self.logs / "passed.json"
        counted = Step("counted", [["sh", "-c", f"echo run >> {self.logs}/count"]])
        for _ in range(2):
            with contextlib.redirect_stdout(io.StringIO()) as said:
                self.assertEqual(run_steps([counted, BAD], self.logs, kept=Kept(file)), 1)
            self.assertRegex(said.getvalue(), r"(?m)^FAIL  bad ")
            self.assertTrue(said.getvalue().endswith("1 passed, 1 failed\n"))
        self.assertEqual((self.logs / "count").read_text(), "run\n")
        with contextlib.redirect_stdout(io.StringIO()):
            run_steps([counted], self.logs, kept=Kept(file, forget=True))
        self.assertEqual((self.logs / "count").read_text(), "run\nrun\n")

    def test_only_the_named_run_and_unknown_names_fail(self) -> None:
        self.assertEqual(self.run_them([GOOD, BAD], "good")[0], 0)
        self.assertEqual(self.run_them([GOOD, BAD], fast=True)[0], 0)
        status, said = self.run_them([GOOD], "good", "godo")
        self.assertEqual(status, 1)
        self.assertIn("there are: good", said)

    def test_a_step_that_cannot_run_is_named_and_fails_only_when_asked_for(self) -> None:
        absent = Step("absent", [["true"]], missing="install it")
        self.assertEqual(self.run_them([GOOD, absent])[0], 0)
        self.assertIn("not run: absent, install it", self.run_them([GOOD, absent])[1])
        self.assertEqual(self.run_them([GOOD, absent], "good", "absent")[0], 1)

    def test_a_hanging_step_ends_with_its_children(self) -> None:
        # A child in a session of its own, and one that does not listen.
        script = f"setsid sleep 600 & echo $! >{self.logs}/a; (trap '' TERM; exec sleep 600) & echo $! >{self.logs}/b; wait"
        for deadline in DEADLINES:
            begin = time.monotonic()
            status, said = self.run_them([Step("hangs", [["sh", "-c", script]], deadline=deadline), GOOD])
            self.assertLess(time.monotonic() - begin, deadline + 60)
            if (self.logs / "b").exists():
                break
        self.assertEqual(status, 1)
        self.assertRegex(said, r"(?m)^FAIL  hangs .*still running after")
        self.assertRegex(said, r"(?m)^ok    good ")
        for name in "ab":
            self.assertFalse(alive(int((self.logs / name).read_text())))

    def test_what_a_command_leaves_behind_ends_with_it(self) -> None:
        # The child may be in the middle of an exec then.
        for _ in range(10):
            result = process.run(["sh", "-c", f"setsid sleep 600 & echo $! >{self.logs}/left"])
            self.assertTrue(result.ok)
            self.assertFalse(alive(int((self.logs / "left").read_text())))

    def test_the_end_of_a_run_ends_the_runs_inside_of_it(self) -> None:
        inner = (
            f"from squall_ci import process; process.run(['sh', '-c', 'echo $$ >{self.logs}/inner; sleep 600'], timeout=600)"
        )
        env = {**os.environ, "PYTHONPATH": str(ROOT / "ci")}
        for deadline in DEADLINES:
            result = process.run([sys.executable, "-c", inner], env, deadline)
            self.assertIsNone(result.code)
            if (self.logs / "inner").exists():
                break
        self.assertFalse(alive(int((self.logs / "inner").read_text())))

    def test_a_signal_lets_the_tool_clean_up(self) -> None:
        script = (
            "from squall_ci import process\nimport time\nprocess.leave_on_signals()\n"
            "try:\n    print('begun', flush=True)\n    time.sleep(60)\nfinally:\n    print('cleaned', flush=True)\n"
        )
        env = {**os.environ, "PYTHONPATH": str(ROOT / "ci")}
        child = subprocess.Popen([sys.executable, "-c", script], stdout=subprocess.PIPE, text=True, env=env)
        assert child.stdout
        self.assertEqual(child.stdout.readline(), "begun\n")
        child.send_signal(signal.SIGTERM)
        said, _ = child.communicate(timeout=20)
        self.assertEqual((said, child.returncode), ("cleaned\n", 128 + signal.SIGTERM))

    def test_a_program_that_is_not_there_is_a_failure(self) -> None:
        result = process.run(["/nonexistent/program"])
        self.assertEqual(result.code, 127)
        self.assertIn("/nonexistent/program", result.output)
