"""Squall encrypted, beside itself in the clear and beside tcp, at the packet sizes of MTU 1500 and 9000, two processes of this
host.

In every round all sides run one right after the other, another one first each time; then the cipher alone seals and opens
packets of the same size. A number is the median of the rounds. Wanted are:

- bandwidth at least 0.85 of 1 / (1/clear + 1/cipher), where the cipher is the slower of sealing and opening
- half a round trip of 64 B at most 0.6 us longer than in the clear

The exit status is 1 when one of them is missed.
"""

import argparse
import pathlib
import secrets
import statistics
import tempfile

from squall_ci import rounds
from squall_ci.benchmarks.perf import perf, Side, VERIFIED
from squall_ci.paths import need
from squall_ci.process import run
from squall_ci.programs import example
from squall_ci.tally import table

# UDP payload of the largest packet, by MTU.
PAYLOADS = {1500: 1472, 9000: 8972}
# Words of fi_perf: bandwidth of messages of 1 MiB, half a round trip of 64 bytes.
BULK, TRIP = "bw:1048576:100", "lat:64:20000"
BULK_BOUND, TRIP_BOUND = 0.85, 0.6


def cipher(program: pathlib.Path, payload: int) -> float:
    """Returns the bytes per ns of the slower of sealing and opening packets of this size."""
    result = run([program, payload])
    need(result.ok, f"cipher_speed: {result.why()}\n{result.output}")
    return payload / max(float(word) for word in result.output.split()[1:])


def arguments(parser: argparse.ArgumentParser) -> None:
    rounds.add_options(parser, 7)


def main(args: argparse.Namespace) -> int:
    cipher_speed = example("squall-seal", "cipher_speed")
    with tempfile.TemporaryDirectory() as folder:
        key = pathlib.Path(folder) / "job.key"
        key.touch(mode=0o600)
        key.write_text(secrets.token_urlsafe(32) + "\n")
        sides = {
            "encrypted": Side(env={"FI_SQUALL_SHM": "no", "FI_SQUALL_KEY_FILE": str(key), "FI_SQUALL_TSS": "required"}),
            "clear": Side(env={"FI_SQUALL_SHM": "no"}),
            "tcp": Side("tcp"),
        }
        problem, _ = perf(sides["encrypted"], {}, *VERIFIED)
        need(problem is None, f"contents: {problem}")
        samples: dict[str, dict[str, list[float]]] = {}
        for order in rounds.turns(list(sides), args):
            for mtu, payload in PAYLOADS.items():
                for name in order:
                    problem, values = perf(sides[name], {"FI_SQUALL_MTU": str(payload)}, BULK, TRIP)
                    need(problem is None, f"{name}: {problem}")
                    for word, value in values.items():
                        samples.setdefault(f"{mtu} {word}", {}).setdefault(name, []).append(value)
                samples.setdefault(f"{mtu} cipher", {}).setdefault("cipher", []).append(cipher(cipher_speed, payload))
    rows, missed = [], []
    for mtu in PAYLOADS:
        middle = {
            word: {name: statistics.median(values) for name, values in samples[f"{mtu} {word}"].items()}
            for word in (BULK, TRIP, "cipher")
        }
        bulk, trip, speed = middle[BULK], middle[TRIP], middle["cipher"]["cipher"]
        bound = 1 / (1 / bulk["clear"] + 1 / speed)
        share, more = bulk["encrypted"] / bound, trip["encrypted"] - trip["clear"]
        rows.append([f"MTU {mtu}, 1 MiB, GB/s", *(f"{bulk[name]:.2f}" for name in sides), f"{speed:.2f}", f"{share:.2f}"])
        rows.append([f"MTU {mtu}, 64 B half round trip, us", *(f"{trip[name]:.2f}" for name in sides), "", f"+{more:.2f}"])
        if share < BULK_BOUND:
            missed.append(f"MTU {mtu}: bandwidth {share:.2f} of the bound, at least {BULK_BOUND} is wanted")
        if more > TRIP_BOUND:
            missed.append(f"MTU {mtu}: 64 B take {more:.2f} us more, at most {TRIP_BOUND} is wanted")
    print(table(["", *sides, "cipher", "of the bound, or more time"], rows))
    return rounds.conclude(args, missed)
