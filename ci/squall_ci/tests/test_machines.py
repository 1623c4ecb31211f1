"""Tests of what the guests of `ci/run suite machines` boot, how they are joined, and the table of their cases."""

import contextlib
import dataclasses
import itertools
import json
import pathlib
import socket
import tempfile
import threading
import unittest
from unittest import mock

from squall_ci import machines as known
from squall_ci.job import Job
from squall_ci.machines import failed_soon, faults
from squall_ci.machines.image import archive, Kernel
from squall_ci.machines.room import Guest, LAUNCH, Network, Room, Switch, Topology
from squall_ci.process import Result
from squall_ci.suites import machines
from squall_ci.suites.machines import CASES


def entries(ramdisk: bytes) -> dict[str, tuple[int, bytes]]:
    """Reads a ramdisk: the mode and the content of each entry."""
    found: dict[str, tuple[int, bytes]] = {}
    at = 0
    while True:
        fields = [int(ramdisk[at + 6 + 8 * field : at + 14 + 8 * field], 16) for field in range(13)]
        assert ramdisk[at : at + 6] == b"070701"
        name = ramdisk[at + 110 : at + 109 + fields[11]].decode()
        begin = -(-(at + 110 + fields[11]) // 4) * 4
        if name == "TRAILER!!!":
            return found
        found[name] = (fields[1], ramdisk[begin : begin + fields[6]])
        at = -(-(begin + fields[6]) // 4) * 4


class Machines(unittest.TestCase):
    def test_a_ramdisk_has_directories_before_their_files(self) -> None:
        made = entries(archive({"bin/sub/program": b"12345", "init": b""}, ["dev"]))
        self.assertEqual(next(iter(made)), "dev")
        self.assertLess(list(made).index("bin"), list(made).index("bin/sub/program"))
        self.assertEqual(made["bin/sub/program"], (0o100755, b"12345"))
        self.assertEqual(made["dev"][0], 0o040755)

    def test_two_guests_have_a_cable_and_three_a_switch(self) -> None:
        kernel = Kernel(pathlib.Path("vmlinuz"), ())
        for guests, far in ((2, "data-1"), (3, "data-switch-0")):
            topology = Topology(("6.1",) * guests, (Network("data"), Network("pair", (0, 1)), LAUNCH))
            room = Room({"6.1": kernel}, pathlib.Path("payload"), topology)
            room.folder = pathlib.Path("/room")
            with (
                mock.patch.object(Kernel, "ramdisk"),
                mock.patch("pathlib.Path.write_bytes"),
                mock.patch("squall_ci.machines.room.accelerator", return_value=()),
            ):
                words = " ".join(map(str, Guest(room, 0).command()))
            self.assertIn(f"local.path=/room/data-0,remote.type=unix,remote.path=/room/{far} ", words)
            self.assertIn("local.path=/room/pair-0,remote.type=unix,remote.path=/room/pair-1 ", words)
            self.assertIn("restrict=on,hostfwd=tcp:127.0.0.1:", words)

    def test_guests_have_addresses_and_names_of_their_own(self) -> None:
        topology = Topology(("6.1",) * 3, (Network("west", (0, 2)), LAUNCH))
        script = topology.configuration(2)
        self.assertIn("ip address add 10.80.0.3/24 dev west", script)
        self.assertIn("'10.81.0.1 node0' '10.81.0.2 node1' '10.81.0.3 node2'", script)
        self.assertNotIn("west", topology.configuration(1))

    def test_a_job_has_to_fail_soon_and_to_name_the_peer(self) -> None:
        named = "squall: [peer 10.80.0.2:4793, local 10.80.0.1:4793 on data]: silent"
        with mock.patch("time.monotonic", return_value=100.0):
            for output, code, began, problem in (
                (named, 1, 95.0, None),
                (named, 1, 10.0, "limit"),
                (named, 0, 95.0, "without an error"),
                (named, None, 95.0, "went on"),
                (named, 1, None, "nothing happened"),
                (named.replace("80.0.2", "80.0.21"), 1, 95.0, "no line names"),
                (f"{named}\nsteady: rank 0 of 4: FAILED: sum", 1, 95.0, "wrong bytes"),
            ):
                found = failed_soon(Job(Result(code, output, 1.0), "failed"), ["10.80.0.9", "10.80.0.2"], began, 20.0)
                self.assertTrue(problem in found if found and problem else found == problem, (found, problem))

    def test_every_case_says_what_happens_and_what_is_right(self) -> None:
        self.assertEqual(set(CASES), set(known.CASES))
        self.assertTrue(any(case.quick for case in CASES.values()))
        for name, case in CASES.items():
            self.assertEqual(name, case.name)
            self.assertTrue(case.what() and case.right, name)
            self.assertEqual(case.providers[0], "squall")

    def test_a_record_replaces_the_row_of_its_case_and_writes_the_page(self) -> None:
        with tempfile.TemporaryDirectory() as directory:
            kept, shown = pathlib.Path(directory) / "machines.json", pathlib.Path(directory) / "hosts.md"
            shown.write_text(f"before\n{machines.BEGIN}old\n{machines.END}\nafter\n")
            with mock.patch.multiple(machines, KEPT=kept, SHOWN=shown):
                for problem in ("first", None):
                    machines.keep(CASES["job"], {"squall": {"problem": problem, "seconds": 7}}, "0123")
                machines.write_page()
            self.assertEqual(list(json.loads(kept.read_text())), ["job"])
            page = shown.read_text()
        self.assertIn("| `job` |", page)
        self.assertIn("| yes, 7 s |", page)
        self.assertNotIn("old", page)
        self.assertTrue(page.endswith("after\n"))

    def test_the_page_is_made_from_the_record(self) -> None:
        page = machines.SHOWN.read_text()
        self.assertTrue(page == machines.with_record(page, machines.load()), "hosts.md differs: run ci/run python --fix")

    def test_cases_of_one_topology_run_one_after_the_other(self) -> None:
        for names in (list(CASES), ["kernel-5.10", "job", "router", "vlan", "kernel-6.1"]):
            ordered = machines.in_order(CASES[name] for name in names)
            self.assertEqual(sorted(case.name for case in ordered), sorted(names))
            topologies = [topology for topology, _ in itertools.groupby(ordered, lambda case: case.topology)]
            self.assertEqual(len(topologies), len(set(topologies)))
        last = machines.in_order([dataclasses.replace(CASES["job"], spoils=True), CASES["vlan"]])
        self.assertEqual([case.name for case in last], ["vlan", "job"])

    def test_a_switch_keeps_frames_for_a_card_that_is_slow(self) -> None:
        with tempfile.TemporaryDirectory() as directory, contextlib.ExitStack() as stack:
            folder = pathlib.Path(directory)
            cards = [stack.enter_context(socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)) for _ in range(3)]
            for number, card in enumerate(cards):
                card.settimeout(10)
                card.bind(str(folder / f"data-{number}"))
            stack.callback(Switch(folder, "data", range(3)).close)
            # The kernel lets about ten frames wait in the socket of a card.
            frames = [b"to-all" + b"from-0" + bytes([number]) * 60 for number in range(100)]
            for frame in frames:
                cards[0].sendto(frame, str(folder / "data-switch-0"))
            for card in cards[1:]:
                self.assertEqual([card.recv(100) for _ in frames], frames)
            # The switch has learnt where the first card is.
            cards[1].sendto(b"from-0" + b"from-1", str(folder / "data-switch-1"))
            self.assertEqual(cards[0].recv(100), b"from-0from-1")
            cards[2].settimeout(0.3)
            self.assertRaises(TimeoutError, cards[2].recv, 100)

    def test_a_change_that_fails_is_a_failure_of_its_case(self) -> None:
        room, ended = mock.Mock(), threading.Event()
        guest = mock.Mock()
        guest.sent.side_effect = itertools.chain([0], itertools.repeat(faults.MIDST))
        room.guests = [guest]
        room.job.side_effect = lambda *_, **__: ended.wait(10)

        def change(_: threading.Event) -> None:
            ended.set()
            raise RuntimeError("ethtool cannot")

        with self.assertRaisesRegex(RuntimeError, "ethtool cannot"):
            faults.disturbed(room, change, "squall")

    def test_a_guest_that_fails_is_a_failure_of_the_case(self) -> None:
        with mock.patch.object(machines.Rooms, "get", side_effect=RuntimeError("gone")):
            verdict = machines.run_case(machines.Rooms({}, pathlib.Path()), CASES["job"], "tcp")
        self.assertIn("gone", verdict.problem or "")
