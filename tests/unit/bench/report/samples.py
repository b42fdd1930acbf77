"""Measurements made up for reports: every kind of sweep, peers, failures, ceilings and pictures."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from PIL import Image

from calotype.bench.records.store import append
from calotype.spec.recipe import Recipe
from calotype.spec.records.device_peak import CeilingRecord
from calotype.spec.records.measurement import FILE, WALL, Measurement, Series, identity_of

H200 = "NVIDIA H200"
GIB = 2**30
MACHINE = {
    "calotype": "0.1.0",
    "python": "3.12.3 (CPython)",
    "packages": {"torch": "2.11.0", "diffusers": "0.42.1", "torchao": None},
    "operating_system": "Ubuntu 24.04.3 LTS",
    "kernel": "Linux 6.8.0",
    "cpu": {"model": "Xeon", "num_cores": 16, "num_usable_cores": 16},
    "memory_total_bytes": 128 * GIB,
    "driver": "580.65",
    "driver_cuda": "13.0",
    "gpus": [{"name": H200, "memory_total_bytes": 140 * GIB, "mig_devices": []}],
}
REQUEST = {
    "prompt": "a lighthouse",
    "width": 512,
    "height": 512,
    "count": 1,
    "steps": 20,
    "cfg": 8.0,
    "seed": 1,
}


def picture(point: str, *seconds: float, **changes: Any) -> Measurement:
    """An inference point: `request` changes what is asked, no seconds at all make it a failure."""
    request = {**REQUEST, **changes.pop("request", {})}
    values: dict[str, Any] = {
        "point": point,
        "kind": "inference",
        "model": "random:sdxl",
        "preset": "fast",
        "precision": "fp16",
        "command": f"calotype bench inference --out OUT --sweep {point}",
        "samples_per_unit": request["count"],
        **changes,
    }
    values["id"] = identity_of(
        {"request": request, **{k: str(values.get(k)) for k in ("system", "preset", "settings", "model")}}
    )
    rate = request["count"] / sorted(seconds)[len(seconds) // 2] if seconds else None
    return measured(seconds, rate, request=request, **values)


def training(
    point: str, rate: float | None, *, batch: int = 32, gpus: int = 1, **changes: Any
) -> Measurement:
    """A training point that does so many samples a second on all GPUs."""
    recipe = Recipe().model_dump(mode="json")
    recipe["model"] |= {"base": "sd2-base", "precision": "bf16", "micro_batch_size": batch}
    recipe["model"]["global_batch_size"] = batch * gpus
    recipe["trainer"]["devices"] = gpus
    seconds = [] if rate is None else [batch * gpus / rate * (1 + 0.01 * (n % 3)) for n in range(6)]
    values = {
        "id": identity_of({"recipe": recipe, "settings": changes.get("settings", {}), "point": point}),
        "point": point,
        "kind": "train",
        "model": "sd2-base",
        "precision": "bf16",
        "devices": gpus,
        "samples_per_unit": batch * gpus,
        "command": f"calotype train sd2-base batch={batch} trainer.devices={gpus} --benchmark",
        **changes,
    }
    return measured(seconds, rate, recipe=recipe, **values)


def served(point: str, rate: float, *seconds: float, **settings: Any) -> Measurement:
    """A deployment that makes so many pictures a second while its requests take so long."""
    asked = {"phase": "load", "engine": "calotype", "interface": "grpc", "clients": 64, **settings}
    values: dict[str, Any] = {
        "id": identity_of(asked),
        "point": point,
        "kind": "serve",
        "model": "emoji",
        "preset": "fast",
        "samples_per_unit": 1,
        "settings": asked,
        "command": f"calotype bench serve --engine {asked['engine']}",
    }
    return measured(seconds, rate, request=REQUEST, **values)


def measured(
    seconds: Sequence[float], rate: float | None, *, gib: float = 20.0, **values: Any
) -> Measurement:
    failed = {"status": "oom", "message": "CUDA out of memory. Tried to allocate 40.00 GiB"}
    memory = {"allocated_bytes": int(gib * 0.9 * GIB), "reserved_bytes": int(gib * GIB)}
    came: dict[str, Any] = (
        failed
        if not seconds
        else {
            "status": "ok",
            "series": {WALL: Series.of("s", seconds)},
            "samples_per_s": rate,
            "memory": [{**memory, "device_bytes": None, "total_bytes": 140 * GIB}],
            "preparation": {"load_s": 4.0, "warmup_s": [9.0], "compile_s": 8.0},
        }
    )
    common = {
        "device": H200,
        "fingerprint": {
            "machine": MACHINE,
            "torch": {"version": "2.11.0+cu130", "cuda": "13.0", "cudnn": "9.19"},
        },
        "commit": "0123456789abcdef",
        "modified": False,
        "started_at": "2026-11-15T12:00:00Z",
    }
    return Measurement.model_validate({**common, **came, **values})


def work(tflops: float) -> dict[str, Any]:
    return {
        "tflop_per_sample": 120.0,
        "tflops": tflops,
        "ceiling_tflops": 780.0,
        "ceiling_source": "measured",
        "share_of_ceiling": tflops / 780.0,
    }


def batches() -> list[Measurement]:
    """Ours and a peer over batches, in three rounds; the peer has no room for the largest."""
    found = []
    systems = (
        ("calotype", "fast", 0.30, 380),
        ("calotype", "baseline", 0.46, 300),
        ("diffusers-eager", None, 0.55, 240),
    )
    for turn in (1, 2, 3):
        for system, preset, each, tflops in systems:
            for batch in (1, 2, 4, 8, 16, 32):
                base = 0.5 + each * batch * (1 + 0.02 * turn)
                seconds = [base, base * 1.02, base * 0.99]
                name = f"batch={batch}" + (f" preset={preset}" if preset else f" {system}")
                settings: dict[str, Any] = {"batch": batch, **({"preset": preset} if preset else {})}
                failed = system != "calotype" and batch == 32
                quality = (
                    {"reference": "baseline", "psnr_db": 41.2, "ssim": 0.991} if preset == "fast" else None
                )
                more = {} if failed else {"work": work(tflops * batch / (batch + 2)), "quality": quality}
                found.append(
                    picture(
                        name,
                        *([] if failed else seconds),
                        system=system,
                        preset=preset,
                        round=turn,
                        settings=settings,
                        request={"count": batch},
                        gib=10 + each * 8 * batch,
                        **more,
                    )
                )
    return found


def sizes() -> list[Measurement]:
    return [
        picture(
            f"size={w}x{h}",
            *[w * h / 2.2e5 * wobble for wobble in (1, 1.02, 0.985, 1.01)],
            request={"width": w, "height": h, "count": 4},
            settings={"size": f"{w}x{h}"},
            gib=12 + w * h / 8e4,
        )
        for w, h in ((512, 512), (768, 768), (1280, 768), (1024, 1024))
    ]


def steps_and_cfg() -> list[Measurement]:
    wide = {"width": 1024, "height": 1024}
    found = [
        picture(
            f"steps={n}",
            *[0.2 + 0.06 * n * wobble for wobble in (1, 1.03, 0.99)],
            request={**wide, "steps": n},
            settings={"steps": n},
        )
        for n in (1, 2, 4, 8, 16, 32, 64)
    ]
    return found + [
        picture(
            f"cfg={cfg:g}",
            4.1,
            4.15,
            4.05,
            request={**wide, "steps": 64, "cfg": cfg, "seed": 2},
            settings={"cfg": cfg},
        )
        for cfg in (7.0, 8.0, 11.0)
    ]


def scaling() -> list[Measurement]:
    rates = {1: 114.0, 2: 223.0, 4: 431.0, 8: 802.0}
    return [
        training(f"trainer.devices={gpus}", rate, gpus=gpus, gib=40, work=work(400 * rate / gpus / 114))
        for gpus, rate in rates.items()
    ]


def ablation() -> list[Measurement]:
    seconds = {
        "all": 1.0,
        "none": 2.4,
        "without own_forward": 1.62,
        "without cuda_graphs": 1.11,
        "without fused_geglu": 1.004,
        "only own_forward": 1.5,
        "only cuda_graphs": 2.1,
        "only fused_geglu": None,
    }
    return [
        picture(
            label,
            *([] if s is None else [s, s * 1.01, s * 0.995]),
            settings={"variant": label},
            preset=f"passes:{label}",
            gib=14 + (s or 0),
        )
        for label, s in seconds.items()
    ]


def ceiling() -> CeilingRecord:
    rates = (
        ("matmul", "fp16", "TFLOP/s", 782.0),
        ("convolution", "fp16", "TFLOP/s", 610.0),
        ("attention", "fp16", "TFLOP/s", 540.0),
        ("copy", "fp16", "GB/s", 4200.0),
    )
    return CeilingRecord.model_validate(
        {
            "device": H200,
            "torch": "2.11.0",
            "driver": "580.65",
            "measured": "2026-11-15T11:00:00Z",
            "missing": [],
            "command": "calotype bench ceiling",
            "fingerprint": {},
            "rates": [
                {
                    "what": w,
                    "dtype": d,
                    "shape": "8192",
                    "unit": u,
                    "best": b,
                    "median": b * 0.99,
                    "calls": 10,
                    "seconds": [0.001],
                }
                for w, d, u, b in rates
            ],
        }
    )


def everything(folder: Path) -> list[Path]:
    """Runs with all of it, pictures of steps and guidance beside them, and one line that is torn."""
    runs = {
        "grid": batches(),
        "shapes": [*sizes(), *steps_and_cfg()],
        "scaling": scaling(),
        "passes": ablation(),
    }
    files = []
    for run, measurements in runs.items():
        file = folder / run / FILE
        for measurement in measurements:
            append(file, measurement)
        files.append(file)
    with files[0].open("a") as out:
        out.write('{"format": "calotype.measurement.1", "id": "to')
    roofs = folder / "ceilings.jsonl"
    roofs.write_text(json.dumps(ceiling().model_dump(mode="json")) + "\n")
    for measurement in steps_and_cfg():
        paint(folder / "shapes" / "pictures" / f"{measurement.id}.png", measurement)
    return [*files, roofs]


def paint(file: Path, measurement: Measurement) -> None:
    """A gradient that is less grey the more steps it has."""
    file.parent.mkdir(parents=True, exist_ok=True)
    steps = (measurement.request or {})["steps"]
    grey = Image.linear_gradient("L").resize((600, 600))
    warm = Image.merge("RGB", (grey, grey.rotate(90), Image.new("L", grey.size, 120)))
    Image.blend(Image.merge("RGB", (grey,) * 3), warm, min(1.0, steps / 32)).save(file)


def stored(folder: Path, *measurements: Measurement) -> list[Path]:
    """A run of its own."""
    for measurement in measurements:
        append(folder / FILE, measurement)
    return [folder / FILE]
