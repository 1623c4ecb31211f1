"""The figures of benchmarks: docs/figures.json, and the tables of README.md and docs/performance.md made from it.

The file has a record for each command line. A table stands between the comments `<!-- figures: NAME -->` and
`<!-- end of figures -->`; TABLES has the function that writes it.
"""

import argparse
import dataclasses
import datetime
import json
import os
import re
import statistics
import textwrap
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial

from squall_ci import tcp_control
from squall_ci.foreign import refuse_partial_record
from squall_ci.mpis import MPIS
from squall_ci.paths import die, need, ROOT, say, shown
from squall_ci.programs import commit, processor
from squall_ci.tally import table

KEPT = ROOT / "docs" / "figures.json"
PAGES = (ROOT / "README.md", ROOT / "docs" / "performance.md")
BLOCK = re.compile(r"^(<!-- figures: ([^>\n]+) -->\n).*?^(<!-- end of figures -->)$", re.M | re.S)
# The ends of the keys of ratios over all sizes: the geometric mean, and the worst size.
MEAN, WORST = "x tcp's speed, mean", "x tcp's speed, worst"
CABLES = ("bench networks --network lo", *(f"bench networks --network 'veth {mtu}'" for mtu in (1500, 9000)))
NETNS = "suite netns --mtu 9000 --rounds 5"
MPI_NAMES = ("mpich", "openmpi", "impi")
# What is measured under every MPI. What IMB has besides is in the means of Intel MPI alone.
EVERYWHERE = ("ping-pong", "allreduce", "alltoall")
# The sizes of `bench networks` that the page shows.
SIZES = ("64 B", *(f"{size} KiB" for size in (1, 4, 16, 64, 256)), "1 MiB", "4 MiB")


def mpi_job(name: str, ranks: int, mtu: int = 0) -> str:
    """Returns the command that measures an MPI."""
    return f"bench mpi --mpi {name} --ranks {ranks}" + (f" --mtu {mtu}" if mtu else "")


def of_mpis(end: str, ranks: int, mtu: int = 0) -> str:
    """Returns the figures to look up for the speed of all MPIs: their means (MEAN), or their worst sizes (WORST)."""
    return ", ".join(f"{{{mpi_job(name, ranks, mtu)}: all, {end}}}" for name in MPI_NAMES)


# Rows of tables, without the bars at their ends. The figures in braces are of the command before the row, unless they name another.
# README has absolute values and ratios in tables of their own.
COMPARISON = (
    (
        "bench host",
        "one host, shared memory: 64 B half round trip, us|{64 B half round trip, us, squall}|{64 B half round trip, us, tcp}|"
        "shm {64 B half round trip, us, shm}|`bench host`, `demo`",
    ),
    (
        "bench messages",
        "loopback: million messages of 64 B a second|{64 B message rate, M/s, squall}|{64 B message rate, M/s, tcp}|"
        "ofi_rxd {64 B message rate, M/s, udp;ofi_rxd}|`bench messages`",
    ),
    (
        "bench loss",
        "cable that loses 1 %: 64 KiB half round trip, us|{1 % loss, 64 KiB half round trip, us, squall}|"
        "{1 % loss, 64 KiB half round trip, us, tcp}||`bench loss`, `demo`",
    ),
    (
        NETNS,
        "a spine dies under an MPI job: longest standstill, ms|{longest standstill, ms, squall}|"
        "{longest standstill, ms, tcp}||`suite netns --rounds 5`, `demo`",
    ),
)
SPEEDS = (
    (
        CABLES[1],
        "2 hosts, MTU 1500, 0 B to 4 MiB: half round trip|{half round trip, x tcp's speed, mean}|"
        "{half round trip, x tcp's speed, worst} at {half round trip, worst size, B}|`bench networks`",
    ),
    (
        CABLES[1],
        "the same: bandwidth|{bandwidth, x tcp's speed, mean}|"
        "{bandwidth, x tcp's speed, worst} at {bandwidth, worst size, B}|`bench networks`",
    ),
    (
        "",
        f"MPICH, Open MPI, Intel MPI; 2 hosts, MTU 1500|{of_mpis(MEAN, 2, 1500)}|{of_mpis(WORST, 2, 1500)}|"
        "`bench mpi --ranks 2 --mtu 1500`",
    ),
    (
        "",
        f"the same MPIs; 4 ranks on one host with 2 cores|{of_mpis(MEAN, 4)}|{of_mpis(WORST, 4)}|`bench mpi --ranks 4`",
    ),
)
CONSUMERS = (
    (
        "bench atomics",
        "fetch_add round trip; rate|{fetch_add round trip, us, squall} us; {fetch_add rate, M/s, squall} M/s "
        "(rxm {fetch_add round trip, us, tcp;ofi_rxm} us, {fetch_add rate, M/s, tcp;ofi_rxm}; "
        "rxd {fetch_add rate, M/s, udp;ofi_rxd})|`ci/run bench atomics`",
    ),
    (
        "bench rma IMB-RMA",
        "Open MPI one-sided over btl/ofi, 2 ranks, packets|{packets, x tcp's speed, mean} faster than the better way over tcp "
        "(worst {packets, x tcp's speed, worst})|`ci/run bench rma`",
    ),
    (
        "bench rma IMB-RMA",
        "the same, shared memory|{shared memory, x tcp's speed, mean} (worst {shared memory, x tcp's speed, worst}); "
        "btl/ofi crashes on tcp|`ci/run bench rma`",
    ),
)
RXD = (
    "`ci/run bench messages` compares packets with `udp;ofi_rxd` also: 64 B in {64 B half round trip, squall / udp;ofi_rxd} "
    "of its time, {64 B message rate, squall / udp;ofi_rxd} times its message rate, "
    "{1 MiB bandwidth, squall / udp;ofi_rxd} times its bandwidth."
)


@dataclasses.dataclass(frozen=True)
class Record:
    """The figures of one command, and where and when they were measured."""

    processor: str
    condition: str
    date: str
    commit: str
    # By what was measured, with its unit, and who was.
    figures: Mapping[str, float]


class Reader:
    """Looks up the figures of a table, and remembers where they were measured."""

    def __init__(self, page: str, records: Mapping[str, Record]) -> None:
        self.page = page
        self.records = records
        # The commands whose figures were looked up, in order.
        self.commands: dict[str, None] = {}

    def cell(self, command: str, key: str) -> str:
        """Returns a figure as tables show it; exits with advice if there is none."""
        record = self.records.get(command)
        if record is None or key not in record.figures:
            have = f"{shown(KEPT)} has no figure {key!r} of `{command}`"
            die(f"{self.page} cannot be written: {have}; run ci/run {command} --record")
        self.commands[command] = None
        value = record.figures[key]
        if key.endswith("size, B"):
            return bytes_of(value)
        # Ratios have two decimals, everything else three significant digits.
        return f"{value:.2f}" if " x " in key or "share of" in key else f"{float(f'{value:.3g}'):g}"

    def fill(self, text: str, command: str = "") -> str:
        """Returns a text with its figures for the `{KEY}` of this command, and the `{COMMAND: KEY}`."""
        found = (found.rpartition(": ") for found in re.findall(r"{(.+?)}", text))
        cells = iter([self.cell(other or command, key) for other, _, key in found])
        return re.sub(r"{.+?}", lambda _: next(cells), text)

    def table(self, head: str, rows: Sequence[str], left: Sequence[int] = (0,)) -> str:
        """Returns a table without padding, so that a new figure changes its own row alone."""
        return table(head.split("|"), [row.split("|") for row in rows], left, aligned=False)

    def origins(self) -> str:
        """Returns the line below a table: where its figures were measured."""
        records = [self.records[command] for command in self.commands]
        origins = dict.fromkeys(f"{record.processor}, {record.condition}, {record.date}" for record in records)
        return "\n\n" + textwrap.fill(f"*{'; '.join(origins)}.*", 100)

    def machines(self) -> str:
        """Returns the line below a table of README: the processors, with the dates."""
        records = [self.records[command] for command in self.commands]
        controls = [
            found[0] if (found := re.search("tcp under [^,]+, ", f"{record.condition}, ")) else "" for record in records
        ]
        places = [f"{record.processor}, {control}{record.date}" for record, control in zip(records, controls)]
        return "\n\n*" + "; ".join(dict.fromkeys(places)) + ".*"


def bytes_of(size: float) -> str:
    """Returns a size in words."""
    unit, least = next(((unit, least) for unit, least in (("MiB", 1 << 20), ("KiB", 1 << 10)) if size >= least), ("B", 1))
    return f"{size / least:g} {unit}"


def comparison(of: Reader) -> str:
    rows = [of.fill(row, command) for command, row in COMPARISON]
    return of.table("|squall|tcp|another provider|`ci/run`", rows, (0, 4)) + of.machines()


def speeds(of: Reader) -> str:
    rows = [of.fill(row, command) for command, row in SPEEDS]
    return of.table("squall's speed over tcp's|mean of all sizes|worst size|`ci/run`", rows, (0, 3)) + of.machines()


def networks(of: Reader) -> str:
    def row(title: str, cell: str, last: str = "") -> str:
        return "|".join([title, *(of.fill(cell, command) for command in CABLES), of.fill(last, CABLES[1])])

    both = "{%s, squall}, {%s, tcp}".replace
    rows = [row(size, both("%s", f"{size} half round trip, us"), both("%s", f"{size} bandwidth, GB/s")) for size in SIZES]
    for title, kind in (("time", "half round trip"), ("bandwidth", "bandwidth")):
        rows.append(row(f"*faster, all sizes; worst: {title}*", f"{{{kind}, {MEAN}}}; {{{kind}, {WORST}}}"))
    return of.table("|loopback|MTU 1500|MTU 9000|bandwidth at MTU 1500, GB/s", rows) + of.origins()


def cables(of: Reader) -> str:
    """Returns the table of cables that are as fast as the processors, and of slower ones."""

    def row(name: str) -> str:
        command = f"bench networks --network '{name}'"
        cells = [f"{{{key}, squall}}, {{{key}, tcp}}" for key in keys]
        return of.fill("|".join([name.replace("veth", "unlimited"), *cells, "{1 MiB bandwidth, GB/s, sockets}"]), command)

    keys = (
        *("64 B half round trip, us", "64 KiB half round trip, us", "1 MiB bandwidth, GB/s"),
        *("64 KiB processor time, ms/GB", "1 MiB processor time, ms/GB"),
    )
    head = "cable, MTU|64 B, us|64 KiB, us|1 MiB, GB/s|64 KiB, ms of processor/GB|1 MiB, ms/GB|sockets, 1 MiB, GB/s"
    return of.table(head, [row(f"{rate} {mtu}") for rate in ("veth", "25G", "10G") for mtu in (1500, 9000)]) + of.origins()


def host(of: Reader) -> str:
    measures = [f"{size} half round trip, us" for size in ("64 B", "4 KiB", "64 KiB", "1 MiB")]
    measures += ["64 B message rate, M/s", "1 MiB bandwidth, GB/s"]
    sides = ("squall", "packets", "shm", "tcp")
    rows = ["|".join([name, *(of.cell("bench host", f"{name}, {side}") for side in sides)]) for name in measures]
    return of.table("|squall|its packets|shm|tcp", rows) + of.origins()


def messages(of: Reader) -> str:
    return textwrap.fill(of.fill(RXD, "bench messages"), 100, break_long_words=False) + of.origins()


def loss(of: Reader) -> str:
    def pair(measure: str) -> str:
        return f"{{% loss, {measure}, squall}}, {{% loss, {measure}, tcp}}"

    bulk, trip = pair("1 MiB bandwidth, GB/s"), pair("64 KiB half round trip, us")
    row = f"% loss|{bulk}|{{% loss, 1 MiB bandwidth, share of its own without loss}}|{trip}"
    rows = [of.fill(row.replace("% loss", f"{percent} % loss"), "bench loss") for percent in ("0", "0.1", "1", "3")]
    head = "|1 MiB bandwidth, GB/s|of its own without loss|64 KiB half round trip, us"
    return of.table(head, rows) + of.origins()


def mpis(of: Reader, column: str, jobs: Sequence[tuple[int, int]]) -> str:
    rows = []
    for name in MPI_NAMES:
        cells = [f"{{all, {MEAN}}}", *(f"{{{what}, {MEAN}}} ({{{what}, {WORST}}})" for what in EVERYWHERE)]
        for ranks, mtu in jobs:
            rows.append(of.fill("|".join([MPIS[name].title, str(mtu or ranks), *cells]), mpi_job(name, ranks, mtu)))
    return of.table("|".join(["MPI", column, "all", *EVERYWHERE]), rows) + of.origins()


def busy(of: Reader) -> str:
    measures = ("RandomAccess, million updates/s", "transposition, GB/s", "QR, s")
    sides = ("shared memory", "packets", "tcp")
    rows = []
    for condition in ("4 ranks", "2 ranks beside 4 processes"):
        keys = [", ".join(f"{{{condition}, {measure}, {side}}}" for side in sides) for measure in measures]
        rows.append(of.fill("|".join([condition, *keys]), "bench busy"))
    return of.table("|".join(["", *measures]), rows) + of.origins()


def consumers(of: Reader) -> str:
    rows = [of.fill(row, command) for command, row in CONSUMERS]
    return of.table("consumer, condition|figure|command", rows, (0, 1, 2)) + of.origins()


TABLES: Mapping[str, Callable[[Reader], str]] = {
    "comparison": comparison,
    "speeds": speeds,
    "networks": networks,
    "cables": cables,
    "host": host,
    "messages": messages,
    "loss": loss,
    "mpis": partial(mpis, column="ranks", jobs=((2, 0), (4, 0))),
    "mpis between hosts": partial(mpis, column="MTU", jobs=((2, 1500), (2, 9000))),
    "busy": busy,
    "consumers": consumers,
}


def load() -> dict[str, Record]:
    """Reads the recorded figures, by command."""
    return {command: Record(**record) for command, record in json.loads(KEPT.read_text()).items()}


def render(page: str, text: str, records: Mapping[str, Record]) -> str:
    """Returns the text of a page with its tables as the records have them."""

    def block(found: re.Match[str]) -> str:
        need(
            found[2] in TABLES, f"{page} cannot be written: there is no table {found[2]!r}; name one of {', '.join(TABLES)}"
        )
        return f"{found[1]}\n{TABLES[found[2]](Reader(page, records))}\n\n{found[3]}"

    return BLOCK.sub(block, text)


def commands_shown(records: Mapping[str, Record]) -> set[str]:
    """Returns the commands whose figures stand in tables."""
    reader = Reader("a table", records)
    for write in TABLES.values():
        write(reader)
    return set(reader.commands)


def write_pages() -> None:
    """Writes the tables of all pages from the recorded figures."""
    records = load()
    for page, text in [(page, render(shown(page), page.read_text(), records)) for page in PAGES]:
        page.write_text(text)


def over_all(what: str, ratios: Iterable[float]) -> dict[str, float]:
    """Returns the geometric mean and the worst of ratios, as they are recorded."""
    some = list(ratios)
    return {f"{what}, {MEAN}": statistics.geometric_mean(some), f"{what}, {WORST}": min(some)}


def add_option(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--record", action="store_true", help="write the figures into docs/figures.json and the tables of it"
    )


def refuse_record(args: argparse.Namespace, part: object) -> None:
    """Exits with advice if figures of a part, or of other settings, would be recorded as those of the whole and the defaults."""
    refuse_partial_record(args, part)
    changed = [
        name
        for name, value in os.environ.items()
        if name.startswith("FI_SQUALL_") and (name, value) != ("FI_SQUALL_SHM", "no")
    ]
    names = ", ".join(sorted(changed))
    need(not (args.record and changed), f"nothing is recorded: {names} set, and the tables are of the defaults; unset it")


def record(rounds: int, measured: Mapping[str, Mapping[str, float]]) -> None:
    """Records the figures of commands in the place of the earlier ones, and writes the pages."""
    condition = f"{os.cpu_count()} cores, {rounds} round{'s' * (rounds != 1)}, tcp under {tcp_control.control()}"
    today, built = datetime.date.today().isoformat(), commit() or "unknown"
    records = load()
    for command, values in measured.items():
        rounded = {key: value if isinstance(value, int) else float(f"{value:.4g}") for key, value in values.items()}
        records[command] = Record(processor(), condition, today, built, rounded)
    KEPT.write_text(
        json.dumps({name: dataclasses.asdict(one) for name, one in records.items()}, indent=1, sort_keys=True) + "\n"
    )
    write_pages()
    seen = commands_shown(records)
    for command in measured:
        unseen = "" if command in seen else ": no table shows this command line; take the record out again"
        say(f"recorded {command}{unseen}")
