"""Makes a trace of a few training steps and reads it back with TensorBoard's plug-in. A program of its own, because
the plug-in starts processes and so needs a guarded main module. Prints JSON."""

import json
import sys
from pathlib import Path

import torch

from bench.cost.profiler import profile
from bench.cost.trace import label


def record(folder: Path, steps: int) -> None:
    model = torch.nn.Linear(16, 4)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    with profile(folder) as trace:
        for _ in range(steps):
            with label("data"):
                images = torch.randn(8, 16)
            with label("forward"):
                loss = model(images).square().mean()
            with label("backward"):
                loss.backward()
            with label("optimizer"):
                optimizer.step()
                optimizer.zero_grad()
            with label("evaluate"), torch.no_grad():
                model(images)
            trace.step()


def main() -> None:
    folder = Path(sys.argv[1])
    record(folder, int(sys.argv[2]))
    from torch_tb_profiler import io
    from torch_tb_profiler.profiler.loader import RunLoader

    run = RunLoader("run", str(folder), io.Cache()).load()
    [loaded] = run.profiles.values()
    [path] = folder.glob("*.pt.trace.json")
    content = json.loads(path.read_text())
    shown = {
        "workers": run.workers,
        "views": sorted(view.name for view in loaded.views),
        "operators": [row["name"] for row in loaded.operation_table_by_name["data"]],
        "labels": sorted({event["name"] for event in content["traceEvents"] if event.get("cat") == "user_annotation"}),
        "keys": sorted(content),
    }
    print(json.dumps(shown))


if __name__ == "__main__":
    main()
