"""Real data by name; nothing of third parties ships with thrifty.

Files come from the folder in the argument ``data``, else from the one in the environment variable ``THRIFTY_DATA``.
Where neither names a folder, the sets that OpenML holds in the same form are fetched from there; for the others one
sentence says what to download and where to put it. Whatever the way, the data is checked against a known
checksum before it is used, so that numbers from two machines are numbers from the same data.
"""

from reproduction.datasets.classification import (
    FOREST_SIZES,
    PRICED_NAMES,
    PricedTable,
    SensorTable,
    Split,
    load_cifar_images,
    load_digits_at_least_five,
    load_forest,
    load_gas_drift,
    load_letters,
    load_miniboone,
    load_physionet,
    load_priced,
    load_scene15,
    load_spam,
    make_synthetic,
)
from reproduction.datasets.documents import (
    RankingSplit,
    draw_prices,
    load_mq2008,
    load_mslr,
    load_yahoo,
    load_yahoo_prices,
)

__all__ = [
    "FOREST_SIZES",
    "PRICED_NAMES",
    "PricedTable",
    "RankingSplit",
    "SensorTable",
    "Split",
    "draw_prices",
    "load_cifar_images",
    "load_digits_at_least_five",
    "load_forest",
    "load_gas_drift",
    "load_letters",
    "load_miniboone",
    "load_mq2008",
    "load_mslr",
    "load_physionet",
    "load_priced",
    "load_scene15",
    "load_spam",
    "load_yahoo",
    "load_yahoo_prices",
    "make_synthetic",
]
