"""Callbacks by themselves: each is driven by hand with logs, over a model that is a plain object."""

from __future__ import annotations

import http.server
import json
import socket
import sys
import threading
import urllib.parse
from types import SimpleNamespace

import pytest

from weft.keras import callbacks
from weft.keras.callbacks import callback_list, progress


class Value:
    """A variable as callbacks see it."""

    def __init__(self, value):
        self.value = value

    def assign(self, value):
        self.value = value


def model(rate=0.5, metrics=(), weights=()):
    found = SimpleNamespace(
        stop_training=False,
        optimizer=SimpleNamespace(learning_rate=rate),
        metrics=list(metrics),
        weights=[Value(weight) for weight in weights],
        name="net",
        saved=[],
    )
    found.save = lambda path, overwrite: found.saved.append(path)
    found.save_weights = found.save
    found.set_weights = lambda values: [v.assign(w) for v, w in zip(found.weights, values, strict=True)]
    return found


def epochs(callback, values, name="val_loss", trained=None, change=None):
    """Drives a callback through epochs with these values; returns how many ran."""
    trained = trained or model()
    many = callbacks.CallbackList([callback], model=trained, epochs=len(values), steps=4, verbose=0)
    many.on_train_begin()
    ran = 0
    for epoch, value in enumerate(values):
        many.on_epoch_begin(epoch)
        if change is not None:
            change(trained, epoch)
        many.on_epoch_end(epoch, {"loss": 1.0, name: value})
        ran += 1
        if trained.stop_training:
            break
    many.on_train_end()
    return ran


def test_which_hooks_are_overridden():
    class Batch(callbacks.Callback):
        def on_batch_end(self, batch, logs=None):
            self.seen = batch

    class Late(Batch):
        async_safe = True

    assert not callbacks.CallbackList([callbacks.History(), callbacks.ProgbarLogger()]).needs_every_batch("train")
    assert callbacks.CallbackList([Batch()]).needs_every_batch("train")
    assert not callbacks.CallbackList([Batch()]).needs_every_batch("test")
    late = callbacks.CallbackList([Late()])
    assert not late.needs_every_batch("train") and late.has("on_train_batch_end")
    late.on_train_batch_end(3, {})
    assert late.callbacks[0].seen == 3
    assert callbacks.CallbackList([callbacks.LambdaCallback(on_train_batch_end=print)]).needs_every_batch("train")
    assert not callbacks.CallbackList([callbacks.ModelCheckpoint("m.keras", save_freq=5)]).needs_every_batch("train")


def test_every_hook_reaches_every_callback():
    called = []
    hooks = callback_list.HOOKS
    both = callbacks.CallbackList(
        [callbacks.LambdaCallback(**{h: lambda *a, h=h: called.append(h) for h in hooks}) for _ in range(2)]
    )
    for hook in hooks:
        at_ends = hook.split("_")[1] in ("train", "test", "predict") and hook.count("_") == 2
        getattr(both, hook)(*([] if at_ends else [0]))
    assert sorted(called) == sorted(2 * hooks)


def test_errors_of_arguments():
    with pytest.raises(TypeError, match=r"write `\(\)` after its name"):
        callbacks.CallbackList([callbacks.History])
    with pytest.raises(TypeError, match="no hook 'on_epoch_ends'"):
        callbacks.LambdaCallback(on_epoch_ends=print)
    with pytest.raises(ValueError, match=r"ends with \.keras"):
        callbacks.ModelCheckpoint("model.zip")
    with pytest.raises(ValueError, match="factor must be below 1"):
        callbacks.ReduceLROnPlateau(factor=2.0)
    with pytest.warns(UserWarning, match="'auto', 'min' or 'max'"):
        callbacks.EarlyStopping(mode="maximum")
    with pytest.raises(ValueError, match="cannot tell whether 'val_thing'"):
        epochs(callbacks.EarlyStopping("val_thing"), [1.0, 2.0], "val_thing")


def test_early_stopping():
    assert epochs(callbacks.EarlyStopping(patience=2), [3.0, 2.0, 2.5, 2.2, 1.0]) == 4
    assert epochs(callbacks.EarlyStopping("val_accuracy", patience=1), [0.1, 0.2, 0.2, 0.9], "val_accuracy") == 3
    assert epochs(callbacks.EarlyStopping(min_delta=0.5, patience=1), [3.0, 2.8, 1.0]) == 2
    assert epochs(callbacks.EarlyStopping(start_from_epoch=3), [1.0, 2.0, 3.0, 4.0, 5.0]) == 5
    assert epochs(callbacks.EarlyStopping(baseline=0.5, patience=2), [3.0, 2.0, 1.0, 1.1, 0.9]) == 4
    assert epochs(callbacks.EarlyStopping(patience=1), [1.0, float("nan"), 0.1]) == 2
    trained = model(weights=[0.0])
    stopping = callbacks.EarlyStopping(patience=2, restore_best_weights=True)
    epochs(stopping, [3.0, 1.0, 2.0, 2.0, 2.0], trained=trained, change=lambda m, e: m.weights[0].assign(float(e)))
    assert trained.weights[0].value == 1.0 and stopping.best_epoch == 1 and stopping.stopped_epoch == 3
    with pytest.warns(UserWarning, match="no 'val_loss' to look at; there are: loss, loss2"):
        epochs(callbacks.EarlyStopping(), [1.0], "loss2")


def test_direction_is_what_a_metric_says():
    thing = SimpleNamespace(name="thing", _direction="up")
    trained = model(metrics=[SimpleNamespace(name="compile_metrics", metrics=[thing])])
    assert epochs(callbacks.EarlyStopping("val_thing"), [1.0, 2.0, 1.0], "val_thing", trained) == 3


def test_rates():
    trained, seen = model(1.0), []
    halving = callbacks.LearningRateScheduler(lambda epoch, rate: rate / 2)
    epochs(halving, [0.0] * 3, trained=trained, change=lambda m, e: seen.append(m.optimizer.learning_rate))
    assert seen == [0.5, 0.25, 0.125]
    epochs(callbacks.LearningRateScheduler(lambda epoch: 1.0 + epoch), [0.0] * 2, trained=trained)
    assert trained.optimizer.learning_rate == 2.0
    with pytest.raises(ValueError, match="must return a float"):
        epochs(callbacks.LearningRateScheduler(lambda epoch: "fast"), [0.0])
    logs = {"val_loss": 1.0}
    plateau = callbacks.ReduceLROnPlateau(factor=0.5, patience=2, cooldown=1, min_lr=0.2)
    plateau.set_model(trained := model(1.0))
    plateau.on_train_begin()
    rates = []
    for epoch in range(8):
        plateau.on_epoch_end(epoch, logs)
        rates.append(trained.optimizer.learning_rate)
    assert rates == [1.0, 1.0, 0.5, 0.5, 0.25, 0.25, 0.2, 0.2]
    assert logs["learning_rate"] == 0.2


def test_unfreeze_on_plateau():
    trained = model(1.0)
    layers = {name: SimpleNamespace(name=name, trainable=True) for name in "abc"}
    trained.get_layer = layers.__getitem__
    free = []
    callback = callbacks.UnfreezeOnPlateau(["c", ["a", layers["b"]]], patience=2, factor=0.1)
    epochs(
        callback,
        [1.0] * 6,
        trained=trained,
        change=lambda m, e: free.append("".join(n for n, layer in layers.items() if layer.trainable)),
    )
    assert free == ["", "", "", "c", "c", "abc"]
    assert trained.optimizer.learning_rate == pytest.approx(0.01)


def test_nan_ends_training():
    callback = callbacks.TerminateOnNaN()
    callback.set_model(trained := model())
    callback.on_train_chunk_end(1, {"loss": 1.0})
    assert not trained.stop_training
    callback.on_train_chunk_end(2, {"loss": float("inf")})
    assert trained.stop_training
    with pytest.raises(RuntimeError, match="loss of batch 3 is nan"):
        callbacks.TerminateOnNaN(raise_error=True).on_train_chunk_end(3, {"loss": float("nan")})


def test_checkpoints():
    trained = model()
    best = callbacks.ModelCheckpoint("m-{epoch:02d}-{val_loss:.1f}.keras", save_best_only=True)
    epochs(best, [3.0, 2.0, 2.5, 1.0], trained=trained)
    assert trained.saved == ["m-01-3.0.keras", "m-02-2.0.keras", "m-04-1.0.keras"]
    trained.saved.clear()
    often = callbacks.ModelCheckpoint("m-{epoch}-{batch}.keras", save_freq=3)
    often.set_model(trained)
    for epoch in range(2):
        often.on_epoch_begin(epoch)
        for last in (1, 2, 3) if epoch == 0 else (1, 3):  # ends of chunks, that training puts where `chunk_every` asks
            often.on_train_chunk_end(last, {})
    assert trained.saved == ["m-1-3.keras", "m-2-2.keras"]
    with pytest.raises(KeyError, match="there are epoch, loss"):
        epochs(callbacks.ModelCheckpoint("{accuracy}.keras"), [1.0])


def test_csv(tmp_path):
    path = tmp_path / "log.csv"
    epochs(callbacks.CSVLogger(path), [2.0, 1.0])
    assert path.read_text() == "epoch,loss,val_loss\n0,1.0,2.0\n1,1.0,1.0\n"
    epochs(callbacks.CSVLogger(path, append=True), [0.5])
    assert path.read_text().splitlines()[-1] == "0,1.0,0.5"
    assert len(path.read_text().splitlines()) == 4
    epochs(callbacks.CSVLogger(path, separator=";"), [2.0], name="accuracy")
    assert path.read_text() == "epoch;accuracy;loss;val_accuracy;val_loss\n0;2.0;1.0;NA;NA\n"


def test_csv_continues_after_a_backup(tmp_path):
    path = tmp_path / "log.csv"
    first = callbacks.CSVLogger(path)
    first.on_train_begin()
    first.on_epoch_end(0, {"loss": 1.0})
    state = first.get_state()
    first.on_epoch_end(1, {"loss": 0.9})  # lost: the process ends before the next backup
    first._close()
    second = callbacks.CSVLogger(path)
    second.on_train_begin()
    second.set_state(state)
    second.on_epoch_end(1, {"loss": 0.5})
    second.on_train_end()
    assert path.read_text() == "epoch,loss,val_loss\n0,1.0,NA\n1,0.5,NA\n"


def test_history_and_states():
    many = callbacks.CallbackList([callbacks.EarlyStopping(patience=9)], add_history=True, model=model())
    many.on_train_begin()
    for epoch, value in enumerate([2.0, 1.0, 3.0]):
        many.on_epoch_end(epoch, {"val_loss": value})
    state = json.loads(json.dumps(many.get_state()))
    again = callbacks.CallbackList([callbacks.EarlyStopping(patience=9)], add_history=True, model=model())
    again.on_train_begin()
    again.set_state(state)
    assert again.history.history == {"val_loss": [2.0, 1.0, 3.0]} and again.history.epoch == [0, 1, 2]
    assert (again.callbacks[0].wait, again.callbacks[0].best) == (1, 1.0)


def test_remote_monitor():
    received = []

    class Handler(http.server.BaseHTTPRequestHandler):
        def do_POST(self):
            received.append((self.headers["Content-Type"], self.rfile.read(int(self.headers["Content-Length"]))))
            self.send_response(200)
            self.end_headers()

        def log_message(self, *args):
            pass

    with http.server.HTTPServer(("127.0.0.1", 0), Handler) as server:
        thread = threading.Thread(target=server.serve_forever, args=(0.01,))
        thread.start()
        root = f"http://127.0.0.1:{server.server_port}"
        epochs(callbacks.RemoteMonitor(root, send_as_json=True), [2.0])
        epochs(callbacks.RemoteMonitor(root), [3.0])
        server.shutdown()
        thread.join()
    assert json.loads(received[0][1]) == {"epoch": 0, "loss": 1.0, "val_loss": 2.0}
    assert json.loads(urllib.parse.parse_qs(received[1][1].decode())["data"][0])["val_loss"] == 3.0
    with pytest.warns(UserWarning, match="cannot be reached"):
        epochs(callbacks.RemoteMonitor(root), [2.0])


def test_mail():
    received = []

    def serve(listening):
        connection, _ = listening.accept()
        with connection, connection.makefile("rwb") as stream:
            say = lambda text: (stream.write(text.encode() + b"\r\n"), stream.flush())
            say("220 here")
            while (line := stream.readline()) and not line.upper().startswith(b"QUIT"):
                if line.upper().startswith(b"DATA"):
                    say("354 go on")
                    while (part := stream.readline()) != b".\r\n":
                        received.append(part.decode().strip())
                say("250 ok")
            say("221 bye")

    with socket.create_server(("127.0.0.1", 0)) as listening:
        thread = threading.Thread(target=serve, args=(listening,))
        thread.start()
        mail = callbacks.MailOnThreshold(
            "val_accuracy", 0.9, "you@example.com", "me@example.com", "127.0.0.1", listening.getsockname()[1]
        )
        epochs(mail, [0.5, 0.95, 0.99], "val_accuracy")
        thread.join()
    assert "Subject: net: val_accuracy is 0.95 after epoch 2" in received
    assert mail.sent == 1


def test_curves(tmp_path):
    page = tmp_path / "curves.html"
    live = callbacks.LiveCurves(page, interval=0.0)
    live.set_model(model())
    live.set_params({"steps": 4})
    live.on_train_begin()
    live.on_epoch_begin(0)
    live.on_train_chunk_end(1, {"loss": 3.0})
    assert "<circle" in page.read_text()
    for epoch in range(3):
        live.on_epoch_end(epoch, {"loss": 3.0 - epoch, "val_loss": float("nan"), "accuracy": 0.5})
    assert "refresh" in page.read_text()
    live.on_train_end()
    text = page.read_text()
    assert text.count("<svg") == 2 and "refresh" not in text and text.count("<polyline") == 3
    picture = callbacks.LiveCurves(tmp_path / "curves.svg", logarithmic=True)
    epochs(picture, [1.0, 0.1])
    assert (tmp_path / "curves.svg").read_text().startswith("<svg")


def test_averages_are_swapped_in_for_evaluation():
    variable, average = Value(1.0), Value(2.0)
    trained = model()
    trained.optimizer = SimpleNamespace(use_ema=True, averages=lambda: [(variable, average)])
    swap = callbacks.SwapEMAWeights(swap_on_epoch=True)
    swap.set_model(trained)
    swap.on_epoch_begin(0)
    swap.on_test_begin()
    assert (variable.value, average.value) == (2.0, 1.0)
    swap.on_test_end()
    assert variable.value == 1.0
    swap.on_epoch_end(0)
    assert variable.value == 2.0
    swap.on_epoch_begin(1)
    assert variable.value == 1.0
    trained.optimizer.use_ema = False
    with pytest.raises(ValueError, match="use_ema=True"):
        swap.on_test_begin()


class Terminal:
    """A stream that says whether it is a terminal."""

    def __init__(self, terminal):
        self.text, self.terminal = "", terminal

    def write(self, text):
        self.text += text

    def flush(self):
        pass

    def isatty(self):
        return self.terminal


@pytest.mark.parametrize("terminal", [True, False])
def test_progress(monkeypatch, terminal):
    stream = Terminal(terminal)
    monkeypatch.setattr("sys.stdout", stream)
    many = callbacks.CallbackList(add_progbar=True, model=model(), epochs=2, steps=10, verbose=1)
    many.on_train_begin()
    many.on_epoch_begin(0)
    many.callbacks[0].bar.interval = 0.0
    many.on_train_chunk_end(3, {"loss": 0.5})
    many.on_test_begin()
    many.on_test_chunk_end(0, {"loss": 9.0})
    many.on_test_end({"loss": 9.0})
    many.on_epoch_end(0, {"loss": 0.25, "val_loss": 1e-5})
    lines = stream.text.split("\n")
    assert lines[0] == "Epoch 1/2"
    assert (" 4/10" in lines[1]) == terminal
    assert "10/10" in lines[1] and "loss: 0.2500 - val_loss: 1.0000e-05" in lines[1]
    assert "9.0" not in stream.text
    assert ("\x1b[32m" in stream.text) == terminal
    assert lines[2:] == [""]


def test_progress_in_a_notebook(monkeypatch):
    published = []
    publisher = SimpleNamespace(publish=lambda **kwargs: published.append(kwargs))
    shell = type("ZMQInteractiveShell", (), {"display_pub": publisher})()
    monkeypatch.setitem(sys.modules, "IPython", SimpleNamespace(get_ipython=lambda: shell))
    bar = progress.Progbar(4, interval=0.0)
    bar.update(1, [("loss", 2.0)])
    bar.update(4, [("loss", 1.0)])
    assert [p["update"] for p in published] == [False, True]
    assert "<progress" in published[0]["data"]["text/html"]


def test_progress_of_unknown_length(capsys):
    many = callbacks.CallbackList(add_progbar=True, model=model(), epochs=1, steps=None, verbose=2)
    many.on_train_begin()
    many.on_epoch_begin(0)
    many.on_train_chunk_end(6, {"loss": 0.5})
    many.on_epoch_end(0, {"loss": 0.5})
    assert capsys.readouterr().out.startswith("7/7 - 0s - ")


def test_progress_that_is_logged(monkeypatch, caplog, capsys):
    monkeypatch.setattr(progress.settings, "interactive_logging", False)
    caplog.set_level("INFO", logger="weft.keras")
    many = callbacks.CallbackList(add_progbar=True, model=model(), epochs=2, steps=3, verbose=1)
    many.on_train_begin()
    many.on_epoch_begin(0)
    many.on_epoch_end(0, {"loss": 0.5})
    assert caplog.messages[0] == "Epoch 1/2" and caplog.messages[1].endswith("loss: 0.5000")
    assert capsys.readouterr().out == ""


def test_times():
    assert [progress.format_seconds(s) for s in (3723, 62, 5, 0.02, 3e-6)] == ["1:02:03", "1:02", "5s", "20ms", "3us"]


def test_a_list_takes_hooks_by_the_names_of_their_arguments():
    seen = []
    record = callbacks.LambdaCallback(
        on_epoch_begin=lambda epoch, logs: seen.append(epoch), on_train_batch_end=lambda batch, logs: seen.append(batch)
    )
    every = callback_list.CallbackList([record])
    every.on_epoch_begin(epoch=3)
    every.on_train_batch_end(batch=7, logs={})
    assert seen == [3, 7]
