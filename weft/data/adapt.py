"""`adapt`: data of any kind as batches of `(x, y, sample_weight)`."""

from __future__ import annotations

from typing import Any

from weft.data.adapter import Adapter
from weft.data.adapters import arrays, generator, grain, huggingface, py_dataset, tf_data, torch
from weft.data.adapters.loader import LoaderAdapter
from weft.data.loader import Loader
from weft.data.order import Shuffle, checked_seed
from weft.data.placing import sharding_of
from weft.data.sharing import share_of
from weft.data.source import is_map_style
from weft.errors import ArgumentError, ArgumentTypeError


def adapt(
    x: Any,
    y: Any = None,
    sample_weight: Any = None,
    *,
    batch_size: int | None = None,
    shuffle: Shuffle = False,
    seed: int = 0,
    drop_remainder: bool = False,
    prefetch: int = 2,
    float_dtype: Any = None,
    shard: tuple[int, int] | str | None = None,
    device: Any = None,
) -> Adapter:
    """Data of any kind, with the one interface that training uses.

    Args:
        x: Arrays of NumPy, Weft or pandas, or a tree of them; a generator or a function that returns one; or another
            source of batches, such as a loader. Streams deliver `x`, `(x, y)` or `(x, y, sample_weight)`.
        y, sample_weight: Arrays with as many rows as `x`; None for a stream, whose batches have them.
        batch_size: Rows of a batch, 32 if it is None; None for a stream, which has its own.
        shuffle: Whether the rows of arrays are in another order in each epoch; "batch": within each batch only.
        seed: What the order depends on, with the epoch.
        drop_remainder: Whether the last batch is left out if it has fewer rows.
        prefetch: How many batches of a stream are read ahead; 0: in the calling thread.
        float_dtype: What floating arrays are converted to; None: what they are.
        shard: The part of this process, (index, count) or "process"; None: all rows.
        device: Where batches of arrays, of samples and of a `Loader` are put: a device, a sharding, or a mesh. Of a
            sharding over several processes each reads only the rows that its devices have, and `batch_size` is that of
            all together. Other streams deliver the batches that they have. None: batches are host arrays.

    Returns:
        An `Adapter`: its `batches(epoch, start)` iterates over `(x, y, sample_weight)`.

    Example:
        >>> import numpy as np
        >>> adapter = adapt(np.arange(5), batch_size=2)
        >>> [x.tolist() for x, y, sample_weight in adapter.batches()]
        [[0, 1], [2, 3], [4]]
        >>> adapter.size, adapter.spec[0]
        (3, ArraySpec(shape=(None,), dtype=dtype('int64')))
    """
    if isinstance(x, Adapter):
        return x
    placed = sharding_of(device)
    if placed is not None and shard is None:
        shard = "process"
    if arrays.recognises((x, y, sample_weight)):
        if batch_size is not None and batch_size < 1:
            raise ArgumentError("batch_size is at least 1.", received=str(batch_size))
        return arrays.ArrayAdapter(
            (x, y, sample_weight),
            batch_size,
            shuffle,
            checked_seed(seed),
            drop_remainder,
            share_of(shard, placed),
            float_dtype,
            device,
        )
    for name, value in (("x", x), ("y", y), ("sample_weight", sample_weight)):
        _refuse_what_is_nearly_an_array(name, value)
    for name, value in (("y", y), ("sample_weight", sample_weight)):
        if value is not None:
            raise ArgumentError(
                f"{name} is in the batches of a stream, and no argument beside it.",
                received=f"x of type {type(x).__name__}, {name} of type {type(value).__name__}",
                fix="batches (x, y) or (x, y, sample_weight)",
            )
    if isinstance(x, Loader):
        moves = device is not None and x.device is None and x.batch_size is not None
        return LoaderAdapter(x.placed(device) if moves else x, float_dtype=float_dtype)
    if generator.recognises(x):
        return generator.GeneratorAdapter(x, prefetch, float_dtype)
    if py_dataset.recognises(x):
        return py_dataset.PyDatasetAdapter(x, shuffle, checked_seed(seed), float_dtype)
    if (stream := _stream(x, prefetch, float_dtype)) is not None:
        return stream
    if huggingface.recognises(x) or is_map_style(x) or torch.is_iterable_dataset(x):
        size = arrays.DEFAULT_BATCH_SIZE if batch_size is None else batch_size
        can_shuffle = hasattr(x, "__len__")
        loader = Loader(
            x,
            size,
            shuffle=shuffle if can_shuffle else False,
            seed=seed,
            drop_remainder=drop_remainder,
            prefetch=prefetch,
            device=device,
            shard=shard,
        )
        return LoaderAdapter(loader, f"source of samples, {type(x).__name__},", float_dtype)
    if hasattr(x, "__iter__"):
        return LoaderAdapter(Loader(x, None, prefetch=prefetch), type(x).__name__, float_dtype)
    if generator.is_function(x):
        return LoaderAdapter(generator.loader_of(x, prefetch), "generator function", float_dtype)
    raise ArgumentTypeError(
        "This is no data that Weft knows how to read.",
        received=f"{type(x).__module__}.{type(x).__name__}",
        fix=("np.asarray(x)", "a generator function: def batches(): yield x, y"),
    )


def _refuse_what_is_nearly_an_array(name: str, value: Any) -> None:
    """Lists are trees of arrays, and sparse matrices are not arrays: say what to write instead."""
    if hasattr(value, "toarray") and hasattr(value, "nnz"):
        raise ArgumentTypeError(
            f"{name} is a sparse matrix.", received=f"{type(value).__name__} of shape {value.shape}", fix="x.toarray()"
        )
    if isinstance(value, (list, tuple)) and value and isinstance(value[0], (int, float, list)):
        raise ArgumentTypeError(
            f"{name} is a list of numbers, not an array: a list means several arrays.",
            received=f"a {type(value).__name__} of {len(value)} elements",
            fix="np.asarray(x)",
        )


def _stream(x: Any, prefetch: int, float_dtype: Any) -> Adapter | None:
    """Batches that another library makes, in its own order."""
    if torch.recognises(x):
        loader = Loader(torch.TorchBatches(x), None, prefetch=prefetch)
        rows = getattr(x, "batch_size", None)
        return LoaderAdapter(loader, "DataLoader", float_dtype, torch.size(x), rows)
    if tf_data.recognises(x):
        loader = Loader(x.as_numpy_iterator, None, prefetch=prefetch)
        return LoaderAdapter(loader, "tf.data.Dataset", float_dtype, tf_data.size(x))
    if grain.recognises(x):
        loader = Loader(grain.as_iterable(x), None, prefetch=prefetch)
        return LoaderAdapter(loader, "Grain dataset", float_dtype, grain.size(x))
    return None
