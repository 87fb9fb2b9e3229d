"""Energy: counters that come round, a share of what others use too, several attempts, and what a report says."""

import json
import sys
import time
from types import SimpleNamespace

import pytest

from bench.analysis import questions
from bench.core import environment
from bench.cost import energy
from bench.execute.worker import Worker
from bench.report import caveats
from bench.store import records
from bench.study.cell import to_json
from bench.study.record import Cost, Energy, Seconds

RANGE = 262_143_328_850  # µJ, as a processor gives it


def zone(root, number, name, microjoules):
    """A zone as Linux lays it out: its children are beside it, too."""
    folder = root / f"intel-rapl:{number}"
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "name").write_text(f"{name}\n")
    (folder / "max_energy_range_uj").write_text(f"{RANGE}\n")
    (folder / "energy_uj").write_text(f"{microjoules}\n")


@pytest.fixture
def powercap(tmp_path):
    """Two packages, one about to come round; their cores and memory; the whole system; the same seen through MMIO."""
    root = tmp_path / "powercap"
    zone(root, "0", "package-0", RANGE - 1_000_000)
    zone(root, "0:0", "core", 5)
    zone(root, "0:1", "dram", 7_000_000)
    zone(root, "1", "package-1", 100)
    zone(root, "2", "psys", 10**9)
    (root / "intel-rapl-mmio:0").mkdir()
    (root / "intel-rapl-mmio:0/name").write_text("package-0\n")
    (root / "intel-rapl").mkdir()
    return root


def meter(tmp_path, root, times, **how):
    return energy.Meter(tmp_path / energy.ENERGY, root=root, used=iter(times).__next__, **how)


def test_counters_come_round_and_parts_are_not_counted_twice(powercap, tmp_path):
    measured = meter(tmp_path, powercap, [(0.0, 0.0), (10.0, 10.0), (20.0, 20.0)])
    zone(powercap, "0", "package-0", 3_000_000)  # 4 J on
    zone(powercap, "0:0", "core", 10**9)
    zone(powercap, "0:1", "dram", 9_000_000)  # 2 J
    zone(powercap, "1", "package-1", 500_100)  # 0.5 J
    zone(powercap, "2", "psys", 10**10)
    measured.look()
    assert energy.of_attempts([tmp_path], co2=None) == Energy(processor_joules=pytest.approx(6.5))
    zone(powercap, "0", "package-0", 2_000_000)  # round once more: the whole range less 1 J
    measured.stop()
    spent = energy.of_attempts([tmp_path], co2=400.0)
    assert spent.joules == pytest.approx(6.5 + RANGE / 1e6 - 1)
    assert spent.co2_grams == pytest.approx(spent.joules / 3.6e6 * 400)


@pytest.mark.parametrize("ranks, joules", [(1, 25.0), (2, 50.0), (8, 100.0)])
def test_a_cell_has_its_share_of_the_processor_time(powercap, tmp_path, ranks, joules):
    measured = meter(tmp_path, powercap, [(5.0, 100.0), (7.0, 108.0)], ranks=ranks)
    zone(powercap, "1", "package-1", 100_000_100)
    measured.stop()
    measured.stop()
    assert energy.of_attempts([tmp_path], co2=None).processor_joules == pytest.approx(joules)


def test_attempts_add_up_and_what_a_kill_left_counts(powercap, tmp_path):
    folders = [tmp_path / name for name in ("001", "002", "003", "004")]
    for folder in folders:
        folder.mkdir()
        measured = meter(folder, powercap, [(0.0, 0.0), (1.0, 1.0)])
        zone(powercap, "1", "package-1", int((powercap / "intel-rapl:1/energy_uj").read_text()) + 3_000_000)
        measured.look()  # and no more: it is killed
        measured._stop.set()
    (folders[2] / energy.ENERGY).write_text("{")  # damaged
    (folders[3] / energy.ENERGY).unlink()
    assert energy.of_attempts(folders, co2=None) == Energy(processor_joules=pytest.approx(6.0))


@pytest.mark.parametrize("broken", ["no folder", "unreadable", "not a number"])
def test_what_cannot_be_read_is_not_known(powercap, tmp_path, broken, monkeypatch):
    if broken == "no folder":
        powercap = tmp_path / "none"
    elif broken == "not a number":
        for path in powercap.glob("*/energy_uj"):
            path.write_text("?")
    else:
        for path in powercap.glob("*/energy_uj"):
            path.unlink()
            path.mkdir()
    meter(tmp_path, powercap, [(0.0, 0.0), (1.0, 1.0)]).stop()
    assert energy.of_attempts([tmp_path], co2=300.0) is None and not (tmp_path / energy.ENERGY).exists()


def test_the_thread_reads_often_enough(powercap, tmp_path, monkeypatch):
    monkeypatch.setattr(energy, "READING_SECONDS", 0.01)
    measured = energy.Meter(tmp_path / energy.ENERGY, root=powercap)
    while not (tmp_path / energy.ENERGY).exists():
        time.sleep(0.01)
    measured.stop()
    assert measured._thread.is_alive() is False


def test_gpus_count_whole_and_only_those_of_the_worker_and_its_share_of_them(powercap, tmp_path, monkeypatch):
    millijoules = {0: 1_000, 3: 50_000, "GPU-7": 10_000}
    library = SimpleNamespace(
        nvmlInit=lambda: None,
        nvmlDeviceGetHandleByIndex=lambda n: n,
        nvmlDeviceGetHandleByUUID=lambda n: n,
        nvmlDeviceGetTotalEnergyConsumption=lambda handle: millijoules[handle],
    )
    monkeypatch.setitem(sys.modules, "pynvml", library)
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "3,GPU-7,0")
    measured = meter(tmp_path, powercap, [(0.0, 0.0), (0.0, 1.0)], device="cuda", ranks=2, share=5)
    millijoules.update({0: 10**9, 3: 60_000, "GPU-7": 12_500})
    measured.stop()
    assert energy.of_attempts([tmp_path], co2=None) == Energy(
        processor_joules=0.0, accelerator_joules=2.5
    )  # shared by five
    assert energy.gpus("cpu", 1) == []
    millijoules.clear()  # an old GPU, or part of a divided one
    assert energy.gpus("cuda", 1) == []
    monkeypatch.setitem(sys.modules, "pynvml", None)
    assert energy.gpus("cuda", 1) == []


def test_a_record_keeps_it_and_an_older_one_has_none():
    cost = Cost(energy=Energy(processor_joules=1.5, co2_grams_per_kwh=300.0))
    body = json.loads(json.dumps(to_json(cost)))
    assert records.build(Cost, body) == cost
    del body["energy"]
    assert records.build(Cost, body).energy is None


def summed(*costs):
    return questions.cost([SimpleNamespace(cost=cost) for cost in costs])


def test_a_study_s_energy_is_that_of_the_cells_where_it_was_measured_and_its_co2_that_of_all_of_them():
    known = Cost(energy=Energy(processor_joules=1.8e6, accelerator_joules=1.8e6, co2_grams_per_kwh=350.0))
    some = summed(known, Cost(), known)
    assert (some.joules, some.co2_grams, some.measured, some.cells) == (7.2e6, 700.0, 2, 3)
    assert caveats.cost(some).endswith("; 2 kWh of electricity measured in 2 of 3 runs, 700 g of CO2.")
    assert summed(Cost(), Cost()).joules is None
    assert summed(known, Cost(energy=Energy(processor_joules=3600.0))).co2_grams is None


def test_waiting_for_images_is_summed_and_said():
    costs = [Cost(seconds=Seconds(train=600.0), image_wait_seconds=seconds) for seconds in (60.0, 30.0)]
    assert summed(*costs).image_wait_seconds == 90.0 and "waiting" in caveats.cost(summed(*costs))
    assert "waiting" not in caveats.cost(summed(Cost(image_wait_seconds=0.0), Cost()))


def test_a_worker_counts_where_this_machine_can(powercap, tmp_path, monkeypatch):
    stopped, worker = [], SimpleNamespace(options=SimpleNamespace(device="cpu", share=1))
    monkeypatch.setattr(energy, "Meter", lambda path, **_: SimpleNamespace(stop=lambda: stopped.append(path)))
    for root, paths in ((tmp_path / "nothing", []), (powercap, [tmp_path / energy.ENERGY])):
        monkeypatch.setattr(environment, "POWERCAP", root)
        with Worker._meter(worker, tmp_path):
            assert not stopped
        assert stopped == paths
