"""Tracebacks show only the user's frames, wherever the error was raised."""

from __future__ import annotations

import pathlib
import subprocess
import sys
import textwrap
import threading
import traceback
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

import weft
import weft.haiku as hk
import weft.linen as nn
import weft.numpy as wnp
from weft import lax, optim
from weft.base import tracebacks
from weft.base.settings import traceback_filtering
from weft.base.source import is_internal, is_own
from weft.base.tracebacks import NOTE
from weft.errors import InternalError, ShapeMismatchError, UnfilteredStackTrace
from weft.keras.training.trainer import Trainer

X = wnp.ones(3)


def own_error(x: Any) -> Any:
    """Make a mistake outside of Weft."""
    return {}["missing"]


def wrong_shapes(x: Any) -> Any:
    return x + wnp.ones(4)


class Failing(nn.Module):
    work: Callable[[Any], Any]

    @nn.compact
    def __call__(self, x: Any) -> Any:
        return self.work(nn.Dense(3)(x))


def under_custom_rule(work: Callable[[Any], Any]) -> Any:
    function = weft.custom_jvp(lambda x: x * 2.0)
    function.defjvp(lambda primals, tangents: (work(primals[0]), tangents[0]))
    return weft.grad(lambda x: function(x).sum())(X)


WAYS: dict[str, Callable[[Callable[[Any], Any]], Any]] = {
    "jit": lambda work: weft.jit(lambda x: work(x))(X),
    "grad in jit": lambda work: weft.jit(weft.grad(lambda x: work(x).sum()))(X),
    "jit in vmap": lambda work: weft.vmap(weft.jit(lambda x: work(x)))(wnp.ones((2, 3))),
    "vmap of vjp": lambda work: weft.vmap(lambda x: weft.vjp(lambda y: work(y), x)[1](x))(wnp.ones((2, 3))),
    "hessian": lambda work: weft.hessian(lambda x: work(x).sum())(X),
    "jvp": lambda work: weft.jvp(lambda x: work(x), (X,), (X,)),
    "checkpoint": lambda work: weft.grad(lambda x: weft.checkpoint(lambda y: work(y).sum())(x))(X),
    "custom rule": under_custom_rule,
    "scan": lambda work: lax.scan(lambda c, x: (work(c), x), X, X),
    "cond in jit": lambda work: weft.jit(lambda x: lax.cond(True, lambda y: work(y), lambda y: y, x))(X),
    "while_loop": lambda work: lax.while_loop(lambda c: work(c)[0] > 0, lambda c: c, X),
    "fori_loop": lambda work: lax.fori_loop(0, 3, lambda i, c: work(c), X),
    "make_jaxpr": lambda work: weft.make_jaxpr(lambda x: work(x))(X),
    "lower": lambda work: weft.jit(lambda x: work(x)).lower(X),
    "linen": lambda work: Failing(lambda x: work(x)).init(weft.random.key(0), X),
    "haiku": lambda work: hk.transform(lambda x: work(hk.Linear(3)(x))).init(weft.random.key(0), X),
    "tree.map": lambda work: weft.tree.map(lambda x: work(x), {"a": X}),
    "vectorize": lambda work: wnp.vectorize(lambda x: work(x), signature="(n)->(n)")(wnp.ones((2, 3))),
    "apply_along_axis": lambda work: wnp.apply_along_axis(lambda x: work(x), 0, wnp.ones((3, 2))),
}


def names_shown(error: BaseException) -> list[str]:
    """Return the functions in the traceback of an error, after a check that none of them is Weft's."""
    entries = traceback.extract_tb(error.__traceback__)
    assert not [entry for entry in entries if is_own(entry.filename)], "".join(traceback.format_tb(error.__traceback__))
    return [entry.name for entry in entries]


@pytest.mark.parametrize(("work", "kind"), [(own_error, KeyError), (wrong_shapes, ShapeMismatchError)])
@pytest.mark.parametrize("way", WAYS)
def test_only_frames_of_the_user_are_shown(way: str, work: Callable[[Any], Any], kind: type[Exception]) -> None:
    with pytest.raises(kind) as caught:
        WAYS[way](work)
    names = names_shown(caught.value)
    assert names[-1] == work.__name__
    assert len(names) <= 6
    assert caught.value.__notes__ == [NOTE]


EAGER: dict[str, Callable[[], Any]] = {
    "operator": lambda: X + wnp.ones(4),
    "reflected operator": lambda: np.ones(4) + X,
    "matrix product": lambda: X @ wnp.ones(4),
    "comparison": lambda: X < wnp.ones(4),
    "universal function": lambda: wnp.add(X, wnp.ones(4)),
    "function": lambda: wnp.concatenate([X, wnp.ones((2, 2))]),
    "function of lax": lambda: lax.dot(X, wnp.ones(4)),
    "method": lambda: X.reshape(2, 2),
    "property": lambda: X.mT,
    "index": lambda: X[0, 0],
    "random": lambda: weft.random.normal("seed", (3,)),
    "linear algebra": lambda: wnp.linalg.inv(X),
    "initializer": lambda: nn.initializers.orthogonal()(weft.random.key(0), (3,)),
    "transformation": lambda: weft.jit(3),
    "compiled": lambda: weft.jit(lambda x: x).lower(X).compile()(wnp.ones(4)),
}


@pytest.mark.parametrize("case", EAGER)
def test_eager_calls_show_the_line_alone(case: str) -> None:
    with pytest.raises((TypeError, ValueError, IndexError)) as caught:
        EAGER[case]()
    assert names_shown(caught.value)[-1] == "<lambda>"


def test_errors_of_callbacks_show_the_callback_and_the_call() -> None:
    def callback(x: Any) -> Any:
        raise LookupError("no such row")

    @weft.jit
    def program(x: Any) -> Any:
        return weft.pure_callback(callback, weft.ShapeDtypeStruct((3,), np.float32), x) * 2

    for _ in range(3):  # traced; by the general way; by a dispatcher
        with pytest.raises(weft.errors.JaxRuntimeError, match="no such row") as caught:
            program(X)
        assert names_shown(caught.value)[-1] == "test_errors_of_callbacks_show_the_callback_and_the_call"
        cause = caught.value.__cause__
        assert isinstance(cause, LookupError) and names_shown(cause) == ["callback"]


def test_errors_while_running_name_the_operation() -> None:
    @weft.jit
    def program(x: Any) -> Any:
        shifted = x - 1.0
        return wnp.sum(shifted / shifted)

    with weft.debug_nans(True):
        for _ in range(3):
            with pytest.raises(FloatingPointError, match=r"shifted / shifted") as caught:
                program(X)
            assert names_shown(caught.value)[-1] == "test_errors_while_running_name_the_operation"


def test_causes_are_filtered_and_keep_their_order() -> None:
    @weft.jit
    def program(x: Any) -> Any:
        try:
            return wrong_shapes(x)
        except ShapeMismatchError as error:
            raise RuntimeError("the layer does not fit") from error

    with pytest.raises(RuntimeError) as caught:
        program(X)
    assert names_shown(caught.value)[-1] == "program"
    assert isinstance(caught.value.__cause__, ShapeMismatchError)
    assert names_shown(caught.value.__cause__) == ["program", "wrong_shapes"]
    text = "".join(traceback.format_exception(caught.value))
    assert text.count("direct cause") == 1 and text.index("ShapeMismatchError") < text.index("RuntimeError")


def test_off_shows_everything() -> None:
    with traceback_filtering("off"), pytest.raises(ShapeMismatchError) as caught:
        weft.jit(weft.grad(lambda x: wrong_shapes(x).sum()))(X)
    files = [entry.filename for entry in traceback.extract_tb(caught.value.__traceback__)]
    assert sum(map(is_own, files)) > 10
    assert not hasattr(caught.value, "__notes__")


def test_remove_frames_keeps_them_in_the_cause() -> None:
    with traceback_filtering("off"), pytest.raises(ShapeMismatchError) as everything:
        weft.jit(weft.grad(lambda x: wrong_shapes(x).sum()))(X)
    with traceback_filtering("remove_frames"), pytest.raises(ShapeMismatchError) as caught:
        weft.jit(weft.grad(lambda x: wrong_shapes(x).sum()))(X)
    assert names_shown(caught.value)[-1] == "wrong_shapes"
    cause = caught.value.__cause__
    assert isinstance(cause, UnfilteredStackTrace) and cause.__cause__ is None
    # The test's own frame is above the outermost boundary, so the cause does not have it.
    whole = [entry.name for entry in traceback.extract_tb(everything.value.__traceback__)][1:]
    assert [entry.name for entry in traceback.extract_tb(cause.__traceback__)] == whole


def test_tracebackhide_marks_frames_and_ends_with_the_users() -> None:
    with traceback_filtering("tracebackhide"), pytest.raises(ShapeMismatchError) as caught:
        weft.jit(weft.grad(lambda x: wrong_shapes(x).sum()))(X)
    frames = [frame for frame, _ in traceback.walk_tb(caught.value.__traceback__)]
    marked = [frame.f_locals.get("__tracebackhide__", False) for frame in frames]
    assert marked == [is_own(frame.f_code.co_filename) for frame in frames]
    assert any(marked) and not marked[-1]


def test_bugs_of_weft_keep_its_frames() -> None:
    def broken(x: Any) -> Any:
        raise InternalError("a pass lost a value")

    with pytest.raises(InternalError) as caught:
        weft.jit(broken)(X)
    assert any(is_own(entry.filename) for entry in traceback.extract_tb(caught.value.__traceback__))


def test_functions_of_optimizers_are_boundaries() -> None:
    """Those that are composed of others, and those that users write themselves, whose frames stay."""
    params, wrong = {"a": wnp.ones(3)}, {"b": wnp.ones(3)}

    def halved(updates: Any, state: Any, params: Any = None) -> Any:
        return weft.tree.map(lambda u, p: u / 2 + p, updates, params), state

    own = optim.GradientTransformation(lambda params: optim.EmptyState(), halved)
    for optimizer in (optim.adam(1e-3), optim.chain(optim.clip(1.0), optim.adamw(1e-3)), optim.lion(1e-3)):
        state = optimizer.init(params)
        for call, args in [(optimizer.update, (wrong, state, params)), (optimizer.init, ({"a": "text"},))]:
            with pytest.raises((TypeError, ValueError)) as caught:
                call(*args)
            files = [entry.filename for entry in traceback.extract_tb(caught.value.__traceback__)]
            assert not any(map(is_own, files)), files
    optimizer = optim.chain(own, optim.sgd(0.1))
    with pytest.raises(ValueError) as caught:
        optimizer.update(wrong, optimizer.init(params), params)
    names = [entry.name for entry in traceback.extract_tb(caught.value.__traceback__)]
    assert names[-1] == "halved"
    assert optimizer.update is optim.GradientTransformation(*optimizer).update
    assert optimizer._replace(init=own.init).init is own.init


def test_errors_of_libraries_name_the_call_wherever_they_are_installed(
    tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With `pip install --target`, as in containers, libraries are in no folder with the name site-packages."""
    library = tmp_path / "opt_einsum"
    library.mkdir()
    (library / "__init__.py").write_text("def contract_path(*args, **options):\n    raise ValueError('no path')\n")
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.delitem(sys.modules, "opt_einsum", raising=False)
    with pytest.raises(ValueError, match="no path") as caught:
        wnp.einsum_path("i,i", X, X)
    sys.modules.pop("opt_einsum")  # monkeypatch would put the broken one back
    assert len(names_shown(caught.value)) == 1
    assert caught.value.__notes__ == ["in the call weft.numpy.contraction.einsum_path('i,i', f32[3], f32[3])", NOTE]


def test_files_of_users_may_have_the_names_of_libraries() -> None:
    assert is_internal(np.__file__) and is_internal(traceback.__file__)
    packages = pathlib.Path(pytest.__file__).parent.parent
    assert not is_internal(str(packages / "mine" / "numpy" / "functions.py"))
    assert not is_internal(str(pathlib.Path("project") / "numpy" / "functions.py"))


def test_uncaught_errors() -> None:
    """In a script, and in a thread, by way of functions that are no boundary."""
    script = """
        import threading, weft.numpy as wnp
        from weft.optim.tree_mapping import map_trees

        def fails():
            map_trees("step", lambda u, s: (u,), updates={"a": wnp.ones(3)}, state={"b": wnp.ones(3)})

        thread = threading.Thread(target=fails)
        thread.start()
        thread.join()
        fails()
    """
    done = subprocess.run([sys.executable, "-c", textwrap.dedent(script)], capture_output=True, text=True, check=False)
    assert done.returncode == 1
    assert done.stderr.count("TreeMismatchError") == 2 + done.stderr.count("explain('TreeMismatchError')")
    assert done.stderr.count("Traceback") == 2 and done.stderr.count(NOTE) == 2
    assert "weft/" not in done.stderr, done.stderr


class Shell:
    """Part of IPython's shell that shows errors of cells."""

    def __init__(self) -> None:
        self.custom_exceptions: tuple[type[BaseException], ...] = ()
        self.compile = self
        self.frames: list[str] = []

    def set_custom_exc(self, kinds: tuple[type[BaseException], ...], handler: Callable[..., Any]) -> None:
        self.custom_exceptions, self.handler = kinds, handler

    def format_code_name(self, name: str) -> tuple[str, str] | None:
        return ("Cell", "In[3]") if name == "/tmp/ipykernel_1/795086513.py" else None

    def showtraceback(self, error: tuple[Any, ...], tb_offset: int | None = None) -> None:
        shown = [frame for frame, _ in traceback.walk_tb(error[2])]
        self.frames = [frame.f_code.co_name for frame in shown if not frame.f_locals.get("__tracebackhide__")]


@pytest.fixture
def shell(monkeypatch: pytest.MonkeyPatch) -> Shell:
    found = Shell()
    monkeypatch.setitem(sys.modules, "IPython", SimpleNamespace(get_ipython=lambda: found))
    monkeypatch.setattr(sys, "excepthook", sys.excepthook)
    monkeypatch.setattr(threading, "excepthook", threading.excepthook)
    tracebacks.install()
    return found


def run_cell(shell: Shell, text: str) -> Exception:
    """Run a cell as IPython does, and return its error."""
    code = compile(text, "/tmp/ipykernel_1/795086513.py", "exec")
    try:
        exec(code, {"weft": weft, "wnp": wnp, "Trainer": Trainer})
    except Exception as error:
        shell.handler(shell, type(error), error, error.__traceback__, tb_offset=1)
        return error
    raise AssertionError("The cell did not raise.")


def test_notebooks_show_frames_of_cells_only(shell: Shell) -> None:
    # A method of a class is no boundary: its error reaches the handler with all frames.
    error = run_cell(shell, "def f():\n    Trainer().fit([1.0])\nf()")
    assert any(is_own(frame.f_code.co_filename) for frame, _ in traceback.walk_tb(error.__traceback__)) is False
    assert shell.frames == ["run_cell", "<module>", "f"]


def test_notebooks_name_cells(shell: Shell) -> None:
    error = run_cell(shell, "x = wnp.ones(3)\nx + wnp.ones(4)")
    assert "Cell In[3]:2" in str(error) and "795086513" not in str(error)


def test_handlers_of_users_stay(monkeypatch: pytest.MonkeyPatch) -> None:
    found = Shell()
    found.set_custom_exc((ValueError,), print)
    monkeypatch.setitem(sys.modules, "IPython", SimpleNamespace(get_ipython=lambda: found))
    monkeypatch.setattr(sys, "excepthook", sys.excepthook)
    monkeypatch.setattr(threading, "excepthook", threading.excepthook)
    tracebacks.install()
    assert found.handler is print
