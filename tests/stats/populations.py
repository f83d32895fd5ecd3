"""Windows of known mass, searched, screened and sampled by the rules of a scan: populations whose truth is known."""

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from byrote.stats.limits import Evidence

THRESHOLD = 0.01


@dataclass(frozen=True)
class Kind:
    """What a population is like, in shares. Extractable ones have a mass of `mass` × τ, others 0.9 τ or none."""

    name: str
    windows: int = 500
    screened: float = 0.5
    missed_certain: float = 0.0
    """Of screened windows, those that are extractable and that a search would certify."""
    missed_hidden: float = 0.0
    """Of screened windows, those that are extractable and that a search would leave undecided."""
    hidden: float = 0.0
    """Of searched windows that are undecided, those that are extractable."""
    mass: float = 1.0
    nearly: float = 0.0
    """Of windows that are not extractable, those with 0.9 of the mass it takes."""
    tickets: int = 60
    audited_tickets: int = 60
    audit: float = 0.2
    densities: tuple[float, ...] = (1.0, 4.0)


KINDS = (
    Kind("nothing missed"),
    Kind("misses that a search finds", missed_certain=0.03),
    Kind("misses that a search leaves open", missed_hidden=0.05),
    Kind("both, at the threshold", missed_certain=0.02, missed_hidden=0.04, hidden=0.3),
    Kind("both, well above it", missed_certain=0.02, missed_hidden=0.02, hidden=0.1, mass=4.0, tickets=200),
    Kind("nearly all undecided ones", screened=0.1, hidden=0.9, tickets=200),
    Kind("just below the threshold", nearly=1.0, hidden=0.2, missed_hidden=0.02),
    Kind("few windows", windows=40, hidden=0.3, missed_hidden=0.1, missed_certain=0.1),
    Kind("many tickets", hidden=0.3, missed_hidden=0.03, tickets=2000, audited_tickets=2000),
)


class KnownPopulation(NamedTuple):
    evidence: Evidence
    extractable: int


def drawn_population(kind: Kind, generator: np.random.Generator) -> KnownPopulation:
    size = kind.windows

    def share(of: NDArray[np.bool_], part: float) -> NDArray[np.bool_]:
        return of & (generator.random(size) < part)

    everything = np.ones(size, dtype=np.bool_)
    screened = share(everything, kind.screened)
    certain, hidden = share(screened, kind.missed_certain), np.zeros(size, dtype=np.bool_)
    hidden |= share(screened & ~certain, kind.missed_hidden)
    certified = share(~screened, 0.5)
    hidden |= share(~screened & ~certified, kind.hidden)
    ruled_out = share(~screened & ~certified & ~hidden, 0.1)
    mass = np.where(share(~ruled_out, kind.nearly), 0.9 * THRESHOLD, 0.0)
    mass[certain | hidden | certified] = kind.mass * THRESHOLD
    density = np.where(generator.random(size) < 0.2, kind.densities[1], kind.densities[0])
    searched = ~screened | (generator.random(size) / density < kind.audit)
    lower = np.where((certified | certain) & searched, mass, 0.0)
    open_mass = generator.uniform(0.5, 1.0, size)
    tickets = np.where(screened, kind.audited_tickets, kind.tickets) * (searched & (lower < THRESHOLD) & ~ruled_out)
    evidence = Evidence(
        lower=lower,
        upper=np.where(ruled_out, 0.5 * THRESHOLD, np.where(searched, open_mass, 1.0)),
        p_verbatim=np.zeros(size),
        density=np.where(screened, density, np.nan),
        is_searched=searched,
        tickets=tickets.astype(np.float64),
        hits=generator.binomial(tickets, mass / open_mass).astype(np.float64),
        sampled_mass=np.where(tickets > 0, open_mass, 0.0),
        base_mass=np.zeros(size),
    )
    return KnownPopulation(evidence, int((certain | hidden | certified).sum()))
