"""The law of vmap, on every sample of every primitive: a batch returns what a loop returns."""

from __future__ import annotations

import numpy as np
import pytest

from tests.laws import laws
from tests.laws.samples import Case, every_sample
from weft.ir.missing_rule import MissingRule

pytestmark = pytest.mark.usefixtures("by_meaning")


@every_sample(lambda case: bool(case.types) and not isinstance(case.primitive.batch, MissingRule))
def test_batch_is_a_loop(case: Case, rng: np.random.Generator) -> None:
    laws.check_batch(case.bind, case.operands, rng, case.tolerance)
