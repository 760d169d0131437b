"""Universal perturbations against those of the Adversarial Robustness Toolbox (ART): fooling rates and time, one run.

A Q-Metric network is trained on digits. For every seed, ART's UniversalPerturbation and our sequential, batched and
gradient forms craft on the same images at the same radius, one after the other, so that whatever else the machine does
falls on all; fooling rates are those on the test images. DeepFool looks at 10 classes and takes 10 steps at most in ART
and in the sequential form, but at 3 classes and 3 steps in the batched one: its speed is in part that of a smaller
DeepFool. The exit status is 1 unless the sequential form agrees with ART in the mean (within 3 points and two standard
errors) and the batched one fools at least as much as the sequential one (within two standard errors) at 20 times the
speed of ART.

    pip install "detrame[oracle]"
    python benchmarks/universal.py [--seeds 10] [--json FILE]
"""

import argparse
import json
import math
import random
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import numpy
import torch
from art.attacks.evasion import UniversalPerturbation
from art.estimators.classification import PyTorchClassifier
from torch import Tensor, nn

from detrame import default_recipe, train
from detrame.experiments.spread import Spread
from detrame.inference import as_pixels, fooling_rate, predict
from detrame.robustness import Ball, batched, gradient, perturbed, sequential
from detrame.robustness.attacked import attacked
from detrame.training.environment import commit, hardware

RADIUS, CRAFTING, PASSES, OVERSHOOT, STEPS, CLASSES = 0.3, 200, 2, 0.02, 10, 10
POINTS, SPEED = 3.0, 20.0  # what is asked for

Craft = Callable[[nn.Module, Tensor, int], Tensor]


def by_art(model: nn.Module, images: Tensor, seed: int) -> Tensor:
    """ART's perturbation, of the network that clips its input, as ours attack it."""
    random.seed(seed)  # it draws the order of the images from the global generators
    numpy.random.seed(seed)
    with attacked(model, images.device) as network:
        classifier = PyTorchClassifier(
            network, nn.CrossEntropyLoss(), input_shape=tuple(images.shape[1:]), nb_classes=CLASSES
        )
        inner = {"max_iter": STEPS, "epsilon": OVERSHOOT, "nb_grads": CLASSES, "batch_size": 1, "verbose": False}
        attack = UniversalPerturbation(
            classifier,
            attacker="deepfool",
            attacker_params=inner,
            delta=0.0,
            max_iter=PASSES,
            eps=RADIUS,
            norm=numpy.inf,
            verbose=False,
        )
        attack.generate(images.numpy())
    return torch.from_numpy(attack.noise[0])


def by_us(form: Callable[..., tuple[Tensor, object]], **options: float) -> Craft:
    ball = Ball(RADIUS, "pixels")
    return lambda model, images, seed: form(model, images, [ball], [seed], passes=PASSES, **options)[0][0]


DEEPFOOL = {"target": 100.0, "overshoot": OVERSHOOT}
FORMS: dict[str, Craft] = {
    "art": by_art,
    "sequential": by_us(sequential, **DEEPFOOL),
    "batched": by_us(batched, **DEEPFOOL),
    "gradient": by_us(gradient),
}


def measure(seeds: int) -> dict[str, dict[str, list[float]]]:
    """Fooling rates in percent and seconds of crafting, by form and seed."""
    with tempfile.TemporaryDirectory() as folder:
        run = train(default_recipe("plainnet3", "digits"), Path(folder) / "run", device="cpu")
        model, dataset = run.model, run.dataset()
    images, test = as_pixels(dataset.train.images[:CRAFTING]), as_pixels(dataset.test.images)
    before = predict(model, test)
    found: dict[str, dict[str, list[float]]] = {name: {"fooling": [], "seconds": []} for name in FORMS}
    for seed in range(seeds):
        for name, craft in FORMS.items():
            start = time.perf_counter()
            perturbation = craft(model, images, seed)
            found[name]["seconds"].append(time.perf_counter() - start)
            found[name]["fooling"].append(fooling_rate(before, predict(model, perturbed(test, perturbation))))
            print(seed, name, f"{found[name]['fooling'][-1]:.1f}%", f"{found[name]['seconds'][-1]:.2f} s", flush=True)
    return found


def error(first: Spread, second: Spread) -> float:
    """The standard error of the difference of two means."""
    return math.hypot((first.std or 0) / first.n**0.5, (second.std or 0) / second.n**0.5)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seeds", type=int, default=10)
    parser.add_argument("--json", type=Path)
    options = parser.parse_args()
    found = measure(options.seeds)
    fooling = {name: Spread.of(one["fooling"]) for name, one in found.items()}
    seconds = {name: Spread.of(one["seconds"]).mean for name, one in found.items()}
    for name in FORMS:
        faster = seconds["art"] / seconds[name]
        print(f"{name:<11} fools {fooling[name].text(2)}%, {seconds[name]:.2f} s, {faster:.1f} times as fast as ART")
    gap = fooling["sequential"].mean - fooling["art"].mean
    allowed = POINTS + 2 * error(fooling["sequential"], fooling["art"])
    lead = fooling["batched"].mean - fooling["sequential"].mean
    slack = 2 * error(fooling["batched"], fooling["sequential"])
    speed = seconds["art"] / seconds["batched"]
    print(f"sequential against ART: {gap:+.2f} points, {allowed:.2f} allowed")
    print(f"batched against sequential: {lead:+.2f} points, {-slack:.2f} allowed; {speed:.1f} times as fast as ART")
    if options.json:
        settings = {"radius": RADIUS, "unit": "pixels", "norm": "inf", "crafting": CRAFTING, "passes": PASSES}
        document = {
            "hardware": hardware("cpu"),
            "threads": torch.get_num_threads(),
            "torch": torch.__version__,
            "commit": commit(),
            "network": "plainnet3 qmetric on digits, seed 0",
            "settings": settings | {"overshoot": OVERSHOOT, "steps": STEPS},
            "forms": found,
            "gap": gap,
            "gap_allowed": allowed,
            "lead": lead,
            "speed": speed,
        }
        options.json.write_text(json.dumps(document, indent=1) + "\n")
    sys.exit(not (abs(gap) <= allowed and lead >= -slack and speed >= SPEED))


if __name__ == "__main__":
    main()
