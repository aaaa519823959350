#!/bin/sh
# Everything that a card can tell in eight minutes, as one JSON:  sh lab/benchmarks/card.sh OUT [WHEELS]
# Needs Python 3.11 or later with torch for CUDA; WHEELS is a folder of wheels for what else is missing there.
set -eu
out=$1
root=$(cd "$(dirname "$0")/../.." && pwd)
mkdir -p "$out"
if [ $# -gt 1 ]; then
  site=$(mktemp -d)
  python3 -m pip install -q --no-index --no-deps --no-compile --target "$site" "$2"/*.whl
  PYTHONPATH=$site${PYTHONPATH:+:$PYTHONPATH}
fi
export PYTHONPATH="$root/src:$root/lab:$root/lab/benchmarks${PYTHONPATH:+:$PYTHONPATH}" PYTHONUNBUFFERED=1
exec python3 "$root/lab/benchmarks/card.py" --out "$out"
