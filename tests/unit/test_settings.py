"""Settings: global values, scopes of a thread, cache keys, environment variables, and errors."""

import os
import pathlib
import subprocess
import sys
import tempfile
import threading
import typing

import pytest

import weft
from weft.base import settings
from weft.base.settings import Config, config, states

ROOT = pathlib.Path(__file__).parents[2]


@pytest.fixture(autouse=True)
def restored(monkeypatch):
    monkeypatch.setattr(settings.num_cpu_devices, "is_fixed", False)  # as if devices had not been asked for
    before = {name: state.global_value for name, state in states.items()}
    yield
    for name, value in before.items():
        config.update(name, value)


def other_value(state):
    """Return an allowed value that is not the current one."""
    if state.name == "compilation_cache_dir":  # code that is compiled in the background may be stored there meanwhile
        return os.path.join(tempfile.gettempdir(), "weft-other-cache")
    plain = (
        True,
        False,
        1,
        7,
        "strict",
        "raise",
        "error",
        "highest",
        "rbg",
        "all",
        "off",
        "declared",
        "cpu",
        -1,
        "log",
        "messages",
        "ERROR",
        (("context", 1),),
    )
    for value in (*plain, weft.sharding.AbstractMesh((1,), ("x",))):
        try:
            if state.check(value) != state.value:
                return state.check(value)
        except ValueError:
            continue
    raise AssertionError(f"no other value for {state.name}")


# Settings of JAX that say how things are here anyway, and one that is never of a single thread.
ONE_VALUE = ("cuda_visible_devices", "high_dynamic_range_gumbel", "disable_vmap_shmap_error", "mock_gpu_topology")
ONE_VALUE += ("mock_num_gpu_processes", *(f"error_checking_behavior_{n}" for n in ("nan", "oob", "divide")))
CHANGEABLE = [name for name in states if name not in (*ONE_VALUE, "thread_guard")]


def in_thread(function):
    """Return the result of `function` in a new thread."""
    results = []
    thread = threading.Thread(target=lambda: results.append(function()))
    thread.start()
    thread.join()
    return results[0]


def test_every_setting_is_declared_documented_and_an_attribute_of_the_module():
    assert list(states) == [name for name in typing.get_type_hints(Config) if not name.startswith("_")]
    for name, state in states.items():
        assert getattr(settings, name) is state
        assert state.__doc__.split("\n\n")[0].endswith(".")
        assert state.value == getattr(config, name) == config.read(name) == config.values[name]


@pytest.mark.parametrize("name", CHANGEABLE)
def test_global_value_reaches_all_threads_and_a_scope_only_its_own(name):
    state = states[name]
    default, other = state.value, other_value(state)
    with state(other):
        assert getattr(config, name) == state.value == other
        assert state.global_value == default
        assert in_thread(lambda: getattr(config, name)) == default
    assert getattr(config, name) == default
    config.update(name, other)
    assert getattr(config, name) == other
    assert in_thread(lambda: getattr(config, name)) == other


@pytest.mark.parametrize("name", CHANGEABLE)
def test_key_changes_exactly_with_the_settings_that_change_code(name):
    state = states[name]
    before = config.key()
    with state(other_value(state)):
        assert (config.key() != before) == state.in_key
        assert in_thread(config.key) is before
    assert config.key() is before
    other = other_value(state)
    config.update(name, other)
    assert (config.key() != before) == state.in_key
    assert in_thread(config.key) is config.key()


def test_a_global_change_shows_in_the_key_of_a_thread_with_overrides():
    with settings.debug_nans(True):
        before = config.key()
        config.update("enable_x64", True)
        assert config.key() != before


def test_scopes_nest_and_unwind_on_errors():
    with pytest.raises(ZeroDivisionError):
        with settings.enable_x64(True):
            with settings.enable_x64(False):
                assert not config.enable_x64
            assert config.enable_x64
            1 / 0
    assert not config.enable_x64
    scope = settings.enable_x64()
    with scope, scope:
        assert config.enable_x64
    assert not config.enable_x64


def test_a_scope_hides_the_global_value_until_it_ends():
    with settings.enable_x64(False):
        config.update("enable_x64", True)
        assert not config.enable_x64
    assert config.enable_x64


def test_a_scope_decorates_a_function():
    @settings.enable_x64(True)
    def now():
        return config.enable_x64

    assert now() and in_thread(now) and not config.enable_x64


def test_several_overrides_at_once():
    with settings.overrides(enable_x64=True, jax_numpy_dtype_promotion="strict"):
        assert config.enable_x64 and config.numpy_dtype_promotion == "strict"
    assert not config.enable_x64 and config.numpy_dtype_promotion == "standard"


@pytest.mark.parametrize("prefix", ["", "jax_", "weft_"])
def test_names_may_have_a_prefix(prefix):
    config.update(prefix + "enable_x64", True)
    assert config.enable_x64 and config.read(prefix + "enable_x64") and getattr(config, prefix + "enable_x64")


@pytest.mark.parametrize("name, nearest", [("jax_enable_x46", "enable_x64"), ("debug_nan", "debug_nans")])
def test_an_unknown_name_raises_with_the_nearest(name, nearest):
    with pytest.raises(AttributeError, match=f"{name}.*Did you mean '{nearest}'"):
        config.update(name, True)


@pytest.mark.parametrize(
    "name, value",
    [("enable_x64", "yes"), ("enable_x64", None), ("numpy_dtype_promotion", "Strict"), ("random_seed_offset", 1.5)],
)
def test_a_wrong_value_raises_and_changes_nothing(name, value):
    before = config.read(name)
    with pytest.raises(ValueError, match=name):
        config.update(name, value)
    with pytest.raises(ValueError, match=name):
        states[name](value)
    assert config.read(name) == before


def test_assigning_is_the_same_as_update():
    before = config.checks
    try:
        config.checks = True
        assert settings.checks.global_value == "all" and weft.config.checks == "all"
        with settings.checks("off"):
            config.weft_checks = "eager"
            assert config.checks == "off" and settings.checks.global_value == "eager"
        assert config.checks == "eager"
        with pytest.raises(ValueError, match="checks"):
            config.checks = 7
        with pytest.raises(AttributeError, match="Did you mean 'checks'"):
            config.check = True
    finally:
        config.update("checks", before)


def test_similar_names_raise():
    with pytest.raises(TypeError, match=r"config\.enable_x64"):
        bool(settings.enable_x64)
    with pytest.raises(TypeError, match="needs a value"):
        settings.numpy_dtype_promotion()


def run_with_environment(code, **variables):
    environment = {**os.environ, **variables, "PYTHONPATH": str(ROOT)}
    return subprocess.run([sys.executable, "-c", code], env=environment, capture_output=True, text=True)


def test_environment_variables_set_the_global_value():
    code = "from weft.base.settings import config as c; print(c.enable_x64, c.debug_nans, c.random_seed_offset)"
    ran = run_with_environment(code, WEFT_ENABLE_X64="1", WEFT_DEBUG_NANS="off", WEFT_RANDOM_SEED_OFFSET="-3")
    assert ran.stdout.split() == ["True", "False", "-3"], ran.stderr
    ran = run_with_environment(code, WEFT_ENABLE_X64="maybe")
    assert "WEFT_ENABLE_X64" in ran.stderr and "True or False" in ran.stderr
