"""`adapt`: data of any kind as batches of `(x, y, sample_weight)`."""

from __future__ import annotations

from typing import Any

from weft.data.adapter import Adapter
from weft.data.adapters import arrays, generator, grain, huggingface, py_dataset, tf_data, torch
from weft.data.adapters.loader import LoaderAdapter
from weft.data.loader import Loader
from weft.data.order import Shuffle, check_seed
from weft.data.placing import batch_sharding
from weft.data.sharing import make_share
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
    """Return an adapter that reads data of any kind through the interface that training uses.

    Args:
        x: Arrays of NumPy, Weft or pandas, or a tree of them; a generator or a function that returns one; or another
            source of batches, such as a loader. Streams deliver `x`, `(x, y)` or `(x, y, sample_weight)`.
        y, sample_weight: Arrays with as many rows as `x`; None for a stream, whose batches have them.
        batch_size: Rows of a batch, by default 32; None for a stream, which has batches.
        shuffle: Permute the rows of arrays anew in each epoch; "batch" permutes within each batch only.
        seed: Seed of the order, together with the epoch.
        drop_remainder: Drop a last batch with fewer rows.
        prefetch: Number of batches of a stream that a thread reads ahead; 0 reads in the calling thread.
        float_dtype: Dtype that floating arrays are converted to; None keeps theirs.
        shard: The rows that this process reads, (index, count) or "process"; None reads all rows.
        device: Destination of batches of arrays, of samples and of a `Loader`: a device, a sharding or a mesh. With a
            sharding over several processes each reads only the rows of its devices, and `batch_size` is global. None
            leaves batches on the host. Batches of other streams are not moved.

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
    placed = batch_sharding(device)
    if placed is not None and shard is None:
        shard = "process"
    if arrays.recognises((x, y, sample_weight)):
        if batch_size is not None and batch_size < 1:
            raise ArgumentError("batch_size must be at least 1.", received=str(batch_size))
        return arrays.ArrayAdapter(
            (x, y, sample_weight),
            batch_size,
            shuffle,
            check_seed(seed),
            drop_remainder,
            make_share(shard, placed),
            float_dtype,
            device,
        )
    for name, value in (("x", x), ("y", y), ("sample_weight", sample_weight)):
        _refuse_near_arrays(name, value)
    for name, value in (("y", y), ("sample_weight", sample_weight)):
        if value is not None:
            raise ArgumentError(
                f"{name} must be None for a stream, whose batches contain it.",
                received=f"x of type {type(x).__name__}, {name} of type {type(value).__name__}",
                fix="batches (x, y) or (x, y, sample_weight)",
            )
    if isinstance(x, Loader):
        moves = device is not None and x.device is None and x.batch_size is not None
        return LoaderAdapter(x.placed(device) if moves else x, float_dtype=float_dtype)
    if generator.recognises(x):
        return generator.GeneratorAdapter(x, prefetch, float_dtype)
    if py_dataset.recognises(x):
        return py_dataset.PyDatasetAdapter(x, shuffle, check_seed(seed), float_dtype)
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
        return LoaderAdapter(generator.make_loader(x, prefetch), "generator function", float_dtype)
    raise ArgumentTypeError(
        "Data must be arrays, batches or samples in a form that Weft can read.",
        received=f"{type(x).__module__}.{type(x).__name__}",
        fix=("np.asarray(x)", "a generator function: def batches(): yield x, y"),
    )


def _refuse_near_arrays(name: str, value: Any) -> None:
    """Raise for lists of numbers (lists are trees of arrays) and for sparse matrices."""
    if hasattr(value, "toarray") and hasattr(value, "nnz"):
        raise ArgumentTypeError(
            f"{name} must be a dense array, not a sparse matrix.",
            received=f"{type(value).__name__} of shape {value.shape}",
            fix="x.toarray()",
        )
    if isinstance(value, (list, tuple)) and value and isinstance(value[0], (int, float, list)):
        raise ArgumentTypeError(
            f"{name} must be an array, not a list of numbers: a list means several arrays.",
            received=f"a {type(value).__name__} of {len(value)} elements",
            fix="np.asarray(x)",
        )


def _stream(x: Any, prefetch: int, float_dtype: Any) -> Adapter | None:
    """Return an adapter of batches that another library makes in its own order, or None for other data."""
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
