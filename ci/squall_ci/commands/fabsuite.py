"""Run libfabric's own test suite, fabtests, on a provider: those of its programs that concern reliable datagrams.

    ci/run fabsuite [--only REGEX] [--ubertest quick|verify|all] [--timeout S] [--record --version V] BIN_DIR [PROVIDER=squall]

BIN_DIR holds the programs of a fabtests built against the libfabric found by the loader (1.17 here; its sources come with
libfabric's). Unlike runfabtests.sh this kills nothing but what it started. A program that says FI_ENODATA or FI_ENOSYS
asked for something the provider does not offer: it counts as not run, and is named. What must not be judged by stands in
fabtests/fabtests/*.exclude with its reason, for runfabtests.sh (-f) as well. --ubertest runs fi_ubertest alone, with a
configuration of fabtests/fabtests/ubertest (runfabtests.sh -u), a fresh pair of processes for each 400 of its combinations, and
counts these. Ends with `N passed, N failed`.
"""

import argparse
import errno
import pathlib
import re
from collections import Counter
from collections.abc import Callable
from typing import TypeAlias

from squall_ci import results
from squall_ci.environment import provider_run
from squall_ci.paths import FABTESTS, need, need_provider, TARGET
from squall_ci.process import run as run_command
from squall_ci.process import Word
from squall_ci.tally import Tally

# Needs no second side. ADDR is replaced by the address under test.
ALONE = [
    "fi_getinfo_test -s ADDR ADDR",
    "fi_av_test -g ADDR -n 1 -s ADDR -e rdm",
    "fi_dom_test -n 2",
    "fi_eq_test",
    "fi_cq_test",
    "fi_mr_test",
    "fi_cntr_test",
]

# A server and a client, of both releases.
PAIRS = [
    "fi_av_xfer -e rdm",
    "fi_rdm",
    "fi_rdm -U",
    "fi_rdm_tagged_peek",
    "fi_rdm_rma_event",
    "fi_rdm_rma_trigger",
    "fi_rdm_deferred_wq",
    "fi_rdm_deferred_wq -T msg",
    "fi_rdm_deferred_wq -T tagged",
    "fi_rdm_deferred_wq -T rma",
    "fi_rdm_deferred_wq -T rma -a",
    "fi_rdm_deferred_wq -T atomic",
    "fi_rdm_deferred_wq -T f_atomic",
    "fi_rdm_deferred_wq -T c_atomic",
    "fi_rdm_shared_av",
    "fi_scalable_ep",
    "fi_shared_ctx",
    "fi_multi_mr -e rdm -V",
    "fi_multi_ep -e rdm -v",
    "fi_recv_cancel -e rdm -V",
    "fi_unexpected_msg -e rdm -I 10",
    "fi_rdm_multi_client -C 10 -I 5",
    "fi_rdm_multi_client -C 10 -I 5 -U",
    "fi_rma_bw -e rdm -o write -I 50",
    "fi_rma_bw -e rdm -o write -I 50 -U",
    "fi_rma_bw -e rdm -o read -I 50",
    "fi_rma_bw -e rdm -o writedata -I 50",
    "fi_rma_bw -e rdm -o writedata -I 50 -U",
    "fi_rdm_atomic -I 5 -o all",
    "fi_rdm_cntr_pingpong -I 50",
    "fi_multi_recv -e rdm -I 50",
    "fi_rdm_pingpong -I 50",
    "fi_rdm_pingpong -I 50 -U",
    "fi_rdm_pingpong -I 50 -v",
    "fi_rdm_pingpong -I 50 -v -U",
    "fi_rdm_pingpong -k -I 50 -v",
    "fi_rdm_tagged_pingpong -I 50 -v",
    "fi_rdm_tagged_pingpong -I 50 -v -U",
    "fi_rdm_tagged_bw -I 50 -v",
    "fi_rdm_tagged_bw -I 50 -v -U",
]

# Those that one release alone has.
PAIRS_1 = ["fi_cq_data -e rdm", "fi_poll -t queue", "fi_poll -t counter", "fi_bw -e rdm -v -T 1", "fi_bw -e rdm -v -T 1 -U"]
PAIRS_2 = [
    "fi_cq_data -e rdm -o senddata",
    "fi_cq_data -e rdm -o writedata",
    "fi_multi_ep -e rdm -v -A -Q",
    "fi_multi_ep -e rdm -v -A -Q --threading completion",
    "fi_inject_test -A inject -v",
    "fi_inject_test -N -A inject -v",
    "fi_inject_test -A inj_complete -v",
    "fi_inject_test -N -A inj_complete -v",
    "fi_flood -e rdm -v -T 1",
    "fi_flood -e rdm -v -T 1 -U",
    "fi_rdm_atomic -I 5 -o all -v",
    "fi_rdm_atomic -I 5 -o all -v -U",
]

# Some programs end with the number, others with its negative, of which the system keeps eight bits.
NOT_OFFERED = {code % 256 for number in (errno.ENODATA, errno.ENOSYS) for code in (number, -number)}
ADDRESS = "127.0.0.1"
# What is left out, and configurations.
CONFIGURED = FABTESTS / "fabtests"


def alone(program: pathlib.Path, words: list[str], env: dict[str, str], timeout: float) -> tuple[int | None, str]:
    """(exit status, output)"""
    result = run_command([program, *words], env, timeout)
    return result.code, result.output


# Three processes.
SEVERAL = ["fi_multinode_coll"]


def pair(program: pathlib.Path, words: list[str], env: dict[str, str], timeout: float) -> tuple[int | None, str]:
    """(worse exit status of server and client, output)"""
    script = """
        address=$1; shift
        "$@" -s "$address" & server=$!
        sleep 0.5
        "$@" -s "$address" "$address"; client=$?
        # A server whose client has failed may wait for ever.
        if [ $client != 0 ]; then sleep 0.5; kill $server 2>/dev/null; fi
        wait $server; server=$?
        echo "server $server, client $client"
        [ $client != 0 ] && exit $client
        exit $server
    """
    result = run_command(["sh", "-c", script, "pair", ADDRESS, program, *words], env, timeout)
    return result.code, result.output


def several(program: pathlib.Path, words: list[str], env: dict[str, str], timeout: float) -> tuple[int | None, str]:
    """(worst exit status of three processes that find each other by the first, output)"""
    script = """
        address=$1; shift
        "$@" -n 3 -s "$address" & first=$!
        sleep 0.5
        "$@" -n 3 -s "$address" & second=$!
        "$@" -n 3 -s "$address"; worst=$?
        wait $first || worst=$?
        wait $second || worst=$?
        exit $worst
    """
    result = run_command(["sh", "-c", script, "several", ADDRESS, program, *words], env, timeout)
    return result.code, result.output


# Combinations that one fi_ubertest runs: it keeps some 8 MB of each until its end, whatever the provider, and 3000 are more
# than a machine may have.
BATCH = 400


def ubertest(program: pathlib.Path, config: str, env: dict[str, str], timeout: float) -> tuple[str | None, str, int]:
    """(problem, output, combinations that passed) of fi_ubertest with a configuration, of which combinations may be refused.

    A server and a client for each BATCH of combinations; `timeout` is for one of these."""
    text = (CONFIGURED / "ubertest" / f"{config}.test").read_text()
    file = TARGET / "ubertest.test"
    file.write_text(text.replace("prov_name: squall", f"prov_name: {env['FI_PROVIDER']}"))
    script = """
        address=$1 config=$2 program=$3 first=$4 last=$5
        "$program" -x & server=$!
        sleep 1
        "$program" -u "$config" -y "$first" -z "$last" "$address"; client=$?
        if [ $client != 0 ]; then kill $server 2>/dev/null; fi
        wait $server
        exit $client
    """
    total: Counter[str] = Counter()
    first, count = 1, 1
    while first <= count:
        last = first + BATCH - 1
        words: list[Word] = ["sh", "-c", script, "ubertest", ADDRESS, file, program, first, last]
        result = run_command(words, env, timeout)
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


Start: TypeAlias = Callable[[pathlib.Path, list[str], dict[str, str], float], tuple[int | None, str]]


def tests(release: int) -> list[tuple[str, Start]]:
    """What is run of a release, and how."""
    starts: list[tuple[list[str], Start]] = [
        (ALONE, alone),
        (PAIRS, pair),
        ([[], PAIRS_1, PAIRS_2][release], pair),
        (SEVERAL, several),
    ]
    return [(test, start) for some, start in starts for test in some]


def reasons(release: int) -> dict[str, str]:
    """Why tests are excluded, by pattern: of each the comment before it."""
    found, reason = {}, ""
    for line in (CONFIGURED / f"{release}.exclude").read_text().splitlines():
        if line.startswith("#"):
            reason = line.lstrip("# ")
        elif line.strip():
            found[line.strip()] = reason
    return found


def arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("binaries", type=pathlib.Path)
    parser.add_argument("provider", nargs="?", default="squall")
    parser.add_argument("--only", default="")
    parser.add_argument("--ubertest", choices=["quick", "verify", "all"], help="fi_ubertest alone, with this configuration")
    parser.add_argument(
        "--timeout",
        type=float,
        default=90.0,
        help="seconds for each program; ten times that for 400 combinations of fi_ubertest",
    )
    parser.add_argument("--version", default="", help="of fabtests, for --record")
    results.add_option(parser)


def run(args: argparse.Namespace) -> int:
    results.check(args)
    need((args.binaries / "fi_rdm").exists(), f"no fabtests in {args.binaries}")
    need_provider(args.provider)
    release = 1 if (args.binaries / "fi_poll").exists() else 2
    env = provider_run(args.provider, str(release))
    tally = Tally()
    unoffered: list[str] = []
    excluded: dict[str, list[str]] = {}
    binaries = args.binaries.absolute()
    suite = "reliable datagrams"
    if args.ubertest:
        suite = f"fi_ubertest, {args.ubertest}"
        problem, output, passed = ubertest(binaries / "fi_ubertest", args.ubertest, env, 10 * args.timeout)
        tally.add(suite, problem, note=f"{passed} combinations", output=output)
        tally.passed = passed
    patterns = reasons(release)
    for test, start in () if args.ubertest else tests(release):
        if not re.search(args.only, test):
            continue
        why = next((why for pattern, why in patterns.items() if re.search(pattern, test)), None)
        if why:
            excluded.setdefault(why, []).append(test)
            continue
        program, *words = test.replace("ADDR", ADDRESS).split()
        words += ["-p", env["FI_PROVIDER"]]
        code, output = start(binaries / program, words, env, args.timeout)
        if code in NOT_OFFERED:
            unoffered.append(test)
        else:
            problem = None if code == 0 else "no end" if code is None else f"exit status {code}"
            tally.add(test, problem, output=output)
    return results.finish(
        tally,
        args.record,
        consumer="fabtests",
        version=args.version,
        suite=suite,
        provider=env["FI_PROVIDER"],
        conditions=results.conditions(2),
        excluded=excluded | ({"not offered: the test asks for something and is told so": unoffered} if unoffered else {}),
    )
