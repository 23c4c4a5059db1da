"""Models of ONNX from functions. `docs/design/onnx.md` describes the data and the rules."""
