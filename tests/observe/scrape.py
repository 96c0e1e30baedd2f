"""Reading metrics as Prometheus does: over HTTP or from a registry, by prometheus_client's own parser."""

import urllib.request
from typing import Any

from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.parser import text_string_to_metric_families

Samples = dict[tuple[str, tuple[tuple[str, str], ...]], float]


def parse(text: str) -> Samples:
    """Every sample of a page; a sample that appears twice is an error."""
    found: Samples = {}
    for family in text_string_to_metric_families(text):
        for sample in family.samples:
            key = (sample.name, tuple(sorted(sample.labels.items())))
            assert key not in found
            found[key] = sample.value
    return found


def read(registry: CollectorRegistry) -> Samples:
    return parse(generate_latest(registry).decode())


def fetch(port: int) -> str:
    with urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics", timeout=30) as answer:
        text: str = answer.read().decode()
        return text


def value(samples: Samples, name: str, **labels: Any) -> float | None:
    return samples.get((name, tuple(sorted(labels.items()))))


def only(samples: Samples, name: str) -> dict[tuple[str, ...], float]:
    """The samples of a name by the values of their labels, in the order of the labels' names."""
    return {tuple(text for _, text in labels): number for (each, labels), number in samples.items() if each == name}
