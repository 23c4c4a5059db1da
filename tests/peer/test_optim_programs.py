"""Random programs of optimizers, losses and modules return what Optax and Haiku return.

`python -m tests.peer.optim_programs`, `loss_programs` and `haiku_programs` run many more.
"""

from __future__ import annotations

import pytest

pytest.importorskip("optax")

from tests.peer import optim_programs

pytest.importorskip("haiku")

from tests.peer import haiku_programs, loss_programs

pytestmark = pytest.mark.filterwarnings("ignore")  # Optax warns of names that it deprecates


@pytest.mark.parametrize("seed", range(20))
def test_a_program_does_what_optax_does(seed: int) -> None:
    program = optim_programs.draw(seed)
    assert optim_programs.difference(program) is None, program


@pytest.mark.parametrize("seed", range(30))
def test_a_loss_is_that_of_optax(seed: int) -> None:
    program = loss_programs.draw(seed)
    assert loss_programs.difference(program) is None, program


def test_every_public_loss_is_drawn() -> None:
    assert loss_programs.public_losses() == set(loss_programs.LOSSES) | loss_programs.ELSEWHERE


@pytest.mark.parametrize("seed", range(12))
def test_modules_do_what_those_of_haiku_do(seed: int) -> None:
    program = haiku_programs.draw(seed)
    assert haiku_programs.difference(program) is None, program
