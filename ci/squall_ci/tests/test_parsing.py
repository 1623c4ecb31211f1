"""Tests of how the output of other programs is read, and of the environment of jobs."""

import errno
import pathlib
import re
import unittest
from unittest import mock

from squall_ci import callgrind, environment
from squall_ci.benchmarks import rma, timeline, virtual
from squall_ci.checks import algorithms
from squall_ci.paths import ROOT
from squall_ci.suites import fabsuite, fuzz, imb, mpich
from squall_ci.tally import table

PROFILE = f"""\
positions: line
events: Ir
summary: 40

fl=(1) {ROOT}/provider/lib.rs
fn=(1) outer
10 3
fi=(2) {ROOT}/engine/src/lib.rs
+2 4
fe=(1)
* 1
cfi=(3) ./socket/sendmsg.c
cfn=(2) sendmsg
calls=2 7
* 20
fi=(4) /rustc/0/library/core/src/ptr.rs
5 5

fl=(3)
fn=(2)
7 18
+1 2
"""


CALLS = """\
  40    100.000001000:     syscalls:sys_enter_sendmsg: fd: 0x00000007, msg: 0x7ffd, flags: 0x00004040
  41    100.000002000:     syscalls:sys_enter_recvmsg: fd: 0x00000007, msg: 0x7ffd, flags: 0x00000040
  41    100.000002500:      syscalls:sys_exit_recvmsg: 0xfffffffffffffff5
  40    100.000005000:      syscalls:sys_exit_sendmsg: 0xfba0
  42    100.000006000:         syscalls:sys_exit_poll: 0x1
"""


class Callgrind(unittest.TestCase):
    def test_own_cost_by_file_and_inclusive_by_function(self) -> None:
        profile = callgrind.parse(PROFILE)
        self.assertEqual(profile.inclusive, {"outer": 33, "sendmsg": 20})
        own = {file.rpartition("/")[2]: cost for file, cost in profile.own.items() if "squall" not in file}
        self.assertEqual(profile.own[f"{ROOT}/provider/lib.rs"], 4)
        self.assertEqual(profile.own[f"{ROOT}/engine/src/lib.rs"], 4)
        self.assertEqual(own["sendmsg.c"], 20)


class Jobs(unittest.TestCase):
    def test_the_callers_provider_does_not_reach_a_run_but_settings_of_squall_do(self) -> None:
        caller = {"FI_PROVIDER": "efa", "I_MPI_FABRICS": "shm", "FI_SQUALL_CC": "swift", "FI_LOG_LEVEL": "warn", "HOME": "/"}
        with mock.patch.dict("os.environ", caller, clear=True):
            env = environment.clean_environment()
        self.assertEqual(env, {"FI_SQUALL_CC": "swift", "FI_LOG_LEVEL": "warn", "HOME": "/"})


class Output(unittest.TestCase):
    def test_a_row_is_missing_or_has_a_defect(self) -> None:
        rows = [f" {size:8} 10 1.00 1.00 1.00 0.00" for size in sorted(imb.SIZES)]
        head = "#bytes #repetitions t_min t_max t_avg defects\n"
        self.assertIsNone(imb.judge("MPI1", "Bcast", head + "\n".join(rows)))
        self.assertEqual(imb.judge("MPI1", "Bcast", head + "\n".join(rows[:-1])), "no row for [4194304] bytes")
        self.assertIn("defects", imb.judge("MPI1", "Bcast", head + "\n".join([*rows[:-1], rows[-1][:-4] + "1.00"])) or "")

    def test_every_table_of_an_output_is_judged(self) -> None:
        head = "#----\n# Benchmarking Unidir_put\n       #bytes #repetitions t[usec] Mbytes/sec defects\n"
        good = "".join(f" {size:8} 10 1.00 1.00 0.00\n" for size in sorted(imb.SIZES))
        self.assertIsNone(imb.judge("RMA", "Unidir_put", f"{head}{good}\n{head}{good}\n"))
        self.assertEqual(imb.judge("RMA", "Unidir_put", f"{head}{good}\n{head}\n"), "no result row")
        bad = good[: -len("0.00\n")] + "2.00\n"
        self.assertIn("defects", imb.judge("RMA", "Unidir_put", f"{head}{bad}\n{head}{good}\n") or "")
        self.assertEqual(imb.judge("RMA", "Unidir_put", "#----\n"), "no table of results")

    def test_threads_count_their_failures_apart(self) -> None:
        table = "   #bytes #repetitions t_min\n" + "".join(f" {8 * count} 10 1.00\n" for count in imb.COUNTS)
        self.assertIsNone(imb.judge("MT", "BcastMT", table))
        self.assertIn("rank 1", imb.judge("MT", "BcastMT", table + "CHECK FAILURES: rank 1: 3\n") or "")

    def test_combinations_name_everything_once_and_none_is_impossible(self) -> None:
        ccs, lbs = ["a", "b", "c"], ["reps", "plb"]
        rows = algorithms.covering(ccs, lbs, algorithms.LOSSES)
        for column, names in enumerate((ccs, lbs, algorithms.LOSSES)):
            self.assertEqual({row[column] for row in rows}, set(names))
        self.assertFalse([row for row in rows if algorithms.impossible(row[1], row[2])])

    def test_decorated_forms_run_with_each_set_of_detectors_and_quickly_with_one(self) -> None:
        rows = algorithms.forms(["reps", "ecmp"], algorithms.LOSSES, False)
        self.assertEqual(len(rows), len(algorithms.FORMS) * len(algorithms.LOSSES))
        self.assertEqual({row[1] for row in rows}, {"ecmp"})
        quick = algorithms.forms(["reps", "ecmp"], algorithms.LOSSES, True)
        self.assertEqual([row[0] for row in quick], algorithms.FORMS[: algorithms.QUICK_FORMS])
        self.assertEqual(algorithms.forms(["reps"], ["trim"], True)[0][1:], ("reps", "trim"))

    def test_times_of_mpich_tests_may_have_an_exponent(self) -> None:
        tap = (
            "ok 1 - ./attrt 1 # time=8.2e-05\nok 2 - ./dup 2 # time=3.\nnot ok 3 - ./spawn 1 # time=1.5e+02\nok 4 - ./io 4\n"
        )
        seconds = [test[3] for test in mpich.parse(tap, "attr")]
        self.assertEqual(seconds, [8.2e-05, 3.0, 150.0, 0.0])

    def test_columns_are_aligned(self) -> None:
        self.assertEqual(table(["a", "bb"], [["ccc", "d"]]), "| a   | bb |\n|-----|---:|\n| ccc |  d |")

    def test_findings_of_histories_are_the_lines_that_count(self) -> None:
        output = "on-path: 5 histories\n2 x stuck: read (first seed 3)\n12 x panic at a.rs:1 (first seed 4)\n"
        self.assertEqual(len(fuzz.findings(output)), 2)
        self.assertEqual(fuzz.findings("honest: 5 histories from seed 0, 3 a second\n"), [])


IMB_RMA = """
# Benchmarking Unidir_put
#    MODE: NON-AGGREGATE
       #bytes #repetitions      t[usec]   Mbytes/sec
            0          100         0.06         0.00
            8          100         5.00         1.60

# Benchmarking Unidir_put
#    MODE: AGGREGATE
       #bytes #repetitions      t[usec]   Mbytes/sec
            8          100         1.00         8.00

# Benchmarking Accumulate
       #bytes #repetitions      t[usec]   Mbytes/sec
            8          100         7.00         1.00
"""


class OneSided(unittest.TestCase):
    def test_both_modes_of_a_benchmark_are_kept(self) -> None:
        self.assertEqual(
            rma.parse(IMB_RMA),
            {("Unidir_put", "NON-AGGREGATE", 8): 5.0, ("Unidir_put", "AGGREGATE", 8): 1.0, ("Accumulate", "", 8): 7.0},
        )


class Fabsuite(unittest.TestCase):
    def test_every_test_is_run_once(self) -> None:
        for release in (1, 2):
            names = [test for standard in (False, True) for test, _ in fabsuite.tests(release, standard)]
            self.assertEqual(len(names), len(set(names)), [name for name in names if names.count(name) > 1])

    def test_a_host_that_there_is_not_must_be_refused(self) -> None:
        for ended, code in ((errno.ENODATA, 0), (256 - errno.ENODATA, 0), (0, 1), (errno.EIO, errno.EIO), (None, None)):
            with mock.patch.object(fabsuite, "alone", return_value=(ended, "")):
                self.assertEqual(fabsuite.refused(fabsuite.LOOPBACK, (pathlib.Path("fi_rdm"), [], {}, 1.0))[0], code)

    def test_a_server_listens_where_its_format_of_addresses_is(self) -> None:
        self.assertEqual(fabsuite.LOOPBACK[0].own(["-e", "rdm"]), "127.0.0.1")
        self.assertEqual(fabsuite.LOOPBACK[0].own(["-e", "rdm", *fabsuite.IN6.split()]), "::1")

    def test_fabtests_2_is_asked_for_no_level_of_threads_that_it_cannot_name(self) -> None:
        levels = {"SAFE", "DOMAIN", "COMPLETION"}
        for release, named in ((1, levels | {"FID", "ENDPOINT"}), (2, levels)):
            text = fabsuite.configuration("threading", "tcp;ofi_rxm", release)
            self.assertEqual(set(re.findall(r"FI_THREAD_(\w+)", text)), named)
            self.assertNotIn("squall", text)
            self.assertNotRegex(text, r"\[,|, *,|, *\]")


class TimelineTest(unittest.TestCase):
    def test_calls_are_matched_with_their_ends(self) -> None:
        """The end of a call that began before the recording is left out."""
        found = [(*call[:2], round(call[3] - call[2], 3), call[4]) for call in timeline.calls(CALLS.splitlines())]
        self.assertEqual(found, [(41, "recvmsg", 0.5, -11), (40, "sendmsg", 4.0, 0xFBA0)])

    def test_a_call_that_found_nothing_is_idle(self) -> None:
        def idle(name: str, value: int) -> bool:
            return timeline.Call(0, name, 0.0, 1.0, value).is_idle

        self.assertTrue(idle("recvmsg", -11) and idle("poll", 0) and idle("sched_yield", 0))
        self.assertFalse(idle("recvmsg", 40) or idle("poll", 1) or idle("sendmsg", 0))


class Costs(unittest.TestCase):
    """Pieces of --overhead from measured times."""

    def option(self, times: dict[int, float]) -> str:
        return virtual.cost_option("send", virtual.pieces_of(times))

    def test_times_that_one_piece_fits_have_one(self) -> None:
        self.assertEqual(self.option({64: 120.0}), "send=120")
        self.assertEqual(self.option({64: 120.0, 1024: 120.0, 4096: 118.0}), "send=120")
        self.assertEqual(self.option({0: 100.0, 1000: 150.0, 2000: 200.0}), "send=0:100:50")
        self.assertEqual(self.option({64: 0.0, 1024: 0.0, 4096: 900.0}), "send=0:0:0/4096:0:220")

    def test_a_jump_begins_a_piece(self) -> None:
        times = {0: 100.0, 1000: 100.0, 4096: 900.0, 8192: 1043.0}
        pieces = virtual.pieces_of(times)
        self.assertEqual([piece.start for piece in pieces], [0, 1000, 4096])
        for size, time in times.items():
            fits = [piece for piece in pieces if piece.start <= size][-1]
            self.assertAlmostEqual(fits.at(size), time, delta=virtual.FIT * time)

    def test_no_time_falls_with_the_size(self) -> None:
        for piece in virtual.pieces_of({64: 500.0, 1024: 100.0, 4096: 5000.0}):
            self.assertGreaterEqual(min(piece.ns, piece.byte), 0)
