"""Train five networks on CIFAR-10, time them, and write what each one answers to every image.

The first half of "A small network before a large one" (docs/networks.md); ``plan.py`` is the second. It needs torch and
numpy alone, and uses a GPU where there is one::

    python examples/networks/train.py --data ../shared/data --out networks.npz --epochs 60 --minutes 8

``--data`` is a numpy file, or a folder with ``cifar10_20k.npz``, that holds images ``X`` (rows, 32, 32, 3) of uint8,
labels ``y`` and optionally ``split`` (2 for test images; otherwise the last quarter).

Each network is trained without each third of the training images, which it then answers, and on all of them for the
test images. ``--minutes`` bounds the whole: networks that would take longer get fewer epochs, with the same schedule.
What is written: ``logp`` (rows, models, classes), ``y``, ``fold`` (-1 for test images), ``split``, ``names``,
``seconds`` (models, 3) per image at batches of 1, 32 and 256, ``batch_sizes``, ``epochs``, ``device`` and ``torch``.
An exit of a network is a model, and its seconds contain those of the parts before it.
"""

import argparse
import platform
import sys
import time
from pathlib import Path

import numpy as np
import torch
from torch import nn
from torch.nn import functional

NETWORKS = {"tiny": 1.0, "small": 1.0, "medium": 1.5, "large": 4.0, "exits": 4.0}
"""Networks, and the share of the time that each may take."""
BATCH_SIZES = (1, 32, 256)
N_FOLDS, N_EXITS, N_CLASSES, SHIFT = 3, 3, 10, 4
TRAIN_BATCH, EVAL_BATCH = 256, 1000
PEAK_RATE, WEIGHT_DECAY, WARM_UP, SMOOTHING = 0.15, 5e-4, 0.2, 0.05


# -- networks --------------------------------------------------------------------------------------


class Conv(nn.Sequential):
    """A convolution, normalised; ``fuse`` makes it one convolution for inference."""

    def __init__(self, n_in, n_out, stride=1):
        super().__init__(
            nn.Conv2d(n_in, n_out, 3, stride, 1, bias=False), nn.BatchNorm2d(n_out), nn.ReLU(inplace=True)
        )

    def fuse(self):
        self[0], self[1] = nn.utils.fuse_conv_bn_eval(self[0], self[1]), nn.Identity()


class Residual(nn.Module):
    """A convolution, or two, beside the identity."""

    def __init__(self, width, n_layers=2):
        super().__init__()
        self.body = nn.Sequential(*(Conv(width, width) for _ in range(n_layers)))

    def forward(self, x):
        return x + self.body(x)


class Network(nn.Module):
    """Parts one after another; behind some of them an exit, whose logits are an answer."""

    def __init__(self, parts, widths):
        super().__init__()
        self.parts = nn.ModuleList(parts)
        self.heads = nn.ModuleList(nn.Linear(width, N_CLASSES) for width in widths)

    def forward(self, x, last=None):
        """Logits of all exits, or with ``last`` of this one, which runs no more than it needs."""
        logits = []
        for place, (part, head) in enumerate(zip(self.parts, self.heads, strict=True)):
            x = part(x)
            if last in (None, place):
                logits.append(head(x.mean((2, 3))))
            if last == place:
                break
        return logits


def network(name):
    """One of the networks, with its random weights."""
    if name == "tiny":
        return Network([nn.Sequential(Conv(3, 8, 2), Conv(8, 16, 2), Conv(16, 32, 2))], [32])
    if name in ("small", "medium"):
        width = {"small": 16, "medium": 48}[name]
        layers = [
            Conv(3, width),
            Conv(width, 2 * width, 2),
            Conv(2 * width, 4 * width, 2),
            Conv(4 * width, 4 * width),
        ]
        return Network([nn.Sequential(*layers)], [4 * width])
    if name == "large":
        layers = [Conv(3, 64), Conv(64, 128), nn.MaxPool2d(2), Residual(128), Conv(128, 256), nn.MaxPool2d(2)]
        layers += [Residual(256), Conv(256, 512), nn.MaxPool2d(2), Residual(512)]
        return Network([nn.Sequential(*layers)], [512])
    first = nn.Sequential(Conv(3, 32), Conv(32, 64, 2), Residual(64))
    second = nn.Sequential(Conv(64, 128), Residual(128), nn.MaxPool2d(2), Residual(128))
    third = nn.Sequential(Conv(128, 256), Residual(256), nn.MaxPool2d(2), Residual(256))
    return Network([first, second, third], [64, 128, 256])


def models_of(name):
    """Names of the answers of a network."""
    return [f"{name}/{place}" for place in range(N_EXITS)] if name == "exits" else [name]


# -- data ------------------------------------------------------------------------------------------


def read(path, n_rows):
    """Images as (rows, 3, 32, 32) of uint8, labels, and which images are test images."""
    path = path / "cifar10_20k.npz" if path.is_dir() else path
    with np.load(path) as file:
        if "d" in file.files:  # differences of (G, R - G, B - G) along both sides
            plane = np.cumsum(np.cumsum(file["d"], axis=3, dtype=np.uint8), axis=2, dtype=np.uint8)
            images = np.stack([plane[:, 1] + plane[:, 0], plane[:, 0], plane[:, 2] + plane[:, 0]], axis=1)
        else:
            images = file["X"].reshape(-1, 32, 32, 3).transpose(0, 3, 1, 2)
        labels = file["y"].astype(np.int64)
        is_test = (
            file["split"] == 2 if "split" in file.files else np.arange(len(labels)) >= 0.75 * len(labels)
        )
    if n_rows is not None:
        rng = np.random.default_rng(0)
        kept = [
            rng.permutation(np.flatnonzero(is_test == test))[: n_rows // (3 if test else 1)]
            for test in (False, True)
        ]
        rows = np.sort(np.concatenate(kept))
        images, labels, is_test = images[rows], labels[rows], is_test[rows]
    return np.ascontiguousarray(images), labels, is_test


def shifted(padded, rows, generator):
    """Images of these rows, moved by up to four pixels to each side and mirrored by chance."""
    device, n = padded.device, len(rows)
    down, right = torch.randint(0, 2 * SHIFT + 1, (2, n), device=device, generator=generator)
    windows = padded.unfold(2, 32, 1).unfold(3, 32, 1)  # a view
    images = windows[rows, :, down, right]
    mirrored = torch.rand(n, device=device, generator=generator) < 0.5
    images = torch.where(mirrored[:, None, None, None], images.flip(3), images)
    return images.contiguous(memory_format=torch.channels_last)


# -- training and answering ------------------------------------------------------------------------


def synchronise(device):
    if device.type == "cuda":
        torch.cuda.synchronize(device)


def train(model, images, labels, *, epochs, seconds, seed, report):
    """Train by stochastic gradients; the rate rises and falls with the epochs, or the seconds if these end first."""
    device, n = images.device, len(labels)
    generator = torch.Generator(device).manual_seed(seed)
    padded = functional.pad(images, (SHIFT,) * 4, mode="reflect")
    batch = min(TRAIN_BATCH, n)
    n_batches = n // batch
    optimizer = torch.optim.SGD(
        model.parameters(), lr=PEAK_RATE, momentum=0.9, nesterov=True, weight_decay=WEIGHT_DECAY
    )
    model.train()
    began, done = time.monotonic(), 0
    while True:
        order = torch.randperm(n, device=device, generator=generator)
        for place in range(n_batches):
            progress = max((done + place / n_batches) / epochs, (time.monotonic() - began) / seconds)
            if progress >= 1.0:
                return done + place / n_batches
            for group in optimizer.param_groups:
                group["lr"] = PEAK_RATE * min((progress + 1e-3) / WARM_UP, (1.0 - progress) / (1.0 - WARM_UP))
            rows = order[place * batch : (place + 1) * batch]
            with torch.autocast(device.type, torch.bfloat16, enabled=device.type == "cuda"):
                outputs = model(shifted(padded, rows, generator))
            losses = [
                functional.cross_entropy(logits.float(), labels[rows], label_smoothing=SMOOTHING)
                for logits in outputs
            ]
            loss = losses[-1] + 0.5 * sum(losses[:-1])
            optimizer.zero_grad(set_to_none=True)
            loss.backward()
            optimizer.step()
        synchronise(device)
        done += 1
        report(done, float(loss.detach()))


def for_inference(model):
    """The network as it is timed and asked: normalisation inside the convolutions, half precision on a GPU."""
    model.eval()
    for module in model.modules():
        if isinstance(module, Conv):
            module.fuse()
    on_gpu = next(model.parameters()).is_cuda
    dtype = torch.bfloat16 if on_gpu else torch.float32
    return model.to(dtype=dtype, memory_format=torch.channels_last)


@torch.inference_mode()
def answer(model, images, last=None):
    """Log-probabilities of all exits, or of one; shape (exits, rows, classes)."""
    dtype = next(model.parameters()).dtype
    outputs = model(images.to(dtype).contiguous(memory_format=torch.channels_last), last)
    return torch.stack([functional.log_softmax(logits.float(), dim=1) for logits in outputs])


def answers(model, images):
    parts = [
        answer(model, images[at : at + EVAL_BATCH]).cpu().numpy() for at in range(0, len(images), EVAL_BATCH)
    ]
    return np.concatenate(parts, axis=1).transpose(1, 0, 2)


def seconds_per_image(model, images, last):
    """Median seconds of an image that is on the device, at each batch size, after calls that warm up."""
    device, medians = images.device, []
    for size in BATCH_SIZES:
        batch = images[torch.arange(size, device=device) % len(images)]
        taken = []
        limit = time.monotonic() + 1.0
        while len(taken) < 120 and (len(taken) < 5 or time.monotonic() < limit):
            synchronise(device)
            began = time.perf_counter()
            answer(model, batch, last)
            synchronise(device)
            taken.append(time.perf_counter() - began)
        medians.append(np.median(taken[len(taken) // 6 :]) / size)
    return medians


def device_name(device):
    if device.type == "cuda":
        return torch.cuda.get_device_name(device)
    return platform.processor() or platform.machine()


def main():
    here = Path(__file__).resolve().parents[2]
    folders = [here / "shared" / "data", here.parent / "shared" / "data"]
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument(
        "--data", type=Path, default=next((one for one in folders if one.is_dir()), folders[0])
    )
    parser.add_argument("--out", type=Path, default=Path("networks.npz"))
    parser.add_argument("--epochs", type=int, default=60)
    parser.add_argument("--minutes", type=float, default=8.0, help="of all networks together")
    parser.add_argument(
        "--rows", type=int, help="training images, and a third of it test images; default: all"
    )
    parser.add_argument("--networks", nargs="+", choices=NETWORKS, default=list(NETWORKS))
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()

    began, device = time.monotonic(), torch.device(options.device)
    torch.backends.cudnn.benchmark = True
    images, labels, is_test = read(options.data, options.rows)
    rng = np.random.default_rng(options.seed)
    fold = np.full(len(labels), -1)
    fold[~is_test] = rng.permutation(np.sum(~is_test)) % N_FOLDS
    on_device = torch.from_numpy(images).to(device).float()
    pixels = on_device[torch.from_numpy(~is_test).to(device)]
    middle, spread = pixels.mean((0, 2, 3), keepdim=True), pixels.std((0, 2, 3), keepdim=True)
    on_device = (on_device - middle) / spread
    targets = torch.from_numpy(labels).to(device)
    print(
        f"{device_name(device)}: {np.sum(~is_test):,} training and {is_test.sum():,} test images", flush=True
    )

    # Each fit may take its share of the time that is left; a tenth is for the last answers, timing and writing.
    end = began + 0.9 * 60.0 * options.minutes
    fits = [(name, left_out) for name in options.networks for left_out in (*range(N_FOLDS), -1)]
    weights = [
        NETWORKS[name] * (1.0 if left_out >= 0 else N_FOLDS / (N_FOLDS - 1)) for name, left_out in fits
    ]
    names = [model for name in options.networks for model in models_of(name)]
    logp = np.zeros((len(labels), len(names), N_CLASSES), dtype=np.float16)
    seconds, epochs = np.zeros((len(names), len(BATCH_SIZES))), np.zeros(len(names))
    for number, (name, left_out) in enumerate(fits):
        columns = [names.index(model) for model in models_of(name)]
        asked = np.flatnonzero(fold == left_out)
        used = torch.from_numpy(np.flatnonzero((fold >= 0) & (fold != left_out))).to(device)
        share = weights[number] / sum(weights[number:])
        title = (
            f"[{number + 1}/{len(fits)}] {name}, {'all rows' if left_out < 0 else f'without fold {left_out}'}"
        )

        def report(done, loss, title=title):
            if sys.stdout.isatty():
                print(f"\r{title}: epoch {done}/{options.epochs}, loss {loss:.3f}", end="", flush=True)

        torch.manual_seed(options.seed + number)
        model = network(name).to(device, memory_format=torch.channels_last)
        done = train(
            model,
            on_device[used],
            targets[used],
            epochs=options.epochs,
            seconds=max(share * (end - time.monotonic()), 0.5),
            seed=options.seed + number,
            report=report,
        )
        model = for_inference(model)
        found = answers(model, on_device[torch.from_numpy(asked).to(device)])
        logp[np.ix_(asked, columns)] = found
        right = [f"{share:.4f}" for share in (found.argmax(2) == labels[asked, None]).mean(0)]
        if left_out < 0:
            epochs[columns] = done
            for place, column in enumerate(columns):
                seconds[column] = seconds_per_image(model, on_device, place)
        print(
            f"{chr(13) * sys.stdout.isatty()}{title}: {done:.1f} epochs, right on {', '.join(right)}, "
            f"{time.monotonic() - began:.0f} s",
            flush=True,
        )
    np.savez_compressed(
        options.out,
        logp=logp,
        y=labels.astype(np.uint8),
        fold=fold.astype(np.int8),
        split=np.where(is_test, 2, 0).astype(np.uint8),
        names=np.array(names),
        seconds=seconds,
        batch_sizes=np.array(BATCH_SIZES),
        epochs=epochs,
        device=np.array(device_name(device)),
        torch=np.array(torch.__version__),
    )
    for model, line in zip(names, seconds, strict=True):
        print(f"{model:10s} " + " ".join(f"{1e6 * one:10.2f}" for one in line) + " microseconds an image")
    print(f"wrote {options.out}")


if __name__ == "__main__":
    main()
