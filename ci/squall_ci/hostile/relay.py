"""An emulated network whose relay is killed."""

import threading
import time

from squall_ci.emulator import Emulator
from squall_ci.hostile import Verdict, WARNINGS
from squall_ci.job import run_program
from squall_ci.programs import squall

# Seconds: the job runs for PATIENCE, the relay is there for the first ALIVE of them, and what is sent then must fail SOON.
PATIENCE = 60.0
ALIVE = 4.0
SOON = 5.0


def relay_dies() -> Verdict:
    """Kills the relay of a job: the job ends soon, by an error that names the relay, although every deadline is long."""
    with Emulator(squall(), ["--topo", "leaf-spine:2x1x1", "--rate-scale", "0.01"]) as emulator:
        killed: list[float] = []

        def kill() -> None:
            killed.append(time.monotonic())
            emulator.kill()

        killer = threading.Timer(ALIVE, kill)
        killer.start()
        try:
            result = run_program("steady", PATIENCE, at_least=0, env=WARNINGS, under=emulator.attach()).result
        finally:
            ended = time.monotonic()
            killer.cancel()
            killer.join()
    if not killed:
        return Verdict(f"the job was over before its relay: {result.why()}", "", result.output)
    took = ended - killed[0]
    problem = None
    if result.code is None or took > SOON:
        problem = f"the job went on for {took:.0f} s"
    elif result.ok:
        problem = "the job ended without an error"
    elif f"emulator {emulator.socket}" not in result.output or "not at fault" not in result.output:
        problem = "no error names the relay"
    return Verdict(problem, f"over after {took:.1f} s", result.output)
