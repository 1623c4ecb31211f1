"""Run libfabric's own test suite, fabtests, on a provider: the programs that concern reliable datagrams.

BIN_DIR holds the programs of a fabtests built against the libfabric that the loader finds (1.17 here; its sources come with
libfabric's). fabtests/fabtests/tests.toml lists the tests. Unlike runfabtests.sh this ends only processes that it started. A program that ends with FI_ENODATA or
FI_ENOSYS asked for something that the provider does not offer: it is listed as excluded. So are the tests of
fabtests/fabtests/*.exclude, each with its reason, which runfabtests.sh -f reads as well.

--standard runs the measuring programs alone, with their default iterations and data of every size. --ubertest runs fi_ubertest alone
with a configuration of fabtests/fabtests/ubertest (runfabtests.sh -u): a fresh pair of processes for each 400 combinations, which are
counted.
"""

import argparse
import contextlib
import dataclasses
import errno
import pathlib
import re
import tomllib
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from typing import TypeAlias

from squall_ci import foreign, hosts, results
from squall_ci.environment import provider_run
from squall_ci.job import Statistics
from squall_ci.namespaces import Bridge
from squall_ci.paths import FABTESTS, need, TARGET
from squall_ci.process import run, Word

# Some programs end with the number, others with its negative, of which the system keeps eight bits.
NOT_OFFERED = {code % 256 for number in (errno.ENODATA, errno.ENOSYS) for code in (number, -number)}
# The directory of the list of tests, of exclusions and of fi_ubertest's configurations.
CONFIGURED = FABTESTS / "fabtests"
# The option of tests over IPv6.
IN6 = "-F fi_sockaddr_in6"
CONFIGURATIONS = sorted(path.stem for path in (CONFIGURED / "ubertest").glob("*.test"))


@dataclasses.dataclass(frozen=True)
class Host:
    """The host of a process."""

    address: str = "127.0.0.1"
    address_6: str = "::1"
    # The words before its command, for a shell to split.
    enter: str = ""

    def own(self, words: Sequence[str]) -> str:
        """Returns the address of a process with these arguments."""
        return self.address_6 if IN6.split()[1] in words else self.address


# The hosts of the processes of a test. The others connect to the first.
Hosts: TypeAlias = Sequence[Host]
LOOPBACK: Hosts = (Host(),) * 3


def on_bridge(bridge: Bridge) -> Hosts:
    """Returns a host for every process."""
    return [
        Host(bridge.address_of(host), bridge.address_6_of(host), " ".join(bridge.command(f"h{host}")))
        for host in range(bridge.hosts)
    ]


# A program, its words, its environment and its seconds.
Test: TypeAlias = tuple[pathlib.Path, list[str], dict[str, str], float]


def alone(where: Hosts, test: Test) -> tuple[int | None, str]:
    """Runs one process; returns exit status and output."""
    program, words, env, timeout = test
    # A shell's background processes ignore SIGINT, and so would sighandler_test.
    result = run([*where[0].enter.split(), "env", "--default-signal=INT", program, *words], env, timeout)
    return result.code, result.output


def refused(where: Hosts, test: Test) -> tuple[int | None, str]:
    """Runs one process; returns 0 if it reports that it found nothing, and the output."""
    code, output = alone(where, test)
    if code in (errno.ENODATA, 256 - errno.ENODATA):
        return 0, output
    return 1 if code == 0 else code, output


def pair(where: Hosts, test: Test) -> tuple[int | None, str]:
    """Runs server and client; returns the worse exit status, and the output."""
    script = """
        address=$1 own=$2 here=$3 there=$4; shift 4
        $here "$@" -s "$address" & server=$!
        sleep 0.5
        $there "$@" -s "$own" "$address"; client=$?
        # A server whose client has failed may wait for ever.
        if [ $client != 0 ]; then sleep 0.5; kill $server 2>/dev/null; fi
        wait $server; server=$?
        echo "server $server, client $client"
        [ $client != 0 ] && exit $client
        exit $server
    """
    program, words, env, timeout = test
    here, there = where[:2]
    command: list[Word] = ["sh", "-c", script, "pair", here.own(words), there.own(words), here.enter, there.enter]
    result = run([*command, program, *words], env, timeout)
    return result.code, result.output


def several(where: Hosts, test: Test) -> tuple[int | None, str]:
    """Runs three processes that find each other by the first; returns the worst exit status, and the output."""
    script = """
        address=$1 one=$2 two=$3 three=$4; shift 4
        $one "$@" -n 3 -s "$address" & first=$!
        sleep 0.5
        $two "$@" -n 3 -s "$address" & second=$!
        $three "$@" -n 3 -s "$address"; worst=$?
        wait $first || worst=$?
        wait $second || worst=$?
        exit $worst
    """
    program, words, env, timeout = test
    command: list[Word] = ["sh", "-c", script, "several", where[0].address, *(host.enter for host in where)]
    result = run([*command, program, *words], env, timeout)
    return result.code, result.output


# Combinations that one fi_ubertest runs: it keeps some 8 MB of each until its end, whatever the provider, and 3000 are more
# than a machine may have.
BATCH = 400


# fabtests 2 cannot ask for these by name.
LOST_IN_2 = ("FI_THREAD_FID, ", ", FI_THREAD_ENDPOINT")


def configuration(config: str, provider: str, release: int) -> str:
    """Returns a configuration of fi_ubertest as a release takes it."""
    text = (CONFIGURED / "ubertest" / f"{config}.test").read_text()
    for words in LOST_IN_2 if release == 2 else ():
        text = text.replace(words, "")
    return text.replace("prov_name: squall", f"prov_name: {provider}")


def ubertest(
    where: Hosts, program: pathlib.Path, config: str, env: dict[str, str], timeout: float
) -> tuple[str | None, str, int]:
    """Runs fi_ubertest with a configuration, of which combinations may be refused: a server and a client for each BATCH of
    them.

    Returns problem, output and the number of combinations that passed. `timeout` is for one batch.
    """
    file = TARGET / "ubertest.test"
    file.write_text(config)
    script = """
        address=$1 here=$2 there=$3 config=$4 program=$5 first=$6 last=$7
        $here "$program" -x & server=$!
        sleep 1
        $there "$program" -u "$config" -y "$first" -z "$last" "$address"; client=$?
        if [ $client != 0 ]; then kill $server 2>/dev/null; fi
        wait $server
        exit $client
    """
    total: Counter[str] = Counter()
    first, count = 1, 1
    while first <= count:
        last = first + BATCH - 1
        words: list[Word] = ["sh", "-c", script, "ubertest", where[0].address, where[0].enter, where[1].enter]
        words += [file, program, first, last]
        result = run(words, env, timeout)
        total.update({name: int(n) for name, n in re.findall(r"^(\w+) *: (\d+)$", result.output, re.M)})
        loaded = re.search(r"^Test configurations loaded: (\d+)$", result.output, re.M)
        if not result.ok or not loaded:
            why = "loads no configuration" if result.ok else result.why()
            return f"combinations from {first} on: {why}", result.output, total["Success"]
        first, count = last + 1, int(loaded[1])
    wrong = {name: total[name] for name in ("ENOSYS", "EIO", "ERROR") if total[name]}
    # Each is in one of the counts, or was never begun.
    lost = count - sum(total[name] for name in ("Success", "Skipped", "ENODATA", *wrong))
    if lost:
        wrong["without a result"] = lost
    problem = ", ".join(f"{n} {name}" for name, n in wrong.items()) or None
    return problem or (None if total["Success"] else "nothing passed"), result.output, total["Success"]


Start: TypeAlias = Callable[[Hosts, Test], tuple[int | None, str]]


def tests(release: int, standard: bool = False) -> list[tuple[str, Start]]:
    """Returns the tests that are run of a release, and how each is started."""
    listed = tomllib.loads((CONFIGURED / "tests.toml").read_text())
    starts: dict[str, Start] = {"alone": alone, "refused": refused, "pairs": pair, "several": several}
    if standard:
        starts = {"standard": pair}
    return [
        (test, start)
        for kind, start in starts.items()
        for test in listed[kind]["both"] + listed[kind].get(f"release-{release}", [])
    ]


def reasons(release: int) -> dict[str, str]:
    """Returns why tests are excluded, by pattern: the comment before it in the file."""
    found, reason = {}, ""
    for line in (CONFIGURED / f"{release}.exclude").read_text().splitlines():
        if line.startswith("#"):
            reason = line.lstrip("# ")
        elif line.strip():
            found[line.strip()] = reason
    return found


def arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("binaries", type=pathlib.Path, metavar="BIN_DIR")
    kind = parser.add_mutually_exclusive_group()
    kind.add_argument("--standard", action="store_true", help="the measuring programs alone, at their full length")
    kind.add_argument("--ubertest", choices=CONFIGURATIONS, help="fi_ubertest alone, with this configuration")
    parser.add_argument("--version", default="", help="of fabtests, for --record")
    foreign.add_options(parser, 90.0, "program; ten times that for 400 combinations of fi_ubertest", ranks=False)


@contextlib.contextmanager
def placed(apart: bool) -> Iterator[tuple[Hosts, dict[str, str]]]:
    """Yields the hosts of the processes, and the variables that they need."""
    if not apart:
        yield LOOPBACK, {}
        return
    with hosts.bridge(len(LOOPBACK)) as bridge:
        yield on_bridge(bridge), hosts.ENVIRONMENT


def combinations(outcome: foreign.Outcome, where: Hosts, release: int, env: dict[str, str]) -> None:
    """Runs fi_ubertest with a configuration."""
    args = outcome.args
    config = configuration(args.ubertest, env["FI_PROVIDER"], release)
    program = args.binaries.absolute() / "fi_ubertest"
    problem, output, passed = ubertest(where, program, config, env, 10 * args.timeout)
    outcome.tally.add(f"fi_ubertest, {args.ubertest}", problem, note=f"{passed} combinations", output=output)
    outcome.tally.passed = passed


def programs(outcome: foreign.Outcome, where: Hosts, release: int, env: dict[str, str]) -> None:
    """Runs the tests that are programs of their own."""
    args = outcome.args
    patterns = reasons(release)
    for test, start in tests(release, args.standard):
        if not re.search(args.only, test):
            continue
        why = next((why for pattern, why in patterns.items() if re.search(pattern, test)), None)
        if why:
            outcome.exclude(why, test)
            continue
        program, *words = test.replace("ADDR6", where[0].address_6).replace("ADDR", where[0].address).split()
        words += ["-p", env["FI_PROVIDER"]]
        code, output = start(where, (args.binaries.absolute() / program, words, env, args.timeout))
        if code in NOT_OFFERED:
            outcome.exclude(foreign.NOT_OFFERED, test)
        else:
            problem = None if code == 0 else "no end" if code is None else f"exit status {code}"
            outcome.tally.add(test, problem, output=output)


def main(args: argparse.Namespace) -> int:
    outcome, statistics = foreign.Outcome(args), Statistics()
    outcome.version = args.version
    need((args.binaries / "fi_rdm").exists(), f"no fabtests in {args.binaries}")
    release = 1 if (args.binaries / "fi_poll").exists() else 2
    env = provider_run(args.provider, str(release))
    # A library that Debian's libfabric 1.17 brings with it takes the signals that sighandler_test sends, otherwise.
    env["IPATH_NO_BACKTRACE"] = "1"
    suite = "reliable datagrams, standard" if args.standard else "reliable datagrams"
    if args.ubertest:
        suite = f"fi_ubertest, {args.ubertest}"
    with placed(args.hosts) as (where, known):
        (combinations if args.ubertest else programs)(outcome, where, release, env | known | statistics.env())
    if args.provider == "squall" and (shows := hosts.shows(args.hosts)):
        # The statistics are those of all programs together, for some send nothing.
        outcome.tally.add("by frames", statistics.verdict(2, 0, shows=shows), 0.0, statistics.summary())
    return outcome.finish("fabtests", suite, provider=env["FI_PROVIDER"], conditions=results.conditions(2))
