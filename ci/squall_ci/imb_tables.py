"""Reads the tables that Intel's MPI benchmarks print."""

import re
from dataclasses import dataclass, field


@dataclass
class Table:
    """The results of a benchmark in one of its modes: IMB-RMA repeats most with one flush behind all operations (AGGREGATE)."""

    benchmark: str
    mode: str
    heads: list[str]
    rows: list[list[str]] = field(default_factory=list)

    def defect(self) -> str | None:
        """Returns a row with defects, whose column is the last one if the programs check results."""
        bad = [row for row in self.rows if "defects" in self.heads and float(row[-1]) != 0]
        return f"defects: {' '.join(bad[0])}" if bad else None


def tables(output: str) -> list[Table]:
    """Returns all tables of an output. A table ends at an empty line."""
    found: list[Table] = []
    benchmark = mode = ""
    inside = False
    for line in output.splitlines():
        if begin := re.match(r"# Benchmarking (\w+)", line):
            benchmark, mode = begin[1], ""
        elif named := re.match(r"# +MODE: (\S+)", line):
            mode = named[1]
        elif re.match(r" *#(bytes|repetitions)\b", line):
            found.append(Table(benchmark, mode, line.split()))
            inside = True
        elif not line.strip():
            inside = False
        elif inside and re.match(r" *\d+ +[\d.]+", line):
            found[-1].rows.append(line.split())
    return found
