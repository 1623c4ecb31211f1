"""Which of the files of a profile count."""

import unittest

from squall_ci.commands import send_path
from squall_ci.paths import ROOT


class SendPath(unittest.TestCase):
    def test_files_of_ours(self) -> None:
        self.assertEqual(send_path.ours(f"{ROOT}/provider/lib.rs"), "provider/lib.rs")
        self.assertEqual(send_path.ours("engine/src/lib.rs"), "engine/src/lib.rs")
        for other in ("./socket/sendmsg.c", "/rustc/0/library/core/src/ptr.rs", f"{ROOT}/fabtests/bench/send_path.c", "???"):
            self.assertIsNone(send_path.ours(other))
