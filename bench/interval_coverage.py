"""How often the 95 % intervals of rates and of paired differences hold the truth, where the truth is known.

    python bench/interval_coverage.py

One text is a book of windows of 400 characters every 20 characters. Passages are memorized together: a window is hit
where a moving sum over `reach` window lengths of standard normal numbers exceeds a quantile. Documents are shelves of
windows with a common effect, of equal or of very different sizes. A run without a hit, or one in which no window
differs, has an interval of a rate and none of a difference; the second says so and is counted apart.

`is_within_assumptions` is false where one text is shorter than 40 of the passages that are memorized together, or has
fewer than three of them to be hit: those rows show what happens. This line, and the number of stretches, were chosen by
looking at draws from another seed (5); the rows of texts of exactly 40 passages were added afterwards and played no
part in the choice. A coverage from 1,000 studies has a standard error of 0.007.
"""

import math
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import special

import environment
from byrote.stats.clusters import Places, rate_with_clusters
from byrote.stats.compare import compare_means
from byrote.types import Interval

STUDIES = 1000
WINDOW, STRIDE = 400, 20
Floats = NDArray[np.float64]
Study = Callable[[np.random.Generator], tuple[float, Interval]]


def main() -> None:
    rows = [row(*each) for each in populations()]
    print(environment.save("interval_coverage", {"studies": STUDIES, "level": 0.95, "rows": rows}))


def row(name: str, about: str, is_within: bool, study: Study) -> dict[str, Any]:
    covered, given = coverage(study, STUDIES, seed=29)
    found = {
        "interval_of": name,
        "population": about,
        "is_within_assumptions": is_within,
        "coverage": round(covered, 4),
        "share_with_an_interval": round(given, 4),
    }
    print(found, flush=True)
    return found


def coverage(study: Study, studies: int, *, seed: int) -> tuple[float, float]:
    """The share of the intervals given that hold the truth, and how often one was given."""
    generator = np.random.default_rng(seed)
    covered = given = 0
    for _ in range(studies):
        truth, interval = study(generator)
        given += interval.is_defined
        covered += interval.low - 1e-12 <= truth <= interval.high + 1e-12
    return covered / max(given, 1), given / studies


def populations() -> Iterator[tuple[str, str, bool, Study]]:
    for windows in (400, 2000, 6000):
        for reach in (1, 4, 8):
            for share in (0.5, 0.05):
                about = f"one text, {windows} windows, passages of {reach}, {share:.0%} hit"
                yield "rate", about, fits(windows, reach, share), rate_of_a_book(windows, reach, share)
    for reach in (1, 4, 8):
        for windows in (400, 2000, 6000):
            about = f"one text, {windows} windows, passages of {reach}, the models equally good"
            yield "difference", about, fits(windows, reach, 0.3), difference_on_a_book(windows, reach, 0.3, 0.3)
    for share in (0.3, 0.1):
        about = f"one text, 4000 windows, passages of 5, {share:.0%} hit"
        yield "rate", about, fits(4000, 5, share), rate_of_a_book(4000, 5, share)
        about = f"one text, 4000 windows, passages of 5, the models equally good at {share:.0%}"
        yield "difference", about, fits(4000, 5, share), difference_on_a_book(4000, 5, share, share)
    about = "one text, 4000 windows, passages of 5, 10% against 30%"
    yield "difference", about, fits(4000, 5, 0.1), difference_on_a_book(4000, 5, 0.1, 0.3)
    for windows, first, second in ((2000, 0.1, 0.3), (6000, 0.1, 0.3), (6000, 0.01, 0.02)):
        about = f"one text, {windows} windows, passages of 4, {first:.0%} against {second:.0%}"
        yield "difference", about, fits(windows, 4, first), difference_on_a_book(windows, 4, first, second)
    for documents in (10, 20, 100):
        for spread in (0.0, 1.5):
            sizes = "equal" if not spread else "log-normal (σ = 1.5)"
            for share, correlation in ((0.3, 0.3), (0.02, 0.5), (0.1, 0.95)):
                about = f"{documents} documents of {sizes} size, {share:.0%} hit, correlation {correlation}"
                yield "rate", about, True, rate_of_a_shelf(documents, spread, share, correlation)
            about = f"{documents} documents of {sizes} size, a common effect in each"
            yield "difference", about, True, difference_on_a_shelf(documents, spread)
    for records, share in ((50, 0.02), (300, 0.01), (300, 0.1)):
        yield "rate", f"{records} records, {share:.0%} hit", True, rate_of_records(records, share)
    for texts in (2, 4, 9):
        about = f"{texts} texts that differ in their rates: passages of these texts"
        yield "rate", about, True, rate_of_few_texts(texts)


def fits(windows: int, reach: int, share: float) -> bool:
    passages = windows * STRIDE / (reach * WINDOW)
    return passages >= 40 and passages * share >= 3


def smooth(generator: np.random.Generator, windows: int, reach: int) -> Floats:
    """A standard normal number a window, correlated over `reach` window lengths."""
    cells = reach * WINDOW // STRIDE
    total = np.concatenate([[0.0], np.cumsum(generator.standard_normal(windows + cells - 1))])
    return np.asarray((total[cells:] - total[:-cells]) / math.sqrt(cells))


def book(windows: int) -> Places:
    return Places.of(["book"] * windows, np.arange(windows) * STRIDE, window_chars=WINDOW)


def rate_of(hits: NDArray[np.bool_], places: Places) -> Interval:
    found = rate_with_clusters(hits, places.documents, places.char_starts, window_chars=places.window_chars)
    return found.interval


def rate_of_a_book(windows: int, reach: int, share: float) -> Study:
    places = book(windows)

    def study(generator: np.random.Generator) -> tuple[float, Interval]:
        return share, rate_of(smooth(generator, windows, reach) > special.ndtri(1 - share), places)

    return study


def difference_of(first: Floats, second: Floats, places: Places) -> Interval:
    return compare_means(first, second, places).interval


def difference_on_a_book(windows: int, reach: int, first: float, second: float) -> Study:
    """Two models that share three tenths of what makes a passage easy."""
    places = book(windows)

    def study(generator: np.random.Generator) -> tuple[float, Interval]:
        common = smooth(generator, windows, reach)
        sides = [
            math.sqrt(0.3) * common + math.sqrt(0.7) * smooth(generator, windows, reach) > special.ndtri(1 - share)
            for share in (first, second)
        ]
        return second - first, difference_of(*(side.astype(np.float64) for side in sides), places)

    return study


def shelf(generator: np.random.Generator, documents: int, spread: float) -> NDArray[np.int64]:
    """The document of every window."""
    sizes = np.maximum(1, np.round(20 * np.exp(generator.normal(0.0, spread, documents)))).astype(np.int64)
    return np.repeat(np.arange(documents), sizes)


def rate_of_a_shelf(documents: int, spread: float, share: float, correlation: float) -> Study:
    strength = (1 - correlation) / correlation

    def study(generator: np.random.Generator) -> tuple[float, Interval]:
        ids = shelf(generator, documents, spread)
        own = generator.beta(share * strength, (1 - share) * strength, documents)
        hits = generator.random(ids.size) < own[ids]
        return share, rate_of(hits, Places.of(ids, np.arange(ids.size) * WINDOW, window_chars=WINDOW))

    return study


def difference_on_a_shelf(documents: int, spread: float) -> Study:
    def study(generator: np.random.Generator) -> tuple[float, Interval]:
        ids = shelf(generator, documents, spread)
        first = generator.normal(size=ids.size)
        second = first + 0.1 + generator.normal(size=documents)[ids] + generator.normal(size=ids.size)
        return 0.1, difference_of(first, second, Places.of(ids, np.arange(ids.size) * WINDOW, window_chars=WINDOW))

    return study


def rate_of_records(records: int, share: float) -> Study:
    places = Places.of(np.arange(records), np.zeros(records, dtype=np.int64), window_chars=WINDOW)
    return lambda generator: (share, rate_of(generator.random(records) < share, places))


def rate_of_few_texts(texts: int) -> Study:
    """The truth is the mean of the texts' own rates: other texts would have others."""
    places = Places.of(np.repeat(np.arange(texts), 1000), np.tile(np.arange(1000) * STRIDE, texts), window_chars=WINDOW)

    def study(generator: np.random.Generator) -> tuple[float, Interval]:
        shares = generator.uniform(0.02, 0.6, texts)
        hits = np.concatenate([smooth(generator, 1000, 1) > special.ndtri(1 - share) for share in shares])
        return float(shares.mean()), rate_of(hits, places)

    return study


if __name__ == "__main__":
    main()
