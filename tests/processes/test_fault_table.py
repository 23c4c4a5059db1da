"""The table of faults: a sample of it by default, once as slow tests, five times by `make test-faults-processes`.

Limits of time are for idle machines; here they are three times as long, for machines that run other tests as well.
"""

from __future__ import annotations

import pathlib

import pytest

from tests.processes.fault_runs import run_fault
from tests.processes.fault_table import TABLE, Fault
from tests.processes.hosts import can_make_hosts
from tests.processes.launching import SCRIPTS, needs_mpi

SLACK = 3.0
SAMPLE = {
    "first stopped": {"WEFT_STUCK_AFTER": "2", "WEFT_ABORT_AFTER": "4"},
    "cannot write": {},
}


def test_the_table_has_different_faults_of_the_script() -> None:
    assert len({fault.name for fault in TABLE}) == len(TABLE) >= 30
    script = (SCRIPTS / "faulty.py").read_text()
    for fault in TABLE:
        what = fault.what.removeprefix("save_").removesuffix("_async").removesuffix("_orbax")
        assert f'"{what}"' in script or fault.cut, fault.name  # networks are cut from outside
        assert fault.rank < fault.count and all(rank < fault.count for rank in fault.others)


@needs_mpi
@pytest.mark.parametrize(
    "fault",
    [pytest.param(fault, marks=() if fault.name in SAMPLE else pytest.mark.slow) for fault in TABLE],
    ids=lambda fault: fault.name.replace(" ", "_"),
)
def test_a_fault_is_told_and_all_end(fault: Fault, tmp_path: pathlib.Path) -> None:
    if fault.cut and not can_make_hosts():
        pytest.skip("needs the right to make network namespaces (ip netns add), as root has it")
    outcome = run_fault(fault._replace(settings={**fault.settings, **SAMPLE.get(fault.name, {})}), tmp_path, SLACK)
    assert not outcome.wrong, f"{outcome.wrong}\n{outcome.text}"
