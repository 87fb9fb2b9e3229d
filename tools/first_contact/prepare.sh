#!/bin/bash
# Wheels that a bare machine lacks (Python 3.12, x86-64, with torch, torchvision, timm, huggingface_hub, numpy, pandas,
# seaborn, matplotlib, scipy, scikit-learn, pillow, rich, safetensors, jinja2, markupsafe, filelock, pyyaml, tensorboard):
# into .whl/, which git leaves alone. Nothing of the kit needs torch-tb-profiler, which shows traces.
# From anywhere in a checkout:  bash tools/first_contact/prepare.sh
set -euo pipefail
cd "$(dirname "$0")/../.."
mkdir -p .whl
platforms=()
for each in manylinux_2_39 manylinux_2_35 manylinux_2_34 manylinux_2_31 manylinux_2_28 manylinux_2_27 manylinux_2_24 \
  manylinux_2_17 manylinux2014 manylinux2010 manylinux1; do
  platforms+=(--platform "${each}_x86_64")
done
binary=(yacs==0.1.8 termcolor platformdirs "orjson>=3.10" "simplejpeg>=1.7")
for each in "${binary[@]}"; do
  python3 -m pip download -q --no-deps --only-binary=:all: --python-version 3.12 --implementation cp \
    "${platforms[@]}" -d .whl "$each"
done
# published as sources alone, of pure Python: wheels of them are the same for every Python 3
python3 -m pip wheel -q --no-deps -w .whl "fvcore==0.1.5.post20221221" "iopath==0.1.10"
# one version of each, or the whole installation stops
python3 - <<'PYTHON'
from collections import Counter
from pathlib import Path

wheels = sorted(Path(".whl").glob("*.whl"))
names = Counter(path.name.partition("-")[0].lower() for path in wheels)
twice = [name for name, number in names.items() if number > 1]
assert not twice, f"several versions in .whl of {', '.join(twice)}: remove the older ones"
expected = {"fvcore", "iopath", "yacs", "termcolor", "platformdirs", "orjson", "simplejpeg"}
assert names.keys() >= expected, f"missing: {', '.join(expected - names.keys())}"
for path in wheels:
    print(f"{path.stat().st_size / 2**20:6.2f} MiB  {path.name}")
print(f"{sum(path.stat().st_size for path in wheels) / 2**20:6.2f} MiB in all")
PYTHON
