"""Events of compilation, the stages of a function by JAX's names, memory profiles, and arrays shared with NumPy."""

import gzip

import numpy as np
import pytest

import weft
import weft.numpy as jnp
from weft import monitoring


@pytest.fixture(autouse=True)
def nobody_listens():
    yield
    monitoring.clear_event_listeners()


def test_listeners_hear_what_they_registered_for():
    seen = []
    note = lambda kind: lambda *event, **details: seen.append((kind, *event, details))
    listeners = [note(kind) for kind in ("event", "duration", "scalar", "span")]
    monitoring.register_event_listener(listeners[0])
    monitoring.register_event_duration_secs_listener(listeners[1])
    monitoring.register_scalar_listener(listeners[2])
    monitoring.register_event_time_span_listener(listeners[3])
    monitoring.record_event("/a", n=1)
    monitoring.record_event_duration_secs("/b", 0.5)
    monitoring.record_scalar("/c", 2, unit="m")
    monitoring.record_event_time_span("/d", 1.0, 2.0)
    assert seen == [
        ("event", "/a", {"n": 1}),
        ("duration", "/b", 0.5, {}),
        ("scalar", "/c", 2, {"unit": "m"}),
        ("span", "/d", 1.0, 2.0, {}),
    ]
    monitoring.unregister_event_listener(listeners[0])
    monitoring.unregister_event_duration_listener(listeners[1])
    monitoring.unregister_scalar_listener(listeners[2])
    monitoring.unregister_event_time_span_listener(listeners[3])
    monitoring.record_event("/a")
    assert len(seen) == 4
    with pytest.raises(ValueError, match="not registered"):
        monitoring.unregister_event_listener(listeners[0])


def test_tracing_and_compiling_are_recorded(tmp_path):
    durations, events = {}, []
    monitoring.register_event_duration_secs_listener(lambda event, seconds, **d: durations.setdefault(event, d))
    monitoring.register_event_listener(lambda event, **d: events.append(event))
    folder = weft.config.compilation_cache_dir
    weft.config.update("compilation_cache_dir", tmp_path)
    try:
        for _ in range(2):

            @weft.jit
            def looked_for(x):
                return jnp.tanh(x) * 1.25 + x[::-1]

            looked_for(jnp.arange(37.0))
    finally:
        weft.config.update("compilation_cache_dir", folder)
    assert durations["/jax/core/compile/jaxpr_trace_duration"] == {"fun_name": "looked_for"}
    assert durations["/jax/core/compile/backend_compile_duration"]["fun_name"] in ("looked_for", "arange")
    assert "/jax/compilation_cache/cache_misses" in events and "/jax/compilation_cache/cache_hits" in events


def test_stages_by_the_names_of_jax():
    f = weft.jit(lambda x: x + 1)
    assert isinstance(f, weft.stages.Wrapped) and not isinstance(len, weft.stages.Wrapped)
    lowered = f.lower(jnp.ones((2, 3)))
    (info,), _ = lowered.args_info
    assert info.aval is info._aval and info.shape == (2, 3)
    compiled = lowered.compile(compiler_options=None)
    (form,), _ = compiled.input_formats
    assert form.layout.major_to_minor == (0, 1) and form.sharding == jnp.ones(1).sharding
    assert compiled.output_formats == form and compiled.call(jnp.ones((2, 3))).sum() == 12
    assert "add" in str(lowered.compiler_ir()) and lowered.compile(None) is not None


def test_errors_take_what_jax_programs_pass():
    def f(x):
        raise weft.errors.ConcretizationTypeError(x, "needed for a shape")

    with pytest.raises(weft.errors.ConcretizationTypeError, match="needed for a shape"):
        weft.jit(f)(1.0)


def test_memory_profiles_name_types_and_devices(tmp_path):
    x = jnp.ones((3, 5, 7))
    weft.profiler.save_device_memory_profile(tmp_path / "memory.pb.gz")
    content = gzip.decompress((tmp_path / "memory.pb.gz").read_bytes())
    assert b"f32[3,5,7]" in content and b"cpu:0" in content and b"bytes" in content
    assert x.shape == (3, 5, 7)


def test_debug_effects_have_classes():
    jaxpr = weft.make_jaxpr(lambda x: weft.debug.print("{}", x, ordered=True))(1.0)
    assert [type(e) for e in jaxpr.effects] == [weft.debug.OrderedDebugEffect]


def test_arrays_of_numpy_are_shared():
    source = np.arange(10, dtype=np.float32)
    x = weft.dlpack.from_dlpack(source)
    assert np.shares_memory(np.asarray(x), source) and np.asarray(x).flags.writeable is False
    assert not np.shares_memory(np.asarray(weft.dlpack.from_dlpack(source, copy=True)), source)
    np.testing.assert_array_equal(weft.jit(lambda v: v * 2)(x), source * 2)
    assert np.shares_memory(np.from_dlpack(x), source)
    assert weft.dlpack.is_supported_dtype(np.float16) and weft.dlpack.is_supported_dtype(jnp.bfloat16)
