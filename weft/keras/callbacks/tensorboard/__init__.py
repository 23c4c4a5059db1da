"""Logs for TensorBoard, written without TensorFlow."""

from weft.keras.callbacks.tensorboard.board import TensorBoard as TensorBoard
