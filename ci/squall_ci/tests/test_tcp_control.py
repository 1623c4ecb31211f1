import os
import subprocess
import sys
import unittest

from squall_ci import tcp_control
from squall_ci.paths import ROOT

PROGRAM = """
from squall_ci import tcp_control
from squall_ci.namespaces import Namespaces
tcp_control.enter_own_network()
print(tcp_control.control())
with Namespaces(["a"]) as net:
    print(net.inside("a", "cat", tcp_control.SETTINGS / "tcp_congestion_control").stdout)
"""


AVAILABLE = tcp_control.SETTINGS / "tcp_available_congestion_control"


def has_namespaces() -> bool:
    return os.geteuid() == 0 and subprocess.run(["unshare", "--net", "true"], capture_output=True).returncode == 0


@unittest.skipUnless(has_namespaces(), "there are no network namespaces to make")
@unittest.skipUnless(AVAILABLE.exists() and tcp_control.CONTROL in AVAILABLE.read_text(), "the kernel has no cubic")
class Control(unittest.TestCase):
    def test_tcp_is_measured_under_cubic(self) -> None:
        # In a process of its own, since there is no way back out of the namespace.
        result = subprocess.run([sys.executable, "-c", PROGRAM], cwd=ROOT / "ci", capture_output=True, text=True)
        self.assertEqual(result.stdout.split(), ["cubic", "cubic"], result.stderr)
