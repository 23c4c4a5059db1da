"""Settings that JAX programs use: guards, names without effect, flags of the command line, contexts of users."""

import sys
import threading
import types

import numpy as np
import pytest

import weft
import weft.numpy as jnp
from weft.base.ignored_settings import IGNORED
from weft.errors import JaxRuntimeError

add_one = weft.jit(lambda x: x + 1)


@pytest.fixture
def values():
    x, y = jnp.ones(3), np.ones(3, np.float32)
    for _ in range(3):  # so that there are dispatchers
        add_one(x), add_one(y)
    return x, y


@pytest.mark.parametrize("level", ["disallow", "disallow_explicit"])
def test_host_values_that_become_operands_are_transfers(values, level):
    x, y = values
    with weft.transfer_guard(level):
        add_one(x), x + x, x + 1, x.sum(), np.asarray(x), weft.device_get(x)
        for call in (lambda: add_one(y), lambda: add_one(2.0), lambda: x + y, lambda: jnp.asarray(y)):
            with pytest.raises(JaxRuntimeError, match="Disallowed host-to-device transfer"):
                call()
        if level == "disallow":
            weft.device_put(y)
        else:
            with pytest.raises(JaxRuntimeError, match="host-to-device"):
                weft.device_put(y)
    add_one(y)


def test_transfers_are_logged(values, caplog):
    with weft.transfer_guard_host_to_device("log"):
        add_one(values[1])
    assert "host-to-device transfer of f32[3]" in caplog.text


def test_a_guard_of_all_directions_sets_each():
    weft.config.update("jax_transfer_guard", "log")
    try:
        assert weft.config.transfer_guard_device_to_host == weft.config.jax_transfer_guard_host_to_device == "log"
    finally:
        weft.config.update("jax_transfer_guard", None)
    assert weft.config.transfer_guard_device_to_device == "allow"

    @weft.transfer_guard("disallow")
    def now():
        return weft.config.transfer_guard_device_to_host

    assert now() == "disallow" and weft.config.transfer_guard_device_to_host == "allow"


def test_no_execution_raises_where_something_would_run(values):
    x, _ = values
    with weft.no_execution():
        for call in (lambda: add_one(x), lambda: x + x):
            with pytest.raises(JaxRuntimeError, match="no_execution"):
                call()
        assert add_one.lower(x).out_info.shape == (3,)
    add_one(x)


def test_only_the_thread_that_guards_may_run(values):
    x, _ = values
    found = []

    def other():
        try:
            found.append(add_one(x))
        except JaxRuntimeError as error:
            found.append(str(error))

    def run_other():
        thread = threading.Thread(target=other)
        thread.start()
        thread.join()
        return found.pop()

    with weft.thread_guard(True):
        add_one(x)
        assert "thread_guard" in run_other()
    assert not isinstance(run_other(), str)


def test_calls_with_dispatchers_are_looked_at_for_keys_used_twice():
    draw = weft.jit(lambda key: weft.random.bits(key, (2,)))
    key = weft.random.key(7)
    with weft.debug_key_reuse(True):
        for seed in range(3):
            draw(weft.random.key(seed))
        draw(key)
        with pytest.raises(weft.errors.KeyReuseError):
            draw(key)


@pytest.mark.parametrize("name", IGNORED)
def test_names_without_effect_are_read_and_set(name):
    entry = IGNORED[name]
    assert entry.reason.endswith(".") and weft.config.ignored[name] == entry.reason
    key = weft.config.call_key()
    before = getattr(weft.config, name)
    weft.config.update(name, "another")
    try:
        assert weft.config.read(name) == getattr(weft.config, name) == "another" and weft.config.call_key() is key
    finally:
        weft.config.update(name, before)


def test_settings_that_would_change_results_are_refused():
    for name, value in (("jax_high_dynamic_range_gumbel", True), ("jax_error_checking_behavior_nan", "raise")):
        with pytest.raises(ValueError, match="expects"):
            weft.config.update(name, value)


@pytest.mark.parametrize("wrong, meant", [("jax_use_shardy", "use_shardy_partitioner"), ("jax_enable_x46", "x64")])
def test_unknown_names_are_answered_with_the_nearest(wrong, meant):
    with pytest.raises(AttributeError, match=meant):
        weft.config.update(wrong, True)


def test_the_cache_on_disk_by_the_name_of_jax():
    before = weft.config.compilation_cache
    weft.config.update("jax_enable_compilation_cache", not before)
    assert weft.config.compilation_cache is not before
    weft.config.jax_enable_compilation_cache = before
    assert weft.config.jax_enable_compilation_cache is before
    folder = weft.config.compilation_cache_dir
    weft.config.update("jax_compilation_cache_dir", None)
    weft.config.update("jax_compilation_cache_dir", folder)


@pytest.mark.parametrize(
    "arguments, value",
    [(["--jax_enable_x64"], True), (["--jax_enable_x64=true"], True), (["--nojax_enable_x64"], False)],
)
def test_flags_of_the_command_line(monkeypatch, arguments, value):
    monkeypatch.setattr(sys, "argv", ["program", "--other=1", *arguments, "--jax_debug_log_modules", "jax", "file"])
    before = weft.config.enable_x64
    weft.config.update("enable_x64", not value)
    try:
        weft.config.parse_flags_with_absl()
        assert weft.config.enable_x64 is value and weft.config.jax_debug_log_modules == "jax"
    finally:
        weft.config.update("enable_x64", before)
        weft.config.update("jax_debug_log_modules", "")


def test_flags_are_defined_for_absl(monkeypatch):
    defined = {}
    flags = types.SimpleNamespace(
        FLAGS=defined, DEFINE_string=lambda name, default, doc, module_name: defined.setdefault(name, default)
    )
    monkeypatch.setitem(sys.modules, "absl.flags", flags)
    weft.config.config_with_absl()
    assert "jax_enable_x64" in defined and "jax_use_shardy_partitioner" in defined
    parsed = types.SimpleNamespace(FLAGS=types.SimpleNamespace(jax_log_compiles="1"))
    try:
        weft.config.complete_absl_config(parsed)
        assert weft.config.log_compiles
    finally:
        weft.config.update("log_compiles", False)


def test_a_context_of_the_user_is_part_of_the_key():
    scale, shift = weft.make_user_context(1.0), weft.make_user_context()
    f = weft.jit(lambda x: x * scale.value + (shift.value or 0.0))
    assert f(2.0) == 2.0
    with scale(3.0), shift(1.0):
        assert f(2.0) == 7.0
        with scale(4.0):
            assert f(2.0) == 9.0
    assert f(2.0) == 2.0 and f._cache_size() == 3


def test_large_constants_are_warned_of():
    big = jnp.ones(100)
    weft.config.update("jax_captured_constants_warn_bytes", 400)
    try:
        with pytest.warns(UserWarning, match="closes over 400 bytes"):
            weft.jit(lambda x: x + big)(1.0)
    finally:
        weft.config.update("jax_captured_constants_warn_bytes", 2_000_000_000)


def test_jaxprs_are_dumped(tmp_path):
    weft.config.update("jax_dump_ir_to", tmp_path)
    try:
        weft.jit(lambda x: jnp.cos(x) * 7)(1.0)
    finally:
        weft.config.update("jax_dump_ir_to", None)
    assert any("cos" in path.read_text() for path in tmp_path.iterdir())


def test_forward_and_backward_passes_are_compiled_once():
    fwd, bwd = weft.fwd_and_bwd(lambda x, w: (jnp.sin(x @ w), x), argnums=(1,), has_aux=True)
    x = w = jnp.arange(4.0).reshape(2, 2)
    for _ in range(2):
        y, residuals, aux = fwd(x, w)
        (ct,) = bwd(residuals, y)
    expected = weft.vjp(lambda w: jnp.sin(x @ w), w)[1](y)[0]
    np.testing.assert_allclose(ct, expected, rtol=1e-6)
    assert fwd._cache_size() == bwd._cache_size() == 1 and (aux == x).all()


def test_arrays_that_are_alive():
    x = jnp.arange(7.0)
    assert any(a is x for a in weft.live_arrays()) and any(a is x for a in weft.live_arrays("cpu"))
    assert not any(a is x for a in weft.live_arrays("gpu"))
    x.delete()
    assert not any(a is x for a in weft.live_arrays())


def test_processes_and_shards():
    assert weft.process_indices() == weft.host_ids() == [0]
    x = jnp.ones((2, 3))
    shard = weft.Shard(x.device, x.sharding, x.shape, x)
    assert shard == x.addressable_shards[0] and shard.index == (slice(None),) * 2 and shard.replica_id == 0
    assert weft.memory.Space.Host.name == "Host"
