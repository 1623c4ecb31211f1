"""Run libfabric's own test suite, fabtests, on a provider: those of its programs that concern reliable datagrams.

    ci/run fabsuite [--only REGEX] [--timeout S] [--record --version V] BIN_DIR [PROVIDER=squall]

BIN_DIR holds the programs of a fabtests built against the libfabric found by the loader (1.17 here; its sources come with
libfabric's). Unlike runfabtests.sh this kills nothing but what it started. A program that says FI_ENODATA or FI_ENOSYS
asked for something the provider does not offer: it counts as not run, and is named. Ends with `N passed, N failed`.
"""

import argparse
import errno
import pathlib
import re

from squall_ci import results
from squall_ci.environment import provider_run
from squall_ci.paths import need, need_provider
from squall_ci.process import run as run_command
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

# A server and a client.
PAIRS = [
    "fi_av_xfer -e rdm",
    "fi_cq_data -e rdm",
    "fi_rdm",
    "fi_rdm -U",
    "fi_poll -t queue",
    "fi_poll -t counter",
    "fi_rdm_tagged_peek",
    "fi_rdm_rma_event",
    # Not fi_rdm_rma_trigger: it compares a text whose end nobody sends, and finds the key that was exchanged there.
    "fi_rdm_deferred_wq",
    "fi_rdm_deferred_wq -T msg",
    "fi_rdm_deferred_wq -T tagged",
    "fi_rdm_deferred_wq -T rma",
    "fi_rdm_deferred_wq -T rma -a",
    "fi_rdm_deferred_wq -T atomic",
    "fi_rdm_deferred_wq -T f_atomic",
    # Not -T c_atomic: it takes FI_CSWAP_LE for the other way round than fi_atomic(3).
    "fi_rdm_shared_av",
    "fi_scalable_ep",
    "fi_shared_ctx",
    # Not fi_multi_mr: it allows virtual addresses (FI_MR_VIRT_ADDR), is given them, and writes to address 0.
    "fi_multi_ep -e rdm -v",
    "fi_recv_cancel -e rdm -V",
    "fi_unexpected_msg -e rdm -I 10",
    "fi_bw -e rdm -v -T 1",
    "fi_bw -e rdm -v -T 1 -U",
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

# Of libfabric 2, by reason: the first words of what is left out.
EXCLUDED_2 = {
    "libfabric 2 has no poll sets": ["fi_poll"],
    "fabtests 2 has no such program; fi_rdm_bw stands for it": ["fi_bw"],
    "hangs on every provider: it waits for a peer's write at a counter that fabtests 2 binds to receives alone": [
        "fi_rdm_deferred_wq"
    ],
}

NOT_OFFERED = {errno.ENODATA, errno.ENOSYS}
ADDRESS = "127.0.0.1"


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


def arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("binaries", type=pathlib.Path)
    parser.add_argument("provider", nargs="?", default="squall")
    parser.add_argument("--only", default="")
    parser.add_argument("--timeout", type=float, default=90.0)
    parser.add_argument("--version", default="", help="of fabtests, for --record")
    results.add_option(parser)


def run(args: argparse.Namespace) -> int:
    results.check(args)
    need((args.binaries / "fi_rdm").exists(), f"no fabtests in {args.binaries}")
    need_provider(args.provider)
    env = provider_run(args.provider, "1")
    tally = Tally()
    unoffered: list[str] = []
    excluded = {} if (args.binaries / "fi_poll").exists() else EXCLUDED_2
    without = tuple(name for names in excluded.values() for name in names)
    for tests, start in ((ALONE, alone), (PAIRS, pair), (SEVERAL, several)):
        for test in tests:
            if test.startswith(without) or not re.search(args.only, test):
                continue
            program, *words = test.replace("ADDR", ADDRESS).split()
            words += ["-p", env["FI_PROVIDER"]]
            code, output = start(args.binaries.absolute() / program, words, env, args.timeout)
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
        suite="reliable datagrams",
        provider=env["FI_PROVIDER"],
        conditions=results.conditions(2),
        excluded=excluded | ({"not offered: the test asks for something and is told so": unoffered} if unoffered else {}),
    )
