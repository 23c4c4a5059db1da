"""Distributions: which layout each variable and each batch has."""

from __future__ import annotations

import os
import warnings
from collections.abc import Sequence
from contextlib import AbstractContextManager
from typing import Any

import weft
from weft import data, parallel
from weft.errors import ArgumentError
from weft.keras.core.layouts import current_distribution, distribution_scope, row_sharding, set_current_distribution
from weft.keras.distribution.layout import LayoutMap, TensorLayout
from weft.keras.distribution.mesh import DeviceMesh, list_devices
from weft.keras.distribution.searching import SearchedLayouts, layout_key


class Distribution:
    """How the variables of models and the data are split over the devices of a mesh.

    Subclasses say so in `get_variable_layout`, `get_tensor_layout` and `get_data_layout`. See `DataParallel` and
    `ModelParallel`.

    Args:
        device_mesh: the mesh.
        batch_dim_name: the axis that batches are split over; the first one of the mesh where None.
        auto_shard_dataset: with several processes, whether data is divided between them: all have the same data in
            the same order, `batch_size` is that of all together, and each reads its rows of a batch. False: each has
            data of its own, of which the batches of all processes together are one.

    Example:
        >>> from weft import keras
        >>> mesh = keras.distribution.DeviceMesh((1,), ("batch",), ["cpu:0"])
        >>> keras.distribution.Distribution(mesh).get_data_layout((8, 3)).axes
        ('batch', None)
    """

    def __init__(
        self, device_mesh: DeviceMesh, batch_dim_name: str | None = None, auto_shard_dataset: bool = True
    ) -> None:
        if not isinstance(device_mesh, DeviceMesh):
            raise ArgumentError("`device_mesh` must be a DeviceMesh.", received=repr(device_mesh))
        name = device_mesh.axis_names[0] if batch_dim_name is None else batch_dim_name
        if name not in device_mesh.axis_names:
            raise ArgumentError(
                "batch_dim_name must be an axis of the mesh.",
                received=repr(name),
                fix=f"one of {', '.join(map(repr, device_mesh.axis_names))}",
            )
        self._mesh = device_mesh
        self._batch_dim_name = name
        self._auto_shard_dataset = bool(auto_shard_dataset)
        devices = device_mesh.backend_mesh.devices.flat
        self._spans_processes = len({device.process_index for device in devices}) > 1

    @property
    def device_mesh(self) -> DeviceMesh:
        """The mesh."""
        return self._mesh

    @property
    def batch_dim_name(self) -> str:
        """The axis that batches are split over."""
        return self._batch_dim_name

    @property
    def auto_shard_dataset(self) -> bool:
        """What the constructor was called with."""
        return self._auto_shard_dataset

    @property
    def spans_processes(self) -> bool:
        """Whether devices of several processes are in the mesh."""
        return self._spans_processes

    def get_data_layout(self, data_shape: Sequence[int]) -> TensorLayout:
        """Return the layout of an array of data: its rows are split, not necessarily evenly.

        Args:
            data_shape: the shape of the array.
        """
        axes: list[Any] = [None] * len(data_shape)
        if axes:
            axes[0] = self._batch_dim_name
        return TensorLayout(axes, self._mesh)

    def get_variable_layout(self, variable: Any) -> TensorLayout:
        """Return the layout of a variable: replicated, unless a subclass overrides it.

        Args:
            variable: has a `path` and a `shape`, and may not have a value yet.
        """
        return TensorLayout([None] * len(variable.shape), self._mesh)

    def get_tensor_layout(self, path: str) -> TensorLayout | None:
        """Return the layout of a layer's output, or None: the compiler chooses it.

        Args:
            path: the path of the layer, and `/output`.
        """
        return None

    def choose(self, step: Any) -> bool:
        """Choose layouts that depend on a training step: see `ModelParallel`.

        Args:
            step: the step.

        Returns:
            Whether layouts have changed.
        """
        return False

    def check_matched(self) -> None:
        """Raise an error if the distribution names something that does not exist, after a model has been built."""

    def scope(self) -> AbstractContextManager[Any]:
        """Return a context in which this is the current distribution of this thread."""
        return distribution_scope(self)

    def distribute_dataset(self, dataset: Any) -> Any:
        """Divide data between processes, as `fit` does with its data.

        Args:
            dataset: any data that `fit` takes.

        Returns:
            The data itself in one process, and where `auto_shard_dataset` is False; else batches of which each process
            has the rows of its devices.
        """
        with self.scope():
            rows = row_sharding()
        return dataset if rows is None else data.adapt(dataset, device=rows)

    def __repr__(self) -> str:
        return f"<{type(self).__name__} device_mesh={self._mesh}, batch_dim_name={self._batch_dim_name!r}>"


class DataParallel(Distribution):
    """Each device has all variables, and its part of the rows of each batch.

    Gradients are summed over the devices where they are used, so that losses are those of one device.

    Args:
        device_mesh: a mesh of one axis.
        devices: names of devices, in place of a mesh; all where both are None.
        auto_shard_dataset: see `Distribution`.

    Example:
        >>> from weft import keras
        >>> parallel = keras.distribution.DataParallel(devices=["cpu:0"])
        >>> parallel.get_data_layout((32, 8)).axes
        ('batch', None)
        >>> with parallel.scope():
        ...     layer = keras.layers.Dense(2)
        ...     layer.build((None, 8))
    """

    def __init__(
        self,
        device_mesh: DeviceMesh | None = None,
        devices: Sequence[Any] | None = None,
        auto_shard_dataset: bool = True,
    ) -> None:
        if device_mesh is None:
            names = list_devices() if devices is None else list(devices)
            device_mesh = DeviceMesh((len(names),), ("batch",), names)
        elif isinstance(device_mesh, DeviceMesh) and len(device_mesh.shape) > 1:
            warnings.warn(
                f"The mesh of DataParallel has one axis; only {device_mesh.axis_names[0]!r} of "
                f"{tuple(device_mesh.axis_names)} splits batches, and along the others devices do the same.",
                stacklevel=2,
            )
        super().__init__(device_mesh, None, auto_shard_dataset)


class FullyShardedDataParallel(DataParallel):
    """Each device has its part of the rows of each batch, and of each variable.

    A variable is split along its largest dimension that the devices divide, and so is what optimizers have beside it;
    programs gather weights where they use them, and scatter the sums of gradients. Losses are those of one device.

    Args:
        device_mesh: a mesh of one axis.
        devices: names of devices, in place of a mesh; all where both are None.
        auto_shard_dataset: see `Distribution`.
        min_size: variables with fewer elements are whole on each device.

    Example:
        >>> from weft import keras
        >>> with keras.distribution.FullyShardedDataParallel(devices=["cpu:0"]).scope():
        ...     layer = keras.layers.Dense(4)
        ...     layer.build((None, 8))
        >>> layer.kernel.value.sharding.spec
        P('batch',)
    """

    def __init__(
        self,
        device_mesh: DeviceMesh | None = None,
        devices: Sequence[Any] | None = None,
        auto_shard_dataset: bool = True,
        min_size: int = 0,
    ) -> None:
        super().__init__(device_mesh, devices, auto_shard_dataset)
        self._min_size = int(min_size)

    def get_variable_layout(self, variable: Any) -> TensorLayout:
        """Return the layout of a variable: split along its largest dimension that the devices divide.

        Args:
            variable: has a `path` and a `shape`, and may not have a value yet.
        """
        return fully_sharded(variable, self._mesh, self._batch_dim_name, self._min_size)


def fully_sharded(variable: Any, mesh: DeviceMesh, axis: str, min_size: int = 0) -> TensorLayout:
    """Return the layout of a variable split over an axis along its largest dimension that the devices divide."""
    value = weft.ShapeDtypeStruct(tuple(variable.shape), "float32")
    return TensorLayout(parallel.fsdp(value, mesh.backend_mesh, axis, min_size=min_size).spec, mesh)


class ModelParallel(Distribution):
    """Variables are split as a `LayoutMap` says, and batches over one axis of its mesh.

    A variable whose path matches no pattern is whole on each device. Variables are created in their layouts, so a model
    may be larger than the memory of a device. What optimizers have beside weights is split like them.

    With `auto=True` there is no map: layouts are searched for when the first training step of a model is compiled, by
    what the whole step costs (`weft.sharding.search`). Before that, variables are split as `FullyShardedDataParallel`
    splits them, so that no device has the whole model; then they are brought into the layouts that were found, which
    `layout_map` has to look at, and to write down.

    Args:
        layout_map: layouts by paths.
        batch_dim_name: the axis that batches are split over; the first one of the mesh where None.
        auto_shard_dataset: see `Distribution`.
        device_mesh: the mesh, with `auto=True`; that of the map otherwise.
        auto: whether layouts are searched for.
        memory: with `auto=True`, what a device has: bytes, or a text such as "16GB"; None: what the machine has.
        seconds: with `auto=True`, how long to search.

    Example:
        >>> from weft import keras
        >>> mesh = keras.distribution.DeviceMesh((1, 1), ("batch", "model"), ["cpu:0"])
        >>> layouts = keras.distribution.LayoutMap(mesh)
        >>> layouts["mlp/kernel"] = (None, "model")
        >>> with keras.distribution.ModelParallel(layout_map=layouts, batch_dim_name="batch").scope():
        ...     layer = keras.layers.Dense(2, name="mlp")
        ...     layer.build((None, 8))
        >>> layer.kernel.value.sharding.spec
        P(None, 'model')
    """

    def __init__(
        self,
        *,
        layout_map: LayoutMap | None = None,
        batch_dim_name: str | None = None,
        auto_shard_dataset: bool = True,
        device_mesh: DeviceMesh | None = None,
        auto: bool = False,
        memory: Any = None,
        seconds: float = 10.0,
    ) -> None:
        if auto:
            if layout_map is not None:
                raise ArgumentError(
                    "`layout_map` must be None when auto=True searches for layouts.",
                    received=f"auto=True, layout_map of {len(layout_map)} patterns",
                    fix="ModelParallel(auto=True, device_mesh=mesh)",
                )
            device_mesh = DataParallel().device_mesh if device_mesh is None else device_mesh
            layout_map = LayoutMap(device_mesh)
        if not isinstance(layout_map, LayoutMap):
            raise ArgumentError(
                "ModelParallel must have a LayoutMap.",
                received=f"layout_map={layout_map!r}",
                fix=(
                    'layout_map = LayoutMap(mesh); layout_map["dense.*kernel"] = (None, "model")',
                    "ModelParallel(auto=True, device_mesh=mesh)",
                ),
            )
        if device_mesh is not None and device_mesh is not layout_map.device_mesh:
            raise ArgumentError(
                "`device_mesh` must be the mesh of the LayoutMap.", received=f"device_mesh={device_mesh}"
            )
        super().__init__(layout_map.device_mesh, batch_dim_name, auto_shard_dataset)
        self._layout_map = layout_map
        self._searched = SearchedLayouts(self.device_mesh, memory, seconds) if auto else None

    @property
    def layout_map(self) -> LayoutMap:
        """Layouts by paths; with `auto=True` those that were found."""
        return self._layout_map

    def get_data_layout(self, data_shape: Sequence[int]) -> TensorLayout:
        """Return the layout of an array of data: its rows are split, unless a search found another layout.

        Args:
            data_shape: the shape of the array.
        """
        found = None if self._searched is None else self._searched.batches.get(tuple(data_shape[1:]))
        return super().get_data_layout(data_shape) if found is None else found

    def choose(self, step: Any) -> bool:
        """Search layouts for a training step with new variables, if `auto=True`.

        Args:
            step: has `variables`, `value_specs()`, `batch` and `run_without_pins(values, batch)`.

        Returns:
            Whether layouts have changed: variables are in new ones then, and the step is to be traced again.
        """
        searched = self._searched
        if searched is None or searched.knows(step.variables):
            return False
        searched.search(step)
        for variable in step.variables:
            variable.redistribute(searched.variables[layout_key(variable)])
        for path, layout in searched.split.items():
            if path not in self._layout_map:
                self._layout_map[path] = layout
        return True

    def get_variable_layout(self, variable: Any) -> TensorLayout:
        """Return the layout of a variable: that of the pattern that matches its path, else replicated.

        Args:
            variable: has a `path` and a `shape`, and may not have a value yet.
        """
        if self._searched is not None:
            chosen = self._searched.variables.get(layout_key(variable))
            return fully_sharded(variable, self.device_mesh, self.batch_dim_name) if chosen is None else chosen
        found = self._layout_map.find(variable.path)
        if found is None:
            return super().get_variable_layout(variable)
        found.check_shape(variable.shape, f"the variable {variable.path!r}")
        return found

    def get_tensor_layout(self, path: str) -> TensorLayout | None:
        """Return the layout of a layer's output, or None: the compiler chooses it.

        Args:
            path: the path of the layer, and `/output`.
        """
        return self._layout_map.find(path, of_variable=False)

    def check_matched(self) -> None:
        """Raise an error for a pattern of the map that matches nothing."""
        if self._searched is None:
            self._layout_map.check_matched()


def distribution() -> Distribution | None:
    """Return the current distribution: of the innermost `scope()`, else of `set_distribution`; None without one.

    Example:
        >>> from weft import keras
        >>> keras.distribution.distribution() is None
        True
    """
    found: Distribution | None = current_distribution()
    return found


def set_distribution(value: Distribution | None) -> None:
    """Use a distribution from now on, in all threads: for variables that are created, and for the data of `fit`,
    `evaluate` and `predict`.

    Args:
        value: a distribution, or None.

    Example:
        >>> from weft import keras
        >>> keras.distribution.set_distribution(keras.distribution.DataParallel(devices=["cpu:0"]))
        >>> keras.distribution.distribution().batch_dim_name
        'batch'
        >>> keras.distribution.set_distribution(None)
    """
    if value is not None and not isinstance(value, Distribution):
        raise ArgumentError("The argument of set_distribution must be a Distribution or None.", received=repr(value))
    set_current_distribution(value)


def initialize(
    job_addresses: str | None = None, num_processes: int | None = None, process_id: int | None = None
) -> None:
    """Connect this process to the others, before devices are used: `list_devices()` then lists those of all processes.

    Args:
        job_addresses: addresses with commas between them, of which the first is the coordinator's;
            `KERAS_DISTRIBUTION_JOB_ADDRESSES` where None.
        num_processes: how many processes there are; `KERAS_DISTRIBUTION_NUM_PROCESSES` where None.
        process_id: which one this is; `KERAS_DISTRIBUTION_PROCESS_ID` where None.

    See `weft.distributed.initialize`: a launcher of MPI starts the processes, and what it says is compared with these.
    """
    job_addresses = job_addresses or os.environ.get("KERAS_DISTRIBUTION_JOB_ADDRESSES")
    weft.distributed.initialize(
        coordinator_address=job_addresses.split(",")[0] if job_addresses else None,
        num_processes=_from_environment(num_processes, "KERAS_DISTRIBUTION_NUM_PROCESSES"),
        process_id=_from_environment(process_id, "KERAS_DISTRIBUTION_PROCESS_ID"),
    )


def _from_environment(value: int | None, name: str) -> int | None:
    text = os.environ.get(name)
    return int(text) if value is None and text else value
