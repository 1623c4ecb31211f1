# Shared by the scripts beside it: where things are, and how to speak. Sourced, never run.

root=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
# Everything that is fetched, built or written lives under target/.
cache=$root/target
# The directory to give as FI_PROVIDER_PATH: it holds libsquall-fi.so and nothing else.
provider_dir=$cache/provider

say() { printf '%s: %s\n' "$(basename "$0")" "$*" >&2; }
die() { say "$*"; exit 1; }
have() { command -v "$1" >/dev/null 2>&1; }

# Cargo when rustup put it where a login shell, but not a CI job, looks.
if ! have cargo && [ -x "$HOME/.cargo/bin/cargo" ]; then PATH=$HOME/.cargo/bin:$PATH; fi
