"""SciPy as a judge: what its older versions, which Weft runs with, compute less exactly than it, or not at all."""

from __future__ import annotations

import pytest
import scipy

FIRST = (1, 17)
# Functions of `scipy.special`, and functions of distributions of `scipy.stats`.
SPECIAL = frozenset({"expi", "gamma", "sph_harm_y"})
STATS = {
    "beta": {"logcdf", "logsf"},
    "cauchy": {"isf", "ppf"},
    "chi2": {"logcdf", "logsf"},
    "expon": {"logcdf"},
    "gamma": {"logcdf", "logsf"},
    "gumbel_l": {"logcdf"},
    "gumbel_r": {"logsf"},
}


def need_judge(function: str, distribution: str | None = None) -> None:
    """Skip a test where this SciPy cannot judge a function, of a distribution if there is one."""
    known = SPECIAL if distribution is None else STATS.get(distribution, set())
    if function in known and tuple(map(int, scipy.__version__.split(".")[:2])) < FIRST:
        pytest.skip(f"SciPy {scipy.__version__} is no judge of {distribution or 'special'}.{function}")
