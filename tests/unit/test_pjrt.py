"""PJRT plugins without one: their names, options, versions and errors. `make test-xla` runs programs on one."""

from __future__ import annotations

import ctypes
import pathlib
import subprocess
import sys
import textwrap
from typing import Any

import numpy as np
import pytest

import weft
import weft.numpy as wnp
from weft import errors
from weft.runtime.pjrt import options, plugins, structs, tpu
from weft.runtime.pjrt.plugin import (
    MINOR_VERSION,
    Code,
    Plugin,
    PluginError,
    raise_for_user,
    read_named_values,
    write_named_values,
)

PROTOTYPE = ctypes.CFUNCTYPE(ctypes.c_void_p, ctypes.c_void_p)


class FakeLibrary:
    """Library with a table of functions in Python. Errors are numbers, whose messages are in `messages`."""

    def __init__(self, minor: int = MINOR_VERSION, end: str = structs.FUNCTIONS[-1], major: int = 0) -> None:
        self.api = structs.Api(struct_size=getattr(structs.Api, end).offset + 8)
        self.api.version.major_version, self.api.version.minor_version = major, minor
        self.functions: list[Any] = []
        self.messages = {1: ("out of cheese", Code.RESOURCE_EXHAUSTED)}
        self.texts: list[Any] = []
        self.sizes: dict[str, int] = {}
        self.destroyed: list[int] = []
        self.define("Plugin_Initialize", lambda args: None)
        self.define("Error_Message", self.get_message)
        self.define("Error_GetCode", self.get_code)
        self.define("Error_Destroy", lambda args: self.destroyed.append(args.error))

    def define(self, name: str, function: Any) -> None:
        kind = structs.arguments(name)

        def call(address: int) -> int | None:
            arguments = kind.from_address(address)
            self.sizes[name] = arguments.struct_size
            return function(arguments)

        self.functions.append(PROTOTYPE(call))
        setattr(self.api, name, ctypes.cast(self.functions[-1], ctypes.c_void_p))

    def get_message(self, args: Any) -> None:
        self.texts.append(ctypes.create_string_buffer(self.messages[args.error][0].encode()))
        args.message, args.message_size = ctypes.addressof(self.texts[-1]), len(self.messages[args.error][0])

    def get_code(self, args: Any) -> None:
        args.code = self.messages[args.error][1]

    @property
    def GetPjrtApi(self) -> Any:
        class Get:
            restype: Any = None

            def __call__(_) -> int:
                return ctypes.addressof(self.api)

        return Get()


def test_errors_of_a_plugin_are_read_and_freed() -> None:
    library = FakeLibrary()
    library.define("Event_Await", lambda args: 1)
    library.define("Event_Destroy", lambda args: library.destroyed.append(args.event))
    plugin = Plugin("fake", "fake.so", library)
    with pytest.raises(PluginError, match="out of cheese") as caught:
        plugin.await_event(7)
    assert caught.value.code == Code.RESOURCE_EXHAUSTED and caught.value.function == "Event_Await"
    assert library.destroyed == [1, 7]
    plugin.await_event(None)


def test_arguments_live_until_a_call_returns() -> None:
    library = FakeLibrary()
    seen: list[int] = []

    def destroy(args: Any) -> None:
        other = [structs.arguments("Event_Destroy")(event=0) for _ in range(1000)]  # memory that was freed is taken
        seen.append(args.event)
        del other

    library.define("Event_Destroy", destroy)
    plugin = Plugin("fake", "fake.so", library)
    for handle in range(1, 50):
        plugin.destroy("Event", "event", handle)
    assert seen == list(range(1, 50))


def test_versions_are_negotiated_by_sizes() -> None:
    same = FakeLibrary()
    plugin = Plugin("fake", "fake.so", same)
    # The size of a struct ends with its last field, so that the padding after a bool is not counted.
    same.define("Event_IsReady", lambda args: setattr(args, "is_ready", True))
    assert plugin.is_event_ready(3) and same.sizes["Event_IsReady"] == 25
    newer = FakeLibrary(minor=MINOR_VERSION + 30)
    newer.define("Event_IsReady", lambda args: setattr(args, "is_ready", False))
    assert not Plugin("fake", "fake.so", newer).is_event_ready(3)
    assert newer.sizes["Event_IsReady"] > 25  # with zeros for fields of later versions
    older = FakeLibrary(end="Buffer_Device")
    plugin = Plugin("fake", "fake.so", older)
    assert not plugin.has("Compile") and not plugin.has("Client_Create") and plugin.has("Error_Message")
    with pytest.raises(errors.NotSupportedError, match="must have the function Compile") as caught:
        plugin("Compile")
    assert f"version 0.{MINOR_VERSION}" in str(caught.value)
    with pytest.raises(errors.NotSupportedError, match="must have version 0"):
        Plugin("fake", "fake.so", FakeLibrary(major=1))


@pytest.mark.parametrize(
    ("code", "kind"),
    [(8, errors.OutOfMemoryError), (12, errors.NotSupportedError), (3, errors.JaxRuntimeError)],
)
def test_errors_of_users_have_the_message_and_the_line(code: int, kind: type[Exception]) -> None:
    with pytest.raises(kind) as caught:
        raise_for_user(PluginError("Client_Compile", code, "no room\n"), "cpu", "The compilation of `f`")
    text = str(caught.value)
    assert "no room" in text and "'cpu'" in text and "ompilation of `f`" in text and "test_pjrt.py" in text


def test_named_values_come_back() -> None:
    values = {"count": 4, "name": "größe", "fast": True, "share": 0.5, "shape": [2, 3]}
    array, alive = write_named_values(values)
    assert read_named_values(ctypes.addressof(array), len(values)) == values and alive
    assert read_named_values(None, 0) == {}


@pytest.mark.parametrize(
    ("name", "short"),
    [
        *(("xla_cpu_pjrt", "cpu"), ("xla_cuda13", "cuda"), ("xla_rocm7", "rocm"), ("libtpu", "tpu")),
        *(("pjrt_c_api_cpu_plugin", "cpu"), ("pjrt_plugin_xpu", "xpu"), ("metal_plugin", "metal"), ("iree", "iree")),
    ],
)
def test_short_names(name: str, short: str) -> None:
    assert plugins.shorten(name) == short


def test_plugins_of_settings(tmp_path: pathlib.Path) -> None:
    library = tmp_path / "pjrt_plugin_quantum.so"
    library.write_bytes(b"no library")
    for text, name in ((f"near={library}", "near"), (f" {library} ,", "quantum")):
        with weft.base.settings.overrides(pjrt_plugins=text):
            found = plugins.find_plugin(name)
            assert found is not None and found.path == str(library) and found.platform == name
            assert plugins.find_plugin(f"pjrt:{name}") == found
    with weft.base.settings.overrides(pjrt_plugins=f"cpu={library}"):
        assert plugins.find_plugin("pjrt:cpu").platform == "pjrt:cpu"  # type: ignore[union-attr]
        assert plugins.find_plugin("cpu") is None or plugins.find_plugin("cpu").platform != "cpu"  # type: ignore[union-attr]
    with weft.base.settings.overrides(pjrt_plugins="x=/nowhere.so"), pytest.raises(errors.ArgumentError, match="exist"):
        plugins.find_plugin("x")
    by_path = plugins.find_plugin(f"pjrt:{library}")
    assert by_path is not None and by_path.name == "quantum"
    with pytest.raises(errors.NotSupportedError, match="this machine can load"):
        Plugin("quantum", str(library))


def test_options_of_settings() -> None:
    with weft.base.settings.overrides(pjrt_options="x.a=3, x.b=0.5,x.c=true,x.d=text,y.e=1"):
        assert plugins.client_options("x") == {"a": 3, "b": 0.5, "c": True, "d": "text"}
        assert plugins.client_options("y") == {"e": 1}
    with weft.base.settings.overrides(pjrt_options="a=3"), pytest.raises(errors.ArgumentError, match="as plugin"):
        plugins.client_options("x")


def decode(content: bytes) -> list[tuple[int, Any]]:
    """Read the fields of a message: numbers, and bytes."""
    found: list[tuple[int, Any]] = []
    rest = list(content)

    def varint() -> int:
        value = shift = 0
        while True:
            byte = rest.pop(0)
            value |= (byte & 0x7F) << shift
            shift += 7
            if byte < 0x80:
                return value

    while rest:
        key = varint()
        if key & 7 == options.VARINT:
            found.append((key >> 3, varint()))
        else:
            size = varint()
            found.append((key >> 3, bytes(rest.pop(0) for _ in range(size))))
    return found


@pytest.mark.parametrize("devices", [[0], [3], [2, 0, 300, 1]])
def test_compile_options(devices: list[int]) -> None:
    ((field, build),) = decode(options.write_compile_options(devices))
    (replicas_, partitions, assignment) = decode(build)
    assert (field, replicas_, partitions) == (3, (4, len(devices)), (5, 1)) and assignment[0] == 9
    count, computations, computation = decode(assignment[1])
    assert (count, computations) == ((1, len(devices)), (2, 1))
    ((inner, ids),) = decode(computation[1])
    assert inner == 1 and b"".join(map(options.write_varint, devices)) == ids


def test_settings_of_xla_are_overrides() -> None:
    _, *overrides = decode(options.write_compile_options([0], {"one": False, "other": True}))
    found = [(field, decode(entry)) for field, entry in overrides]
    assert found == [(7, [(1, b"one"), (2, b"\x10\x00")]), (7, [(1, b"other"), (2, b"\x10\x01")])]


def test_an_absent_plugin_is_named_with_its_wheel(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(plugins, "from_packages", lambda: ())
    monkeypatch.setattr(plugins, "from_settings", lambda: iter(()))
    for name, wheel in (("tpu", "pip install libtpu"), ("pjrt:cpu", "pip install xla-cpu-pjrt")):
        if name not in weft.runtime.platforms.platforms.names():
            with pytest.raises(RuntimeError, match=f"Unknown backend '{name}'.*{wheel}"):
                weft.devices(name)
    with pytest.raises(errors.NotSupportedError, match="v5e:2x4") as caught:
        weft.plan(wnp.sin, weft.ShapeDtypeStruct((4,), np.float32), topology="v5e:2x4")
    assert "pip install libtpu" in str(caught.value)


def test_tpus_are_found_among_pci_devices(tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tpu, "PCI_DEVICES", str(tmp_path / "*"))
    assert not tpu.has_hardware()
    for name, vendor, device in (("0", "0x8086", "0x0027"), ("1", "0x1ae0", "0x0042"), ("2", "0x1ae0", "0x0063")):
        assert not tpu.has_hardware()  # other vendors, and Google's network card
        (tmp_path / name).mkdir()
        (tmp_path / name / "vendor").write_text(f"{vendor}\n")
        (tmp_path / name / "device").write_text(f"{device}\n")
    assert tpu.has_hardware()


def test_a_process_without_plugins_loads_nothing_of_them() -> None:
    text = """
    import sys, weft, weft.numpy as wnp
    weft.jit(lambda x: x + 1)(wnp.ones(3))
    assert weft.devices("cpu")
    print([name for name in sys.modules if name.startswith(("weft.runtime.pjrt", "importlib.metadata"))])
    """
    done = subprocess.run([sys.executable, "-c", textwrap.dedent(text)], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]", done.stdout
