"""Tests that every command is declared, documented and listed."""

import ast
import contextlib
import io
import pathlib
import subprocess
import sys
import unittest

from squall_ci import cli
from squall_ci.paths import ROOT, RUN
from squall_ci.registry import find, GROUPS

PACKAGE = pathlib.Path(cli.__file__).parent


class Registry(unittest.TestCase):
    def test_every_command_has_help_and_a_function(self) -> None:
        for group in GROUPS:
            for command in group.commands:
                with self.subTest(group.title(command)):
                    self.assertTrue(command.time and command.what)
                    parser = cli.parser_of(group, command)
                    self.assertIn(parser.description, parser.format_help())
                    self.assertTrue(callable(group.load(command).main))

    def test_names_are_unique_and_no_module_is_forgotten(self) -> None:
        for group in GROUPS:
            names = [command.name for command in group.commands]
            self.assertEqual(len(names), len(set(names)))
            modules = {path.stem for path in (PACKAGE / group.package).glob("*.py")} - {"__init__"}
            self.assertEqual(modules, {group.load(command).__name__.rpartition(".")[2] for command in group.commands})

    def test_nothing_but_the_standard_library_is_needed(self) -> None:
        for path in sorted(PACKAGE.rglob("*.py")):
            for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
                names = [alias.name for alias in node.names] if isinstance(node, ast.Import) else []
                names += [node.module or ""] if isinstance(node, ast.ImportFrom) else []
                for name in names:
                    self.assertIn(name.partition(".")[0], sys.stdlib_module_names | {"squall_ci"}, path)

    def test_the_documents_name_commands_that_exist(self) -> None:
        grep = ["git", "grep", "-hoE", r"ci/run [a-z][a-z0-9-]*( [a-z0-9-]+)?", "--", ":!ci/squall_ci/tests"]
        found = subprocess.run(grep, cwd=ROOT, capture_output=True, text=True, check=True).stdout.splitlines()
        self.assertGreater(len(found), 50)
        for line in set(found):
            words = line.split()[1:]
            if words[0] not in ("list", "help"):
                with self.subTest(line):
                    group, command, rest = find(words)
                    self.assertTrue(command or (group.word and not rest))

    def test_a_group_is_the_first_word(self) -> None:
        for words, name, rest in (
            (["bench", "cc", "nscc"], "bench cc", ["nscc"]),
            (["test", "--fast"], "test", ["--fast"]),
            (["bench"], None, []),
            (["nonsense"], None, ["nonsense"]),
        ):
            group, command, behind = find(words)
            self.assertEqual((command and group.title(command), behind), (name, rest))

    def test_a_wrong_name_or_option_is_refused(self) -> None:
        for words, hint in (
            (["mtrix"], "did you mean suite matrix?"),
            (["suite", "deps"], "did you mean check deps?"),
            (["check", "deps", "--nonsense"], "unrecognized"),
            (["setup", "nonsense"], "there is no part"),
        ):
            said = io.StringIO()
            with self.subTest(words), contextlib.redirect_stderr(said), self.assertRaises(SystemExit) as left:
                cli.call(*words)
            self.assertEqual(left.exception.code, 2)
            self.assertIn(hint, said.getvalue())

    def test_the_launchers_pass_their_words_on(self) -> None:
        for name, words, says in (
            ("test", ["--list"], "cargo fmt"),
            ("build", ["--help"], "fi_prov_ini"),
            ("demo", ["--help"], "dying spine"),
            ("run", ["list"], "`suite matrix`"),
            ("run", ["suite"], "`suite matrix`"),
        ):
            done = subprocess.run([RUN.with_name(name), *words], capture_output=True, text=True, cwd="/")
            self.assertEqual(done.returncode, 0, done.stderr)
            self.assertIn(says, done.stdout)
