"""Finding the reasons for unsafe code in Rust sources, and judging them."""

import contextlib
import io
import pathlib
import tempfile
import unittest

from squall_ci import cli
from squall_ci.checks.reasons import problem_of_reason, problem_of_section, reasons, sections

GOOD = "`place` is a local variable, which the call fills with at most its size."

SAMPLE = """\
fn plain() {
    // SAFETY: of the first.
    let a = unsafe { one() };
    // A word before.
    // SAFETY: of the second,
    // in two lines.
    let c: Vec<u8> =
        unsafe { two() };
}
// SAFETY: of the impl.
unsafe impl Send for A {}
/// Does it.
///
/// # Safety
/// `p` is open.
#[inline]
pub(crate) unsafe fn documented(p: *const u8) {}
/// Does it.
unsafe fn undocumented(p: *const u8) {}

// SAFETY: of the trait.
unsafe impl Trait for A
where
    A: Sized,
{
    fn other() {}

    unsafe fn of_the_trait() {}
}

impl A {
    unsafe fn own() {}
}
unsafe extern "C" fn called_from_c() {}
"""


class Finding(unittest.TestCase):
    def test_each_reason_with_its_line(self) -> None:
        found = [(2, "of the first."), (5, "of the second, in two lines."), (10, "of the impl."), (21, "of the trait.")]
        self.assertEqual(list(reasons(SAMPLE.splitlines())), found)

    def test_each_function_that_rust_calls_and_no_trait_documents(self) -> None:
        self.assertEqual(list(sections(SAMPLE.splitlines())), [(17, "`p` is open."), (19, None), (32, None)])


class Judging(unittest.TestCase):
    def test_a_reason_of_its_own_passes(self) -> None:
        self.assertIsNone(problem_of_reason(GOOD))
        self.assertIsNone(problem_of_section("As [`get`]."))

    def test_a_reason_for_any_block_is_refused(self) -> None:
        for reason in (
            "",
            "as above.",
            f"As above; {GOOD}",
            "the caller's promise, here and for every pointer that is inside of it.",
            "the callers' promises are passed on, all of them, to the function below.",
            "as in `deref`, which says all that there is to be said of it.",
            "an open endpoint.",
            "valid pointers and lengths of the kind that the call wants here now",
            "fi_send(3).",
            "checked for NULL.",
        ):
            self.assertIsNotNone(problem_of_reason(reason), reason)

    def test_functions_need_their_section(self) -> None:
        self.assertIsNotNone(problem_of_section(None))
        self.assertIsNotNone(problem_of_section(""))


class Run(unittest.TestCase):
    def test_a_breach_is_named_and_fails(self) -> None:
        with tempfile.TemporaryDirectory() as directory, contextlib.redirect_stdout(io.StringIO()) as said:
            (pathlib.Path(directory) / "deep").mkdir()
            (pathlib.Path(directory) / "deep" / "a.rs").write_text("// SAFETY: as above.\nunsafe { g() };\n")
            self.assertEqual(cli.call("check", "reasons", directory), 1)
        self.assertIn("a.rs:1: the reason says 'as above'", said.getvalue())
        self.assertIn("1 reasons, 0 unsafe functions, 1 breaches", said.getvalue())
